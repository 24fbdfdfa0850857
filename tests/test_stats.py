"""`mempalace sessions stats`, `messages` and `patterns`: what they select, show and refuse."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import mempalace
from mempalace.cli import bars, group, main
from mempalace.cli.sessions import tables
from mempalace.errors import EXIT_PARTIAL, NotFound, PriceError, UnknownFormat, UsageError
from tests.logs import claude_lines, write_claude

EXAMPLES = Path(mempalace.__file__).parent / "examples"
AGENTS = Path(__file__).parent / "fixtures" / "claude-code" / "subagent-files"


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(group, ["sessions", *map(str, words)])


def data(*words: str | Path) -> dict[str, Any]:
    result = run(*words, "--json")
    assert result.exception is None, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    assert found["schema_version"] == 1
    return found


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two sessions of two projects and a sub-agent, where Claude Code keeps them."""
    projects = tmp_path / "claude" / "projects"
    write_claude(projects / "-w-kiln-ctl" / "s1.jsonl", ["hello", "there"])
    write_claude(projects / "-w-shop" / "s2.jsonl", ["sell", "what?", "all"], session="s2", cwd="/w/shop")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    return projects


# --- stats --------------------------------------------------------------------------------------------------


def test_stats_of_selected_and_of_named_sessions(logs: Path) -> None:
    assert data("stats", "--all-projects")["stats"]["message_counts"] == {"user": 3, "assistant": 2}
    assert data("stats", "--project", "shop")["stats"]["ids"] == ["s2"]
    assert data("stats", "--all-projects", "--grep", "hello")["stats"]["ids"] == ["s1"]
    assert data("stats", "s2")["stats"]["ids"] == ["s2"]
    assert data("stats", "s2", logs / "-w-kiln-ctl" / "s1.jsonl")["stats"]["ids"] == ["s1", "s2"]
    assert data("stats", logs)["stats"]["sessions"] == 2
    assert data("stats", EXAMPLES)["stats"]["formats"] == {"claude-code": 1, "codex": 1, "gemini": 1}


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("tool", ["claude-code", "codex", "gemini"]),
        ("model", ["claude-opus-4-5", "gemini-3-pro"]),
        ("project", ["/home/ana/ingest", "/home/ana/shop"]),
        ("day", ["2026-09-14", "2026-10-02", "2026-11-05"]),
    ],
)
def test_groups(logs: Path, by: str, names: list[str]) -> None:
    found = data("stats", EXAMPLES, "--by", by)
    assert [row["name"] for row in found["groups"]] == names
    shown = run("stats", EXAMPLES, "--by", by).output.splitlines()
    assert [line.split("  ")[0] for line in shown] == [by, *names]
    total = found["stats"]
    if by != "model":
        assert sum(row["turns"] for row in found["groups"]) == total["total_turns"]
        assert sum(row["calls"] for row in found["groups"]) == total["total_tool_calls"]
    assert sum(row["cost"]["total"] for row in found["groups"] if row["cost"]) == pytest.approx(
        total["total_cost"]["total"]
    )


@pytest.mark.parametrize("columns", [80, 120])
def test_tables_fit_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    records = [json.loads(line) for line in claude_lines(["go"])]
    for number in range(30):
        name = f"mcp__a-server-with-a-long-name__tool_{number}_that_does_this_and_that"
        path = f"/home/someone/projects/with/a/deep/tree/of/folders/and/a/long/name/src/module_{number}.py"
        use = {"type": "tool_use", "id": f"t{number}", "name": name, "input": {"file_path": path, "command": "make x"}}
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "Exit code 1 " * 40, "is_error": True}
        usage = {"input_tokens": 10**6, "output_tokens": 10**6, "cache_read_input_tokens": 10**8}
        message = {"id": f"m{number}", "role": "assistant", "model": f"model-of-no-table-{'x' * 40}", "usage": usage}
        records.append(
            {**records[0], "type": "assistant", "uuid": f"a{number}", "message": {**message, "content": [use]}}
        )
        records.append({**records[0], "uuid": f"u{number}", "message": {"role": "user", "content": [result]}})
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(map(json.dumps, records)))
    for words in (["stats"], ["patterns"], *(["stats", "--by", by] for by in ("tool", "model", "project", "day"))):
        result = run(*words, log)
        assert result.exit_code == 0
        assert [line for line in result.output.splitlines() if len(line) > columns] == [], words
    assert "... and 20 more tools" in run("stats", log).output  # what is not shown is counted


def test_what_there_is_not_is_said(logs: Path) -> None:
    nothing = run("stats", "--all-projects", "--grep", "pigeon")
    assert (nothing.exit_code, nothing.stdout) == (0, "")
    assert "--all-projects" in nothing.stderr
    assert "No tokens: these logs do not tell them." in run("stats", "s1").output
    assert "these sessions call no tools" in run("patterns", "s1").output
    assert data("stats", "--all-projects", "--grep", "pigeon")["stats"]["sessions"] == 0


