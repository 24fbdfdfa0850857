"""Candidates -> hits: where each stands, what holds it too, what stands around it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from mempalace import ranking
from mempalace.formats import registry as formats
from mempalace.model import Session, SessionMetadata
from mempalace.model_data import format_time
from mempalace.palace.catalog import Catalog, path_of
from mempalace.palace.lexical import Wanted
from mempalace.query import Hit, Neighbour
from mempalace.ranking import Candidate, SpanRow
from mempalace.transcript import unquote

_HASH_BYTES = 16
_PAGE = 16


def ident(catalog: Catalog, one: Candidate, wanted: Wanted) -> bytes:
    """The identity of a candidate's best-matching message and of its words: a fork has the same."""
    span = ranking.best_span(one, wanted)
    if not ranking.has_a_word(one, span, wanted):
        return one.uid.encode()  # found by its meaning: no message of it can stand for it
    row = catalog.row("SELECT ident, hash FROM messages WHERE session = ? AND seq = ?", one.session, span[2])
    return bytes(row[0]) + bytes(row[1]) if row is not None else one.words


def hit(
    catalog: Catalog, rank: int, one: Candidate, wanted: Wanted, context: int = 0, kinds: Sequence[str] = ()
) -> Hit:
    """The hit of a candidate, with so many messages before and after it, of some kinds of chunks (or all)."""
    start, end, message, role, origin = ranking.best_span(one, wanted)
    key, parent, format, project, title, metadata = catalog.row(
        "SELECT key, parent_key, format, project, title, metadata FROM sessions WHERE id = ?", one.session
    )
    said = catalog.row(
        "SELECT m.id, m.time, m.line, m.name, s.path FROM messages m JOIN sources s ON s.id = m.source"
        " WHERE m.session = ? AND m.seq = ?",
        one.session,
        message,
    )
    message_id, moment, line, name, path = said if said is not None else (None, one.time or None, None, None, "")
    path = _where_it_is(catalog, one.session, path)
    return Hit(
        rank=rank,
        score=round(one.score, 6),
        scores={"lexical": one.lexical, "vector": one.vector, "late": one.late, "rerank": one.rerank},
        chunk_id=one.uid,
        session_id=key,
        message_id=message_id,
        parent_session_id=parent,
        format=format,
        project=project,
        title=title,
        role=role,
        speaker=name,
        origin=origin,
        timestamp=_time(moment),
        text=one.body.rstrip("\n"),
        match=(start, end),
        path=path,
        line=line,
        source_gone=not os.path.exists(path_of(path)),
        copies=_copies(catalog, one, wanted),
        resume=_resume(path_of(path), format, project, orjson.loads(metadata), parent),
        before=_neighbours(catalog, one, message, context, kinds, forward=False)[::-1],
        after=_neighbours(catalog, one, message, context, kinds, forward=True),
    )


def _time(moment: float | None) -> str | None:
    return None if moment is None else format_time(datetime.fromtimestamp(moment, UTC))


def _where_it_is(catalog: Catalog, session: int, path: str) -> str:
    """The path of a source, or of another that holds the session, if it was moved."""
    if os.path.exists(path_of(path)):
        return path
    others = catalog.rows(
        "SELECT s.path FROM session_sources h JOIN sources s ON s.id = h.source WHERE h.session = ?"
        " ORDER BY s.mined_at DESC",
        session,
    )
    return next((str(row[0]) for row in others if os.path.exists(path_of(row[0]))), path)


def _copies(catalog: Catalog, one: Candidate, wanted: Wanted) -> list[str]:
    """The ids of the other sessions that hold the same text, or the same message."""
    message = ident(catalog, one, wanted)
    rows = catalog.rows(
        "SELECT s.key FROM texts t JOIN chunks c ON c.text = t.id JOIN sessions s ON s.id = c.session"
        " WHERE t.words = ? AND s.id <> ?"
        " UNION SELECT s.key FROM messages m JOIN sessions s ON s.id = m.session WHERE m.ident = ?"
        " AND m.hash = ? AND s.id <> ? ORDER BY 1",
        one.words,
        one.session,
        message[:_HASH_BYTES],
        message[_HASH_BYTES:],
        one.session,
    )
    return [str(row[0]) for row in rows]


def _resume(path: Path, format: str, project: str | None, metadata: dict[str, Any], parent: str | None) -> str | None:
    """The command that reopens the session in its own tool."""
    known = formats.find(format)
    if known is None:
        return None
    session = Session(
        path,
        format,
        SessionMetadata(session_id=metadata.get("session_id"), project=project),
        parent_id=parent,
        agent_id=metadata.get("agent_id"),
        subagent_type=metadata.get("subagent_type"),
    )
    return known.resume_command(session)


def _neighbours(
    catalog: Catalog, one: Candidate, message: int, count: int, kinds: Sequence[str], *, forward: bool
) -> list[Neighbour]:
    """The messages of the session next to one, nearest first."""
    if count < 1:
        return []
    allowed = f" AND c.kind IN ({','.join('?' * len(kinds))})" if kinds else ""
    compare, order = (">=", "ASC") if forward else ("<=", "DESC")
    row = catalog.row("SELECT seq FROM chunks WHERE id = ?", one.chunk)
    at = row[0] if row is not None else 0
    found: dict[int, tuple[SpanRow, list[str]]] = {}
    while True:
        rows = catalog.rows(
            "SELECT c.seq, t.body, c.spans FROM chunks c JOIN texts t ON t.id = c.text"
            f" WHERE c.session = ? AND c.seq {compare} ?{allowed} ORDER BY c.seq {order} LIMIT {_PAGE}",
            one.session,
            at,
            *kinds,
        )
        for _, body, spans in rows:
            parts = [span for span in orjson.loads(spans) if (span[2] > message) == forward and span[2] != message]
            for span in parts if forward else reversed(parts):
                found.setdefault(span[2], (tuple(span), []))[1].append(body[span[0] : span[1]])
        # One more than is asked for: only then the last one is whole.
        if len(found) > count or len(rows) < _PAGE:
            break
        at = rows[-1][0] + (1 if forward else -1)
    return [
        _neighbour(catalog, one.session, span, "".join(pieces if forward else reversed(pieces)))
        for span, pieces in list(found.values())[:count]
    ]


def _neighbour(catalog: Catalog, session: int, span: SpanRow, text: str) -> Neighbour:
    _, _, message, role, origin = span
    said = catalog.row("SELECT id, time, name FROM messages WHERE session = ? AND seq = ?", session, message)
    message_id, moment, name = said if said is not None else (None, None, None)
    return Neighbour(message_id, role, name, origin, _time(moment), unquote(text) if role == "user" else text)
