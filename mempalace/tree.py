"""Sessions that belong together: a session with its sub-agents, and two readings of the same session."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

from mempalace.model import (
    Message,
    Session,
    SessionMetadata,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    group_turns,
)

_FEWEST_ID_CHARS = 6  # of an agent's id, to look for it in what tools returned


def flatten(sessions: Iterable[Session]) -> Iterator[Session]:
    """The sessions and all their sub-agents, parents first."""
    for root in sessions:
        todo = [root]
        while todo:
            session = todo.pop()
            yield session
            todo += reversed(session.subagents)


def reconstruct_tree(sessions: Iterable[Session]) -> list[Session]:
    """The sessions as trees: each sub-agent in the `subagents` of the session that spawned it, to any depth.

    Roots and sub-agents stay in the order in which they came. Whose parent is not among them stays a root; of parents
    that go round in a circle the first becomes one. No session is left out; one that comes twice, flat and as a
    sub-agent, is there once, two readings of one that differ are both.
    """
    flat = list(_distinct(sessions))
    places: dict[tuple[str, str], int] = {}
    for at, session in enumerate(flat):
        for name in names(session):
            places.setdefault((session.format, name), at)
    parents = [places.get((session.format, parent_id(session) or "")) for session in flat]
    _cut_circles(parents)
    children: list[list[int]] = [[] for _ in flat]
    for at, parent in enumerate(parents):
        if parent is not None:
            children[parent].append(at)
    order = [at for at, parent in enumerate(parents) if parent is None]
    roots = len(order)
    for at in order:  # it grows: parents come before their children
        order += children[at]
    for at in reversed(order):
        if children[at]:
            agents = tuple(_spawned(flat[at], flat[child]) for child in children[at])
            flat[at] = replace(flat[at], subagents=agents)
    return [flat[at] for at in order[:roots]]


def _distinct(sessions: Iterable[Session]) -> Iterator[Session]:
    """All sessions and sub-agents alone, each once."""
    seen: dict[tuple[str, str], list[Session]] = {}
    for session in flatten(sessions):
        if session.key is not None:
            alike = seen.setdefault((session.format, session.key), [])
            if any(session.turns == other.turns for other in alike):
                continue
            alike.append(session)
        yield replace(session, subagents=())


def _cut_circles(parents: list[int | None]) -> None:
    """Make the first of every circle a root."""
    done: set[int] = set()
    for start in range(len(parents)):
        walk: dict[int, None] = {}
        at: int | None = start
        while at is not None and at not in done and at not in walk:
            walk[at] = None
            at = parents[at]
        if at is not None and at in walk:
            steps = list(walk)
            parents[min(steps[steps.index(at) :])] = None
        done.update(walk)


def names(session: Session) -> list[str]:
    """The ids by which others name a session as their parent; a sub-agent of Claude Code bears its parent's id."""
    own = session.metadata.session_id
    found = [session.key, own if not session.is_subagent or own == session.agent_id else None]
    return [name for name in dict.fromkeys(found) if name]


def parent_id(session: Session) -> str | None:
    """The id of the session that spawned this one."""
    return session.parent_id or session.metadata.lineage.get("parent_session_id")


def attach(parent: Session, agents: Iterable[Session]) -> Session:
    """The session with these sub-agents behind those that it has, each with the call that spawned it."""
    known = {agent.key for agent in parent.subagents}
    fresh = [_spawned(parent, agent) for agent in agents if agent.key not in known]
    return replace(parent, subagents=(*parent.subagents, *fresh)) if fresh else parent


def _spawned(parent: Session, agent: Session) -> Session:
    """The sub-agent with the id of the call that spawned it and the type that was asked for, if they were not known."""
    if agent.metadata.parent_tool_use_id is not None:
        return agent
    call = _spawning_call(parent, agent)
    if call is None:
        return agent
    asked = call.input.get("subagent_type") if isinstance(call.input, dict) else None
    typed = asked if agent.subagent_type == "subagent" and isinstance(asked, str) and asked else agent.subagent_type
    return replace(agent, metadata=replace(agent.metadata, parent_tool_use_id=call.id), subagent_type=typed)


def _spawning_call(parent: Session, agent: Session) -> ToolUse | None:
    """The call that spawned a sub-agent: the log says so, its result names the agent, or it gave the agent's prompt."""
    calls = {call.id: call for call in parent.tool_uses}
    spawns = parent.metadata.extra.get("spawns")
    if isinstance(spawns, dict) and spawns.get(agent.agent_id) in calls:
        return calls[spawns[agent.agent_id]]
    if agent.agent_id and len(agent.agent_id) >= _FEWEST_ID_CHARS:
        for result in parent.tool_results:
            if agent.agent_id in result.content and result.tool_use_id in calls:
                return calls[result.tool_use_id]
    prompt = next((message.text.strip() for message in agent.messages if message.text.strip()), "")
    given = (call for call in calls.values() if isinstance(call.input, dict) and prompt)
    return next((call for call in given if any(_is_text(value, prompt) for value in call.input.values())), None)


def _is_text(value: object, text: str) -> bool:
    return isinstance(value, str) and value.strip() == text


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


def only(session: Session, known: set[bytes], key: str) -> Session:
    """The messages of a session with these identities, as a session of that key."""
    spent = {id(turn.messages[0]): turn.token_usage for turn in session.turns if turn.messages}
    messages = [message for ident, message in _keyed(session) if ident in known]
    usage = {at: told for at, message in enumerate(messages) if (told := spent.get(id(message))) is not None}
    turns, parent = group_turns(messages, usage), key.rpartition("/")[0]
    if session.agent_id is None:
        return replace(session, turns=turns, metadata=replace(session.metadata, session_id=key))
    metadata = replace(session.metadata, session_id=parent) if parent else session.metadata
    return replace(session, turns=turns, metadata=metadata, parent_id=parent or None)


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
