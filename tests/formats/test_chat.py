"""Neutral chat shapes: what is accepted, what gives way to a tool's own format, any JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from reading import FIXTURES, account, cases, json_like, read, read_value, stable

from mempalace.formats.chat import Chat
from mempalace.head import Head
from mempalace.model import Image, Role, Session
from mempalace.source import Source, read_span

FOLDER = FIXTURES / "chat"
CHAT = Chat()
USER = {"role": "user", "content": "hello"}
ASSISTANT = {"role": "assistant", "content": "good morning"}
KEYS = """
role user assistant tool content type text image_url url messages conversations from human gpt value tool_calls function
arguments name id body function_call model
"""


def path_of(case: str) -> Path:
    (path,) = (path for path in (FOLDER / case).iterdir() if path.name != "expected.json")
    return path


def claim(value: Any) -> float:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return CHAT.claims(Head.of(Source(Path("a.json"), data)))


@pytest.mark.parametrize("case", cases("chat"))
def test_golden(case: str, golden: Callable[[Path, Any], None]) -> None:
    path = path_of(case)
    sessions, ledger = read(CHAT, path)
    golden(
        path.parent / "expected.json", {"sessions": [stable(s, FOLDER) for s in sessions], "ledger": account(ledger)}
    )
    assert 0 < CHAT.detect(path) < 0.5


def lines(session: Session) -> list[tuple[str, str]]:
    return [(str(message.role), message.text) for message in session.messages]


@pytest.mark.parametrize(
    "value",
    [
        [USER, ASSISTANT],
        {"messages": [USER, ASSISTANT]},
        [{"messages": [USER, ASSISTANT]}],
        [[USER, ASSISTANT]],
        {"conversations": [{"from": "human", "value": "hello"}, {"from": "gpt", "value": "good morning"}]},
        [{"conversation": [USER, ASSISTANT]}],
        b'{"role": "user", "content": "hello"}\n{"role": "assistant", "content": "good morning"}',
        b'{"messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "good morning"}]}\n' * 1,
    ],
)
def test_the_smallest_of_each_shape(value: Any) -> None:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    assert claim(data) > 0
    sessions, _ = read(CHAT, Source(Path("a.json"), data))
    assert [lines(session) for session in sessions] == [[("user", "hello"), ("assistant", "good morning")]]


def test_parts_tools_and_images() -> None:
    (session,) = read(CHAT, path_of("openai"))[0]
    assert [message.role for message in session.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert [call.input for call in session.tool_uses] == [{"zoom": 2}, {"raw": "not json"}]
    inside, outside = (block for m in session.messages for block in m.content if isinstance(block, Image))
    assert outside.ref == "https://img.example/a.png"
    assert inside.offset is not None
    assert inside.length is not None
    assert read_span(Source(path_of("openai")), inside.offset, inside.length) == b"iVBORw0KGgoAAAANSUhEUg=="
    assert (session.key, session.metadata.model) == ("req-1", "gpt-4o")


def test_several_conversations_of_a_file_stay_apart() -> None:
    first, second = read(CHAT, path_of("sharegpt"))[0]
    assert (first.key, second.key) == ("sg-1", "sg-2")
    assert first.tool_results[0].tool_use_id == first.tool_uses[0].id
    one, two = read(CHAT, path_of("jsonl_conversations"))[0]
    assert (one.key, two.key) == (None, "b-2")
    data = path_of("jsonl_conversations").read_bytes()
    assert json.loads(data[two.start : two.end])["custom_id"] == "b-2"


@pytest.mark.parametrize(
    "value",
    [
        [USER],
        [USER, USER],
        [],
        {"messages": []},
        {"name": "x", "scripts": {}},
        [{"id": 1, "role": "button"}],
        {"sessionId": "s", "projectHash": "h", "messages": [USER, ASSISTANT]},
        [{"role": "user", "parts": [{"text": "x"}]}, {"role": "model", "parts": [{"text": "y"}]}],
        [{**USER, "ts": 1}, {**ASSISTANT, "ts": 2}],
        [{"role": "user", "content": [{"type": "text", "text": "<task>x</task>"}]}, ASSISTANT],
        [USER, {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "x", "input": {}}]}],
        [{"type": "message", "role": "user", "content": []}, {"type": "message", "role": "assistant", "content": []}],
        {"messages": [{"id": 1, "type": "message", "from_id": "u", "text": "x"}]},
        {"messages": [{"author": {"name": "a"}, "content": "x", "timestamp": "y"}]},
        {"chat_messages": [USER, ASSISTANT]},
        [{"role": "user", "message": {"content": []}}, {"role": "assistant", "message": {"content": []}}],
        b'{"role": "_system_prompt", "content": "x"}\n{"role": "user", "content": "x"}\n'
        b'{"role": "assistant", "content": ""}',
    ],
)
def test_what_gives_way(value: Any) -> None:
    assert claim(value) == 0


@settings(deadline=None)
@given(json_like(tuple(KEYS.split())))
def test_no_json_raises(value: Any) -> None:
    read_value(CHAT, value)
    read_value(
        CHAT, [USER, {"role": "tool", "content": value}, {"role": "assistant", "content": value, "tool_calls": value}]
    )
    read_value(CHAT, {"messages": [value, USER], "body": value, "title": value})


def test_messages_of_unknown_speakers_are_counted() -> None:
    sessions, ledger = read_value(CHAT, {"messages": [USER, {"role": "narrator", "content": "x"}, {}, ASSISTANT]})
    assert [message.role for message in sessions[0].messages] == [Role.USER, Role.SYSTEM, Role.ASSISTANT]
    assert ledger.skipped["empty"] == 1
