"""Sub-agents stand in the session that spawned them, wherever their tool keeps them, and are stored once."""

from __future__ import annotations

import json
import os
import random
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from conftest import FIXTURES
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import mine, write_claude

import mempalace
from mempalace.errors import SourceError
from mempalace.model import Message, Role, Session, SessionMetadata, Text, group_turns
from mempalace.tree import flatten, reconstruct_tree

CLAUDE = FIXTURES / "claude-code"
PARENT = "5b0c7a52-9d1e-4c33-8a41-2f6b1d0e9a10"


def spawned(session: Session) -> list[tuple[str | None, str | None, str | None, str | None]]:
    """Of each sub-agent: id, parent's id, type, and the call that spawned it."""
    return [
        (agent.agent_id, agent.parent_id, agent.subagent_type, agent.metadata.parent_tool_use_id)
        for agent in session.subagents
    ]


# --- Claude Code --------------------------------------------------------------------------------------------


def test_files_in_the_folder_of_a_session_are_attached() -> None:
    session = mempalace.load(CLAUDE / "subagent-files" / f"{PARENT}.jsonl")
    assert spawned(session) == [
        ("a1", PARENT, "Explore", "toolu_1"),  # the type is that of its label
        ("a2", PARENT, "Plan", "toolu_2"),  # without a label that of the call
    ]
    calls = {call.id: call.input["prompt"] for call in session.tool_uses}
    for agent in session.subagents:
        assert next(agent.messages).text == calls[agent.metadata.parent_tool_use_id or ""]
        assert agent.key == f"{PARENT}/{agent.agent_id}"
        assert agent.is_subagent
    assert Session.from_dict(json.loads(json.dumps(session.to_dict()))) == session


def test_a_sub_agents_own_file_is_itself() -> None:
    agent = mempalace.load(CLAUDE / "subagent-files" / PARENT / "subagents" / "agent-a1.jsonl")
    assert (agent.agent_id, agent.parent_id, agent.subagent_type, agent.subagents) == ("a1", PARENT, "Explore", ())


def test_files_beside_a_session_are_attached_if_they_name_it(tmp_path: Path) -> None:
    main = write_claude(tmp_path / "p1.jsonl", ["go", "done"], "p1")
    for agent, parent in (("aa", "p1"), ("bb", "p2"), ("cc", "p1")):
        write_claude(tmp_path / f"agent-{agent}.jsonl", ["look", "seen"], parent, isSidechain=True, agentId=agent)
    assert [agent[:3] for agent in spawned(mempalace.load(main))] == [
        ("aa", "p1", "subagent"),
        ("cc", "p1", "subagent"),
    ]


def test_those_of_workflows_are_attached_and_none_twice(tmp_path: Path) -> None:
    folder = CLAUDE / "inline-sidechain"
    (path,) = folder.glob("*.jsonl")
    main = Path(shutil.copy(path, tmp_path))
    inline = mempalace.load(main)
    known = inline.subagents[0]
    assert known.agent_id
    own = inline.metadata.session_id or ""
    agents = main.with_suffix("") / "subagents" / "workflows" / "wf1"
    for agent in (known.agent_id, "new"):
        write_claude(agents / f"agent-{agent}.jsonl", ["look", "seen"], own, isSidechain=True, agentId=agent)
    both = mempalace.load(main)
    assert [agent.key for agent in both.subagents] == [*(agent.key for agent in inline.subagents), f"{own}/new"]


def test_one_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    main = write_claude(tmp_path / "p1.jsonl", ["go", "done"], "p1")
    (tmp_path / "p1" / "subagents" / "agent-x.jsonl").mkdir(parents=True)
    with pytest.raises(SourceError, match="agent-x"):
        mempalace.load(main)


# --- Gemini CLI and Codex -----------------------------------------------------------------------------------


