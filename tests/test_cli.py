"""The command line: JSON contracts, exit codes, and what people read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from logs import write_claude

from mempalace.cli import group
from mempalace.cli.times import moment
from mempalace.errors import UsageError

COMMAND = [sys.executable, "-c", "from mempalace.cli import main; main()"]


@pytest.fixture
def palace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEMPALACE_PALACE_PATH", str(tmp_path / "palace"))
    return tmp_path / "palace"


def run(*words: str, ok: bool = True) -> Result:
    """A command in this process; errors are raised as they are."""
    result = CliRunner().invoke(group, list(words), catch_exceptions=False, standalone_mode=False)
    assert not ok or result.exception is None, result.output
    return result


def run_json(*words: str) -> Any:
    return json.loads(run(*words, "--json").stdout)


def shell(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, with the exit code that a shell sees."""
    return subprocess.run(
        [*COMMAND, *words],
        capture_output=True,
        text=True,
        errors="replace",
        env={**os.environ, **environment},
        check=False,
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_claude(tmp_path / "logs" / "a.jsonl", ["why does KILN-OVERHEAT fire", "call probe_f2c first"])


def test_mine_json_contract(palace: Path, log: Path) -> None:
    found = run_json("mine", str(log))
    assert found["schema_version"] == 1
    assert found["palace"] == str(palace)
    states = ["new", "grown", "unchanged", "unrecognised", "ignored", "empty", "excluded", "failed"]
    assert list(found["sources"]) == ["found", *states]
    assert found["sources"]["found"] == sum(found["sources"][state] for state in states) == 1
    records = found["records"]
    assert records == {"read": 2, "stored": 2, "duplicate": 0, "damaged": 0, "skipped": {}}
    assert found["sessions"] == {"new": 1, "updated": 0}
    assert found["chunks"] == {"new": 1, "total": 1}
    assert found["vectors"] == {"new": 1, "queued": 0}
    assert found["problems"] == []
    assert isinstance(found["seconds"], float)


def test_search_json_contract(palace: Path, log: Path) -> None:
    run("mine", str(log))
    found = run_json("search", "KILN-OVERHEAT")
    assert (found["schema_version"], found["query"], found["masked"]) == (1, "KILN-OVERHEAT", 0)
    assert found["indexes"] == ["lexical", "vectors"]
    (hit,) = found["results"]
    assert set(hit["scores"]) == {"lexical", "vector", "late", "rerank"}
    expected = {
        "rank": 1,
        "session_id": "s1",
        "message_id": "s1-0",
        "parent_session_id": None,
        "format": "claude-code",
        "project": "/w/kiln-ctl",
        "title": "why does KILN-OVERHEAT fire",
        "role": "user",
        "origin": "person",
        "timestamp": "2026-02-03T09:00:00Z",
        "text": "> why does KILN-OVERHEAT fire\n\ncall probe_f2c first",
        "path": str(log),
        "line": 1,
        "source_gone": False,
        "copies": [],
        "resume": "cd /w/kiln-ctl && claude --resume s1",
    }
    assert {key: hit[key] for key in expected} == expected
    assert hit["chunk_id"]


def test_show_json_is_the_session(palace: Path, log: Path) -> None:
    import mempalace

    run("mine", str(log))
    found = run_json("show", "s1")
    assert found.pop("schema_version") == 1
    assert mempalace.Session.from_dict(found) == mempalace.load(log)


def test_show_prints_the_words_as_they_were(palace: Path, tmp_path: Path) -> None:
    text = "fine:\n\n    four spaces\n\ttab \x1b[31mred"
    run("mine", str(write_claude(tmp_path / "a.jsonl", ["> quoted\nmine", text])))
    shown = run("show", "s1").output
    assert "> > quoted\n> mine\n\nfine:\n\n    four spaces\n\ttab \ufffd[31mred\n" in shown


def test_status_json_contract(palace: Path, log: Path) -> None:
    run("mine", str(log))
    found = run_json("status")
    assert (found["schema_version"], found["sessions"], found["messages"], found["chunks"]) == (1, 1, 2, 1)
    assert found["indexed"] == 1
    assert found["roles"] == {"assistant": 1, "user": 1}
    assert found["formats"] == {"claude-code": {"sessions": 1, "messages": 2}}
    assert found["projects"] == {"kiln-ctl": {"sessions": 1, "messages": 2}}
    assert found["vectors"] == {"embedded": 1, "queued": 0, "share": 1.0}
    assert set(found["bytes"]) == {"catalog", "lexical", "vectors"}
    assert found["archived_bytes"] == log.stat().st_size


def test_formats_json_contract(home: Path) -> None:
    write_claude(home / ".claude" / "projects" / "-w" / "a.jsonl", ["a", "b"])
    found = run_json("formats")
    assert found["schema_version"] == 1
    claude = found["formats"][0]
    assert claude["name"] == "claude-code"
    assert claude["files"] == 1
    assert str(home / ".claude" / "projects") in claude["roots"]


def test_mine_without_a_path_reads_every_known_place(
    palace: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "alt"))
    write_claude(tmp_path / "alt" / "projects" / "x" / "a.jsonl", ["alt HOME-1", "b"])
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    rollout = tmp_path / "codex" / "sessions" / "2026" / "01" / "02" / "rollout-a.jsonl"
    rollout.parent.mkdir(parents=True)
    lines = [
        {"type": "session_meta", "payload": {"id": "r1", "cwd": "/w/loom"}},
        {"type": "event_msg", "payload": {"type": "user_message", "message": "dye HOME-2"}},
        {"type": "event_msg", "payload": {"type": "agent_message", "message": "done"}},
    ]
    rollout.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run_json("mine")["sessions"]["new"] == 2
    assert [hit["format"] for hit in run_json("search", "HOME-2")["results"]][:1] == ["codex"]


