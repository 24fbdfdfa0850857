"""Two formats of a third party: an object with the five members of the contract, and a subclass of Format.

Their files are text: `KILN <id> <project>` (or `LOOM ...`), then lines `who: words`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from mempalace.formats.base import Format
from mempalace.head import Head
from mempalace.model import Message, Origin, Role, Session, SessionMetadata, Text, group_turns
from mempalace.records import Ledger
from mempalace.source import Source


def parse(text: str, path: Path, format: str) -> Session:
    head, *lines = text.splitlines()
    _, own, project = head.split(" ", 2)
    messages = []
    for number, line in enumerate(lines, 2):
        who, _, words = line.partition(": ")
        person = who == "me"
        role, origin = (Role.USER, Origin.PERSON) if person else (Role.ASSISTANT, Origin.ASSISTANT)
        messages.append(Message(role, (Text(words),), origin=origin, line=number))
    metadata = SessionMetadata(session_id=own, project=project, source=format)
    return Session(path, format, metadata, group_turns(messages))


class Kiln:
    """Knows nothing of mempalace's base class."""

    name = "kiln"

    def sessions_dir(self, project: Path | None = None) -> Path | None:
        folder = Path(os.environ["HOME"], ".kiln")
        return folder if folder.is_dir() else None

    def list_sessions(self, project: Path | None = None) -> list[Path]:
        folder = self.sessions_dir()
        found = [] if folder is None else sorted(folder.glob("*.kiln"))
        return [path for path in found if project is None or f" {project}\n" in path.read_text()]

    def detect(self, path: Path) -> float:
        return 1.0 if path.read_bytes().startswith(b"KILN ") else 0.0

    def sessions(self, path: Path) -> Iterator[Session]:
        yield parse(path.read_text(), path, self.name)


class Loom(Format):
    """Says only what it must."""

    name = "loom"
    title = "Loom"
    suffixes = (".loom",)

    def roots(self) -> list[Path]:
        return [Path(os.environ["HOME"], ".loom")]

    def claims(self, head: Head) -> float:
        return 1.0 if head.data.startswith(b"LOOM ") else 0.0

    def read(self, source: Source, ledger: Ledger) -> Iterator[Session]:
        session = parse(source.read().decode(), source.path, self.name)
        ledger.read += session.message_count
        yield session
