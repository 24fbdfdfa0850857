"""Transcript -> chunks: the pieces that are indexed and found. Lossless: joined, they are the transcript.

A chunk holds whole messages of one kind as far as they fit, and a long message is cut at a paragraph, else a
line, a sentence, a word, and never inside a grapheme. Dialogue chunks fit the window of the sentence encoder
with their header. The same beginning of a session gives the same chunks, so that what grows or is forked
adds only what is new.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from datetime import datetime
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple

from mempalace import wordpiece
from mempalace.model import Origin, Role
from mempalace.transcript import MARK, Span, Transcript, unquote

DIALOGUE_CHARS = 800
OTHER_CHARS = 2000
WINDOW_TOKENS = 256
_HEADER_TOKENS = 16  # [CLS], [SEP] and "[2026-02-03] "
_SPEAKER_TOKENS = 3
_LONGEST_SPEAKER = 40


class Kind(StrEnum):
    """What a chunk holds. Only DIALOGUE is embedded; search shows the others when asked to."""

    DIALOGUE = "dialogue"
    TOOL = "tool"
    THINKING = "thinking"
    INJECTED = "injected"
    COMMAND = "command"
    SUMMARY = "summary"
    ABANDONED = "abandoned"


_KINDS = {
    Origin.PERSON: Kind.DIALOGUE,
    Origin.ASSISTANT: Kind.DIALOGUE,
    Origin.SUBAGENT: Kind.DIALOGUE,
    Origin.TOOL_CALL: Kind.TOOL,
    Origin.TOOL_RESULT: Kind.TOOL,
    Origin.THINKING: Kind.THINKING,
    Origin.INJECTED: Kind.INJECTED,
    Origin.COMMAND: Kind.COMMAND,
    Origin.SUMMARY: Kind.SUMMARY,
    Origin.ABANDONED: Kind.ABANDONED,
}


class Chunk(NamedTuple):
    """Characters `start` to `end` of a transcript. `spans` are its parts, clipped to the chunk."""

    start: int
    end: int
    kind: Kind
    spans: tuple[Span, ...]


def chunks(transcript: Transcript) -> list[Chunk]:
    """The chunks of one session's transcript, in order, without gaps."""
    text = str(transcript)
    found: list[Chunk] = []
    for kind, run in groupby(transcript.spans, key=lambda span: _KINDS[span.origin]):
        found += _pack(text, kind, list(run))
    # The blank line between two messages belongs to the chunk before it.
    if not found:
        return []
    ends = [chunk.start for chunk in found[1:]] + [len(text)]
    return [chunk._replace(end=end) for chunk, end in zip(found, ends, strict=True)]


def _pack(text: str, kind: Kind, run: list[Span]) -> Iterator[Chunk]:
    """Chunks of a run of spans of one kind: whole spans while they fit, long ones in pieces."""
    budget = _Budget(kind)
    held: list[Span] = []
    for span in run:
        for piece in _pieces(text, span, budget):
            cost = budget.cost(text, piece)
            if held and not budget.takes(cost):
                yield Chunk(held[0].start, held[-1].end, kind, tuple(held))
                held = []
                budget.reset()
            budget.add(cost)
            held.append(piece)
    if held:
        yield Chunk(held[0].start, held[-1].end, kind, tuple(held))


_NAME = re.compile(rf"(?:{MARK})?\[([^\]\n]+)\] ")


class _Budget:
    """How much a chunk of a kind may hold, and how much it holds. Tokens count for dialogue only."""

    def __init__(self, kind: Kind) -> None:
        dialogue = kind == Kind.DIALOGUE
        self.chars = DIALOGUE_CHARS if dialogue else OTHER_CHARS
        self.tokens = WINDOW_TOKENS - _HEADER_TOKENS
        self.speaker = _SPEAKER_TOKENS
        self.measure: Callable[[str], int] | None = wordpiece.shared().count if dialogue else None
        self.reset()

    def reset(self) -> None:
        self._chars = self._tokens = 0

    def begin(self, text: str, span: Span, start: int) -> None:
        """A piece begins at `start`. In the first one of a message its speaker's name is part of the text."""
        self.speaker = _SPEAKER_TOKENS
        name = _NAME.match(text, span.start, span.end) if self.measure is not None and start > span.start else None
        if name is not None and self.measure is not None:
            self.speaker += self.measure(name[1][:_LONGEST_SPEAKER])

    def cost(self, text: str, piece: Span) -> tuple[int, int]:
        """The characters and tokens of a piece."""
        tokens = 0
        if self.measure is not None:
            tokens = self.measure(text[piece.start : piece.end]) + self.speaker
        return piece.end - piece.start, tokens

    def takes(self, cost: tuple[int, int]) -> bool:
        chars, tokens = cost
        return self._chars + chars <= self.chars and self._tokens + tokens <= self.tokens

    def add(self, cost: tuple[int, int]) -> None:
        chars, tokens = cost
        self._chars += chars
        self._tokens += tokens


def _pieces(text: str, span: Span, budget: _Budget) -> Iterator[Span]:
    """A span, or the pieces of it that fit a chunk each."""
    start = span.start
    while True:
        budget.begin(text, span, start)
        limit = _furthest(text, start, span.end, budget)
        if limit >= span.end:
            yield span._replace(start=start)
            return
        end = _cut(text, start, limit)
        yield span._replace(start=start, end=end)
        start = end


