"""Sessions that belong together: a session with its sub-agents, and two readings of the same session."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from mempalace.model import Message, Session, Text, Thinking, TokenUsage, ToolResult, group_turns


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
    old = list(older.messages)
    new = list(newer.messages)
    old_keys = [key for key, _ in identities(old)]
    new_keys = {key for key, _ in identities(new)}
    places = {key: index for index, key in enumerate(old_keys)}
    merged: list[Message] = []
    at = 0
    for message, (key, _) in zip(new, identities(new), strict=True):
        place = places.get(key)
        if place is not None and place >= at:
            merged += [old[index] for index in range(at, place) if old_keys[index] not in new_keys]
            at = place + 1
        merged.append(message)
    merged += [old[index] for index in range(at, len(old)) if old_keys[index] not in new_keys]
    spent = {id(turn.messages[0]): turn.token_usage for turn in (*older.turns, *newer.turns) if turn.messages}
    usage: dict[int, TokenUsage] = {
        index: known for index, message in enumerate(merged) if (known := spent.get(id(message))) is not None
    }
    return replace(newer, turns=group_turns(merged, usage))
