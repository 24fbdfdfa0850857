"""Small logs in the shape of the real ones, for tests that need a conversation more than a format."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import string
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import mempalace
from mempalace import miner
from mempalace.formats.base import Format
from mempalace.formats.registry import Registry, builtin
from mempalace.head import Head
from mempalace.model import Message, Origin, Role, Session, SessionMetadata, Text, group_turns
from mempalace.query import Hit, SearchResults
from mempalace.records import Ledger, document
from mempalace.source import Source
from mempalace.values import parse_time

Finished = subprocess.CompletedProcess[str]


def claude_lines(
    texts: Iterable[str], session: str = "s1", cwd: str = "/w/kiln-ctl", first: int = 0, **fields: Any
) -> list[str]:
    """Claude Code records: a person and the assistant in turn, one per text, a second apart."""
    lines = []
    for index, text in enumerate(texts, first):
        role = "assistant" if index % 2 else "user"
        content: Any = [{"type": "text", "text": text}] if role == "assistant" else text
        record = {
            "type": role,
            "uuid": f"{session}-{index}",
            "parentUuid": f"{session}-{index - 1}" if index else None,
            "sessionId": session,
            "cwd": cwd,
            "timestamp": f"2026-02-03T{9 + index // 3600:02}:{index // 60 % 60:02}:{index % 60:02}Z",
            "message": {"role": role, "content": content},
            **fields,
        }
        lines.append(json.dumps(record))
    return lines


def write_claude(path: Path, texts: Iterable[str], session: str = "s1", **fields: Any) -> Path:
    """A Claude Code log with these messages."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in claude_lines(texts, session, **fields)))
    return path


def as_nobody(folder: Path, code: str, *words: str, **environment: str) -> str:
    """What a program prints for another user, for whom modes count, and who is let into a test's folder."""
    for place in (folder, *folder.parents):
        if place == folder or "pytest" in place.name or "popen" in place.name:
            place.chmod(0o755)
    switch = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    if switch and shutil.which("setpriv") is None:
        pytest.skip("needs setpriv")
    done = subprocess.run(
        [*switch, sys.executable, "-B", "-c", code, *words],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
        env={**os.environ, **environment},
        check=False,
    )
    if "ModuleNotFoundError" in done.stderr or "shared libraries" in done.stderr:
        pytest.skip("the other user cannot run this Python or import the project")
    assert done.returncode == 0, done.stderr
    return done.stdout


def find(palace: Path, query: str, limit: int = 10, **filters: Any) -> SearchResults:
    """Search a palace that is opened for this one question."""
    with mempalace.Palace(palace) as opened:
        return opened.search(query, limit, **filters)


# --- cases: small inputs with marker words ------------------------------------------------------------------

CASES = Path(__file__).parent / "cases"


def marker(shape: str = "ABCDE-12345") -> str:
    """A word that stands nowhere else, of that shape: random capitals for letters, random digits for digits."""
    fill = {True: string.ascii_uppercase, False: string.digits}
    return "".join(random.choice(fill[sign.isalpha()]) if sign.isalnum() else sign for sign in shape)


def plant(case: str, folder: Path, *markers: str) -> dict[str, str]:
    """Copy a case's files to a folder, with a random word in place of each marker; the new word of each."""
    words = {old: marker(old) for old in markers}
    folder.mkdir(parents=True, exist_ok=True)
    for file in (CASES / case).iterdir():
        data = file.read_bytes()
        for old, new in words.items():
            assert old.encode() in data, f"{case} has no {old}"
            data = data.replace(old.encode(), new.encode())
        (folder / file.name).write_bytes(data)
    return words


def mine(palace: Path, *paths: Path, **options: Any) -> miner.Summary:
    """Mine files or folders; what the summary says must add up."""
    summary = miner.mine(palace, list(paths), miner.Options(**options))
    check_sums(summary.to_dict())
    return summary