def test_sub_agents_are_told_and_counted_on_request() -> None:
    log = next(AGENTS.glob("*.jsonl"))
    alone, whole = run("stats", log), run("stats", log, "--subagents")
    assert "without 2 attached sub-agents: --subagents counts them" in alone.output
    assert "with 2 sub-agents" in whole.output
    one, all = data("stats", log)["stats"], data("stats", log, "--subagents")["stats"]
    assert (one["subagents"], one["subagents_left_out"]) == (0, 2)
    assert (all["subagents"], all["subagents_left_out"]) == (2, 0)
    assert sum(all["message_counts"].values()) > sum(one["message_counts"].values())
    # in a folder each is read from its own file, and none twice
    assert data("stats", AGENTS)["stats"]["ids"] == all["ids"]
    assert data("stats", AGENTS, "--subagents")["stats"]["ids"] == all["ids"]


def test_sub_agents_are_not_counted_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "claude" / "projects" / "-real"
    for path in AGENTS.rglob("*"):
        if path.is_file():
            target = folder / path.relative_to(AGENTS)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    assert data("stats", "--all-projects", "--subagents")["stats"]["subagents"] == 2
    assert data("stats", "--all-projects", "--mode", "all")["stats"]["subagents"] == 2
    refused = run("stats", "--all-projects", "--mode", "all", "--subagents")
    assert isinstance(refused.exception, UsageError)


PRICES = (
    '[[family]]\nmodels = ["gemini-3-pro"]\ninput = 1\noutput = 1\ncache_read = 1\nsource = "own"\ndate = 2026-01-02\n'
)