_WORD = re.compile(r"\S+")
_LAST_SPACE = re.compile(r".*\s", re.DOTALL)


def _furthest(text: str, start: int, end: int, budget: _Budget) -> int:
    """The furthest position that a chunk beginning at `start` can reach."""
    limit = min(end, start + budget.chars)
    if budget.measure is None:
        return limit
    left = budget.tokens - budget.speaker
    all_tokens = budget.measure(text[start:limit])
    if all_tokens <= left:
        return limit
    # Most of what fits is measured at once, the words behind it one by one.
    begin = start
    if space := _LAST_SPACE.match(text, start, start + (limit - start) * left // all_tokens * 9 // 10):
        tokens = budget.measure(space.group())
        if tokens <= left:
            begin, left = space.end(), left - tokens
    for word in _WORD.finditer(text, begin, limit):
        tokens = budget.measure(word.group())
        if tokens > left:
            fits = left
            while fits > 1 and budget.measure(text[word.start() : word.start() + fits]) > left:
                fits //= 2
            inside = word.start() + max(fits, 1)
            return inside if word.start() - start < (inside - start) // 2 else word.start()
        left -= tokens
    return limit


_SENTENCE_END = re.compile(r"[.!?…]['\")\]]*\s|[。！？]")


def _cut(text: str, start: int, limit: int) -> int:
    """Where to cut between `start` and `limit`: as late as possible in the second half, at the best border."""
    low = start + max((limit - start) // 2, 1)
    for mark in ("\n\n", "\n"):
        at = text.rfind(mark, low, limit)
        if at >= 0:
            return _whole_grapheme(text, start, at + len(mark), limit)
    sentences = [match.end() for match in _SENTENCE_END.finditer(text, low, limit)]
    if sentences:
        return _whole_grapheme(text, start, sentences[-1], limit)
    for at in range(limit - 1, low - 1, -1):
        if text[at].isspace():
            return _whole_grapheme(text, start, at + 1, limit)
    return _whole_grapheme(text, start, limit, limit)


def _whole_grapheme(text: str, start: int, at: int, limit: int) -> int:
    """The position itself, or the nearest one before it that parts two graphemes; `limit` if there is none."""
    while at > start and at < len(text) and _inside_grapheme(text, at):
        at -= 1
    return at if at > start else limit


_ZWJ = "\u200d"


def _inside_grapheme(text: str, at: int) -> bool:
    """Whether text[at - 1] and text[at] belong together (a conservative form of UAX #29)."""
    before, after = text[at - 1], text[at]
    if before < "\u0300" and after < "\u0300":
        return before == "\r" and after == "\n"
    if after == _ZWJ or before == _ZWJ or unicodedata.category(after) in ("Mn", "Me", "Mc"):
        return True
    if (
        unicodedata.combining(before) == 9
        or "\U0001f3fb" <= after <= "\U0001f3ff"
        or "\U000e0020" <= after <= "\U000e007f"
    ):
        return True
    if before >= "\u0600" and unicodedata.category(before) == "Cf" and before not in "\u200b\u2060\ufeff":
        return True
    if _is_flag(before) and _is_flag(after):
        flags = 0
        while at - 1 - flags >= 0 and _is_flag(text[at - 1 - flags]):
            flags += 1
        return flags % 2 == 1
    return (_is_hangul_part(before) and "\u1100" <= after <= "\u11ff") or after in "\u200c\u0e33\u0eb3\uff9e\uff9f"


def _is_flag(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _is_hangul_part(char: str) -> bool:
    return "\u1100" <= char <= "\u11ff" or "\uac00" <= char <= "\ud7a3" or "\ua960" <= char <= "\ua97f"


# --- what the indexes see -----------------------------------------------------------------------------------

_SPEAKERS = {Role.USER: "User", Role.ASSISTANT: "Assistant", Role.SYSTEM: "System", Role.TOOL: "Tool"}


def index_parts(text: str, offset: int, chunk: Chunk, moment: datetime | None, names: dict[int, str]) -> list[str]:
    """A chunk as the indexes see it: its date (or nothing), then `Speaker: words` for each message in it.

    A person's lines stand without their marks. `text` is the chunk's text or the whole transcript, `offset`
    where it begins in the transcript; `names` maps a message's number to its speaker's name.
    """
    parts = [f"[{moment:%Y-%m-%d}]" if moment is not None else ""]
    for span in chunk.spans:
        words = text[span.start - offset : span.end - offset]
        name = names.get(span.message)
        if name:
            speaker = name[:_LONGEST_SPEAKER]
            words = words.replace(f"[{name}] ", "", 1)
        else:
            speaker = _SPEAKERS[span.role]
        if span.role == Role.USER and (words.startswith(MARK) or f"\n{MARK}" in words):
            words = unquote(words)
        parts.append(f"{speaker}: {words}" if chunk.kind == Kind.DIALOGUE else words)
    return parts


def index_text(text: str, offset: int, chunk: Chunk, moment: datetime | None, names: dict[int, str]) -> str:
    """The same as one text."""
    return joined(index_parts(text, offset, chunk, moment, names))


def joined(parts: list[str]) -> str:
    """The parts of a chunk as one text: `[date] Speaker: words Speaker: words`."""
    return " ".join(parts if parts[0] else parts[1:])
