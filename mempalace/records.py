"""Bytes -> records. Survives damage, counts it, and never holds more of a file than it must.

    Source                  a file (or bytes, or a member of an archive) and how much of it to read
    Ledger                  what became of every input record of one source
    lines(source)           raw lines, split on b"\\n" only
    jsonl(source, ledger)   Record(value, line, offset, raw) for every JSON object
    document(source)        a whole JSON file
    Head                    the beginning of a file, decoded for detection

What is mended here, and only here: UTF-8 byte-order marks, UTF-16, NUL runs, invalid UTF-8, lone surrogates,
two records glued on one line, integers beyond 64 bit, a torn last line (a write in progress).
"""

from __future__ import annotations

import codecs
import io
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import orjson

from mempalace.errors import ParseError, SourceError

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZIP_MAGIC = b"PK\x03\x04"
SQLITE_MAGIC = b"SQLite format 3\x00"
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

_BUFFER = 1 << 20
HEAD_BYTES = 256 * 1024
HEAD_LINE_BYTES = 64 * 1024 * 1024
HEAD_RECORDS = 50


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


@dataclass(frozen=True, slots=True)
class Source:
    """Where bytes come from: a file on disk, or `data` given directly (an archived file, a text).

    `size` is how many bytes of the file to read, so that a file that grows meanwhile is read to a fixed
    point. `path` also stands for the name where `data` is given; `member` names the file inside an archive.
    """

    path: Path
    data: bytes | None = None
    size: int | None = None
    member: str | None = None

    @property
    def name(self) -> str:
        """The file's own name, inside an archive that of the member."""
        return self.member.rsplit("/", 1)[-1] if self.member else self.path.name

    def open(self) -> BinaryIO:
        """The decoded bytes: decompressed, UTF-16 as UTF-8, without a byte-order mark.

        Raises SourceError with the operating system's reason if the file cannot be opened.
        """
        stream = self._open_raw()
        start = stream.read(4)
        stream.seek(0)
        if start == ZSTD_MAGIC:
            return io.BufferedReader(_Decompressed(stream), _BUFFER)
        coding = _utf16(start)
        if coding is not None:
            with stream:
                text = stream.read().decode(coding, errors="replace")
            return io.BytesIO(text.encode("utf-8", errors="replace"))
        if start[:3] == codecs.BOM_UTF8:
            stream.seek(3)
        return stream

    def read(self) -> bytes:
        """All decoded bytes. Raises SourceError, and ParseError for a compressed file that is damaged."""
        with self.open() as stream:
            try:
                return stream.read()
            except OSError as error:
                raise SourceError(_reason(error), path=self.path) from error
            except ParseError as error:
                raise ParseError(error.message, path=self.path) from error

    def open_raw(self) -> BinaryIO:
        """The bytes as they lie on disk, up to `size`. Raises SourceError."""
        return self._open_raw()

    def _open_raw(self) -> BinaryIO:
        if self.data is not None:
            return io.BytesIO(self.data)
        try:
            stream = open(self.path, "rb", _BUFFER)  # noqa: SIM115 - handed to the caller
        except OSError as error:
            raise SourceError(_reason(error), path=self.path) from error
        if self.size is None:
            return stream
        return cast(BinaryIO, io.BufferedReader(_Limited(stream, self.size), _BUFFER))


def _utf16(start: bytes) -> str | None:
    """The UTF-16 coding of a file that begins like that: by its mark, or as JSON without one."""
    if start[:2] in _UTF16_MARKS:
        return "utf-16"
    if len(start) == 4 and start[1] == start[3] == 0 and start[:1] in (b"{", b"[") and start[2]:
        return "utf-16-le"
    if len(start) == 4 and start[0] == start[2] == 0 and start[1:2] in (b"{", b"[") and start[3]:
        return "utf-16-be"
    return None


