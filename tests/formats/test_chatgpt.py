"""ChatGPT exports: the current branch, everything off it, every content type, any size, any JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from exports import pieces, write
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import FIXTURES, account, cases, json_like, read, read_value, stable

from mempalace.folders import Folder
from mempalace.formats.chatgpt import ChatGPT
from mempalace.head import Head
from mempalace.model import Image, Origin, Role, Session, Thinking, ToolUse
from mempalace.source import Source

FOLDER = FIXTURES / "chatgpt"
CHATGPT = ChatGPT()


def sessions_of(case: str) -> list[Session]:
    (path,) = (path for path in (FOLDER / case).iterdir() if path.name != "expected.json")
    return read(CHATGPT, path)[0]


def lines(session: Session) -> list[tuple[str, str]]:
    return [(str(message.origin), message.text) for message in session.messages]


@pytest.mark.parametrize("case", cases("chatgpt"))
def test_golden(case: str, golden: Callable[[Path, Any], None]) -> None:
    (path,) = (path for path in (FOLDER / case).iterdir() if path.name != "expected.json")
    sessions, ledger = read(CHATGPT, path)
    golden(
        path.parent / "expected.json", {"sessions": [stable(s, FOLDER) for s in sessions], "ledger": account(ledger)}
    )
    assert CHATGPT.detect(path) == 1


def test_a_list_gives_one_session_for_each_conversation_with_title_and_date() -> None:
    pool, bread = sessions_of("list")
    assert (pool.metadata.title, pool.key, str(pool.metadata.timestamp)) == (
        "Connection pool",
        "c-pool",
        "2026-01-01 00:00:00+00:00",
    )
    assert [(m.role, m.text) for m in bread.messages] == [
        (Role.USER, "How wet may the dough be?"),
        (Role.ASSISTANT, "Start at 70 % hydration."),
    ]
    assert bread.metadata.extra["gizmo_id"] == "g-p-67f0"
    assert bread.metadata.project is None
    first, second = bread.messages
    assert first.timestamp == second.timestamp  # the answer has no time of its own


def test_a_sessions_bytes_are_its_conversation() -> None:
    path = FOLDER / "list" / "conversations.json"
    for session in sessions_of("list"):
        slice_ = json.loads(path.read_bytes()[session.start : session.end])
        assert slice_["conversation_id"] == session.key


def test_other_branches_follow_the_current_one() -> None:
    edited, no_current = sessions_of("branches")
    assert lines(edited) == [
        ("person", "second wording"),
        ("assistant", "kept answer"),
        ("abandoned", "first wording"),
        ("abandoned", "answer to the first wording"),
        ("abandoned", "regenerated away"),
    ]
    assert lines(no_current)[:2] == [("person", "which?"), ("assistant", "newest leaf")]


def test_tools_thoughts_and_hidden_nodes() -> None:
    (tools,) = sessions_of("tools")
    calls = {call.id: call for call in tools.tool_uses}
    assert [call.name for call in tools.tool_uses] == ["python", "python", "web.run", "canmore.create_textdoc"]
    assert calls["c"].input == {"code": "import csv\nprint(41 + 1)"}
    assert calls["cv"].input["content"].startswith("# Runbook")
    assert [(r.tool_use_id, r.is_error) for r in tools.tool_results] == [
        ("c", False),
        ("c2", True),
        ("w", None),
        ("cv", None),
        ("cv", True),
    ]
    assert tools.tool_results[0].images == (Image(ref="file-service://file-plot1"),)
    assert "\ue200cite\ue202turn0search3\ue201" in list(tools.messages)[-1].text
    (hidden,) = sessions_of("hidden")
    assert lines(hidden)[0] == ("injected", "I run a bakery.\nAnswer in short.")
    assert [m.text for m in hidden.messages_by_role("user")] == ["How long does it proof?"]
    thoughts = [block.text for m in hidden.messages for block in m.content if isinstance(block, Thinking)]
    assert thoughts == ["Weighing times\nCold proof is longer.", "Thought for 12 s"]
    assert ("injected", "a retracted line") in lines(hidden)


def test_assets_are_named_and_voice_is_text() -> None:
    (media,) = sessions_of("media")
    images = [block for message in media.messages for block in message.content if isinstance(block, Image)]
    assert [image.ref for image in images] == [
        "receipt.png (file-7Receipt)",
        "costs.xlsx (file-9Sheet)",
        "sediment://file_voice1",
    ]
    assert [m.text for m in media.messages_by_role("user")] == ["What is on the receipt?", "and how much was it"]
    assert media.tool_results[0].images[0].ref == "sediment://file_train"


def test_broken_trees_are_read_and_counted() -> None:
    sessions, ledger = read(CHATGPT, FOLDER / "odd" / "conversations.json")
    assert [session.key for session in sessions] == ["c-cycle", "c-dangling", "c-roots", "c-null"]
    assert [m.text for m in sessions[2].messages] == ["second root", "first root"]
    assert ledger.damaged == 1
    assert "hologram" in str(ledger.problems)


def test_a_damaged_conversation_costs_only_its_damage() -> None:
    sessions = sessions_of("damaged")
    assert [session.metadata.title for session in sessions] == ["Number 1", "Number 2", "Number 3"]
    assert lines(sessions[1]) == [("person", "question 2")]
    assert lines(sessions[2]) == [("person", "question 3"), ("assistant", "answer 3")]
    assert [s.metadata.title for s in sessions_of("cut_off")] == ["Number 1", "Number 2"]


def test_a_chain_of_ten_thousand_nodes() -> None:
    nodes: dict[str, Any] = {}
    for n in range(10_000):
        content = {"content_type": "text", "parts": [str(n)]}
        message = {"author": {"role": ("user", "assistant")[n % 2]}, "content": content}
        nodes[f"n{n}"] = {"parent": f"n{n - 1}" if n else None, "children": [f"n{n + 1}"], "message": message}
    for current in ("n9999", None):
        sessions, _ = read_value(CHATGPT, [{"mapping": nodes, "current_node": current}])
        assert [m.text for m in sessions[0].messages] == [str(n) for n in range(10_000)]


KEYS = """
mapping message parent children author role content content_type parts text multimodal_text thoughts metadata
attachments id current_node recipient user tool
"""


@settings(deadline=None)
@given(json_like(tuple(KEYS.split())))
def test_no_json_raises(value: Any) -> None:
    read_value(CHATGPT, value)
    message = value if isinstance(value, dict) else {"content": {"content_type": "multimodal_text", "parts": value}}
    for role in ("user", "assistant", "tool"):
        node = {"message": {**message, "author": {"role": role}}, "parent": value, "children": value}
        read_value(CHATGPT, [{"mapping": {"a": node, "b": value}, "current_node": "a", "create_time": value}])


# --- generated exports --------------------------------------------------------------------------------------


def expected_texts(data: bytes) -> Counter[tuple[str, str, str]]:
    """Every message of an export by a reading of its own: conversation, id and what it says."""
    found: Counter[tuple[str, str, str]] = Counter()
    for conversation in json.loads(data):
        for node in conversation["mapping"].values():
            if node["message"] is not None:
                content = node["message"]["content"]
                said = content.get("text") or "".join(content.get("parts", [])) or content["thoughts"][0]["content"]
                found[conversation["conversation_id"], node["message"]["id"], said] += 1
    return found


def said(block: Any) -> str:
    if isinstance(block, ToolUse):
        return str(block.input["code"])
    if isinstance(block, Thinking):
        return block.text.partition("\n")[2]
    return str(getattr(block, "text", None) or block.content)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 8), st.integers(1, 30_000), st.integers(0, 1000))
def test_each_message_of_an_export_comes_back_exactly_once(conversations: int, size: int, seed: int) -> None:
    data = b"".join(pieces(conversations, size, seed))
    sessions, ledger = read(CHATGPT, Source(Path("conversations.json"), data))
    found = Counter((s.key, m.id, said(m.content[0])) for s in sessions for m in s.messages)
    assert found == expected_texts(data)
    assert ledger.skipped == Counter(control=conversations) + Counter()
    assert [s.metadata.title for s in sessions] == [f"Conversation {n}" for n in range(conversations)]


@pytest.mark.parametrize("form", ["conversations.json", "export.zip"])
def test_an_export_of_a_few_megabytes(tmp_path: Path, form: str) -> None:
    write(tmp_path / form, conversations=20, size=200_000)
    with Folder.open(tmp_path / form if form.endswith("zip") else tmp_path) as folder:
        (source,) = folder.sources()
        assert CHATGPT.claims(Head.of(source)) == 1
        sessions, _ = read(CHATGPT, source)
    assert len(sessions) == 20
    assert all(session.member == ("conversations.json" if form.endswith("zip") else None) for session in sessions)


def test_a_new_export_differs_only_where_the_conversations_do() -> None:
    old = list(pieces(3, 4_000))
    new = list(pieces(4, 4_000))
    first, _ = read(CHATGPT, Source(Path("old.json"), b"".join(old)))
    second, _ = read(CHATGPT, Source(Path("new.json"), b"".join(new)))
    assert [list(s.messages) for s in first] == [list(s.messages) for s in second[:3]]
    assert [s.metadata for s in first] == [s.metadata for s in second[:3]]


_MEASURE = """
import resource, sys, time
from pathlib import Path
from mempalace.folders import Folder
from mempalace.formats.chatgpt import ChatGPT
from mempalace.records import Ledger
from mempalace.source import Source
path = Path(sys.argv[1])
source = next(Folder.open(path).sources()) if path.suffix == ".zip" else Source(path)
started, titles, end = time.process_time(), set(), 0
for session in ChatGPT().read(source, Ledger()):
    titles.add((session.metadata.title, session.metadata.timestamp))
    end = session.end
