"""Nothing leaves the machine: no connection is tried, and none is needed."""

from __future__ import annotations

import json
from pathlib import Path

from logs import SEVERAL, cut_off, marker, run, write_claude

# Tells on stderr whenever Python code looks up a name, connects or sends; the code behind it follows.
_TELL_CONNECTIONS = """
import sys
def tell(event, details):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "socket.sendmsg"):
        print(event, details[1:], file=sys.stderr)
sys.addaudithook(tell)
"""


def commands(logs: Path, word: str) -> list[str]:
    """Every command; `rebuild` opens Chroma also in a small palace."""
    write_claude(logs / "a.jsonl", [f"ask {word} why", "say because"], "s1")
    return [
        "formats --json",
        f"mine {logs} --json",
        "rebuild --json",
        "status --json",
        "show s1 --json",
        f"search {word} --json",
    ]


def check(stdout: str, word: str) -> None:
    answers = [json.loads(line) for line in stdout.splitlines()]
    assert answers[2]["rebuilt"] == {"lexical": 1, "vectors": 1}
    assert answers[-1]["indexes"] == ["lexical", "vectors"]
    assert word in answers[-1]["results"][0]["text"]


def test_everything_works_with_the_network_cut_off(tmp_path: Path) -> None:
    word = marker()
    prefix = cut_off()
    lines = commands(tmp_path / "logs", word)

    done = run(*lines, prefix=prefix, code=SEVERAL, MEMPALACE_PALACE_PATH=str(tmp_path / "palace"))

    assert (done.returncode, done.stderr) == (0, "")
    check(done.stdout, word)


def test_no_command_connects(tmp_path: Path) -> None:
    word = marker()
    lines = commands(tmp_path / "logs", word)

    code = _TELL_CONNECTIONS + SEVERAL
    done = run(*lines, code=code, MEMPALACE_PALACE_PATH=str(tmp_path / "palace"))

    assert (done.returncode, done.stderr) == (0, "")
    check(done.stdout, word)


def test_the_hook_tells_of_a_connection() -> None:
    code = (
        _TELL_CONNECTIONS + "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('127.0.0.1', 9))"
    )
    told = run(code=code).stderr
    assert "socket.connect (('127.0.0.1', 9),)" in told
