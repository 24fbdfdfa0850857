"""Errors by category, with examples."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mempalace.analysis.calls import Paired
from mempalace.analysis.parts import ErrorPattern, Example

MOST_EXAMPLES = 3
EXAMPLE_CHARS = 100
OTHER = "Other"

# The first that matches wins. "import" alone is no import error: texts of every kind hold the word.
_CATEGORIES = [
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("Command failure", r"exit code"),
        ("File not found", r"not found|no such file|does not exist|ENOENT"),
        ("Permission error", r"permission|EACCES|access (is )?denied"),
        ("Timeout", r"time[ -]?out|timed out|ETIMEDOUT"),
        ("Syntax error", r"syntax"),
        ("Import error", r"import ?error|no module named|cannot (import|find module)|failed to import|import failed"),
    )
]
CATEGORIES = [*(name for name, _ in _CATEGORIES), OTHER]


def categorize(text: str) -> str:
    """The category of an error by its text: the first whose words occur in it."""
    return next((name for name, pattern in _CATEGORIES if pattern.search(text)), OTHER)


def error_patterns(paired: Paired, session: str) -> tuple[ErrorPattern, ...]:
    """The error results of a session by category."""
    return merge(
        ErrorPattern(
            categorize(answer.result.content),
            1,
            (Example(session, answer.turn, answer.place, answer.result.content[:EXAMPLE_CHARS]),),
        )
        for answer, _ in paired.answers
        if answer.result.is_error is True
    )


def merge(patterns: Iterable[ErrorPattern]) -> tuple[ErrorPattern, ...]:
    """Patterns of the same category added: the most frequent first, then in the order of the categories."""
    counts: dict[str, int] = {}
    examples: dict[str, list[Example]] = {}
    for one in patterns:
        counts[one.category] = counts.get(one.category, 0) + one.count
        examples.setdefault(one.category, []).extend(one.examples)
    return tuple(
        ErrorPattern(name, counts[name], tuple(sorted(examples[name])[:MOST_EXAMPLES]))
        for name in sorted(counts, key=lambda name: (-counts[name], CATEGORIES.index(name)))
    )
