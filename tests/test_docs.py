"""What docs/sessions.md shows is what comes."""

from __future__ import annotations

import doctest
import json
import re
import shlex
import shutil
from datetime import datetime
from pathlib import Path
from textwrap import dedent

import pytest
from click.testing import CliRunner
from conftest import FIXTURES

import mempalace
from mempalace.cli import group
from mempalace.formats import registry

DOCS = Path(__file__).parent.parent / "docs" / "sessions.md"
EXAMPLES = Path(mempalace.__file__).parent / "examples"


def files_shown() -> list[tuple[str, str]]:
    """The files that the docs show: blocks whose first line is a comment with the name."""
    blocks = re.findall(
        r"^    (?:#|--) ([\w.]+\.(?:py|lua|toml))\n((?:    .*\n|\n(?=    (?!\$)))*)",
        DOCS.read_text("utf-8"),
        re.MULTILINE,
    )
    return [(name, dedent(text)) for name, text in blocks]


@pytest.fixture
def machine(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples where their tools keep them, and copies in the current folder."""
    places = {
        "claude-code.jsonl": ".claude/projects/-home-ana-shop/0b5e6a52-7d0e-4c55-9a35-6d1d3a6a7c01.jsonl",
        "codex-rollout.jsonl": ".codex/sessions/2026/10/02/rollout-2026-10-02T16-20-00-a.jsonl",
        "gemini-session.jsonl": ".gemini/tmp/shop/chats/session-2026-11-05T07-30-5d2c1f0a.jsonl",
    }
    for name, place in places.items():
        (home / place).parent.mkdir(parents=True)
        shutil.copy(EXAMPLES / name, home / place)
        shutil.copy(EXAMPLES / name, tmp_path)
    for name, text in files_shown():
        (tmp_path / name).write_text(text)
    shutil.copytree(FIXTURES / "claude-code" / "subagent-files", tmp_path / "with-agents")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_default", registry.Registry(registry.builtin()))


def test_the_python_is_run(machine: None) -> None:
    found = doctest.testfile(str(DOCS), module_relative=False, globs={"datetime": datetime}, encoding="utf-8")
    assert found.attempted >= 20
    assert found.failed == 0


def test_the_commands_give_what_is_shown(machine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    blocks = re.findall(r"^    \$ mempalace (.*)\n((?:    .*\n)*)", DOCS.read_text("utf-8"), re.MULTILINE)
    assert blocks
    for words, shown in blocks:
        output = CliRunner().invoke(group, shlex.split(words), catch_exceptions=False).output
        for line in shown.splitlines():
            assert line[4:].rstrip() in output, line


def test_the_script_in_lua_is_run(machine: None) -> None:
    pytest.importorskip("lupa", reason="needs the extra mempalace[lua]")
    shown = CliRunner().invoke(group, ["sessions", "stats", "--script", "tools.lua", "--json"], catch_exceptions=False)
    assert json.loads(shown.output)["result"] == {"Grep": 1, "Write": 1, "exec_command": 1, "run_shell_command": 1}
