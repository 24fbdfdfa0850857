"""Where bytes come from: files, compressed files, UTF-16, bytes that were kept. Read up to a fixed point."""

from __future__ import annotations

import codecs
import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from mempalace.errors import ParseError, SourceError

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


ZIP_MAGIC = b"PK\x03\x04"


SQLITE_MAGIC = b"SQLite format 3\x00"


_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


BUFFER = 1 << 20


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

    def beside(self, name: str, above: int = 0) -> Source | None:
        """The file of that name in the same folder, or so many folders above, if there is one."""
        parents = self.path.absolute().parents
        if self.data is not None or len(parents) <= above:
            return None
        path = parents[above] / name
        return Source(path) if path.is_file() else None

    def open(self) -> BinaryIO:
        """The decoded bytes: decompressed, UTF-16 as UTF-8, without a byte-order mark.

        Raises SourceError with the operating system's reason if the file cannot be opened.
        """
        stream = self._open_raw()
        start = stream.read(4)
        stream.seek(0)
        if start == ZSTD_MAGIC:
            return io.BufferedReader(_Decompressed(stream), BUFFER)
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
                raise SourceError(reason(error), path=self.path) from error
            except ParseError as error:
                raise ParseError(error.message, path=self.path) from error

    def open_raw(self) -> BinaryIO:
        """The bytes as they lie on disk, up to `size`. Raises SourceError."""
        return self._open_raw()

    def _open_raw(self) -> BinaryIO:
        if self.data is not None:
            return io.BytesIO(self.data)
        try:
            stream = open(self.path, "rb", BUFFER)  # noqa: SIM115 - handed to the caller
        except OSError as error:
            raise SourceError(reason(error), path=self.path) from error
        if self.size is None:
            return stream
        return cast(BinaryIO, io.BufferedReader(_Limited(stream, self.size), BUFFER))


def mark_length(start: bytes) -> int | None:
    """How many bytes stand before the decoded ones in a file that begins like that; None if it must be decoded."""
    if start[:4] == ZSTD_MAGIC or _utf16(start) is not None:
        return None
    return len(codecs.BOM_UTF8) if start[:3] == codecs.BOM_UTF8 else 0


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
            data = self._rest or self._stream.read(BUFFER)
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


def reason(error: OSError) -> str:
    return f"cannot be read: {error.strerror or error}"


def lines(source: Source) -> Iterator[bytes]:
    """Every line with its end, verbatim, split on b"\\n" only."""
    with source.open() as stream:
        try:
            yield from stream
        except OSError as error:
            raise SourceError(reason(error), path=source.path) from error


class Original(NamedTuple):
    """A file as it lies (or lay) on disk: `read` gives its bytes in pieces, anew each time."""

    name: str
    read: Callable[[], Iterator[bytes]]


def original(source: Source) -> Original:
    """The bytes of a source as they are, compressed ones compressed."""
    return Original(source.name, lambda: _pieces(source))


def _pieces(source: Source) -> Iterator[bytes]:
    with source.open_raw() as stream:
        try:
            while piece := stream.read(BUFFER):
                yield piece
        except OSError as error:
            raise SourceError(reason(error), path=source.path) from error


def raw_lines(source: Source, start: int = 0, end: int | None = None) -> Iterator[bytes]:
    """The lines of a file as they lie there (decompressed), with byte-order marks and damage.

    A part of it, from byte `start` to `end`, is counted and given as the file is decoded: without a mark, in UTF-8.
    """
    is_part = start > 0 or end is not None
    with source.open_raw() as probe:
        compressed = probe.read(4) == ZSTD_MAGIC
    with source.open() if compressed or is_part else source.open_raw() as stream:
        _skip(stream, start)
        left = None if end is None else end - start
        try:
            for line in stream:
                if left is not None:
                    line = line[:left]
                    left -= len(line)
                if line:
                    yield line
                if left == 0:
                    return
        except OSError as error:
            raise SourceError(reason(error), path=source.path) from error


def _skip(stream: BinaryIO, count: int) -> None:
    """Go on by so many bytes, without holding them."""
    while count > 0 and (piece := stream.read(min(count, BUFFER))):
        count -= len(piece)


def read_span(source: Source, offset: int, length: int) -> bytes:
    """`length` bytes of the decoded source from `offset`."""
    with source.open() as stream:
        try:
            stream.seek(offset, os.SEEK_CUR)
        except (OSError, io.UnsupportedOperation):
            stream.read(offset)
        return stream.read(length)
