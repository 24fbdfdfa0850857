"""The config file: what it may hold, and what it says where something in it cannot be meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from mempalace.cli import group
from mempalace.errors import UsageError
from tests.logs import write_claude


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The config file, beside a palace of one session."""
    monkeypatch.setenv("MEMPALACE_PALACE_PATH", str(tmp_path / "palace"))
    monkeypatch.setenv("MEMPALACE_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    log = tmp_path / "claude" / "projects" / "-w" / "s1.jsonl"
    write_claude(log, ["where is the quokka", "the quokka sleeps", "wake the quokka"])
    run("mine", str(log))
    return tmp_path / "config.toml"


def run(*words: str) -> str:
    result = CliRunner().invoke(group, list(words), catch_exceptions=False, standalone_mode=False)
    assert result.exception is None, result.output
    return result.stdout


def refused(*words: str) -> UsageError:
    error = CliRunner().invoke(group, list(words), standalone_mode=False).exception
    assert isinstance(error, UsageError), error
    return error


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("search = 5", "[search]"),
        ("[search]\nlimti = 3", "`limti`"),
        ("[serach]\nlimit = 3", "[serach]"),
    ],
)
def test_what_cannot_be_meant_is_named(config: Path, text: str, named: str) -> None:
    config.write_text(text)
    error = refused("search", "quokka")
    assert named in error.message
    assert error.path == config
    assert error.hint is not None
    assert "search" in error.hint or "limit" in error.hint


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[sessions]\nlist = 5", "[sessions.list]"),
        ("[sessions.list]\nlimti = 3", "[sessions.list] has no option `limti`"),
        ("[sessions.lits]\nlimit = 3", "[sessions.lits]"),
    ],
)
def test_tables_within_a_table(config: Path, text: str, named: str) -> None:
    config.write_text(text)
    assert named in refused("sessions", "list", "--all-projects").message


def test_a_misspelled_option_stops_its_own_command_only(config: Path) -> None:
    config.write_text("[search]\nlimti = 3\n")
    assert "Sessions  1" in run("status")


def test_values_for_every_command(config: Path) -> None:
    config.write_text("limit = 1\n[sessions]\nall-projects = true\n[sessions.messages]\nrole = 'assistant'\n")
    assert len(json.loads(run("search", "quokka", "--json"))["results"]) == 1
    assert "Sessions  1" in run("status")  # which has no limit
    assert run("sessions", "messages").splitlines()[0].endswith("the quokka sleeps")
    assert len(run("sessions", "messages").splitlines()) == 1


@pytest.mark.parametrize("text", ["include = 'tool'", "include = ['tool', 'thinking']"])
def test_an_option_that_may_be_repeated(config: Path, text: str) -> None:
    config.write_text(f"[search]\n{text}\n")
    included = json.loads(run("search", "quokka", "--json"))["filters"]["include"]
    assert included == ["tool", "thinking"][: len(included)]
    assert len(included) == 1 + ("thinking" in text)


def test_options_by_the_names_that_they_have_on_the_command_line(config: Path) -> None:
    config.write_text("[search]\njson = true\n[mine]\ndry-run = true\n")
    assert json.loads(run("search", "quokka"))["schema_version"] == 1
    assert "nothing was written" in run("mine")


def test_a_file_with_a_byte_order_mark(config: Path) -> None:
    config.write_bytes(b"\xef\xbb\xbf[search]\r\nlimit = 1\r\n")
    assert len(json.loads(run("search", "quokka", "--json"))["results"]) == 1


def test_embedding_is_no_command(config: Path) -> None:
    config.write_text("[embedding]\nmodel = 'bundled'\n")
    assert "quokka" in run("search", "quokka")
