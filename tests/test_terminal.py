"""What people see: nothing from a log steers the terminal, one line stays one line, columns are straight."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import mempalace
from mempalace.cli import bars, group, output
from tests.logs import claude_lines, write_claude

HOSTILE = "ee\x1b]0;PWNED\x07\nxx; touch pwned \u202etxt.exe"
EXAMPLES = Path(mempalace.__file__).parent / "examples"


@pytest.fixture
def palace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEMPALACE_PALACE_PATH", str(tmp_path / "palace"))
    return tmp_path / "palace"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A log that tries to steer the terminal by its id, its project and its words."""
    records = [json.loads(line) for line in claude_lines([f"why quokka {HOSTILE}", "because"])]
    for record in records:
        record.update(sessionId=HOSTILE, cwd=f"/w/{HOSTILE}")
    log = tmp_path / "logs" / "h.jsonl"
    log.parent.mkdir()
    log.write_text("".join(json.dumps(record) + "\n" for record in records))
    return log


def run(*words: str | Path) -> str:
    result = CliRunner().invoke(group, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_what_is_printable() -> None:
    assert output.printable("a\tb\nc\x1b\x07\u202e\u2066d") == "a\tb\nc\ufffd\ufffd\ufffd\ufffdd"
    assert output.one_line(" a\tb\nc\u2028d\x1b ") == "a b c d\ufffd"
    assert output.argument("s1") == "s1"
    assert output.argument("a\nb; rm") == "'a b; rm'"


def test_a_log_does_not_steer_the_terminal(palace: Path, hostile: Path) -> None:
    run("mine", hostile)
    for words in (
        ["search", "quokka"],
        ["show", "ee"],
        ["status"],
        ["sessions", "show", hostile],
        ["sessions", "messages", hostile],
        ["sessions", "stats", hostile, "--by", "project"],
    ):
        shown = run(*words)
        assert shown.strip()
        assert not set(shown) & set("\x1b\x07\u202e"), words


def test_one_line_stays_one_line(palace: Path, hostile: Path) -> None:
    run("mine", hostile)
    clean = "ee\ufffd]0;PWNED\ufffd xx; touch pwned \ufffdtxt.exe"
    for words in (["show", "ee"], ["sessions", "show", hostile]):
        assert f"session {clean}" in run(*words).splitlines(), words
    assert len(run("sessions", "messages", hostile).splitlines()) == 2
    assert len(run("sessions", "stats", hostile, "--by", "project").splitlines()) == 2


def test_a_suggested_command_is_one_command(palace: Path, hostile: Path) -> None:
    run("mine", hostile)
    (line,) = (line for line in run("search", "quokka").splitlines() if "mempalace show" in line)
    assert shlex.split(line) == ["mempalace", "show", "ee\ufffd]0;PWNED\ufffd xx; touch pwned \ufffdtxt.exe"]


def test_titles_of_sessions_stand_in_one_line(
    palace: Path, hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "claude" / "projects" / "-w"
    folder.mkdir(parents=True)
    (folder / "h.jsonl").write_bytes(hostile.read_bytes())
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    shown = run("sessions", "list", "--all-projects")
    assert len(shown.splitlines()) == 2
    assert "\x1b" not in shown


def test_reports_are_in_colour_on_a_terminal() -> None:
    main, other = pytest.importorskip("pty").openpty()
    command = [sys.executable, "-m", "mempalace", "sessions", "stats", str(EXAMPLES)]
    with subprocess.Popen(command, stdout=other, stderr=subprocess.DEVNULL) as process:
        os.close(other)
        shown = b""
        while b"3 sessions" not in shown or b"\n" not in shown:
            shown += os.read(main, 1 << 16)
        process.kill()
    os.close(main)
    assert shown.startswith(b"\x1b[1m3 sessions")


@pytest.mark.parametrize(
    ("text", "columns"), [("abc", 3), ("漢字", 4), ("e\u0301", 1), ("한글a", 5), ("a\u200bb", 2), ("é", 1), ("", 0)]
)
def test_columns_of_a_text(text: str, columns: int) -> None:
    assert output.columns(text) == columns


def test_columns_are_straight_with_wide_characters() -> None:
    shown = output.table([("漢字", "1"), ("e\u0301a", "22"), ("abcdef", "3")], right=(1,))
    assert shown == "漢字     1\ne\u0301a      22\nabcdef   3"
    assert len({output.columns(line) for line in shown.splitlines()}) == 1


@pytest.mark.parametrize("room", range(1, 12))
def test_what_is_cut_fits(room: int) -> None:
    for text in ("漢字漢字漢字", "a漢b字c漢d", "abcdefghijklmnop"):
        assert output.columns(bars.cut(text, room)) <= room
        assert output.columns(bars.shorten(text, room)) <= room
    assert bars.cut("漢字漢字", 5) == "漢字…"
    assert bars.shorten("漢字漢字漢字", 9) == "漢字…漢字"


def test_a_narrow_terminal_shows_words(palace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = write_claude(tmp_path / "a.jsonl", ["first " + "words " * 9, "the quokka " + "sits " * 9])
    run("mine", log)
    monkeypatch.setenv("COLUMNS", "10")
    shown = run("search", "quokka", "-C", "2")
    assert "quokka sits" in shown
    assert "first words" in shown


@pytest.mark.parametrize(
    ("share", "shown"), [(1.0, "100%"), (0.996, "99%"), (0.29, "29%"), (0.5, "50%"), (0.0001, "0%"), (0.0, "0%")]
)
def test_only_all_of_it_is_a_hundred_percent(share: float, shown: str) -> None:
    assert output.percent(share) == shown
