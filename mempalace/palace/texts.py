"""Rows of the catalog -> what the indexes see of a chunk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from mempalace.chunk import Chunk, Kind, index_parts
from mempalace.model import Origin, Role
from mempalace.palace.catalog import Catalog
from mempalace.transcript import Span

CHUNK_COLUMNS = (
    "SELECT c.id, c.text, t.body, c.kind, c.time, c.last, c.spans, s.id, s.kind, s.format, s.project,"
    " s.project_name, COALESCE(s.wing, s.project_name)"
    " FROM chunks c JOIN texts t ON t.id = c.text JOIN sessions s ON s.id = c.session"
)


class ChunkRow(NamedTuple):
    """A row of CHUNK_COLUMNS. Times are epoch seconds, `spans` is JSON."""

    chunk: int
    text: int
    body: str
    kind: str
    time: float | None
    last: float | None
    spans: str
    session: int
    scope: str
    format: str
    project: str | None
    project_name: str | None
    wing: str | None


_ROLES = {str(role): role for role in Role}
_ORIGINS = {str(origin): origin for origin in Origin}
_KINDS = {str(kind): kind for kind in Kind}


def seen_by_indexes(catalog: Catalog, rows: Sequence[Any]) -> Iterator[tuple[list[str], Chunk]]:
    """The parts of each row's chunk (see `chunk.index_parts`), and the chunk, with positions in its own text."""
    found = [ChunkRow._make(row) for row in rows]
    names: dict[int, dict[int, str]] = {}
    for session, seq, name in catalog.rows_in(
        "SELECT session, seq, name FROM messages WHERE name IS NOT NULL AND session IN (?)",
        {row.session for row in found},
    ):
        names.setdefault(session, {})[seq] = name
    for row in found:
        moment = None if row.time is None else datetime.fromtimestamp(row.time, UTC)
        spans = tuple(
            Span(start, end, message, _ROLES[role], _ORIGINS[origin])
            for start, end, message, role, origin in orjson.loads(row.spans)
        )
        chunk = Chunk(0, len(row.body), _KINDS[row.kind], spans)
        yield index_parts(row.body, 0, chunk, moment, names.get(row.session, {})), chunk


def first_chunks(catalog: Catalog, texts: Iterable[int]) -> list[ChunkRow]:
    """One chunk for each text that still has one, always the same."""
    sql = CHUNK_COLUMNS.replace("SELECT c.id", "SELECT MIN(c.id)", 1) + " WHERE c.text IN (?) GROUP BY c.text"
    return [ChunkRow._make(row) for row in catalog.rows_in(sql, texts)]
