"""What the README states is so."""

from __future__ import annotations

import re
from pathlib import Path

import mempalace

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
    from mempalace.cli import _COMMANDS, group
    from mempalace.cli.search import command as search

    assert set(re.findall(r"mempalace (mine|search|show|status|formats|rebuild|demo)\b", README)) == set(_COMMANDS)
    options = {name for parameter in search.params for name in parameter.opts}
    (filters,) = re.findall(r"Filters: `([^`]+)`", README)
    assert set(filters.split()) <= options
    assert group.name == "group"
