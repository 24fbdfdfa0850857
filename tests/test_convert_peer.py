"""What we write is read by a reader that is not ours: `ai-r` of the package agent-session-reader (0.4.2 was tried).

python3 -m venv /tmp/peer && /tmp/peer/bin/pip install agent-session-reader "mcp<2"
pytest tests/test_convert_peer.py --peer=/tmp/peer/bin/ai-r [--corpus=DIR]
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from convert_helpers import FIXTURES, NOTE, READERS, SPOKEN, said, sessions, sources

from mempalace.convert import convert
from mempalace.formats import registry
from mempalace.model import Session

PLACES = {"claude-code": (".claude/projects", "claude"), "codex": (".codex/sessions", "codex")}


@pytest.fixture
def peer(request: pytest.FixtureRequest) -> str:
    program: str | None = request.config.getoption("--peer")
    if program is None:
        pytest.skip("needs --peer=PROGRAM")
    return program


# What this peer does not see: a text that a person said twice, and calls of tools whose input is a text.
DROPS_REPEATS = "paired-streams"


def written(session: Session, target: str, home: Path) -> Session:
    """The session in the tool's place below a home folder, as we read it there."""
    made = convert(session, target)
    path = home / PLACES[target][0] / made.name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(made.data)
    (back,) = registry.default().get(READERS[target]).sessions(path)
    return back


def read_by_peer(program: str, home: Path, target: str, key: str) -> list[dict[str, Any]]:
    words = [program, "read", key, "--agent", PLACES[target][1], "--json", "--messages", "--raw"]
    environment = {**os.environ, "HOME": str(home)}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    messages: list[dict[str, Any]] = json.loads(done.stdout)["messages"]
    return messages


def compare(program: str, session: Session, target: str, home: Path) -> None:
    """Speakers with their words in order, and the names of the calls in order.

    The peer shows context that nobody said (compaction, what a command printed) as the user's: that is left out here.
    """
    back = written(session, target, home)
    seen = read_by_peer(program, home, target, str(back.key))
    asides = {flat(message.text) for message in back.messages if message.origin not in SPOKEN}
    atoms = list(said(session, target))
    ours = [(atom[0], flat(atom[1])) for atom in atoms if atom[0] in ("user", "assistant") and atom[1]]
    theirs = [(one["role"], flat(one["text"])) for one in seen if one["role"] in ("user", "assistant")]
    theirs = [(role, text) for role, text in theirs if text and text not in asides]
    calls = [atom[2] for atom in atoms if atom[0] == "call" and not (target == "codex" and is_free(atom[3]))]
    assert [name for one in seen for name in one["tool_use"]] == calls
    if session.path.parent.name == DROPS_REPEATS and target == "codex":
        assert list(dict.fromkeys(theirs)) == list(dict.fromkeys(ours))
    else:
        assert theirs == ours


def is_free(given: dict[str, Any]) -> bool:
    """Whether the input of a call is a text of no form."""
    return list(given) == ["raw"] and isinstance(given["raw"], str) and not given["raw"].lstrip().startswith("{")


def flat(text: str) -> str:
    return " ".join(NOTE.sub("", text).split())


@pytest.mark.parametrize("target", ["claude-code", "codex"])
@pytest.mark.parametrize("tool", ["claude-code", "codex", "gemini", "chatgpt", "claude-ai"])
def test_a_reader_that_is_not_ours_reads_the_fixtures(peer: str, tool: str, target: str, tmp_path: Path) -> None:
    for number, path in enumerate(sources(FIXTURES / tool)):
        for session in sessions(path):
            compare(peer, session, target, tmp_path / str(number))


# In this sample every text is the same placeholder, context and words alike.
PLACEHOLDERS = "new-drift-all-records.jsonl"


@pytest.mark.parametrize("target", ["claude-code", "codex"])
@pytest.mark.parametrize("tool", ["claude-code", "codex", "gemini-cli", "chatgpt", "claude-ai"])
def test_a_reader_that_is_not_ours_reads_the_samples(
    peer: str, corpus: Path, tool: str, target: str, tmp_path: Path
) -> None:
    for number, path in enumerate(sources(corpus / "samples" / tool)):
        for session in sessions(path) if path.name != PLACEHOLDERS else []:
            compare(peer, session, target, tmp_path / str(number))
