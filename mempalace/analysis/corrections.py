"""Corrections: where the assistant takes something back."""

from __future__ import annotations

import re

from mempalace.analysis.parts import Correction
from mempalace.model import Role, Session, Text

EXCERPT_CHARS = 80

# The first kind that occurs in a text wins. Matched on the text itself: lower-casing shifts places in some scripts.
_KINDS = [
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        ("apology", r"\bi apologi[sz]e|\bi['’]m sorry|\bsorry about|\bmy apologies"),
        ("mistake", r"\bi made a mistake|\bi was wrong|\bthat was incorrect|\bmy mistake"),
        ("let_me_fix", r"\blet me fix|\bi['’]ll fix|\blet me correct"),
        ("actually", r"\bactually,|\bactually i\b|\bactually that\b"),
    )
]
_WORDS = ("apolog", "sorry", "mistake", "wrong", "incorrect", "fix", "correct", "actually")  # one stands in each
KINDS = [kind for kind, _ in _KINDS]


def detect(text: str) -> tuple[str, str] | None:
    """The kind of correction that a text holds, and at most 80 characters from there on; None without one."""
    lower = text.lower()
    if not any(word in lower for word in _WORDS):
        return None
    for kind, pattern in _KINDS:
        match = pattern.search(text)
        if match:
            return kind, text[match.start() : match.start() + EXCERPT_CHARS]
    return None


def corrections(session: Session, name: str) -> tuple[Correction, ...]:
    """At most one per text of the assistant."""
    found = []
    place = 0
    for number, turn in enumerate(session.turns):
        for message in turn.messages:
            for block in message.content:
                if message.role == Role.ASSISTANT and isinstance(block, Text) and (seen := detect(block.text)):
                    found.append(Correction(name, number, place, *seen))
                place += 1
    return tuple(found)