def test_gemini_names_the_call_that_spawned_one() -> None:
    chats = FIXTURES / "gemini" / "tree" / ".gemini" / "tmp" / "kiln-ctl" / "chats"
    session = mempalace.load(chats / "session-2026-05-04T08-00-4f1c20aa.jsonl")
    assert spawned(session) == [("inv-1", session.key, "subagent", "c1")]


ROOT, CHILD, GRANDCHILD, FORK = (f"019cb8{n}0-0000-7000-8000-00000000000{n}" for n in range(1, 5))


def rollout(folder: Path, own: str, day: str, *items: dict[str, Any], **meta: Any) -> Path:
    """A Codex rollout of that day, written for the last time on the day after."""
    path = folder / day.replace("-", "/") / f"rollout-{day}T10-00-00-{own}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    head = {"type": "session_meta", "payload": {"id": own, "timestamp": f"{day}T10:00:00Z", "cwd": "/w", **meta}}
    rows = [head, *({"type": "response_item", "payload": item} for item in items)]
    stamp = {"timestamp": f"{day}T10:00:00Z"}
    path.write_text("".join(json.dumps(stamp | row) + "\n" for row in rows))
    return path


def says(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def call(id: str, output: str) -> list[dict[str, Any]]:
    return [
        {"type": "function_call", "name": "spawn_agent", "call_id": id, "arguments": '{"message": "look"}'},
        {"type": "function_call_output", "call_id": id, "output": output},
    ]


def test_codex_agents_of_any_depth_are_found_in_the_days_of_their_parent(tmp_path: Path, home: Path) -> None:
    folder = home / ".codex" / "sessions"
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": ROOT, "agent_role": "explorer"}}}
    main = rollout(folder, ROOT, "2026-03-01", says("user", "go"), *call("c1", json.dumps({"agent_id": CHILD})))
    child = rollout(
        folder, CHILD, "2026-03-02", says("user", "look"), *call("c2", f"spawned {GRANDCHILD}"), source=spawn
    )
    rollout(folder, GRANDCHILD, "2026-03-02", says("user", "deeper"), parent_thread_id=CHILD)
    rollout(folder, FORK, "2026-03-02", says("user", "another way"), forked_from_id=ROOT)
    for path in (main, child):
        moment = datetime(2026, 3, 2, 12).timestamp()
        os.utime(path, (moment, moment))
    session = mempalace.load(main)
    assert spawned(session) == [(CHILD, ROOT, "explorer", "c1")]
    assert spawned(session.subagents[0]) == [(GRANDCHILD, CHILD, "subagent", "c2")]
    assert mine(tmp_path / "palace", folder).sessions_new == 4
    assert mempalace.find_session(ROOT, tmp_path / "palace") == session
    shutil.rmtree(folder)
    assert mempalace.find_session(ROOT, tmp_path / "palace") == session


# --- in the palace ------------------------------------------------------------------------------------------


def test_they_are_stored_once_and_come_back_with_their_parent(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    shutil.copytree(CLAUDE / "subagent-files", folder)
    live = mempalace.load(folder / f"{PARENT}.jsonl")
    summary = mine(tmp_path / "palace", folder)
    assert summary.sessions_new == 3
    assert summary.duplicate == 0
    assert summary.stored == sum(message.records for one in flatten([live]) for message in one.messages)
    shutil.rmtree(folder)
    assert mempalace.find_session(PARENT, tmp_path / "palace") == live
    agent = mempalace.find_session(f"{PARENT}/a1", tmp_path / "palace")
    assert (agent.subagent_type, agent.turns) == ("Explore", live.subagents[0].turns)


def test_those_of_a_real_session(corpus: Path) -> None:
    folder = corpus / "samples" / "claude-code" / "v2.1.114"
    (path,) = folder.glob("*.jsonl")
    session = mempalace.load(path)
    labels = {
        label.name.removeprefix("agent-").removesuffix(".meta.json"): json.loads(label.read_text())["agentType"]
        for label in folder.rglob("*.meta.json")
    }
    assert len(labels) == 3
    assert {agent.agent_id: agent.subagent_type for agent in session.subagents} == labels
    calls = {use.id: use for use in session.tool_uses}
    for agent in session.subagents:
        said = calls[agent.metadata.parent_tool_use_id or ""]
        assert said.name in ("Task", "Agent")
        assert said.input["prompt"].strip() == next(agent.messages).text.strip()


# --- reconstruct_tree ---------------------------------------------------------------------------------------


def one(own: str, parent: str | None = None, text: str = "x") -> Session:
    said = Message(Role.USER, (Text(text),))
    agent = own if parent else None
    return Session(Path(own), "x", SessionMetadata(own), group_turns([said]), parent_id=parent, agent_id=agent)


def shape(sessions: list[Session]) -> Any:
    return [(one.metadata.session_id, shape(list(one.subagents))) for one in sessions]


def test_sub_agents_are_nested_by_their_parents_ids() -> None:
    flat = [one("c", "b"), one("a"), one("b", "a"), one("d", "a"), one("e")]
    assert shape(reconstruct_tree(flat)) == [("a", [("b", [("c", [])]), ("d", [])]), ("e", [])]
    assert mempalace.reconstruct_tree is reconstruct_tree


def test_orphans_stay_roots() -> None:
    assert shape(reconstruct_tree([one("b", "gone"), one("a"), one("c", "b")])) == [("b", [("c", [])]), ("a", [])]


def test_circles_are_survived_by_all() -> None:
    assert shape(reconstruct_tree([one("a", "a")])) == [("a", [])]
    ring = [one("x"), one("b", "a"), one("c", "b"), one("a", "c"), one("d", "a")]
    assert shape(reconstruct_tree(ring)) == [("x", []), ("b", [("c", [("a", [("d", [])])])])]


def test_the_order_is_that_in_which_they_came() -> None:
    flat = [one("r2"), one("k2", "r1"), one("r1"), one("k1", "r1"), one("k3", "r2")]
    assert shape(reconstruct_tree(flat)) == [("r2", [("k3", [])]), ("r1", [("k2", []), ("k1", [])])]


def test_a_real_set_is_put_together_as_it_was_loaded() -> None:
    session = mempalace.load(CLAUDE / "subagent-files" / f"{PARENT}.jsonl")
    files = [session.path, *sorted((session.path.with_suffix("") / "subagents").glob("*.jsonl"))]
    flat = [found for path in files for found in registry_read(path)]
    assert reconstruct_tree(flat) == [session]
    assert reconstruct_tree([session]) == [session]
    assert reconstruct_tree([mempalace.load(path) for path in files]) == [session]  # flat and attached


def registry_read(path: Path) -> list[Session]:
    from mempalace.formats import registry

    return list(registry.default().detect(path).sessions(path))


def test_a_long_line_of_parents_is_no_recursion() -> None:
    line = [one(str(n), str(n - 1) if n else None) for n in range(5_000)]
    random.Random(1).shuffle(line)
    (root,) = reconstruct_tree(line)
    assert sum(1 for _ in flatten([root])) == 5_000


IDS = st.sampled_from("abcdef")


@given(st.lists(st.tuples(IDS, st.none() | IDS), max_size=14))
@settings(max_examples=300, deadline=None)
def test_no_session_is_lost_whatever_the_parents_are(links: list[tuple[str, str | None]]) -> None:
    flat = [one(own, parent, str(at)) for at, (own, parent) in enumerate(links)]
    found = reconstruct_tree(flat)
    texts = sorted(next(one.messages).text for one in flatten(found))
    assert texts == sorted(str(at) for at in range(len(flat)))
    for parent in flatten(found):
        for child in parent.subagents:
            assert child.parent_id == parent.metadata.session_id
    if len({own for own, _ in links}) == len(links):
        assert shape(reconstruct_tree(found)) == shape(found)
