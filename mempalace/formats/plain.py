"""Plain transcripts: a text in which every line that a person typed begins with `> `.

    > a line that a person typed
    > and another

    the answer, bare

Our own `transcript.render` writes this, so do other tools and people. Markdown has the same mark for quotes, so
`claims` asks for the shape of a conversation: the text *begins* with a person's line (at most a header such as
`[injected]` stands before it), persons speak at least twice and on three lines or more, and at least every
second time they are answered. Notes, READMEs, mail, diffs and the logs of Aider and SpecStory begin with
something else. Of what does begin with a quote, these are refused: admonitions (`> [!NOTE]`), quotations that
name their author (`> -- Ovid`), replies below quoted mail (`Ann wrote:`), and a text with a title (`# ...`)
behind its first quote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePath

from mempalace.formats.base import Format
from mempalace.head import Head
from mempalace.model import Message, Origin, Role, Session, Text, group_turns
from mempalace.records import Ledger
from mempalace.source import Source
from mempalace.values import decode

SCORE = 0.5
_SUFFIXES = frozenset({"", ".txt", ".text", ".md", ".markdown"})
_MIN_LINES = 3
_MIN_BLOCKS = 2

_HEADER = re.compile(r"\[[a-z][a-z_ -]*\]\s*$")
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)$")
_WROTE = re.compile(r"\b(?:wrote|writes|schrieb|a écrit|escribió|ha scritto)\b.{0,80}:\s*$")
_ADMONITION = re.compile(r"\[!\w+\]")
_AUTHOR = re.compile(r"\s*(?:—|–|--)\s*[^\W\d_]")


@dataclass(frozen=True, slots=True)
class _Part:
    """Lines of one speaker; `line` is the number of the first."""

    is_person: bool
    line: int
    text: str


class PlainTranscript(Format):
    """Text with person lines marked by `> `. It has no ids and no times."""

    name = "transcript"
    title = "Plain transcript"
    suffixes = (".txt", ".md")

    def claims(self, head: Head) -> float:
        """0.5 for a text with the shape of a conversation, so that any other format's claim wins."""
        if head.kind != "text" or PurePath(head.source.name).suffix.lower() not in _SUFFIXES:
            return 0.0
        text = head.text
        start = text.lstrip("\ufeff \t\r\n")
        if not start.startswith(">") and not _HEADER.match(start.split("\n", 1)[0]):
            return 0.0
        return SCORE if _is_conversation(list(_parts(text))) else 0.0

    def read(self, source: Source, ledger: Ledger) -> Iterator[Session]:
        """The one session of a text that has a person's line. A record is a message.

        What stands before the first person's line is kept as the assistant's.
        """
        text, replaced = decode(source.read())
        if replaced:
            ledger.note("replaced", "bytes that are not UTF-8 were replaced")
        parts = list(_parts(text))
        if not any(part.is_person for part in parts):
            return
        messages = []
        for part in parts:
            ledger.read += 1
            if not part.text.strip():
                ledger.skip("empty")
                continue
            role, origin = (Role.USER, Origin.PERSON) if part.is_person else (Role.ASSISTANT, Origin.ASSISTANT)
            messages.append(Message(role, (Text(part.text),), origin=origin, line=part.line))
        if messages:
            yield Session(
                path=source.path,
                format=self.name,
                turns=group_turns(messages),
                member=source.member,
            )


def _is_conversation(parts: list[_Part]) -> bool:
    persons = [part for part in parts if part.is_person]
    spoken = sum(part.text.count("\n") + 1 for part in persons)
    if len(persons) < _MIN_BLOCKS or spoken < _MIN_LINES:
        return False
    first = parts.index(persons[0])
    answers = [part for part in parts[first:] if not part.is_person]
    if not answers or 2 * len(answers) < len(persons) or answers[0].text.startswith("# "):
        return False
    quoted = [answer for answer in parts[:-1] if not answer.is_person and _WROTE.search(answer.text)]
    nested = sum(part.text.startswith(">") for part in persons)  # `>> ...`, quoted mail
    return not quoted and 2 * nested <= len(persons) and not any(map(_is_quotation, persons))


def _is_quotation(part: _Part) -> bool:
    """Whether these lines show that they are a Markdown quote."""
    last = part.text.rsplit("\n", 1)[-1]
    named = "\n" in part.text and _AUTHOR.match(last) is not None
    return named or _ADMONITION.match(part.text) is not None


def _parts(text: str) -> Iterator[_Part]:
    """The speakers' parts of a text in order. A `>` inside a code fence of an answer marks no person."""
    lines = text.split("\n")
    fenced = _fenced(lines)
    marks = [line.startswith(">") and number not in fenced for number, line in enumerate(lines)]
    start = 0
    for mark, run in groupby(marks):
        end = start + sum(1 for _ in run)
        part = _part(mark, start, lines[start:end])
        if part is not None:
            yield part
        start = end


def _part(is_person: bool, start: int, lines: list[str]) -> _Part | None:
    if is_person:
        return _Part(True, start + 1, "\n".join(map(_unmarked, lines)).removesuffix("\r"))
    blank = [not line.strip() for line in lines]
    if all(blank):
        return None
    first = blank.index(False)
    last = len(lines) - blank[::-1].index(False)
    return _Part(False, start + first + 1, "\n".join(lines[first:last]).removesuffix("\r"))


def _unmarked(line: str) -> str:
    return line[2:] if line.startswith("> ") else line[1:]


def _fenced(lines: list[str]) -> set[int]:
    """The numbers of the lines inside code fences. A fence that nothing closes is none."""
    inside: set[int] = set()
    fences = [(i, match) for i, line in enumerate(lines) if (match := _FENCE.match(line.rstrip("\r")))]
    unclosed: dict[str, int] = {}
    at = 0
    while at < len(fences):
        i, opening = fences[at]
        mark = opening.group(1)
        closing = None
        if len(mark) < unclosed.get(mark[0], len(mark) + 1):
            closing = next((j for j in range(at + 1, len(fences)) if _closes(fences[j][1], mark)), None)
        if closing is None:
            unclosed[mark[0]] = min(len(mark), unclosed.get(mark[0], len(mark)))
            at += 1
        else:
            inside.update(range(i + 1, fences[closing][0]))
            at = closing + 1
    return inside


def _closes(match: re.Match[str], mark: str) -> bool:
    return match.group(1).startswith(mark) and not match.group(2).strip()