def check_sums(summary: dict[str, Any]) -> None:
    """Files found are the sum of the states, records read that of what became of them."""
    states = dict(summary["sources"])
    assert states.pop("found") == sum(states.values()), summary
    records = summary["records"]
    kept = records["stored"] + records["duplicate"] + records["damaged"]
    assert records["read"] == kept + sum(records["skipped"].values()), summary


def first(palace: Path, query: str, **filters: Any) -> Hit:
    """The best hit for a query; there must be one."""
    results = find(palace, query, **filters).results
    assert results, f"nothing found for {query!r}"
    return results[0]


def holders(palace: Path, words: str, **filters: Any) -> list[Hit]:
    """The hits that hold the words literally."""
    return find(palace, f'"{words}"', 100, **filters).results


def anywhere(palace: Path, words: str) -> list[Hit]:
    """As `holders`, in everything that is kept."""
    return holders(palace, words, include=("all",))


def rows(palace: Path, sql: str, *values: Any) -> list[Any]:
    """Rows of the palace's catalog."""
    with closing(sqlite3.connect(f"{(palace / 'catalog.sqlite3').as_uri()}?mode=ro", uri=True)) as catalog:
        return catalog.execute(sql, values).fetchall()


def stored_text(palace: Path, session: str) -> str:
    """The chunks of a session, joined."""
    found = rows(
        palace,
        "SELECT t.body, c.gap FROM chunks c JOIN texts t ON t.id = c.text JOIN sessions s ON s.id = c.session"
        " WHERE s.key = ? ORDER BY c.seq",
        session,
    )
    return "".join(body + "\n" * gap for body, gap in found)


# --- the command line in a process of its own ---------------------------------------------------------------

_CLI = "from mempalace.cli import main; main()"

# Every argument is a command of its own, parted by spaces: one process that runs them all, until one fails.
SEVERAL = """
import sys
from mempalace.cli import main
for line in sys.argv[1:]:
    sys.argv[1:] = line.split()
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
"""


def command(*arguments: object, code: str = _CLI) -> list[str]:
    """The command line of `mempalace` with these arguments; `code` is run in place of its entry point."""
    return [sys.executable, "-P", "-c", code, *map(str, arguments)]


def environment(**variables: str) -> dict[str, str]:
    """The environment of the test, in which this mempalace is found, and some variables more."""
    return {**os.environ, "PYTHONPATH": str(Path(mempalace.__file__).parent.parent), **variables}


def run(*arguments: object, prefix: Sequence[object] = (), code: str = _CLI, **variables: str) -> Finished:
    """Run `mempalace` to its end. `prefix` is a command that runs it in turn."""
    return subprocess.run(
        [*map(str, prefix), *command(*arguments, code=code)],
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="backslashreplace",
        timeout=120,
    )


