"""The agent of normalize: golden files, where its logs lie, any JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import FIXTURES, SCALARS, account, cases, json_like, read, stable

import mempalace
from mempalace.formats.normalize_agent import NormalizeAgent
from mempalace.head import Head
from mempalace.model import Role
from mempalace.normalize import _try_normalize_agent_jsonl, _try_normalize_json
from mempalace.source import Source

FOLDER = FIXTURES / "normalize-agent"
FORMAT = NormalizeAgent()
KEYS = """
event session_start task turn_start llm_response command session_end max_turns_reached user_prompt response cmd success
session_id timestamp moss_root provider model role turn working_memory_count
"""


def path_of(case: str) -> Path:
    (path,) = (FOLDER / case).glob("*.jsonl")
    return path


@pytest.mark.parametrize("case", cases("normalize-agent"))
def test_golden(case: str, golden: Callable[[Path, Any], None]) -> None:
    path = path_of(case)
    sessions, ledger = read(FORMAT, path)
    golden(
        path.parent / "expected.json", {"sessions": [stable(s, FOLDER) for s in sessions], "ledger": account(ledger)}
    )
    assert FORMAT.detect(path) == 1


def test_a_run_is_told_whole() -> None:
    session = mempalace.load(path_of("run"))
    assert session.format == "normalize-agent"
    assert [str(message.role) for message in session.messages] == [
        *("user", "assistant", "assistant", "tool"),
        *("assistant", "assistant", "tool", "assistant"),
    ]
    assert [(use.name, use.input["command"]) for use in session.tool_uses] == [
        ("view", "view src/probe.rs"),
        ("run", "run cargo test probe"),
    ]
    assert [result.is_error for result in session.tool_results] == [False, True]
    assert [use.id for use in session.tool_uses] == [result.tool_use_id for result in session.tool_results]
    assert len(session.turns) == 1
    metadata = session.metadata
    assert (metadata.project, metadata.model, metadata.provider) == ("/w/kiln-ctl", "claude-sonnet-4-5", "anthropic")


def test_calls_of_one_turn_have_ids_of_their_own() -> None:
    session = mempalace.load(path_of("limit"))
    assert len({use.id for use in session.tool_uses}) == 2
    assert len(session.turns) == 2
    assert session.metadata.extra["max_turns_reached"] is True


def test_two_starts_are_two_sessions_with_their_own_bytes() -> None:
    first, second = mempalace.parse(path_of("several"))
    assert (first.key, second.key) == ("c1", "c2")
    assert b"".join([*first.raw, *second.raw]) == path_of("several").read_bytes()
    assert b"WARP-BLUE" not in b"".join(first.raw)


def test_the_transcript_is_that_of_the_chain() -> None:
    text = path_of("run").read_text()
    found = _try_normalize_agent_jsonl(text)
    assert found is not None
    assert found == _try_normalize_json(text) == mempalace.normalize(path_of("run"))
    assert found.startswith("> Why does KILN-OVERHEAT fire twice?\n> Look at src/probe.rs first.\n\n")
    assert "[view]" in found
    for other in ("", "words", "[]", '{"event":"session_start","session_id":"x"}', '{"event":"task"}'):
        assert _try_normalize_agent_jsonl(other) is None


@pytest.mark.parametrize(
    "records",
    [
        [{"event": "session_start", "session_id": "x", "timestamp": "2026-01-01T00:00:00Z"}],
        [{"event": "llm_response", "response": "hello"}],
        [{"event": "click", "user_prompt": "x"}],
        [{"event": "task", "user_prompt": "x", "type": "user"}],
        [{"event": "task", "user_prompt": "x"}, {"level": "info"}, {"level": "info"}],
    ],
)
def test_what_only_looks_like_it_is_not_claimed(records: list[Any]) -> None:
    data = "\n".join(map(json.dumps, records)).encode()
    assert FORMAT.claims(Head.of(Source(Path("a.jsonl"), data))) == 0


def test_its_logs_lie_in_the_project(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "shop"
    logs = project / ".normalize" / "agent" / "logs"
    logs.mkdir(parents=True)
    (logs / "b.jsonl").write_bytes(path_of("limit").read_bytes())
    assert FORMAT.sessions_dir(project) == logs
    assert FORMAT.sessions_dir(tmp_path) is None
    (file,) = mempalace.list_sessions(project)
    assert (file.session_id, file.project) == ("b2", str(project))  # the log names none: its place does
    assert FORMAT.list_sessions() == []
    monkeypatch.chdir(project)
    assert [one.path for one in FORMAT.list_sessions()] == [logs / "b.jsonl"]
    with mempalace.Palace(tmp_path / "palace") as palace:
        assert palace.mine().sessions_new == 1
        (hit,) = palace.search("probe to sensor", 1)
        assert (hit.format, hit.role, hit.project) == ("normalize-agent", Role.USER, str(project))


@given(st.lists(json_like(tuple(KEYS.split())) | SCALARS, max_size=6))
@settings(max_examples=200, deadline=None)
def test_any_json_is_read_and_accounted_for(values: list[Any]) -> None:
    source = Source(Path("a.jsonl"), "".join(f"{json.dumps(value)}\n" for value in values).encode())
    assert 0 <= FORMAT.claims(Head.of(source)) <= 1
    read(FORMAT, source)
