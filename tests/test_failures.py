"""Whatever goes wrong is told in one line, with an exit code, and as JSON where JSON was asked for."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mempalace
from mempalace.cli import failures
from mempalace.errors import UsageError, expanded
from tests.logs import write_claude

EXAMPLES = Path(mempalace.__file__).parent / "examples"
NOT_UTF8 = os.fsdecode(b"a\xff")
NOBODY = "~nobody-of-this-name/x"
needs_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")


@pytest.fixture
def palace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A palace with the examples in it."""
    path = tmp_path / "palace"
    monkeypatch.setenv("MEMPALACE_PALACE_PATH", str(path))
    with mempalace.Palace(path) as opened:
        opened.mine([EXAMPLES])
    return path


def shell(
    *words: str, cwd: Path | None = None, stdout: int = subprocess.PIPE, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from mempalace.cli import main; main()", *words],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        cwd=cwd,
        env={**os.environ, **environment},
        check=False,
    )


def test_the_home_of_nobody_is_no_path() -> None:
    assert expanded("~/x") == Path.home() / "x"
    assert expanded("a/~b") == Path("a/~b")
    with pytest.raises(UsageError, match="nobody-of-this-name"):
        expanded(NOBODY)


@pytest.mark.parametrize(
    "words",
    [
        ["status", "--palace", NOBODY],
        ["sessions", "show", NOBODY],
        ["sessions", "stats", NOBODY],
        ["sessions", "list", "--project", NOBODY],
        ["export", NOBODY, "--to", "json"],
        ["show", NOT_UTF8],
        ["sessions", "show", NOT_UTF8],
        ["sessions", "stats", NOT_UTF8],
        ["resume", NOT_UTF8],
        ["export", NOT_UTF8, "--to", "json"],
    ],
)
def test_paths_and_texts_that_cannot_be(palace: Path, words: list[str]) -> None:
    result = shell(*words)
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    assert "Traceback" not in result.stderr
    if words[0] != "export":
        told = shell(*words, "--json")
        assert told.returncode == 2
        assert json.loads(told.stdout)["error"]["kind"] in ("usage", "not_found")


@pytest.mark.parametrize(
    "words",
    [
        ["search", "graphql", "--project", NOT_UTF8],
        ["search", "graphql", "--wing", NOT_UTF8],
        ["search", f"graphql {NOT_UTF8}"],
        ["sessions", "list", "--project", NOT_UTF8],
        ["sessions", "list", "--grep", NOT_UTF8],
    ],
)
def test_what_is_not_utf8_is_looked_for_without_that(palace: Path, words: list[str]) -> None:
    for more in ([], ["--json"]):
        result = shell(*words, *more)
        assert result.returncode == 0, result.stderr
        assert "Traceback" not in result.stderr


def test_variables_that_name_the_home_of_nobody() -> None:
    for name in ("MEMPALACE_PALACE_PATH", "MEMPALACE_CONFIG"):
        result = shell("status", **{name: NOBODY})
        assert result.returncode == 2, result.stderr
        assert result.stderr.startswith("error: no home folder is known")


def test_a_file_whose_name_is_not_utf8_is_a_file(tmp_path: Path) -> None:
    log = write_claude(tmp_path / "log.jsonl", ["is it here", "it is"])
    name = tmp_path / os.fsdecode(b"log-\xff.jsonl")
    try:
        log.rename(name)
    except OSError:
        pytest.skip("this file system has UTF-8 names only")
    for words in (["show", str(name), "--json"], ["messages", str(name), "--json"]):
        result = shell("sessions", *words)
        assert result.returncode == 0, result.stderr
        assert "is it here" in result.stdout


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    code = "import os, sys; os.mkdir(sys.argv[1]); os.chdir(sys.argv[1]); os.rmdir(sys.argv[1]);"
    code += "from mempalace.cli import main; sys.argv[1:] = sys.argv[2:]; main()"
    for words in (["list"], ["stats"], ["stats", str(EXAMPLES.name)]):
        command = [sys.executable, "-c", code, str(gone), "sessions", *words]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode in (1, 2)
        assert "Traceback" not in result.stderr
        assert result.stderr.startswith("error: ")
        told = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=False).stdout)
        assert told["error"]["message"]


@needs_full
@pytest.mark.parametrize(
    "words",
    [["status"], ["status", "--json"], ["show", "nothing", "--json"], ["export", "0b5e6a52", "--to", "html"]],
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_standard_output(palace: Path, words: list[str], unbuffered: str) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    result = shell(*words, stdout=full, PYTHONUNBUFFERED=unbuffered)
    os.close(full)
    assert result.returncode == 1
    assert result.stderr.splitlines() == [f"error: the output cannot be written: {os.strerror(errno.ENOSPC)}"]


@needs_full
def test_where_a_failure_comes_from_is_shown_on_request() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    result = shell("formats", stdout=full, MEMPALACE_DEBUG="1")
    os.close(full)
    assert "Traceback" in result.stderr
    assert "in command" in result.stderr


@pytest.mark.parametrize(
    ("error", "message", "path"),
    [
        (RuntimeError("two\nlines"), "RuntimeError: two lines", None),
        (RecursionError(), "RecursionError:", None),
        (OSError(errno.EIO, "Input/output error", "/a/b"), "Input/output error", "/a/b"),
        (OSError(errno.EIO, "Input/output error", 7), "Input/output error", None),
        (OSError("odd"), "OSError: odd", None),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), "UnicodeDecodeError: 'utf-8' codec can't decode", None),
    ],
)
def test_errors_that_are_none_of_ours_are_told_like_ours(
    capsys: pytest.CaptureFixture[str], error: Exception, message: str, path: str | None
) -> None:
    assert failures.tell(error, as_json=True) == 1
    told = json.loads(capsys.readouterr().out)["error"]
    assert (told["kind"], told["path"]) == ("error", path)
    assert told["message"].startswith(message)
    assert "MEMPALACE_DEBUG=1" in told["hint"]
    assert failures.tell(error, as_json=False) == 1
    first, hint = capsys.readouterr().err.splitlines()
    assert first.startswith("error: ")
    assert message in first
    assert "MEMPALACE_DEBUG=1" in hint
