"""Session -> rows of the catalog: only what is new is added, ids of what is known stay."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from mempalace import tree
from mempalace.chunk import Chunk, Kind, chunks, index_text
from mempalace.embedding import text_hash
from mempalace.model import Message, Session, SessionMetadata
from mempalace.palace.catalog import Catalog
from mempalace.transcript import Transcript, first_words, render
from mempalace.values import dumps, parse_time, project_name

_CHUNKS_AT_ONCE = 10_000  # a message may be as large as memory allows; its chunks are not held beside it


class KnownMessage(NamedTuple):
    """A message that is filed: the hash of its content, how many records it holds, and its source."""

    content: bytes
    records: int
    source: int


@dataclass(slots=True)
class SessionRow:
    """What the catalog knows of a session before a new reading of it is filed."""

    id: int
    freshness: str
    messages: dict[bytes, KnownMessage]  # by identity


@dataclass(slots=True)
class Filed:
    """What filing one session added."""

    session: int
    is_new: bool
    changed: bool
    chunks: int


def session_kind(session: Session) -> str:
    """`subagent`, `headless` or `main`: search shows main sessions unless told otherwise."""
    if session.is_subagent:
        return "subagent"
    return "headless" if session.metadata.interactive is False else "main"


def freshness(session: Session) -> str:
    """Of two readings of a session, the one with the greater text is the newer."""
    times = [message.timestamp for message in session.messages if message.timestamp is not None]
    updated = parse_time(session.metadata.extra.get("update_time"))
    stamp = updated or (max(times) if times else None)
    return f"{0.0 if stamp is None else max(stamp.timestamp(), 0.0):018.6f}-{session.message_count:09d}"


def find(catalog: Catalog, format: str, key: str) -> SessionRow | None:
    """The session of that format and key, if it is known."""
    row = catalog.row("SELECT id, freshness FROM sessions WHERE format = ? AND key = ?", format, key)
    if row is None:
        return None
    messages = {
        bytes(ident): KnownMessage(bytes(content), records, source)
        for ident, content, records, source in catalog.rows(
            "SELECT ident, hash, records, source FROM messages WHERE session = ?", row[0]
        )
    }
    return SessionRow(int(row[0]), str(row[1]), messages)


def file(
    catalog: Catalog,
    session: Session,
    key: str,
    source: int,
    known: SessionRow | None = None,
    wing: str | None = None,
    identities: list[tuple[bytes, bytes]] | None = None,
) -> Filed:
    """File a session under a key; `known` is what `find` gave. The caller holds a transaction.

    `identities` are those of its messages, if they were computed before.
    """
    number = _save_session(catalog, session, key, known, wing)
    transcript = render(session)
    messages = list(session.messages)
    changed = _save_messages(catalog, number, messages, identities or tree.identities(messages), source)
    added = _save_chunks(catalog, number, f"{session.format}/{key}", transcript, messages) if changed else 0
    return Filed(number, known is None, changed, added)


def _save_session(catalog: Catalog, session: Session, key: str, known: SessionRow | None, wing: str | None) -> int:
    metadata = session.metadata
    times = [message.timestamp for message in session.messages if message.timestamp is not None]
    started = metadata.timestamp or (min(times) if times else None)
    ended = max(times) if times else started
    values: dict[str, Any] = {
        "format": session.format,
        "key": key,
        "parent_key": session.parent_id,
        "kind": session_kind(session),
        "project": metadata.project,
        "project_name": project_name(metadata.project),
        "wing": wing,
        "title": metadata.title or first_words(session),
        "model": metadata.model,
        "started": _seconds(started),
        "ended": _seconds(ended),
        "messages": session.message_count,
        "freshness": freshness(session),
        "metadata": dumps(_kept_metadata(session, metadata)).decode(),
    }
    columns = ", ".join(values)
    marks = ", ".join("?" * len(values))
    if known is not None:
        labels = ("kind", "project", "project_name", "wing")
        before = catalog.row(f"SELECT {', '.join(labels)} FROM sessions WHERE id = ?", known.id)
        values["wing"] = wing or before[3]
        if metadata.project is None:  # some tools write it beside their logs, where it may be gone by now
            values["project"], values["project_name"] = before[1:3]
        if before != tuple(values[label] for label in labels):
            # What the lexical index filters by has changed: every chunk's entry is made again.
            catalog.db.execute(
                "INSERT OR IGNORE INTO lexical_stale SELECT id FROM chunks WHERE session = ?", (known.id,)
            )
        catalog.db.execute(
            f"UPDATE sessions SET ({columns}) = ({marks}) WHERE id = ?",
            (*values.values(), known.id),
        )
        return known.id
    cursor = catalog.db.execute(f"INSERT INTO sessions ({columns}) VALUES ({marks})", tuple(values.values()))
    return int(cursor.lastrowid or 0)


def _kept_metadata(session: Session, metadata: SessionMetadata) -> dict[str, Any]:
    return {
        "session_id": metadata.session_id,
        "agent_id": session.agent_id,
        "subagent_type": session.subagent_type,
        "git_branch": metadata.git_branch,
        "provider": metadata.provider,
        "lineage": dict(metadata.lineage),
    }


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def _save_messages(
    catalog: Catalog, session: int, messages: list[Message], now: list[tuple[bytes, bytes]], source: int
) -> bool:
    """Bring the messages of a session up to date; whether anything was not as it is now."""
    before = [
        (bytes(ident), bytes(content), line, int(owner))
        for ident, content, line, owner in catalog.rows(
            "SELECT ident, hash, line, source FROM messages WHERE session = ? ORDER BY seq", session
        )
    ]
    # A message belongs to the source that told it first, and its line is the one there.
    owners = {ident: (line, owner) for ident, _, line, owner in before if owner != source}
    rows: list[tuple[Any, ...]] = []
    for seq, (message, (ident, content)) in enumerate(zip(messages, now, strict=True)):
        line, owner = owners.get(ident, (message.line, source))
        if seq < len(before) and before[seq] == (ident, content, line, owner) and len(rows) == 0:
            continue
        rows.append(
            (
                session,
                seq,
                ident,
                content,
                message.id,
                str(message.role),
                str(message.origin),
                message.name,
                _seconds(message.timestamp),
                line,
                message.records,
                owner,
            )
        )
    if not rows and len(before) == len(now):
        return False
    catalog.db.execute("DELETE FROM messages WHERE session = ? AND seq >= ?", (session, len(now) - len(rows)))
    catalog.add_many("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    return True


@dataclass(slots=True)
class _NewChunk:
    """A chunk that the catalog does not have yet."""

    uid: str
    seq: int
    chunk: Chunk
    moment: datetime | None
    last: datetime | None
    digest: bytes
    words: bytes
    body: str


def _save_chunks(catalog: Catalog, session: int, label: str, transcript: Transcript, messages: list[Message]) -> int:
    """Bring the chunks of a session up to date; how many are new. Known ones keep their ids."""
    before = {
        str(row[0]): (int(row[1]), tuple(row[2:]))
        for row in catalog.rows(
            "SELECT uid, id, seq, start, gap, spans, time, last FROM chunks WHERE session = ?", session
        )
    }
    names = {index: message.name for index, message in enumerate(messages) if message.name}
    text = str(transcript)
    seen: dict[bytes, int] = {}
    new: list[_NewChunk] = []
    added = 0
    moved: list[tuple[Any, ...]] = []
    for seq, chunk in enumerate(chunks(transcript)):
        times = [time for span in chunk.spans if (time := messages[span.message].timestamp) is not None]
        moment, final = (times[0], times[-1]) if times else (None, None)
        # The blank line behind the last message comes with the next one: it is no part of what was said.
        end = chunk.spans[-1].end
        body = text[chunk.start : end]
        words = index_text(body, chunk.start, chunk, None, names)
        digest = text_hash(f"{moment:%Y-%m-%d}\x1f{words}\x1f{body}" if moment else f"\x1f{words}\x1f{body}")
        seen[digest] = seen.get(digest, 0) + 1
        uid = tree.digest(label, digest.hex(), seen[digest]).hex()[:20]
        known = before.pop(uid, None)
        if known is None:
            new.append(_NewChunk(uid, seq, chunk, moment, final, digest, text_hash(words.strip()), body))
            if len(new) == _CHUNKS_AT_ONCE:
                added += _insert_chunks(catalog, session, new)
                new = []
            continue
        place = (seq, chunk.start, chunk.end - end, _spans(chunk), _seconds(moment), _seconds(final))
        if known[1] != place:
            moved.append((*place, known[0]))
            if known[1][4:] != place[4:]:
                catalog.db.execute("INSERT OR IGNORE INTO lexical_stale VALUES (?)", (known[0],))
    catalog.add_many("UPDATE chunks SET seq = ?, start = ?, gap = ?, spans = ?, time = ?, last = ? WHERE id = ?", moved)
    added += _insert_chunks(catalog, session, new)
    remove_chunks(catalog, [known[0] for known in before.values()])
    return added


def _insert_chunks(catalog: Catalog, session: int, new: list[_NewChunk]) -> int:
    """Insert chunks, and those of their texts that are not there yet, many at a time; how many."""
    texts = {
        bytes(digest): int(number)
        for number, digest in catalog.rows_in(
            "SELECT id, hash FROM texts WHERE hash IN (?)", {one.digest for one in new}
        )
    }
    used = catalog.row("SELECT seq FROM sqlite_sequence WHERE name = 'texts'")
    last = int(used[0]) if used is not None else 0
    rows: list[tuple[Any, ...]] = []
    queued: list[tuple[int, float | None]] = []
    for one in new:
        if one.digest in texts:
            continue
        last += 1
        texts[one.digest] = last
        rows.append((last, one.digest, one.words, one.body))
        if one.chunk.kind == Kind.DIALOGUE:
            queued.append((last, _seconds(one.moment)))
    catalog.add_many("INSERT INTO texts (id, hash, words, body) VALUES (?, ?, ?, ?)", rows)
    catalog.add_many("INSERT INTO embed_queue VALUES (?, ?)", queued)
    catalog.add_many(
        "INSERT INTO chunks (uid, session, seq, start, kind, time, last, text, gap, spans)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                one.uid,
                session,
                one.seq,
                one.chunk.start,
                str(one.chunk.kind),
                _seconds(one.moment),
                _seconds(one.last),
                texts[one.digest],
                one.chunk.end - one.chunk.spans[-1].end,
                _spans(one.chunk),
            )
            for one in new
        ],
    )
    return len(new)


def _spans(chunk: Chunk) -> str:
    return orjson.dumps(
        [(s.start - chunk.start, s.end - chunk.start, s.message, str(s.role), str(s.origin)) for s in chunk.spans]
    ).decode()


def remove_chunks(catalog: Catalog, numbers: list[int]) -> None:
    """Remove chunks, and the texts and vectors that no other chunk shares."""
    if not numbers:
        return
    texts = {int(row[0]) for row in catalog.rows_in("SELECT text FROM chunks WHERE id IN (?)", numbers)}
    one = [(number,) for number in numbers]
    catalog.add_many("DELETE FROM chunks WHERE id = ?", one)
    catalog.add_many("INSERT OR IGNORE INTO lexical_stale VALUES (?)", one)
    used = {int(row[0]) for row in catalog.rows_in("SELECT DISTINCT text FROM chunks WHERE text IN (?)", texts)}
    orphans = [(number,) for number in texts - used]
    catalog.add_many("DELETE FROM texts WHERE id = ?", orphans)
    for table in ("vectors", "tokens", "refined", "embed_queue"):
        catalog.add_many(f"DELETE FROM {table} WHERE text = ?", orphans)
    catalog.add_many("INSERT OR REPLACE INTO store_queue VALUES (?, 1)", orphans)
