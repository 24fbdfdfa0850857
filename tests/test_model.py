"""The Session model: dictionaries and sessions are inverse, sums keep what is not known apart from zero."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mempalace.model import (
    Image,
    Message,
    Origin,
    Role,
    Session,
    SessionMetadata,
    Text,
    Thinking,
    TokenUsage,
    ToolResult,
    ToolUse,
    Turn,
    add_usage,
    group_turns,
)
from mempalace.model_data import format_time
from mempalace.values import dumps, loads

WORDS = st.text(max_size=20)
MAYBE = st.none() | WORDS
COUNTS = st.integers(0, 2**53)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)
TIMES = st.none() | st.datetimes(timezones=st.just(UTC))
IMAGES = st.builds(Image, MAYBE, st.none() | COUNTS, st.none() | COUNTS, st.none() | COUNTS, MAYBE)
BLOCKS = st.one_of(
    st.builds(Text, WORDS),
    st.builds(ToolUse, WORDS, WORDS, JSON),
    st.builds(ToolResult, WORDS, WORDS, st.none() | st.booleans(), st.lists(IMAGES, max_size=2).map(tuple)),
    st.builds(Thinking, WORDS, MAYBE),
    IMAGES,
)
MESSAGES = st.builds(
    Message,
    role=st.sampled_from(Role),
    content=st.lists(BLOCKS, max_size=4).map(tuple),
    timestamp=TIMES,
    id=MAYBE,
    origin=st.sampled_from(Origin),
    name=MAYBE,
    model=MAYBE,
    line=st.none() | COUNTS,
    records=st.integers(0, 9),
)
USAGES = st.builds(TokenUsage, COUNTS, COUNTS, st.none() | COUNTS, st.none() | COUNTS, MAYBE)
TURNS = st.builds(Turn, st.lists(MESSAGES, max_size=3).map(tuple), st.none() | USAGES)
METADATA = st.builds(
    SessionMetadata,
    session_id=MAYBE,
    timestamp=TIMES,
    provider=MAYBE,
    model=MAYBE,
    project=MAYBE,
    title=MAYBE,
    source=MAYBE,
    git_branch=MAYBE,
    client_version=MAYBE,
    interactive=st.none() | st.booleans(),
    system_prompt=MAYBE,
    parent_tool_use_id=MAYBE,
    headers=st.lists(JSON, max_size=2).map(tuple),
    lineage=st.dictionaries(WORDS, WORDS, max_size=2),
    extra=st.dictionaries(WORDS, JSON, max_size=2),
)


def _sessions(subagents: st.SearchStrategy[tuple[Session, ...]]) -> st.SearchStrategy[Session]:
    return st.builds(
        Session,
        path=st.sampled_from([Path("/logs/a.jsonl"), Path("a b.json"), Path("/w/проект/日本.zip")]),
        format=WORDS,
        metadata=METADATA,
        turns=st.lists(TURNS, max_size=3).map(tuple),
        subagents=subagents,
        parent_id=MAYBE,
        agent_id=MAYBE,
        subagent_type=MAYBE,
        member=MAYBE,
        start=COUNTS,
        end=st.none() | COUNTS,
    )


SESSIONS = st.recursive(
    _sessions(st.just(())), lambda inner: _sessions(st.lists(inner, max_size=2).map(tuple)), max_leaves=3
)


@given(SESSIONS)
@settings(max_examples=60, deadline=None)
def test_a_session_comes_back_from_its_dictionary(session: Session) -> None:
    assert Session.from_dict(session.to_dict()) == session


@given(SESSIONS)
@settings(max_examples=60, deadline=None)
def test_a_session_comes_back_from_json(session: Session) -> None:
    assert Session.from_dict(orjson.loads(orjson.dumps(session.to_dict()))) == session


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"in": [value]}
    return value


@pytest.mark.parametrize("value", [2**80, -(2**70), _nested(300), {"π": [None, 1.5, "\u2028"]}])
def test_a_session_comes_back_with_values_that_orjson_refuses(value: Any) -> None:
    session = Session(Path("a"), "x", turns=(Turn((Message(Role.ASSISTANT, (ToolUse("t", "n", value),)),)),))
    assert Session.from_dict(loads(dumps(session.to_dict()))) == session


def test_missing_keys_take_their_defaults() -> None:
    assert Session.from_dict({"path": "/a", "format": "x"}) == Session(Path("/a"), "x")
    message = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    (found,) = Session.from_dict({"path": "/a", "format": "x", "turns": [{"messages": [message]}]}).messages
    assert found == Message(Role.USER, (Text("hi"),))


def test_times_are_written_in_utc_and_read_back_equal() -> None:
    moment = datetime(2026, 2, 3, 10, 30, 0, 120000, tzinfo=timezone(timedelta(hours=2)))
    session = Session(Path("a"), "x", SessionMetadata(timestamp=moment))
    assert session.to_dict()["metadata"]["timestamp"] == "2026-02-03T08:30:00.120000Z"
    assert Session.from_dict(session.to_dict()).metadata.timestamp == moment
    assert format_time(None) is None


def test_roles_and_origins_are_their_words() -> None:
    assert [str(role) for role in Role] == ["user", "assistant", "system", "tool"]
    assert Role.USER == "user"
    assert f"{Origin.TOOL_CALL}" == "tool_call"
    assert Role("tool") is Role.TOOL


def test_sessions_are_frozen() -> None:
    session = Session(Path("a"), "x")
    with pytest.raises(FrozenInstanceError):
        session.format = "y"  # type: ignore[misc]


def _said(role: Role, *blocks: Any, origin: Origin = Origin.PERSON) -> Message:
    return Message(role, blocks, origin=origin)


def test_helpers_count_and_collect_over_all_turns() -> None:
    call, result = ToolUse("t1", "Bash", {"command": "ls"}), ToolResult("t1", "a.py")
    messages = [
        _said(Role.USER, Text("one")),
        _said(Role.ASSISTANT, Text("two"), call, origin=Origin.ASSISTANT),
        _said(Role.TOOL, result, origin=Origin.TOOL_RESULT),
        _said(Role.USER, Text("three")),
    ]
    session = Session(Path("a"), "x", turns=group_turns(messages))
    assert session.message_count == 4
    assert list(session.messages) == messages
    assert session.messages_by_role(Role.USER) == [messages[0], messages[3]]
    assert session.messages_by_role("assistant") == [messages[1]]
    assert session.messages_by_role("nobody") == []
    assert session.tool_uses == [call]
    assert session.tool_results == [result]
    assert Message(Role.USER, (Text("a"), Thinking("no"), Text("b"))).text == "a\nb"


def test_subagents_are_not_counted_with_their_parent() -> None:
    child = Session(Path("a"), "x", turns=group_turns([_said(Role.USER, Text("go"))]), agent_id="9", parent_id="p")
    parent = Session(Path("a"), "x", SessionMetadata("p"), subagents=(child,))
    assert parent.message_count == 0
    assert (parent.key, child.key) == ("p", "p/9")
    assert (parent.is_subagent, child.is_subagent) == (False, True)


@pytest.mark.parametrize(
    ("usages", "expected"),
    [
        ([], TokenUsage(0, 0, None, None)),
        ([None, None], TokenUsage(0, 0, None, None)),
        ([TokenUsage(1, 2), TokenUsage(3, 4)], TokenUsage(4, 6, None, None)),
        ([TokenUsage(1, 2, cache_read=0), TokenUsage(3, 4)], TokenUsage(4, 6, 0, None)),
        ([TokenUsage(1, 2, 5, 0), None, TokenUsage(3, 4, 6, None)], TokenUsage(4, 6, 11, 0)),
    ],
    ids=["no turns", "no usage", "no cache figures", "zero is not nothing", "sums"],
)
def test_total_tokens_keep_unknown_apart_from_zero(usages: list[TokenUsage | None], expected: TokenUsage) -> None:
    session = Session(Path("a"), "x", turns=tuple(Turn((), usage) for usage in usages))
    assert session.total_tokens == expected


def test_total_tokens_name_the_model_of_the_session() -> None:
    turns = (Turn((), TokenUsage(1, 1, model="small")), Turn((), TokenUsage(1, 1, model="large")))
    assert Session(Path("a"), "x", SessionMetadata(model="large"), turns).total_tokens.model == "large"
    assert add_usage([TokenUsage(model="small"), TokenUsage(model="large"), TokenUsage()]) == TokenUsage(model="large")
    assert add_usage([]) is None


def test_a_person_opens_a_turn_and_what_answers_belongs_to_it() -> None:
    early = _said(Role.ASSISTANT, Text("hello"), origin=Origin.ASSISTANT)
    ask, reminder = _said(Role.USER, Text("q")), _said(Role.USER, Text("r"), origin=Origin.INJECTED)
    answer = _said(Role.ASSISTANT, Text("a"), origin=Origin.ASSISTANT)
    again = _said(Role.USER, Text("q2"), origin=Origin.SUBAGENT)
    turns = group_turns(
        [early, ask, reminder, answer, again], {0: TokenUsage(1), 3: TokenUsage(2, 1), 2: TokenUsage(4)}
    )
    assert [turn.messages for turn in turns] == [(early,), (ask, reminder, answer), (again,)]
    assert [turn.token_usage for turn in turns] == [TokenUsage(1), TokenUsage(6, 1), None]


@given(st.lists(MESSAGES, max_size=12))
@settings(max_examples=60, deadline=None)
def test_turns_hold_every_message_once_and_in_order(messages: list[Message]) -> None:
    turns = group_turns(messages)
    assert [message for turn in turns for message in turn.messages] == messages
    assert all(turn.messages for turn in turns)
