"""The archive: every source's bytes as they were read, compressed, each distinct part once.

A file is cut into parts of a fixed size, so that one that only grew shares all parts but the last with what
was kept before, and a later snapshot of the same log shares them with the earlier one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress
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
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True)
    parts: list[int] = []
    same = True  # so far every byte kept before is at its place
    changed = False
    while data := _read_part(stream):
        digest = hashlib.blake2b(data, digest_size=16).digest()
        at = len(parts)
        if at < len(before) and before[at][1] == digest:
            parts.append(before[at][0])
            continue
        changed = True
        if at < len(before) and same:
            size = before[at][2]
            same = at == len(before) - 1 and len(data) > size and _digest(data[:size]) == before[at][1]
        parts.append(_part(catalog, digest, data, compressor))
    if len(parts) < len(before):
        same, changed = False, True
    if not changed and before:
        return Kept(unchanged=True, grown=False, revision=revision)
    number = revision if same or not before else revision + 1 if following is None else following
    catalog.db.execute("DELETE FROM source_parts WHERE source = ? AND revision = ?", (source, number))
    catalog.add_many(
        "INSERT INTO source_parts VALUES (?, ?, ?, ?)",
        [(source, number, seq, part) for seq, part in enumerate(parts)],
    )
    if number == revision:
        _drop_orphans(catalog, {part for part, _, _ in before} - set(parts))
    return Kept(unchanged=False, grown=bool(before) and same, revision=number)


def _read_part(stream: BinaryIO) -> bytes:
    """The next part; of a damaged archive what comes before the damage (its reader counts the rest)."""
    pieces: list[bytes] = []
    left = PART_BYTES
    with suppress(ParseError):
        while left and (piece := stream.read1(left)):  # type: ignore[attr-defined]
            pieces.append(piece)
            left -= len(piece)
    return b"".join(pieces)


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
    first = start // PART_BYTES
    parts = range(first, (max(end, 1) - 1) // PART_BYTES + 1)
    data = b"".join(read(catalog, source, revision, parts))
    return data[start - first * PART_BYTES : end - first * PART_BYTES]


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