def test_nothing_found_is_no_failure(palace: Path, home: Path) -> None:
    result = run("mine")
    assert "0 found" in result.output
    assert "mempalace formats" in result.output


def test_dry_run_writes_nothing(palace: Path, log: Path) -> None:
    before = run_json("mine", str(log), "--dry-run")
    assert not palace.exists()
    after = run_json("mine", str(log))
    for key in ("sources", "records", "sessions", "chunks"):
        assert before[key] == after[key]


def test_errors_as_json_and_exit_codes(tmp_path: Path, home: Path) -> None:
    palace = tmp_path / "palace"
    environment = {"MEMPALACE_PALACE_PATH": str(palace)}
    missing = shell("search", "x", "--json", **environment)
    assert missing.returncode == 3
    error = json.loads(missing.stdout)["error"]
    assert set(error) == {"kind", "message", "hint", "path", "line"}
    assert (error["kind"], error["path"]) == ("no_palace", str(palace))
    assert "mempalace mine" in error["hint"]
    plain = shell("search", "x", **environment)
    assert (plain.returncode, plain.stdout) == (3, "")
    assert plain.stderr.startswith("error: ")
    assert "mempalace mine" in plain.stderr
    for words in (["search"], ["search", "x", "--limit", "0"], ["mine", "--mode", "other"], ["nonsense"]):
        assert shell(*words, **environment).returncode == 2
    usage = shell("mine", "--mode", "other", "--json", **environment)
    assert usage.returncode == 2
    assert json.loads(usage.stdout)["error"]["kind"] == "usage"


def test_usage_errors_say_what_to_do(palace: Path, log: Path) -> None:
    run("mine", str(log))
    for words, hint in [
        (["search", "x", "--since", "yesterdayish"], "2026-02-03"),
        (["search", "x", "--last", "soon"], "7d"),
        (["search", "x", "--tool", "nope"], "claude-code"),
        (["search", "x", "--include", "nope"], "subagent"),
        (["show", "nope"], "mempalace search"),
        (["search", "  "], "mempalace search"),
    ]:
        result = shell(*words, MEMPALACE_PALACE_PATH=str(palace))
        assert result.returncode == 2, words
        assert hint in result.stderr, words
        assert "Traceback" not in result.stderr


def test_human_results_name_what_matters(palace: Path, log: Path) -> None:
    run("mine", str(log))
    shown = run("search", "probe_f2c").output
    for part in ("2026-02-03", "claude-code", "kiln-ctl", "why does KILN-OVERHEAT fire", "assistant: call probe_f2c"):
        assert part in shown
    assert "mempalace show s1" in shown
    assert "claude --resume s1" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize("words", [["deploy", "-docker"], ["deploy", "-nginx"], ["-docker deploy"], ["x", "-404"]])