seconds = time.process_time() - started
print(len(titles), end / 1e6 / seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize("form", ["conversations.json", "export.zip"])
def test_an_export_of_one_gigabyte(tmp_path: Path, form: str) -> None:
    write(tmp_path / form, conversations=5000, size=240_000)
    command = [sys.executable, "-c", _MEASURE, str(tmp_path / form)]
    titles, speed, memory = map(
        float, subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()
    )
    assert titles == 5000
    assert speed >= 10, "MB a CPU second"
    assert memory < 700, "MiB resident"


# --- real-looking samples, and what is not ours ---------------------------------------------------------------


def test_samples(corpus: Path) -> None:
    for path in sorted((corpus / "samples" / "chatgpt").iterdir()):
        sessions, _ = read(CHATGPT, path)
        assert len(sessions) == 1
        assert CHATGPT.detect(path) == 1


@pytest.mark.parametrize(
    "value",
    [
        {"mapping": {"a": "b"}},
        {"mapping": {"a": {"type": "keyword"}}, "settings": {}},
        [{"mapping": [1, 2]}],
        {"name": "x", "version": "1.0.0", "dependencies": {}},
        [{"id": 1, "name": "cat", "supercategory": "animal"}],
        {"sessionId": "s", "projectHash": "h", "messages": []},
    ],
)
def test_other_json_is_not_claimed(value: Any) -> None:
    assert CHATGPT.claims(Head.of(Source(Path("a.json"), json.dumps(value).encode()))) == 0


def test_a_conversation_counts_also_where_the_head_is_cut() -> None:
    data = b"".join(pieces(3, 400_000))
    head = Head.of(Source(Path("conversations.json"), data))
    assert CHATGPT.claims(Head(head.source, data[:200_000], False)) == 1
    assert Origin.ABANDONED in {m.origin for s in read(CHATGPT, head.source)[0] for m in s.messages}
