"""What the README states is so."""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import mempalace
from mempalace.cli import group

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_table_of_formats_is_the_registry() -> None:
    table = re.findall(r"^\| `([a-z-]+)` \|", README, re.MULTILINE)
    assert table == mempalace.formats()  # type: ignore[operator]


def test_exactly_two_commands_set_up_everything() -> None:
    commands = re.findall(r"^    (python3 -m venv .*)$", README, re.MULTILINE)
    assert len(commands) == 2
    assert commands[0].endswith("mempalace demo")
    assert commands[1].endswith("pytest")


def test_every_command_and_filter_exists() -> None:
    from mempalace.cli import _COMMANDS
    from mempalace.cli.search import command as search

    assert set(
        re.findall(r"mempalace (mine|search|show|export|resume|status|sessions|formats|refine|rebuild|demo)\b", README)
    ) == set(_COMMANDS)
    options = {name for parameter in search.params for name in parameter.opts}
    (filters,) = re.findall(r"Filters: `([^`]+)`", README)
    assert set(filters.split()) <= options
    assert group.name == "group"


def test_the_output_that_is_shown_is_what_comes(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(ROOT)
    blocks = re.findall(r"^    \$ mempalace (.*)\n((?:    .*\n|\n(?=    ))*)", README, re.MULTILINE)
    assert [words.split()[0] for words, _ in blocks] == ["mine", "search", "show", "sessions"]
    for words, shown in blocks:
        output = CliRunner().invoke(group, shlex.split(words), catch_exceptions=False).output
        output = output.replace(f"{ROOT}/", "").replace(str(home), "~")
        for line in shown.splitlines():
            if line.strip() not in ("", "..."):
                assert line[4:].rstrip() in output, line