def test_a_word_that_is_taken_for_an_option_says_how_to_leave_it_out(palace: Path, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        run("search", *words)
    (excluded,) = (word.split()[0] for word in words if word.startswith("-"))
    assert f"mempalace search 'deploy {excluded}'" in str(caught.value.hint)
    assert f"mempalace search -- '{excluded} deploy'" in str(caught.value.hint)


@pytest.mark.parametrize("words", [["x", "--limti", "3"], ["x", "-n", "0"], ["x", "-n0"], ["x", "-q"]])
def test_other_options_that_cannot_be_are_not_taken_for_words(palace: Path, words: list[str]) -> None:
    with pytest.raises(click.UsageError):
        run("search", *words)


def test_a_query_behind_dashes_leaves_words_out(palace: Path, tmp_path: Path) -> None:
    run("mine", str(write_claude(tmp_path / "a.jsonl", ["deploy by docker", "deploy by hand"], cwd="/w/one")))
    for words in (["deploy -docker"], ["--", "-docker deploy"], ["--", "deploy", "-docker"]):
        assert json.loads(run("search", "--json", *words).stdout)["results"] == []
    assert run_json("search", "deploy -nginx")["results"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--project", "Shop"], "project 'Shop'"),
        (["--wing", "garden"], "wing 'garden'"),
        (["--tool", "chatgpt"], "tool 'chatgpt'"),
    ],
)
def test_a_filter_that_no_session_fits_is_named(palace: Path, log: Path, words: list[str], named: str) -> None:
    run("mine", str(log))
    shown = run("search", "probe_f2c", *words).output
    assert "Nothing found." in shown
    assert f"No session is of the {named}" in shown
    assert run_json("search", "probe_f2c", *words)["results"] == []
    for fitting in (["--project", "kiln-ctl"], ["--project", "/w/kiln-ctl"], ["--wing", "kiln-ctl"], ["--tool", "cl"]):
        shown = run("search", "nothinglikeit", "--fast", "--role", "tool", *fitting).output
        assert "Nothing found." in shown
        assert "No session" not in shown


@pytest.mark.parametrize(
    ("text", "first_after"),
    [
        ("2026-03-02", "2026-03-03"),
        ("20260302", "2026-03-03"),
        ("2026-W10-1", "2026-03-03"),
        ("2026W101", "2026-03-03"),
        ("2026-W10", "2026-03-09"),
        ("2026-03-02T10:00", "2026-03-02T10:00"),
    ],
)
def test_a_day_as_an_end_includes_all_of_it(text: str, first_after: str) -> None:
    assert moment(text, end=True) == datetime.fromisoformat(first_after).astimezone()
    start = moment(text, end=False)
    assert start is not None
    assert start.date() == datetime(2026, 3, 2).date()


def test_the_config_file_gives_defaults(palace: Path, home: Path, tmp_path: Path, log: Path) -> None:
    run("mine", str(log))
    (home / ".mempalace").mkdir()
    (home / ".mempalace" / "config.toml").write_text("[search]\nlimit = 1\nrole = 'assistant'\n")
    (hit,) = run_json("search", "probe")["results"]
    assert hit["role"] == "assistant"
    (home / ".mempalace" / "config.toml").write_text("limit = ")
    result = shell("search", "probe", MEMPALACE_PALACE_PATH=str(palace))
    assert result.returncode == 2
    assert "config.toml" in result.stderr


def test_what_the_console_cannot_show_is_replaced_on_the_screen_only(palace: Path, tmp_path: Path) -> None:
    run("mine", str(write_claude(tmp_path / "a.jsonl", ["naïve → 日本 ✓", "ok"])))
    for encoding in ("cp1252", "cp950", "ascii"):
        result = shell("search", "naïve", PYTHONIOENCODING=encoding, PYTHONUTF8="0", MEMPALACE_PALACE_PATH=str(palace))
        assert result.returncode == 0, result.stderr
        found = shell("search", "日本", "--json", PYTHONIOENCODING=encoding, MEMPALACE_PALACE_PATH=str(palace))
        assert found.stdout.isascii()
        assert "naïve → 日本 ✓" in json.loads(found.stdout)["results"][0]["text"]


def test_help_has_examples() -> None:
    for name in group.list_commands(None):  # type: ignore[arg-type]
        assert "xample" in run(name, "--help", ok=False).output, name


def test_demo_without_logs_uses_the_examples(home: Path) -> None:
    result = run("demo")
    assert "bundled examples" in result.output
    assert "GraphQL" in result.output
    assert (home / ".mempalace" / "demo").is_dir()
    assert not (home / ".mempalace" / "conversations").exists()


def test_demo_with_logs_uses_them(palace: Path, home: Path) -> None:
    write_claude(home / ".claude" / "projects" / "-w" / "a.jsonl", ["where is the kiln manual", "on the shelf"])
    result = run("demo")
    assert "where is the kiln manual" in result.output
    assert "example" not in result.output
