"""Candidates -> hits: where each stands, what holds it too, what stands around it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
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
from mempalace.ranking import Candidate, MessageRow, SpanRow
from mempalace.transcript import unquote

_HASH_BYTES = 16
_PAGE = 16
_BATCH = 250


def ident(catalog: Catalog, one: Candidate, wanted: Wanted) -> bytes:
    """The identity of a candidate's best-matching message and of its words: a fork has the same."""
    if one.ident is None:
        if ranking.has_a_word(one, ranking.best_span(one, wanted), wanted):
            said = _message(catalog, one, wanted)
            one.ident = one.words if said is None else said.ident + said.hash
        else:
            one.ident = one.uid.encode()  # found by its meaning: no message of it can stand for it
    return one.ident


def hits(
    catalog: Catalog, kept: Sequence[Candidate], wanted: Wanted, context: int = 0, kinds: Sequence[str] = ()
) -> list[Hit]:
    """The hits of candidates, each with so many messages before and after it, of some kinds of chunks (or all)."""
    rows = catalog.rows_in(
        "SELECT id, key, parent_key, format, project, title, metadata FROM sessions WHERE id IN (?)",
        {one.session for one in kept},
    )
    sessions = {row[0]: row[1:] for row in rows}
    copies = _copies(catalog, kept, wanted)
    return [
        _hit(catalog, rank, one, wanted, sessions[one.session], copies[one.chunk], context, kinds)
        for rank, one in enumerate(kept, 1)
    ]


def _hit(
    catalog: Catalog,
    rank: int,
    one: Candidate,
    wanted: Wanted,
    row: Sequence[Any],
    copies: list[str],
    context: int,
    kinds: Sequence[str],
) -> Hit:
    start, end, message, role, origin = ranking.best_span(one, wanted)
    key, parent, format, project, title, metadata = row
    said = _message(catalog, one, wanted)
    moment = said.time if said is not None else one.time or None
    path, place, gone = _where_it_is(catalog, one.session, "" if said is None else said.path)
    return Hit(
        rank=rank,
        score=round(one.score, 6),
        scores={"lexical": one.lexical, "vector": one.vector, "late": one.late, "rerank": one.rerank},
        chunk_id=one.uid,
        session_id=key,
        message_id=said and said.id,
        parent_session_id=parent,
        format=format,
        project=project,
        title=title,
        role=role,
        speaker=said and said.name,
        origin=origin,
        timestamp=_time(moment),
        text=one.body.rstrip("\n"),
        match=(start, end),
        path=path,
        line=said and said.line,
        source_gone=gone,
        copies=copies,
        resume=_resume(place, format, project, orjson.loads(metadata), parent),
        before=_neighbours(catalog, one, message, context, kinds, forward=False)[::-1],
        after=_neighbours(catalog, one, message, context, kinds, forward=True),
    )


def _message(catalog: Catalog, one: Candidate, wanted: Wanted) -> MessageRow | None:
    """The best-matching message of a candidate, asked for once."""
    if one.message is None:
        row = catalog.row(
            "SELECT m.ident, m.hash, m.id, m.time, m.line, m.name, s.path FROM messages m"
            " JOIN sources s ON s.id = m.source WHERE m.session = ? AND m.seq = ?",
            one.session,
            ranking.best_span(one, wanted)[2],
        )
        one.message = None if row is None else MessageRow._make(row)
    return one.message


def _time(moment: float | None) -> str | None:
    return None if moment is None else format_time(datetime.fromtimestamp(moment, UTC))


def _where_it_is(catalog: Catalog, session: int, path: str) -> tuple[str, Path, bool]:
    """The path of a source, or of another that holds the session, if it was moved; and whether none is there."""
    place = path_of(path)
    if os.path.exists(place):
        return path, place, False
    others = catalog.rows(
        "SELECT s.path FROM session_sources h JOIN sources s ON s.id = h.source WHERE h.session = ?"
        " ORDER BY s.mined_at DESC",
        session,
    )
    for (other,) in others:
        if os.path.exists(path_of(other)):
            return str(other), path_of(other), False
    return path, place, True


def _copies(catalog: Catalog, kept: Sequence[Candidate], wanted: Wanted) -> dict[int, list[str]]:
    """For each candidate, by its chunk, the ids of the other sessions that hold the same text or the same message."""
    holders: dict[bytes, set[tuple[int, str]]] = {}
    for words, session, key in catalog.rows_in(
        "SELECT t.words, s.id, s.key FROM texts t JOIN chunks c ON c.text = t.id JOIN sessions s ON s.id = c.session"
        " WHERE t.words IN (?)",
        {one.words for one in kept},
    ):
        holders.setdefault(bytes(words), set()).add((session, key))
    messages = {one.chunk: ident(catalog, one, wanted) for one in kept}
    for message, session, key in _holders(catalog, sorted(set(messages.values()))):
        holders.setdefault(message, set()).add((session, key))
    return {
        one.chunk: sorted(
            {
                key
                for session, key in holders.get(one.words, set()) | holders.get(messages[one.chunk], set())
                if session != one.session
            }
        )
        for one in kept
    }


def _holders(catalog: Catalog, messages: Sequence[bytes]) -> Iterator[tuple[bytes, int, str]]:
    """The sessions that hold some messages, each by its identity and the hash of its words."""
    for start in range(0, len(messages), _BATCH):
        batch = messages[start : start + _BATCH]
        for ident, words, session, key in catalog.rows(
            f"WITH wanted (ident, hash) AS (VALUES {','.join(['(?, ?)'] * len(batch))})"
            " SELECT m.ident, m.hash, s.id, s.key FROM wanted w"
            " JOIN messages m ON m.ident = w.ident AND m.hash = w.hash JOIN sessions s ON s.id = m.session",
            *(part for message in batch for part in (message[:_HASH_BYTES], message[_HASH_BYTES:])),
        ):
            yield bytes(ident) + bytes(words), session, key


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