def test_a_table_of_ones_own_must_know_every_model(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(PRICES)
    found = data("stats", EXAMPLES / "gemini-session.jsonl", "--prices", path)
    assert found["stats"]["total_cost"]["total"] == pytest.approx(4970e-6)
    assert found["prices"] == {"path": str(path), "date": "2026-01-02", "currency": "USD"}
    refused = run("stats", EXAMPLES, "--prices", path)
    assert isinstance(refused.exception, PriceError)
    assert refused.output == ""
    assert "no price for claude-opus-4-5 (2 turns)" in refused.exception.message
    assert refused.exception.path == path
    path.write_text("extends = true\n" + PRICES)
    assert run("stats", EXAMPLES, "--prices", path).exit_code == 0


def test_an_unknown_model_is_shown_as_such(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text((EXAMPLES / "claude-code.jsonl").read_text().replace("claude-opus-4-5", "kimi-k9"))
    assert "kimi-k9      2  no price" in run("stats", log).output
    assert "$" not in run("stats", log).output
    both = run("stats", log, EXAMPLES / "claude-code.jsonl").output
    assert "without 2 turns that have no price" in both


# --- bad input ----------------------------------------------------------------------------------------------


def test_what_cannot_be_read_is_named_and_the_rest_counted(logs: Path) -> None:
    good = logs / "-w-shop" / "s2.jsonl"
    lines = good.read_text().splitlines()
    good.write_text("\n".join([lines[0], '{"type": "user", "mess', *lines[1:]]) + "\n")
    result = run("stats", "--all-projects", "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == EXIT_PARTIAL
    assert found["stats"]["message_counts"] == {"user": 3, "assistant": 2}
    assert found["problems"] == [{"kind": "error", "path": str(good), "line": 2, "message": "1 damaged record"}]
    assert f"{good}:2: 1 damaged record" in result.stderr
    assert run("stats", good).exit_code == EXIT_PARTIAL


def test_files_that_are_no_conversations(tmp_path: Path) -> None:
    other = tmp_path / "notes.json"
    other.write_text('{"a": 1}')
    assert isinstance(run("stats", other).exception, UnknownFormat)
    write_claude(tmp_path / "s1.jsonl", ["hello", "there"])
    result = run("stats", tmp_path, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["stats"]["ids"] == ["s1"]
    assert "no conversation" in result.stderr
    assert "notes.json" in result.stderr


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["stats", "no-such-session"], NotFound),
        (["stats", "s1", "--days", "7"], UsageError),
        (["messages", "s1", "--all-projects"], UsageError),
        (["patterns", "s1", "--limit", "1"], UsageError),
        (["stats", "--tool", "pigeon"], UnknownFormat),
        (["stats", "--all-projects", "--grep", "("], UsageError),
        (["stats", "--all-projects", "--prices", "none.toml"], PriceError),
    ],
)
def test_what_cannot_be_is_refused(logs: Path, words: list[str], error: type[Exception]) -> None:
    result = run(*words)
    assert isinstance(result.exception, error)
    assert result.stdout == ""


def test_errors_as_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text("def metric(session):\n    return 1 / 0\n")
    words = ["mempalace", "sessions", "stats", str(EXAMPLES), "--script", str(path), "--json"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["kind"], error["path"], error["line"]) == ("script", str(path), 2)


# --- messages and patterns ----------------------------------------------------------------------------------


def test_messages_one_per_line(logs: Path) -> None:
    assert run("messages", "s2").output.splitlines() == [
        "2026-02-03 09:00  s2  user       sell",
        "2026-02-03 09:00  s2  assistant  what?",
        "2026-02-03 09:00  s2  user       all",
    ]
    assert [line[-5:] for line in run("messages", "s2", "--role", "assistant").output.splitlines()] == ["what?"]
    assert len(run("messages", "--all-projects", "--role", "user", "--role", "assistant").output.splitlines()) == 5
    assert run("messages", "s2", "--origin", "summary").output == ""
    calls = run("messages", EXAMPLES / "claude-code.jsonl", "--role", "tool").output.splitlines()
    assert calls[1].endswith("tool       → File created successfully")


def test_messages_as_data(logs: Path) -> None:
    found = data("messages", EXAMPLES / "claude-code.jsonl", "--role", "user")["messages"]
    (session,) = mempalace.parse(EXAMPLES / "claude-code.jsonl")
    expected = [
        message for turn in session.to_dict()["turns"] for message in turn["messages"] if message["role"] == "user"
    ]
    assert [
        {**expected[0], "session_id": session.key, "turn": 0},
        {**expected[1], "session_id": session.key, "turn": 1},
    ] == found
    lines = run("messages", EXAMPLES / "claude-code.jsonl", "--role", "user", "--json-lines").output.splitlines()
    assert [json.loads(line) for line in lines] == found


def test_messages_of_sub_agents_on_request() -> None:
    log = next(AGENTS.glob("*.jsonl"))
    alone = data("messages", log)["messages"]
    whole = data("messages", log, "--subagents")["messages"]
    assert len({one["session_id"] for one in alone}) == 1
    assert len({one["session_id"] for one in whole}) == 3
    assert [one for one in whole if one["session_id"] == alone[0]["session_id"]] == alone


def test_hostile_text_does_not_steer_the_terminal(tmp_path: Path) -> None:
    log = write_claude(tmp_path / "s1.jsonl", ["a\x1b[2Jb\r\nc", "d"])
    (first, _) = run("messages", log).output.splitlines()
    assert first.endswith("a\ufffd[2Jb\ufffd c")
    assert "\x1b" not in first


def test_patterns(tmp_path: Path) -> None:
    found = data("patterns", EXAMPLES)
    assert found["transitions"] == [{"from": "Grep", "to": "Write", "count": 1, "probability": 1.0}]
    assert [one["category"] for one in found["error_patterns"]] == ["Command failure"]
    assert "Grep  → Write      1   100%  ████████" in run("patterns", EXAMPLES).output
    turns = "".join((EXAMPLES / "codex-rollout.jsonl").read_text().splitlines(keepends=True)[2:6])
    log = tmp_path / "rollout.jsonl"
    many = "".join(turns.replace("call_1", f"call_{number}") for number in range(4))
    log.write_text("".join((EXAMPLES / "codex-rollout.jsonl").read_text().splitlines(keepends=True)[:2]) + many)
    shown = run("patterns", log).output
    assert "1 chain of turns with a single call each, the longest of 4" in shown
    assert "3x  exec_command → exec_command" in shown
    assert "pytest          4         4         1  ████████" in shown


# --- small pieces -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "greatest", "expected"),
    [(0, 10, ""), (10, 10, "████"), (5, 10, "██"), (0.001, 10, "▏"), (7, 10, "██▊"), (3, 0, ""), (-1, 10, "")],
)
def test_bars(value: float, greatest: float, expected: str) -> None:
    assert bars.bar(value, greatest, 4) == expected


def test_cutting() -> None:
    assert bars.cut("a  b\nc", 10) == "a b c"
    assert bars.cut("abcdef", 4) == "abc…"
    assert bars.shorten("abcdefghij", 5) == "ab…ij"
    assert [len(bars.shorten("abcdefghij", room)) for room in range(1, 12)] == [*range(1, 11), 10]


@pytest.mark.parametrize(
    ("amount", "expected"),
    [("0", "$0.00"), ("1234.567", "$1,234.57"), ("0.0123", "$0.01"), ("0.00123", "$0.0012"), ("0.00001", "<$0.0001")],
)
def test_money(amount: str, expected: str) -> None:
    from decimal import Decimal

    assert tables.money(Decimal(amount), "USD") == expected
    assert tables.money(Decimal(2), "EUR") == "EUR 2.00"
