"""Candidates -> order: both legs' scores fused, literal matches first, copies collapsed. Pure, no I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple
from unicodedata import name, normalize

import orjson

from mempalace.palace.lexical import Wanted
from mempalace.transcript import unquote

# Chosen on halves of LoCoMo and of real code sessions, checked on the others (benchmarks/README.md). Each score is
# divided by its maximum among the candidates; fusion of ranks was worse.
Weights = tuple[float, float, float]  # of BM25, cosine, late interaction
WEIGHTS: Weights = (0.35, 0.1, 0.55)
# For a query in words that the models do not know; other scripts and languages stand on the lexical leg.
UNKNOWN_WEIGHTS: Weights = (0.6, 0.15, 0.25)
# Where another model than the bundled one makes the vectors: its cosine stands for the sentence encoder's, too.
OWN_MODEL_WEIGHTS: Weights = (0.35, 0.45, 0.5)
RERANK_WEIGHT = 0.5
RERANKED = 20
# A query of which even the best candidate has few words is vague: the words are worth less, the meaning more, and
# more candidates are worth the slow model, most of them those nearest by meaning.
VAGUE = 0.7
RERANKED_IF_VAGUE = 60
BY_MEANING_IF_VAGUE = 45
CLEAR = 0.75
LATE_FULL = 0.8  # late interaction of a good candidate; what is far below it is not stretched to a full score
SESSION_PRIOR = 0.3
INCLUDED_BONUS = 0.2  # what was asked for beside dialogue is more likely meant: dialogue is searched anyhow
LITERAL_BONUS = 1.0
LITERAL_WORD_BONUS = 0.3
INSIDE_A_WORD = 0.5  # of the bonus, where the query is a part of a longer word
MOST_PER_SESSION = 3

SpanRow = tuple[int, int, int, str, str]


class MessageRow(NamedTuple):
    """What the catalog keeps of a message; `path` is that of its source."""

    ident: bytes
    hash: bytes
    id: str | None
    time: float | None
    line: int | None
    name: str | None
    path: str


@dataclass
class Candidate:
    """A chunk that may be a hit, with its row and scores. With a role, only what that role says is looked at."""

    chunk: int
    uid: str
    session: int
    kind: str
    time: float
    text: int
    words: bytes
    body: str
    parts: str  # all its spans, as JSON
    role: str | None = None
    messages: Container[int] | None = None  # which of its messages may match; None: any
    lexical: float = 0.0
    vector: float = 0.0
    late: float = 0.0
    rerank: float | None = None
    score: float = 0.0
    # Its best-matching part, the message of that, and what tells it from others, once they were asked for.
    best: SpanRow | None = None
    message: MessageRow | None = None
    ident: bytes | None = None

    @cached_property
    def spans(self) -> list[SpanRow]:
        """The parts that may match: (start, end, message, role, origin)."""
        parts = [tuple(span) for span in orjson.loads(self.parts)]
        return [
            span
            for span in parts
            if self.role in (None, span[3]) and (self.messages is None or span[2] in self.messages)
        ]

    @cached_property
    def whole(self) -> bool:
        """Whether all of its parts may match."""
        is_free = self.role is None and self.messages is None
        return is_free or len(self.spans) == len(orjson.loads(self.parts))

    @cached_property
    def said(self) -> str:
        """The words of its spans, without the marks of a person's lines."""
        return "\n".join(self.words_of(span) for span in self.spans)

    def words_of(self, span: SpanRow) -> str:
        """The words of a part: only a person's lines have marks."""
        words = self.body[span[0] : span[1]]
        return unquote(words) if span[3] == "user" else words

    @cached_property
    def spoken(self) -> str:
        """What is said, folded for comparison."""
        return fold(self.said)


def fold(text: str) -> str:
    """Letter case, white space and how accents are composed do not matter for a literal match."""
    return " ".join((text if text.isascii() else normalize("NFC", text)).casefold().split())


def has_word(text: str, word: str) -> bool:
    """Whether a folded text has a word (or several in a row): whole, where its script has spaces between words."""
    at = text.find(word)
    while at >= 0:
        end = at + len(word)
        inside = at > 0 and _is_word(text[at - 1]) and _is_word(word[0])
        if not inside and not (end < len(text) and _is_word(text[end]) and _is_word(word[-1])):
            return True
        at = text.find(word, at + 1)
    return False


_UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")


def _is_word(char: str) -> bool:
    """Whether a character belongs to a word of a script that has spaces."""
    if char.isascii():
        return char.isalnum() or char == "_"
    return char.isalnum() and not name(char, "").startswith(_UNSPACED)


def score(
    candidates: Sequence[Candidate],
    query: str,
    wanted: Wanted,
    weights: Weights = WEIGHTS,
    included: Container[str] = (),
) -> None:
    """Give every candidate its score from those of the legs; what holds the query literally comes first.

    `included` are the kinds that were asked for beside dialogue.
    """
    lexical, vector, late = weights
    best_lexical = _best(one.lexical for one in candidates)
    best_vector = _best(one.vector for one in candidates)
    best_late = max(_best(one.late for one in candidates), LATE_FULL)
    needle = fold(wanted.words)
    needles = {needle, fold(query)} if needle else set()
    bonus = LITERAL_WORD_BONUS if needle.isalpha() else LITERAL_BONUS
    for one in candidates:
        one.rerank = None
        one.score = (
            lexical * one.lexical / best_lexical + vector * one.vector / best_vector + late * one.late / best_late
        )
        one.score += bonus * max([_literally(part, one) for part in needles], default=0.0)
    _add_session_prior(candidates)
    for one in candidates:
        if one.kind in included:
            one.score += INCLUDED_BONUS


def _literally(needle: str, one: Candidate) -> float:
    """1 if a candidate holds the needle, less if only inside of a word, 0 if not at all."""
    if needle.isascii():
        lower = one.body.casefold()
        if not all(word in lower for word in needle.split(" ")):
            return 0.0  # as most do, and folding a text costs more
    if needle not in one.spoken:
        return 0.0
    return 1.0 if has_word(one.spoken, needle) else INSIDE_A_WORD


def _best(scores: Iterable[float]) -> float:
    return max(scores, default=0.0) or 1.0


def best_texts(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates that are worth the slow model, each text once: the best, of a vague query the nearest as well."""
    is_vague = _best(one.late for one in candidates) < VAGUE
    order = in_order(candidates)
    if is_vague:
        order = [*sorted(order, key=lambda one: -one.vector)[:BY_MEANING_IF_VAGUE], *order]
    found: dict[bytes, Candidate] = {}
    for one in order:
        found.setdefault(one.words, one)
        if len(found) == (RERANKED_IF_VAGUE if is_vague else RERANKED):
            break
    return list(found.values())


def rerank(candidates: Sequence[Candidate], cosines: Mapping[bytes, float]) -> None:
    """Add what the slow model says of the best texts, by the hash of their words. No score gets smaller."""
    best = _best(cosines.values())
    weight = RERANK_WEIGHT + max(0.0, CLEAR - _best(one.late for one in candidates))
    for one in candidates:
        cosine = cosines.get(one.words)
        if cosine is not None:
            one.rerank = max(cosine, 0.0)
            one.score += weight * one.rerank / best


def in_order(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Best first; of equals, the later one first."""
    return sorted(candidates, key=lambda one: (-one.score, -one.time, one.uid))


def _add_session_prior(candidates: Sequence[Candidate]) -> None:
    """Add 0.3 x the mean of a session's three best scores: a chunk in a fitting session fits better."""
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
    for one in in_order(candidates):
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
    if one.best is None:
        needle, terms = fold(wanted.words), _terms(wanted)

        def worth(span: SpanRow) -> tuple[bool, float]:
            words = fold(one.words_of(span))
            found = _words(words)
            return bool(needle) and needle in words, len(terms & found) / (1 + 0.01 * len(found))

        one.best = max(one.spans, key=worth)
    return one.best


def has_a_word(one: Candidate, span: SpanRow, wanted: Wanted) -> bool:
    """Whether a part of a candidate has any of the query's words."""
    return not _terms(wanted).isdisjoint(_words(fold(one.words_of(span))))


@lru_cache(maxsize=16)
def _terms(wanted: Wanted) -> set[str]:
    return _words(" ".join([fold(wanted.words), *map(fold, wanted.phrases)]))


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))