class _Limited(io.RawIOBase):
    """The first `size` bytes of a file that may be growing."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self._stream = stream
        self._size = size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END:
            return self._stream.seek(self._size + offset)
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def readinto(self, buffer: Any) -> int:
        left = self._size - self._stream.tell()
        if left <= 0:
            return 0
        return self._stream.readinto(memoryview(buffer)[:left])  # type: ignore[attr-defined, no-any-return]

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


class _Decompressed(io.RawIOBase):
    """The contents of a zstd file of any number of frames.

    Raises ParseError at the end of one that was cut off or is damaged (zstandard's own reader ends in silence).
    """

    def __init__(self, stream: BinaryIO) -> None:
        import zstandard

        self._stream = stream
        self._new = zstandard.ZstdDecompressor().decompressobj
        self._frame: Any = self._new()
        self._error = zstandard.ZstdError
        self._ready = b""
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            data = self._rest or self._stream.read(_BUFFER)
            if not data:
                if self._frame is not None:
                    raise ParseError("the compressed file ends too early")
                return 0
            self._decompress(data)
        part = self._ready[: len(buffer)]
        self._ready = self._ready[len(part) :]
        buffer[: len(part)] = part
        return len(part)

    def _decompress(self, data: bytes) -> None:
        frame = self._frame or self._new()
        try:
            self._ready = frame.decompress(data)
        except self._error as error:
            raise ParseError(f"the compressed file is damaged: {error}") from error
        self._rest = frame.unused_data if frame.eof else b""
        self._frame = None if frame.eof else frame

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


def _reason(error: OSError) -> str:
    return f"cannot be read: {error.strerror or error}"


# --- lines and records --------------------------------------------------------------------------------------

_DIGITS = bytes.maketrans(b"0123456789", b"0" * 10)
_LONG_NUMBER = b"0" * 19
_LONGEST_INT = 4000
_TORN_TRIES = 64
_SPACE = b" \t\r\n"


def lines(source: Source) -> Iterator[bytes]:
    """Every line with its end, verbatim, split on b"\\n" only."""
    with source.open() as stream:
        try:
            yield from stream
        except OSError as error:
            raise SourceError(_reason(error), path=source.path) from error


def raw_lines(source: Source, start: int = 0, end: int | None = None) -> Iterator[bytes]:
    """The lines of a file as they lie there (decompressed), with byte-order marks and damage, from byte `start`."""
    with source.open_raw() as probe:
        compressed = probe.read(4) == ZSTD_MAGIC
    with source.open() if compressed else source.open_raw() as stream:
        stream.read(start)
        left = None if end is None else end - start
        for line in stream:
            if left is not None:
                line = line[:left]
                left -= len(line)
            if line:
                yield line
            if left == 0:
                return


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
            value = _loads_slow(raw) if _LONG_NUMBER in raw.translate(_DIGITS) else orjson.loads(raw)
        except ValueError:
            if raw.strip(_SPACE):
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
    values, rest = _decode_all(body)
    if rest:
        values += _after_torn_write(rest)
    if rest and not raw.endswith(b"\n"):
        ledger.read += 1
        ledger.skip("incomplete_tail")
        ledger.tail = offset
        ledger.note("incomplete_tail", "the last line is still being written", number)
    elif rest or not body:
        ledger.read += 1
        ledger.damage(_why_damaged(rest), number)
    elif len(values) > 1:
        ledger.note("glued", f"{len(values)} records on one line, all kept", number)
    for value in values:
        ledger.read += 1
        if isinstance(value, dict):
            yield Record(value, number, offset, raw)
        else:
            ledger.damage("not a JSON object", number)


def _decode_all(text: str) -> tuple[list[Any], str]:
    """The JSON values at the start of a text, and what follows them."""
    values: list[Any] = []
    while text:
        value, end = _decode_first(text)
        if end == 0:
            break
        values.append(value)
        text = text[end:].lstrip(" \t\r,")
    return values, text


def _after_torn_write(text: str) -> list[Any]:
    """The whole records that a later write appended to a torn one, on the same line.

    An object inside the torn record is none: a record has a type and says when or where it belongs.
    """
    at = text.find('{"', 1)
    for _ in range(_TORN_TRIES):
        if at < 0:
            break
        values, rest = _decode_all(text[at:])
        if values and not rest and all(isinstance(value, dict) and _is_record(value) for value in values):
            return values
        at = text.find('{"', at + 1)
    return []


def _is_record(value: dict[str, Any]) -> bool:
    return "type" in value and any(key in value for key in ("timestamp", "sessionId", "payload"))


def _why_damaged(rest: str) -> str:
    if not rest:
        return "only NUL bytes"
    try:
        json.loads(rest)
    except json.JSONDecodeError as error:
        return f"not valid JSON: {error.msg} at character {error.pos + 1}"
    except RecursionError:
        return "nested too deeply"
    except ValueError as error:
        return f"not valid JSON: {error}"
    return "not valid JSON"


def _parse_int(digits: str) -> int | str:
    """Integers of any size; one of more than 4,000 digits stays text (Python refuses to convert it)."""
    return int(digits) if len(digits) <= _LONGEST_INT else digits


def _parse_constant(name: str) -> str:
    """NaN and Infinity are not JSON: kept as text, so that what we write is."""
    return name


_DECODER = json.JSONDecoder(parse_int=_parse_int, parse_constant=_parse_constant, strict=False)


def _decode_first(text: str) -> tuple[Any, int]:
    """The first JSON value of a text and where it ends; (None, 0) if there is none."""
    try:
        value, end = _DECODER.raw_decode(text)
        return clean(value), end
    except (ValueError, RecursionError):
        return None, 0


def _loads_slow(raw: bytes) -> Any:
    """Like orjson.loads, for lines with integers beyond 64 bit. Raises ValueError."""
    text = raw.decode("utf-8").strip()
    value, end = _decode_first(text)
    if end == 0 or text[end:].strip():
        raise ValueError("not one JSON value")
    return value


def loads(data: bytes | str) -> Any:
    """One JSON value, with all that orjson refuses and Python can read. Raises ValueError."""
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    try:
        if _LONG_NUMBER not in raw.translate(_DIGITS):
            return orjson.loads(raw)
    except ValueError:
        pass
    text = decode(raw)[0].replace("\x00", "").strip()
    value, end = _decode_first(text)
    if end == 0 or text[end:].strip():
        raise ValueError(_why_damaged(text))
    return value


def dumps(value: Any) -> bytes:
    """JSON bytes of any value that `loads` can give, keys in their order."""
    try:
        return orjson.dumps(value)
    except (TypeError, ValueError):
        return "".join(_write(value)).encode("utf-8", "replace")


def _write(value: Any) -> Iterator[str]:
    """JSON text, written without recursion: orjson stops at 254 levels, json at the interpreter's limit."""
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, _Piece):
            yield item
        elif isinstance(item, dict):
            parts: list[Any] = []
            for key, member in item.items():
                parts += [_Piece("," if parts else ""), _Piece(json.dumps(str(key), ensure_ascii=False) + ":"), member]
            stack += [_Piece("}"), *reversed(parts), _Piece("{")]
        elif isinstance(item, list | tuple):
            parts = []
            for member in item:
                parts += [_Piece("," if parts else ""), member]
            stack += [_Piece("]"), *reversed(parts), _Piece("[")]
        else:
            yield json.dumps(item, ensure_ascii=False, default=str)


