"""The archive: every source's bytes as they were read, compressed, each distinct part once.

A file is cut into parts of a fixed size, so that one that only grew shares all parts but the last with what
was kept before, and a later snapshot of the same log shares them with the earlier one. One that was written
anew is cut by its content from the first change on: what moved but did not change is the same part again.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from itertools import accumulate, pairwise
from typing import BinaryIO, NamedTuple

from mempalace.errors import ParseError
from mempalace.palace.catalog import Catalog

PART_BYTES = 1 << 20
_LEVEL = 3


class Kept(NamedTuple):
    """What `keep` found: the same bytes as before, more of them, or others."""

    unchanged: bool
    grown: bool
    revision: int


def keep(catalog: Catalog, source: int, revision: int, stream: BinaryIO, following: int | None = None) -> Kept:
    """Store the bytes of a stream as the contents of a source.

    `revision` is the one kept so far. If its bytes are not the beginning of the new ones, they stay and the
    new ones become revision `following` (the next): what a file once said is never lost.
    """
    import zstandard

    before = [
        (int(part), bytes(digest), int(size))
        for part, digest, size in catalog.rows(
            "SELECT p.id, p.hash, p.size FROM source_parts s JOIN parts p ON p.id = s.part"
            " WHERE s.source = ? AND s.revision = ? ORDER BY s.seq",
            source,
            revision,
        )
    ]
    parts, rest = _still_there(before, stream)
    same = len(parts) == len(before)  # every byte kept before is at its place
    if same and before:
        more = _read_part(stream, 1)
        if not more:
            return Kept(unchanged=True, grown=False, revision=revision)
        parts.pop()  # it may grow
        rest += more
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True)
    pieces = _of_one_size(rest, stream) if same else _by_content(rest, stream, sum(size for _, _, size in before))
    parts += [_part(catalog, _digest(data), data, compressor) for data in pieces]
    number = revision if same or not before else revision + 1 if following is None else following
    catalog.db.execute("DELETE FROM source_parts WHERE source = ? AND revision = ?", (source, number))
    catalog.add_many(
        "INSERT INTO source_parts VALUES (?, ?, ?, ?)",
        [(source, number, seq, part) for seq, part in enumerate(parts)],
    )
    if number == revision:
        _drop_orphans(catalog, {part for part, _, _ in before} - set(parts))
    return Kept(unchanged=False, grown=bool(before) and same, revision=number)


def _still_there(before: list[tuple[int, bytes, int]], stream: BinaryIO) -> tuple[list[int], bytes]:
    """The parts that a stream begins with as they were, and what was read of it last: another, or the last of them."""
    parts: list[int] = []
    data = b""
    for part, digest, size in before:
        data = _read_part(stream, size)
        if _digest(data) != digest:
            break
        parts.append(part)
    return parts, data


def _read_part(stream: BinaryIO, size: int) -> bytes:
    """The next bytes; of a damaged archive what comes before the damage (its reader counts the rest)."""
    pieces: list[bytes] = []
    left = size
    with suppress(ParseError):
        while left and (piece := stream.read1(left)):  # type: ignore[attr-defined]
            pieces.append(piece)
            left -= len(piece)
    return b"".join(pieces)


def _of_one_size(start: bytes, stream: BinaryIO) -> Iterator[bytes]:
    while data := start[:PART_BYTES] + _read_part(stream, max(PART_BYTES - len(start), 0)):
        yield data
        start = start[PART_BYTES:]


def _by_content(start: bytes, stream: BinaryIO, size: int) -> Iterator[bytes]:
    """Parts that end where the 16 bytes before say so: the same stretch of bytes gives the same parts anywhere.

    They have about a thousandth of `size` (what was kept before), from 4 KiB to 64 KiB, at most 16 times that.
    """
    average = 1 << min(max((size >> 10).bit_length(), 12), 16)
    ready = start
    while ready := ready + _read_part(stream, max(PART_BYTES - len(ready), 0)):
        ends = _ends(ready, average)
        if len(ready) >= PART_BYTES and len(ends) > 1:
            del ends[-1]  # where that part ends is not known yet
        for begin, end in pairwise([0, *ends]):
            yield ready[begin:end]
        ready = ready[ends[-1] :]


def _ends(data: bytes, average: int) -> list[int]:
    """Where the parts of some bytes end, by a gear hash; the last is the end of the bytes."""
    import numpy as np

    table = np.frombuffer(hashlib.shake_128(b"gear").digest(1024), "<u4").astype(np.uint32)
    hashed = table[np.frombuffer(data, np.uint8)]
    for width in (1, 2, 4, 8):  # after each round a value covers twice as many bytes
        hashed[width:] += hashed[:-width] << np.uint32(width)
    marks = np.flatnonzero(hashed >> np.uint32(32 - average.bit_length() + 1) == 0) + 1
    ends = [0]
    for mark in (*marks.tolist(), len(data)):
        while mark - ends[-1] > 16 * average:
            ends.append(ends[-1] + 16 * average)
        if mark - ends[-1] >= average // 4 or mark == len(data):
            ends.append(mark)
    return ends[1:]


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _part(catalog: Catalog, digest: bytes, data: bytes, compressor: object) -> int:
    known = catalog.row("SELECT id FROM parts WHERE hash = ?", digest)
    if known is not None:
        return int(known[0])
    packed = compressor.compress(data)  # type: ignore[attr-defined]
    cursor = catalog.db.execute("INSERT INTO parts (hash, size, data) VALUES (?, ?, ?)", (digest, len(data), packed))
    return int(cursor.lastrowid or 0)


def _drop_orphans(catalog: Catalog, parts: set[int]) -> None:
    used = {row[0] for row in catalog.rows_in("SELECT DISTINCT part FROM source_parts WHERE part IN (?)", parts)}
    catalog.add_many("DELETE FROM parts WHERE id = ?", [(part,) for part in parts - used])


def read_slice(catalog: Catalog, source: int, revision: int, start: int, end: int) -> bytes:
    """The bytes from `start` to `end` of a kept source, from the parts that hold them."""
    sizes = catalog.rows(
        "SELECT p.size FROM source_parts s JOIN parts p ON p.id = s.part"
        " WHERE s.source = ? AND s.revision = ? ORDER BY s.seq",
        source,
        revision,
    )
    offsets = list(accumulate((int(size) for (size,) in sizes), initial=0))
    first = max(bisect_right(offsets, start) - 1, 0)
    data = b"".join(read(catalog, source, revision, range(first, bisect_left(offsets, end))))
    return data[start - offsets[first] : end - offsets[first]]


def read(catalog: Catalog, source: int, revision: int, parts: range | None = None) -> Iterator[bytes]:
    """The bytes kept of a source, part by part: of all parts, or of a range."""
    import zstandard

    decompressor = zstandard.ZstdDecompressor()
    wanted = parts or range(1 << 40)
    for (part,) in catalog.rows(
        "SELECT part FROM source_parts WHERE source = ? AND revision = ? AND seq >= ? AND seq < ? ORDER BY seq",
        source,
        revision,
        wanted.start,
        wanted.stop,
    ):
        digest, data = catalog.row("SELECT hash, data FROM parts WHERE id = ?", part)
        if not data and catalog.original is not None:
            (data,) = catalog.original.row("SELECT data FROM parts WHERE hash = ?", digest)
        yield decompressor.decompress(data)
