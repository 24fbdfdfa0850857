"""Sessions that belong together: a session with its sub-agents, and two readings of the same session."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

from mempalace.model import Message, Session, SessionMetadata, Text, Thinking, ToolResult, group_turns


def flatten(sessions: Iterable[Session]) -> Iterator[Session]:
    """The sessions and all their sub-agents, parents first."""
    for session in sessions:
        yield session
        yield from flatten(session.subagents)


def digest(*parts: object) -> bytes:
    """A 16-byte hash of some values."""
    return hashlib.blake2b("\x1f".join(map(str, parts)).encode("utf-8", "replace"), digest_size=16).digest()


def content_hash(message: Message) -> bytes:
    """What makes two messages the same: time, speaker, origin and content."""
    said = f"{message.timestamp}\x1f{message.role}\x1f{message.origin}\x1f{message.name}"
    hasher = hashlib.blake2b(said.encode("utf-8", "replace"), digest_size=16)
    for block in message.content:
        if isinstance(block, Text):
            words = block.text
        elif isinstance(block, ToolResult):
            words = f"{block.tool_use_id}\x1f{block.is_error}\x1f{len(block.images)}\x1f{block.content}"
        elif isinstance(block, Thinking):
            words = block.text
        else:
            words = repr(block)
        hasher.update(f"\x1e{type(block).__name__}\x1f{words}".encode("utf-8", "replace"))
    return hasher.digest()


def identities(messages: Iterable[Message]) -> list[tuple[bytes, bytes]]:
    """(identity, content hash) of each message.

    The identity, good within one session, is that of its own id, else of its content and time; equal ones in a row
    are told apart by their count, so that a person who says "yes" twice has said it twice. Between sessions both
    must agree: many tools number their messages from 1.
    """
    found = []
    seen: Counter[bytes] = Counter()
    for message in messages:
        content = content_hash(message)
        ident = digest("id", message.id) if message.id else digest("said", content.hex())
        seen[ident] += 1
        if seen[ident] > 1:
            ident = digest(ident.hex(), seen[ident])
        found.append((ident, content))
    return found


def merge(older: Session, newer: Session) -> Session:
    """One session out of two readings of it: all of `newer`, with what only `older` has at its place."""
    return merge_all([older, newer])


def merge_all(readings: Sequence[Session]) -> Session:
    """One session out of readings of it, the newest last: all of that, with what only older ones have at its place.

    Where both have messages that the other lacks, their times decide the order, as far as they have any. The
    newest reading's metadata counts; what it does not say is taken from the one before.
    """
    newest = readings[-1]
    merged = _keyed(newest)
    there = {key for key, _ in merged}
    for older in reversed(readings[:-1]):
        before = _keyed(older)
        if any(key not in there for key, _ in before):
            merged = _spliced(before, merged, there)
            there.update(key for key, _ in before)
    spent = {id(turn.messages[0]): turn.token_usage for one in readings for turn in one.turns if turn.messages}
    messages = [message for _, message in merged]
    usage = {at: known for at, message in enumerate(messages) if (known := spent.get(id(message))) is not None}
    return replace(newest, turns=group_turns(messages, usage), metadata=_told(readings))


_Keyed = tuple[bytes, Message]


def _keyed(session: Session) -> list[_Keyed]:
    messages = list(session.messages)
    return [(key, message) for (key, _), message in zip(identities(messages), messages, strict=True)]


def _spliced(older: list[_Keyed], newer: list[_Keyed], there: set[bytes]) -> list[_Keyed]:
    """`newer` with those of `older` that are not `there`, between the neighbours that both have."""
    places = {key: at for at, (key, _) in enumerate(older)}
    result: list[_Keyed] = []
    since: list[_Keyed] = []  # what newer has behind the last common message
    at = 0
    for one in newer:
        place = places.get(one[0])
        if place is None or place < at:
            since.append(one)
            continue
        result += _by_time(since, [other for other in older[at:place] if other[0] not in there])
        result.append(one)
        since, at = [], place + 1
    return result + _by_time(since, [other for other in older[at:] if other[0] not in there])


def _by_time(newer: list[_Keyed], older: list[_Keyed]) -> list[_Keyed]:
    """Two runs of messages as one; each keeps its order, and without times the older comes last."""
    result: list[_Keyed] = []
    at = 0
    for one in newer:
        while at < len(older) and _is_earlier(older[at][1], one[1]):
            result.append(older[at])
            at += 1
        result.append(one)
    return result + older[at:]


def _is_earlier(one: Message, other: Message) -> bool:
    return one.timestamp is not None and other.timestamp is not None and one.timestamp < other.timestamp


def _told(readings: Sequence[Session]) -> SessionMetadata:
    """The metadata of the newest reading, with what only older ones say, and the earliest beginning."""
    newest = readings[-1].metadata
    older = [one.metadata for one in reversed(readings[:-1])]
    told: dict[str, Any] = {}
    for field in fields(SessionMetadata):
        if getattr(newest, field.name) is None:
            told[field.name] = next((known for one in older if (known := getattr(one, field.name)) is not None), None)
    times = [one.timestamp for one in (newest, *older) if one.timestamp is not None]
    told["timestamp"] = min(times) if times else None
    return replace(newest, **told)