class _Piece(str):
    """Finished JSON text on the stack of `_write`."""


def decode(raw: bytes) -> tuple[str, bool]:
    """Bytes as text, and whether some of them were no UTF-8 and had to be replaced by U+FFFD."""
    try:
        return raw.decode("utf-8"), False
    except UnicodeDecodeError:
        return raw.decode("utf-8", errors="replace"), True


def clean(value: Any) -> Any:
    """The value with surrogate pairs joined and lone halves replaced by U+FFFD, in every string."""
    if isinstance(value, str):
        return _clean_text(value)
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean_text(key): clean(item) for key, item in value.items()}
    return value


_SURROGATE = re.compile("[\ud800-\udfff]")


def _clean_text(text: str) -> str:
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def document(source: Source) -> Any:
    """A whole JSON file. Raises ParseError with the reason if it is not one JSON value."""
    raw = source.read()
    try:
        return loads(raw)
    except ValueError as error:
        raise ParseError(str(error), path=source.path) from error


# --- times --------------------------------------------------------------------------------------------------

_EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
_LATEST = datetime(2100, 1, 1, tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_SECONDS = 4_102_444_800


def parse_time(value: Any) -> datetime | None:
    """A time in any form that logs use, as an aware UTC datetime; None for what is absent or absurd.

    ISO 8601 with or without zone (without: UTC), epoch seconds or milliseconds as number or text.
    """
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            try:
                value = float(value)
            except ValueError:
                return None
        else:
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=UTC)
            elif moment.tzinfo is not UTC:
                try:
                    moment = moment.astimezone(UTC)
                except OverflowError:
                    return None
            return moment if _EARLIEST <= moment < _LATEST else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 < value < _LATEST_SECONDS * 1000:
        return None
    seconds = value / 1000 if value > 1e11 else value
    if not 0 < seconds < _LATEST_SECONDS:
        return None
    moment = _EPOCH + timedelta(seconds=seconds)
    return moment if moment >= _EARLIEST else None


# --- detection ----------------------------------------------------------------------------------------------

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\],]', re.DOTALL)


