"""Calls that could have been sent together: normalize's rule, and a stricter one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from mempalace.analysis.calls import Call, Paired

READ_ONLY = frozenset(
    {
        *("Glob", "Grep", "LS", "NotebookRead", "Read", "WebFetch", "WebSearch"),  # Claude Code
        *("list_dir", "read_file", "view_image", "web_search", "web_search_call"),  # Codex
        *("glob", "google_web_search", "grep_search", "list_directory", "read_many_files", "search_file_content"),
        *("web_fetch",),  # with the line above: Gemini CLI
    }
)
_SHORTEST = 3  # characters; shorter words occur everywhere


def parallel_opportunities(paired: Paired) -> int:
    """Turns with exactly one tool call: the rule of normalize."""
    return sum(count == 1 for count in Counter(call.turn for call in paired.calls).values())


def parallel_opportunities_strict(paired: Paired) -> int:
    """Round trips that could have been saved: calls that could have gone with the one before.

    Both calls only read, stand alone in their messages, follow one another in the same turn, the second after the
    result of the first; and no text of the second call's input, nor a file name in it, occurs in a result of those
    that it would have joined, so that it may be thought of without them.
    """
    alone = Counter(call.message for call in paired.calls)
    saved = 0
    run: list[Call] = []
    for call in paired.calls:
        if call.use.name not in READ_ONLY or alone[call.message] > 1:
            run = []
        elif run and _follows(run[-1], call) and not _depends(call, run):
            run.append(call)
            saved += 1
        else:
            run = [call]
    return saved


def _follows(first: Call, second: Call) -> bool:
    return first.turn == second.turn and bool(first.answers) and first.answers[-1].place < second.place


def _depends(call: Call, run: list[Call]) -> bool:
    words = {part for text in _texts(call.use.input) for part in (text, text.replace("\\", "/").rsplit("/", 1)[-1])}
    return any(
        word in answer.result.content
        for word in words
        if len(word) >= _SHORTEST
        for earlier in run
        for answer in earlier.answers
    )


def _texts(value: Any) -> Iterator[str]:
    todo = [value]
    while todo:
        value = todo.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            todo += value.values()
        elif isinstance(value, list):
            todo += value
