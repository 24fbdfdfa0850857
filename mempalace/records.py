"""Bytes -> records. Survives damage, counts it, and never holds more of a file than it must.

    jsonl(source, ledger)   Record(value, line, offset, raw) for every JSON object of a line-based log
    document(source)        a whole JSON file
    Ledger                  what became of every input record of one source

Two records glued on one line, a torn line with a whole record behind it, and a torn last line (a write in progress)
are told apart here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mempalace.errors import ParseError
from mempalace.source import Source, lines
from mempalace.values import decode, decode_all, loads, loads_line, why_damaged

SPACE = b" \t\r\n"


class Record(NamedTuple):
    """One JSON object of a line-based log. `line` is 1-based; `offset` is that of `raw` in the decoded file."""

    value: dict[str, Any]
    line: int
    offset: int
    raw: bytes


@dataclass(frozen=True, slots=True)
class Problem:
    """Something to report about a source. Only `damaged` counts as lost.

    Kinds: `damaged`, `incomplete_tail`, `replaced` (bytes that are not UTF-8), `glued`, `unrecognised`,
    `failed`, `excluded`.
    """

    kind: str
    message: str
    line: int | None = None


@dataclass(slots=True)
class Ledger:
    """What became of every input record of one source.

    A parser counts each record exactly once: as part of a message (`Message.records`), by `skip`, by
    `repeat` (the file holds it twice), or as damaged. Reasons for `skip`: `control` (bookkeeping of the
    tool), `metadata` (read into the session, not a message), `superseded` (a later record replaces it),
    `echo` (the same text in a parallel stream), `replayed` (history copied from a parent session),
    `before_header`, `incomplete_tail`, `empty` (no content), `unknown` (of a type that we do not know).
    """

    read: int = 0
    duplicate: int = 0
    damaged: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    problems: list[Problem] = field(default_factory=list)
    tail: int | None = None

    def skip(self, reason: str, count: int = 1) -> None:
        """Count records that are not kept as messages, by reason."""
        if count:
            self.skipped[reason] += count

    def repeat(self, count: int = 1) -> None:
        """Count records that this source holds more than once."""
        self.duplicate += count

    def damage(self, message: str, line: int | None = None) -> None:
        """Count one record that cannot be read."""
        self.damaged += 1
        self.problems.append(Problem("damaged", message, line))

    def note(self, kind: str, message: str, line: int | None = None) -> None:
        """Report something that lost no record."""
        self.problems.append(Problem(kind, message, line))

    @property
    def unstored(self) -> int:
        """Records that are in no message."""
        return self.duplicate + self.damaged + sum(self.skipped.values())


_TORN_TRIES = 64


SPACE = b" \t\r\n"


def jsonl(source: Source, ledger: Ledger) -> Iterator[Record]:
    """Every JSON object of a line-based log, in file order; blank lines do not count as records.

    Lines that are damaged are counted in the ledger with their number; the others go on.
    """
    offset = 0
    number = 0
    stream = lines(source)
    while True:
        try:
            raw = next(stream)
        except StopIteration:
            return
        except ParseError as error:
            ledger.read += 1
            ledger.damage(error.message, number + 1)
            return
        number += 1
        try:
            value = loads_line(raw)
        except ValueError:
            if raw.strip(SPACE):
                yield from _mend(raw, number, offset, ledger)
        else:
            ledger.read += 1
            if type(value) is dict:
                yield Record(value, number, offset, raw)
            else:
                ledger.damage("not a JSON object", number)
        offset += len(raw)


def _mend(raw: bytes, number: int, offset: int, ledger: Ledger) -> Iterator[Record]:
    """The records of a line that orjson refused."""
    text, replaced = decode(raw)
    body = text.replace("\x00", "").strip()
    if replaced:
        ledger.note("replaced", "bytes that are not UTF-8 were replaced", number)
    values, rest = decode_all(body)
    if rest:
        values += _after_torn_write(rest)
    if rest and not raw.endswith(b"\n"):
        ledger.read += 1
        ledger.skip("incomplete_tail")
        ledger.tail = offset
        ledger.note("incomplete_tail", "the last line is still being written", number)
    elif rest or not body:
        ledger.read += 1
        ledger.damage(why_damaged(rest), number)
    elif len(values) > 1:
        ledger.note("glued", f"{len(values)} records on one line, all kept", number)
    for value in values:
        ledger.read += 1
        if isinstance(value, dict):
            yield Record(value, number, offset, raw)
        else:
            ledger.damage("not a JSON object", number)


def _after_torn_write(text: str) -> list[Any]:
    """The whole records that a later write appended to a torn one, on the same line.

    An object inside the torn record is none: a record has a type and says when or where it belongs.
    """
    at = text.find('{"', 1)
    for _ in range(_TORN_TRIES):
        if at < 0:
            break
        values, rest = decode_all(text[at:])
        if values and not rest and all(isinstance(value, dict) and _is_record(value) for value in values):
            return values
        at = text.find('{"', at + 1)
    return []


def _is_record(value: dict[str, Any]) -> bool:
    return "type" in value and any(key in value for key in ("timestamp", "sessionId", "payload"))


def document(source: Source) -> Any:
    """A whole JSON file. Raises ParseError with the reason if it is not one JSON value."""
    raw = source.read()
    try:
        return loads(raw)
    except ValueError as error:
        raise ParseError(str(error), path=source.path) from error


def locate(record: Record, payload: str) -> tuple[int, int] | None:
    """Where a long ASCII string of a record stands in the decoded source: (offset, length in bytes).

    None if it is not there letter for letter (escaped characters).
    """
    needle = payload.encode("ascii", "replace")
    at = record.raw.find(needle)
    return None if at < 0 or not needle else (record.offset + at, len(needle))