@dataclass(frozen=True)
class Head:
    """The beginning of a source, for detection: at most 256 KiB, or one line if that is longer.

    `kind` is `empty`, `jsonl`, `json`, `text`, `zip`, `sqlite` or `binary`. `records` are the first JSON
    objects of a line-based file (at most 50). `document` is the decoded value of a JSON file; of a large one
    it holds only the beginning, with open lists and objects closed. `text` is the decoded beginning. `trouble` says why a compressed file
    cannot be read to its end.
    """

    source: Source
    data: bytes
    whole: bool
    trouble: str | None = None

    @classmethod
    def of(cls, source: Source) -> Head:
        """Read the head. Raises SourceError if the file cannot be read."""
        data = b""
        try:
            with source.open() as stream:
                while more := stream.read1(HEAD_BYTES - len(data)):  # type: ignore[attr-defined]
                    data += more
                if len(data) == HEAD_BYTES and b"\n" not in data:
                    data += stream.readline(HEAD_LINE_BYTES)
                return cls(source, data, not stream.read(1))
        except OSError as error:
            raise SourceError(_reason(error), path=source.path) from error
        except ParseError as error:  # a compressed file that was cut off: what can be had decides
            return cls(source, data or ZSTD_MAGIC, whole=True, trouble=error.message)

    @cached_property
    def kind(self) -> str:
        """What the bytes look like."""
        start = self.data.lstrip(_SPACE + b"\x00")
        if not start:
            return "empty" if not self.data.strip(_SPACE) and self.whole else "binary"
        if self.data.startswith(ZIP_MAGIC):
            return "zip"
        if self.data.startswith(SQLITE_MAGIC):
            return "sqlite"
        if start[:1] in (b"{", b"[") and self.document is not None and not self.records:
            return "json"
        if self.records:
            return "jsonl"
        if b"\x00" in self.data[:8192] or self.data.startswith(ZSTD_MAGIC):
            return "binary"
        return "text"

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """The first JSON objects, if the file is made of lines that hold one each."""
        found: list[Record] = []
        data = self.data if self.whole else self.data[: self.data.rfind(b"\n") + 1]
        for record in jsonl(Source(self.source.path, data), Ledger()):
            if len(found) == HEAD_RECORDS:
                break
            found.append(record)
        if found and self.document is not None:
            first = 1 + data[: len(data) - len(data.lstrip(_SPACE))].count(b"\n")
            if found[0].line != first:
                return []  # a document over several lines, some of which are objects of their own
        return [record.value for record in found]

    @cached_property
    def document(self) -> Any:
        """The JSON value of a file that holds one, or its beginning; None if it is no JSON."""
        start = self.data.lstrip(_SPACE)[:1]
        if start not in (b"{", b"["):
            return None
        if self.whole:
            try:
                return loads(self.data)
            except ValueError:
                return None
        return complete(self.data)

    @cached_property
    def text(self) -> str:
        """The decoded beginning."""
        return decode(self.data)[0]


def complete(data: bytes) -> Any:
    """The value of a JSON document that was cut off: what is whole is kept, open brackets are closed.

    None if the beginning is not JSON.
    """
    stack: list[bytes] = []
    keep = 0
    closing: list[bytes] = []
    for match in _TOKEN.finditer(data):
        token = match.group()
        if token in (b"{", b"["):
            stack.append(b"}" if token == b"{" else b"]")
            keep, closing = match.end(), stack[::-1]
        elif token in (b"}", b"]"):
            if not stack or stack.pop() != token:
                return None
            keep, closing = match.end(), stack[::-1]
            if not stack:
                break
        elif token == b"," and stack:
            keep, closing = match.start(), stack[::-1]
    try:
        return loads(data[:keep] + b"".join(closing))
    except ValueError:
        return None


# --- blobs --------------------------------------------------------------------------------------------------


def locate(record: Record, payload: str) -> tuple[int, int] | None:
    """Where a long ASCII string of a record stands in the decoded source: (offset, length in bytes).

    None if it is not there letter for letter (escaped characters).
    """
    needle = payload.encode("ascii", "replace")
    at = record.raw.find(needle)
    return None if at < 0 or not needle else (record.offset + at, len(needle))


def read_span(source: Source, offset: int, length: int) -> bytes:
    """`length` bytes of the decoded source from `offset`."""
    with source.open() as stream:
        try:
            stream.seek(offset, os.SEEK_CUR)
        except (OSError, io.UnsupportedOperation):
            stream.read(offset)
        return stream.read(length)
