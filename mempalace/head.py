"""The beginning of a file, decoded for detection."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mempalace.errors import ParseError, SourceError
from mempalace.records import SPACE, Ledger, Record, jsonl
from mempalace.source import SQLITE_MAGIC, ZIP_MAGIC, ZSTD_MAGIC, Source, reason
from mempalace.values import decode, loads

HEAD_BYTES = 256 * 1024


HEAD_LINE_BYTES = 64 * 1024 * 1024


HEAD_RECORDS = 50


_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\],]|"', re.DOTALL)


@dataclass(frozen=True)
class Head:
    """The beginning of a source, for detection: at most 256 KiB, or one line if that is longer.

    `kind` is `empty`, `jsonl`, `json`, `text`, `zip`, `sqlite` or `binary`. `records` are the first JSON
    objects of a line-based file (at most 50). `document` is the decoded value of a JSON file; of a large one
    it holds only the beginning, with open lists and objects closed. `text` is the decoded beginning. `trouble`
    says why a compressed file cannot be read to its end.
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
                # The first record of a log is had whole; of an export, which is one long list, this will do.
                if len(data) == HEAD_BYTES and b"\n" not in data and data.lstrip(SPACE)[:1] != b"[":
                    data += stream.readline(HEAD_LINE_BYTES)
                return cls(source, data, not stream.read(1))
        except OSError as error:
            raise SourceError(reason(error), path=source.path) from error
        except ParseError as error:  # a compressed file that was cut off: what can be had decides
            return cls(source, data or ZSTD_MAGIC, whole=True, trouble=error.message)

    @cached_property
    def kind(self) -> str:
        """What the bytes look like."""
        start = self.data.lstrip(SPACE + b"\x00")
        if not start:
            return "empty" if not self.data.strip(SPACE) and self.whole else "binary"
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
        if self.data.lstrip(SPACE)[:4] == b"<!--":
            return []  # Markdown, be it that it quotes a log
        if self.data.lstrip(SPACE)[:1] == b"[" and (b"\n" not in self.data or self.document is not None):
            return []
        found: list[Record] = []
        data = self.data if self.whole else self.data[: self.data.rfind(b"\n") + 1]
        for record in jsonl(Source(self.source.path, data), Ledger()):
            if len(found) == HEAD_RECORDS:
                break
            found.append(record)
        if found and self.document is not None:
            first = 1 + data[: len(data) - len(data.lstrip(SPACE))].count(b"\n")
            if found[0].line != first:
                return []  # a document over several lines, some of which are objects of their own
        return [record.value for record in found]

    @cached_property
    def document(self) -> Any:
        """The JSON value of a file that holds one, or its beginning; None if it is no JSON."""
        start = self.data.lstrip(SPACE)[:1]
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
    for match in _TOKEN.finditer(data):
        token = match.group()
        if token == b'"':
            break  # the data ends inside a string
        if token in (b"{", b"["):
            stack.append(b"}" if token == b"{" else b"]")
            keep = match.end()
        elif token in (b"}", b"]"):
            if not stack or stack.pop() != token:
                return None
            keep = match.end()
            if not stack:
                break
        elif token == b"," and stack:
            keep = match.start()
    try:
        return loads(data[:keep] + b"".join(reversed(stack)))
    except ValueError:
        return None