def start(*arguments: object, code: str = _CLI, **variables: str) -> subprocess.Popen[str]:
    """Start `mempalace` and go on meanwhile."""
    return subprocess.Popen(
        command(*arguments, code=code),
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Return as soon as the condition holds; fail if it does not in time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def cut_off() -> list[str]:
    """A command that runs another one without any network. Skips the test where that cannot be had."""
    prefix = ["unshare", "--map-root-user", "--net"]
    connect = "import socket; socket.create_connection(('192.0.2.1', 53), timeout=5)"
    try:
        tried = run(prefix=prefix, code=connect)
    except FileNotFoundError:
        pytest.skip("needs unshare")
    if "Network is unreachable" not in tried.stderr:
        pytest.skip(f"the network cannot be cut off here: {tried.stderr[-200:]}")
    return prefix


class Script(Format):
    """A format for tests, which says exactly what its sessions are, with or without ids.

    {"script": [{"id": ..., "project": ..., "parent": ..., "agent": ..., "messages": [[role, text, id, time], ...]}]}
    Id and time may be left out. The text `BOOM` makes the reader fail as a faulty one would.
    """

    name = "script"
    title = "Script"
    suffixes = (".json",)

    def claims(self, head: Head) -> float:
        return 1.0 if isinstance(head.document, dict) and "script" in head.document else 0.0

    def read(self, source: Source, ledger: Ledger) -> Iterator[Session]:
        for item in document(source)["script"]:
            messages = []
            for role, text, *rest in item["messages"]:
                if text == "BOOM":
                    raise RuntimeError("boom")
                ledger.read += 1
                origin = Origin.PERSON if role == "user" else Origin.ASSISTANT
                name, moment = [*rest, None, None][:2]
                messages.append(
                    Message(Role(role), (Text(text),), parse_time(moment), name, origin, line=len(messages) + 1)
                )
            yield Session(
                source.path,
                self.name,
                SessionMetadata(session_id=item.get("id"), project=item.get("project")),
                group_turns(messages),
                parent_id=item.get("parent"),
                agent_id=item.get("agent"),
            )


def write_script(path: Path, *sessions: dict[str, Any]) -> Path:
    """A log of the format `Script` with these sessions."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"script": sessions}))
    return path


def with_script() -> Registry:
    """A registry of our own formats and `Script`."""
    return Registry([*builtin(), Script()])


# --- exports ------------------------------------------------------------------------------------------------


def write_zip(path: Path, files: dict[str, str | bytes]) -> Path:
    """A zip archive with these members."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def unpack(folder: Path, files: dict[str, str | bytes]) -> Path:
    """The same files in a folder."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)
    return folder


def chatgpt(name: str, texts: Iterable[str], title: str | None = None, **fields: Any) -> dict[str, Any]:
    """A ChatGPT conversation of a person and the assistant in turn, one message per text."""
    mapping: dict[str, Any] = {f"{name}-r": {"id": f"{name}-r", "message": None, "parent": None, "children": []}}
    above = f"{name}-r"
    for index, text in enumerate(texts):
        key = f"{name}-{index}"
        message = {
            "id": key,
            "author": {"role": "assistant" if index % 2 else "user"},
            "create_time": 1_767_225_600.5 + index,
            "content": {"content_type": "text", "parts": [text]},
            "metadata": {},
        }
        mapping[above]["children"].append(key)
        mapping[key] = {"id": key, "message": message, "parent": above, "children": []}
        above = key
    shown = {"title": title or name, "create_time": 1_767_225_600.5, "update_time": 1_767_229_200.0 + len(mapping)}
    return {**shown, "mapping": mapping, "current_node": above, "conversation_id": name, **fields}


def claude_ai(name: str, texts: Iterable[str], title: str | None = None) -> dict[str, Any]:
    """A Claude.ai conversation in the same shape."""
    messages = [
        {
            "uuid": f"{name}-{index}",
            "sender": "assistant" if index % 2 else "human",
            "text": text,
            "content": [{"type": "text", "text": text}],
            "created_at": f"2026-01-05T08:00:{index:02}Z",
            "attachments": [],
            "files": [],
        }
        for index, text in enumerate(texts)
    ]
    return {"uuid": name, "name": title or name, "created_at": "2026-01-05T08:00:00Z", "chat_messages": messages}


def slack(user: str, text: str, ts: str, thread: str | None = None) -> dict[str, Any]:
    """A Slack message."""
    message = {"type": "message", "user": user, "text": text, "ts": ts}
    return {**message, "thread_ts": thread} if thread else message


def slack_files(**days: list[dict[str, Any]]) -> dict[str, str | bytes]:
    """A Slack export of the channel #kiln with Ana, Bob and Cai; the days are called `d09` for 2026-01-09."""
    people = [{"id": f"U{name.upper()}", "name": name.lower(), "real_name": name} for name in ("Ana", "Bob", "Cai")]
    files: dict[str, str | bytes] = {
        "users.json": json.dumps(people),
        "channels.json": json.dumps([{"id": "C1", "name": "kiln"}]),
    }
    return files | {f"kiln/2026-01-{day[1:]}.json": json.dumps(messages) for day, messages in days.items()}
