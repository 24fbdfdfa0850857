"""Claude.ai exports: old and new messages, attachments, tools, branches, documents, any JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from reading import FIXTURES, account, assert_accounted, cases, json_like, read, read_value, stable

from mempalace.formats.claude_ai import ClaudeAi
from mempalace.head import Head
from mempalace.model import Image, Role, Session, Text, Thinking
from mempalace.records import Ledger
from mempalace.source import Source

FOLDER = FIXTURES / "claude-ai"
CLAUDE = ClaudeAi()
KEYS = """
chat_messages uuid name text sender human assistant content type thinking tool_use tool_result attachments files
parent_message_uuid created_at docs creator conversations_memory input extracted_content
"""


def path_of(case: str) -> Path:
    (path,) = (path for path in (FOLDER / case).iterdir() if path.name != "expected.json")
    return path


def sessions_of(case: str) -> list[Session]:
    return read(CLAUDE, path_of(case))[0]


def lines(session: Session) -> list[tuple[str, str]]:
    return [(str(message.origin), message.text) for message in session.messages]


@pytest.mark.parametrize("case", cases("claude-ai"))
def test_golden(case: str, golden: Callable[[Path, Any], None]) -> None:
    path = path_of(case)
    sessions, ledger = read(CLAUDE, path)
    golden(
        path.parent / "expected.json", {"sessions": [stable(s, FOLDER) for s in sessions], "ledger": account(ledger)}
    )
    assert CLAUDE.detect(path) == 1


def test_each_conversation_is_a_session_of_its_own() -> None:
    herbs, mint = sessions_of("list")
    assert (herbs.metadata.title, herbs.key, mint.metadata.title) == ("Herbs", "k1", "Mint")
    assert lines(herbs) == [("person", "When do I sow basil?"), ("assistant", "After the last frost.")]
    assert herbs.metadata.extra["update_time"] == "2026-01-05T09:00:00Z"
    assert all(message.timestamp for message in mint.messages)
    data = path_of("list").read_bytes()
    assert json.loads(data[mint.start : mint.end])["uuid"] == "k3"


def test_messages_of_2023_have_only_text() -> None:
    (old,) = sessions_of("text_only")
    assert lines(old) == [("person", "old question"), ("assistant", "old answer")]


def test_blocks_tools_and_thoughts() -> None:
    (session,) = sessions_of("blocks")
    first, second = session.tool_uses[:2]
    assert (first.name, first.input["content"]) == ("artifacts", "print('sow')\n")
    assert [result.tool_use_id for result in session.tool_results] == ["toolu_1", second.id, "toolu_2"]
    assert session.tool_results[1].content == "Frost dates\nhttps://example.org/frost\nmid May"
    assert session.tool_results[2].is_error is True
    assert [m.role for m in session.messages if m.line == 2] == ["assistant", "tool", "assistant", "tool", "assistant"]
    assert [m.records for m in session.messages if m.line == 2] == [1, 0, 0, 0, 0]
    assert [block.text for m in session.messages for block in m.content if isinstance(block, Thinking)] == [
        "They want a small script."
    ]
    assert "not supported" not in str(session.to_dict())
    assert ("person", "Voice note\nthanks a lot") in lines(session)


def test_an_attached_text_is_the_persons() -> None:
    (session,) = sessions_of("attachments")
    first = next(session.messages)
    assert first.role is Role.USER
    assert first.content == (
        Text("[attachment: paste.txt]\nthe pasted log line KILN-OVERHEAT"),
        Image(ref="photo.jpg"),
    )


def test_branches() -> None:
    (edited,) = sessions_of("branches")
    assert lines(edited) == [
        ("person", "second wording"),
        ("assistant", "answer two"),
        ("abandoned", "first wording"),
        ("abandoned", "answer one"),
    ]
    (single,) = sessions_of("single")
    assert lines(single) == [("person", "one"), ("assistant", "chosen leaf"), ("abandoned", "old leaf")]
    assert (single.metadata.project, single.metadata.model) == ("Garden", "claude-sonnet-4-5")


def test_a_message_whose_parent_is_missing_follows_the_one_before_it() -> None:
    messages = [
        {"uuid": "a", "sender": "human", "text": "one", "parent_message_uuid": "gone"},
        {"uuid": "b", "sender": "assistant", "text": "two", "parent_message_uuid": "gone too"},
        {"uuid": "c", "sender": "human", "text": "three", "parent_message_uuid": "b"},
    ]
    sessions, _ = read_value(CLAUDE, [{"uuid": "k", "chat_messages": messages}])
    assert [origin for origin, _ in lines(sessions[0])] == ["person", "assistant", "person"]


def test_documents_are_counted_and_named_and_given_when_asked_for() -> None:
    for case, titles in (("projects", ["Garden"]), ("memories", ["Claude.ai memories"])):
        sessions, ledger = read(CLAUDE, path_of(case))
        assert sessions == []
        assert ledger.skipped["document"] == 2
        assert "2 documents left out" in ledger.problems[0].message
        account_of_all = Ledger()
        found = list(CLAUDE.documents(Source(path_of(case)), account_of_all))
        assert_accounted(found, [account_of_all])
        assert [session.metadata.title for session in found] == titles
        assert account_of_all.skipped["document"] == 0
    assert next(found[0].messages).text == "Ana grows herbs on a balcony."
    conversations = list(CLAUDE.documents(Source(path_of("list")), Ledger()))
    assert conversations == sessions_of("list")


@settings(deadline=None)
@given(json_like(tuple(KEYS.split())))
def test_no_json_raises(value: Any) -> None:
    read_value(CLAUDE, value)
    message = value if isinstance(value, dict) else {"sender": "assistant", "content": value, "attachments": value}
    block = {"type": "tool_result", "content": value}
    sessions = [{"chat_messages": [message, value, {**message, "content": [block, value]}], "name": value}]
    read_value(CLAUDE, sessions)
    for document in ({"docs": [value], "creator": 1}, {"conversations_memory": value, "project_memories": value}):
        read_value(CLAUDE, [document])
        list(CLAUDE.documents(Source(Path("a.json"), json.dumps([document]).encode("utf-8", "replace")), Ledger()))


def test_ten_thousand_messages_in_a_chain() -> None:
    messages = [
        {"uuid": f"m{n}", "sender": "human", "text": str(n), "parent_message_uuid": f"m{n - 1}"} for n in range(10_000)
    ]
    sessions, _ = read_value(CLAUDE, [{"chat_messages": messages}])
    assert [m.text for m in sessions[0].messages] == [str(n) for n in range(10_000)]


def test_samples(corpus: Path) -> None:
    for path in sorted((corpus / "samples" / "claude-ai").iterdir()):
        sessions, _ = read(CLAUDE, path)
        assert len(sessions) == 1
        assert CLAUDE.detect(path) == 1


@pytest.mark.parametrize(
    "value",
    [
        {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]},
        {"docs": ["a.md"], "name": "x"},
        {"chat_messages": "no list"},
    ],
)
def test_other_json_is_not_claimed(value: Any) -> None:
    assert CLAUDE.claims(Head.of(Source(Path("a.json"), json.dumps(value).encode()))) == 0
