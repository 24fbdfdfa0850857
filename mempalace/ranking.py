"""Candidates -> order: both legs' scores fused, literal matches first, copies collapsed. Pure, no I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from mempalace.palace.lexical import Wanted
from mempalace.transcript import unquote

# Measured on LoCoMo and on code sessions: scores divided by their maximum; fusion of ranks was worse.
LEXICAL_WEIGHT = 0.6
VECTOR_WEIGHT = 0.4
SESSION_PRIOR = 0.4
LITERAL_BONUS = 1.0
LITERAL_WORD_BONUS = 0.3
MOST_PER_SESSION = 3

SpanRow = tuple[int, int, int, str, str]


@dataclass(slots=True)
class Candidate:
    """A chunk that may be a hit, with its row and scores. `spans` are (start, end, message, role, origin)."""

    chunk: int
    uid: str
    session: int
    time: float
    text: int
    words: bytes
    body: str
    spans: list[SpanRow]
    lexical: float = 0.0
    vector: float = 0.0
    score: float = 0.0

    @classmethod
    def of(cls, row: Any, role: str | None = None) -> Candidate:
        """The candidate of a catalog row (chunk, uid, session, time, text, words, body, spans as JSON).

        With a role, only that role's spans are looked at.
        """
        chunk, uid, session, moment, text, words, body, spans = row
        parts = [tuple(span) for span in orjson.loads(spans) if role in (None, span[3])]
        return cls(chunk, uid, session, moment, text, bytes(words), body, parts)

    @property
    def said(self) -> str:
        """The words of its spans, without the marks of a person's lines."""
        return "\n".join(unquote(self.body[span[0] : span[1]]) for span in self.spans)

    @property
    def spoken(self) -> str:
        """The same, folded for comparison."""
        return fold(self.said)


def fold(text: str) -> str:
    """Letter case and white space do not matter for a literal match."""
    return " ".join(text.casefold().split())


def score(
    candidates: Sequence[Candidate],
    query: str,
    wanted: Wanted,
    lexical: Mapping[int, float],
    cosines: Mapping[int, float],
) -> None:
    """Give every candidate its score. `lexical` is by chunk, `cosines` by text."""
    for one in candidates:
        one.lexical = lexical.get(one.chunk, 0.0)
        one.vector = max(0.0, cosines.get(one.text, 0.0))
    best_lexical = max((one.lexical for one in candidates), default=0.0) or 1.0
    best_vector = max((one.vector for one in candidates), default=0.0) or 1.0
    needle, whole = fold(wanted.words), fold(query)
    bonus = LITERAL_WORD_BONUS if needle.isalpha() else LITERAL_BONUS
    for one in candidates:
        one.score = LEXICAL_WEIGHT * one.lexical / best_lexical + VECTOR_WEIGHT * one.vector / best_vector
        if needle:
            spoken = one.spoken
            one.score += bonus * (needle in spoken or whole in spoken)
    _add_session_prior(candidates)


def _add_session_prior(candidates: Sequence[Candidate]) -> None:
    """Add 0.4 x the mean of a session's three best scores: a chunk in a fitting session fits better."""
    by_session: dict[int, list[float]] = {}
    for one in candidates:
        by_session.setdefault(one.session, []).append(one.score)
    prior = {session: sum(sorted(scores)[-3:]) / 3 for session, scores in by_session.items()}
    for one in candidates:
        one.score += SESSION_PRIOR * prior[one.session]


def select(
    candidates: Iterable[Candidate],
    wanted: Wanted,
    limit: int,
    per_session: int,
    ident: Callable[[Candidate], bytes],
) -> list[Candidate]:
    """The best candidates: with all phrases in them, copies once, at most so many of a session.

    Copies are chunks of the same words, and chunks of other sessions whose best-matching message (by its
    `ident`) was seen before.
    """
    phrases = [fold(phrase) for phrase in wanted.phrases]
    kept: list[Candidate] = []
    seen: set[bytes] = set()
    messages: dict[bytes, int] = {}
    taken: dict[int, int] = {}
    for one in sorted(candidates, key=lambda one: (-one.score, -one.time, one.uid)):
        if not (one.lexical or one.vector) or one.words in seen or taken.get(one.session, 0) >= per_session:
            continue
        if phrases and not all(phrase in one.spoken for phrase in phrases):
            continue
        if messages.setdefault(ident(one), one.session) != one.session:
            continue
        seen.add(one.words)
        taken[one.session] = taken.get(one.session, 0) + 1
        kept.append(one)
        if len(kept) == limit:
            break
    return kept


def best_span(one: Candidate, wanted: Wanted) -> SpanRow:
    """The part of a candidate that matches best: the one with most of the query's words."""
    needle, terms = fold(wanted.words), _terms(wanted)

    def worth(span: SpanRow) -> tuple[bool, float]:
        words = fold(unquote(one.body[span[0] : span[1]]))
        found = _words(words)
        return bool(needle) and needle in words, len(terms & found) / (1 + 0.01 * len(found))

    return max(one.spans, key=worth)


def has_a_word(one: Candidate, span: SpanRow, wanted: Wanted) -> bool:
    """Whether a part of a candidate has any of the query's words."""
    return not _terms(wanted).isdisjoint(_words(fold(unquote(one.body[span[0] : span[1]]))))


def _terms(wanted: Wanted) -> set[str]:
    return _words(" ".join([fold(wanted.words), *map(fold, wanted.phrases)]))


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))
