"""What a format is: where its files live, how to recognise one, how to read it.

A format of ours subclasses `Format` and gives `name`, `title`, `roots`, `claims` and `read`. A third party may
do the same, or offer any object with `name`, `sessions_dir`, `list_sessions`, `detect` and `sessions`, under
the entry-point group `mempalace.formats` (see `mempalace.formats.registry`).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from mempalace.errors import SourceError
from mempalace.folders import Folder
from mempalace.head import Head
from mempalace.model import Session
from mempalace.records import Ledger
from mempalace.source import Source


@dataclass(frozen=True, slots=True)
class SessionFile:
    """A file that holds sessions, as found on disk. `modified` is in seconds since the epoch, `size` in bytes."""

    path: Path
    format: str
    size: int
    modified: float
    is_subagent: bool = False


class Format(ABC):
    """One tool's way to keep conversations."""

    name: ClassVar[str]
    title: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]] = (".jsonl",)

    @abstractmethod
    def claims(self, head: Head) -> float:
        """How sure we are, from 0 to 1, that a file with this beginning is ours. Never raises."""

    @abstractmethod
    def read(self, source: Source, ledger: Ledger) -> Iterator[Session]:
        """The conversations of one file; every record is counted in the ledger.

        Lenient: it reads also what `claims` would refuse, and yields nothing for what is not its own.
        Raises ParseError or SourceError only.
        """

    def documents(self, source: Source, ledger: Ledger) -> Iterator[Session]:
        """Like `read`, with what is kept beside conversations (project documents, memories) as sessions too."""
        return self.read(source, ledger)

    def beside(self, source: Source) -> list[Source]:
        """The files that one file is read with, such as a list of people: they are kept with it."""
        return []

    def folder_files(self, names: Sequence[str]) -> list[str]:
        """Which files of a folder or archive belong to one export that must be read as a whole."""
        return []

    def read_folder(self, folder: Folder, ledger_for: Callable[[str], Ledger]) -> Iterator[Session]:
        """The conversations of such an export; `ledger_for` gives the ledger of a file, by its name."""
        return iter(())

    def roots(self) -> list[Path]:
        """Every folder in which the tool may keep sessions on this machine, existing or not."""
        return []

    def session_files(self, root: Path) -> Iterator[Path]:
        """The files below a root that hold sessions, in a stable order."""
        for folder, folders, names in os.walk(root):
            folders.sort()
            for name in sorted(names):
                path = Path(folder, name)
                if name.endswith(self.suffixes) and not path.is_symlink() and not self.is_side_file(path):
                    yield path

    def is_side_file(self, path: Path) -> bool:
        """Whether the tool keeps this file beside its sessions, and it is no conversation itself."""
        return False

    def is_subagent_file(self, path: Path) -> bool:
        """Whether the file's place says that it holds a sub-agent's session."""
        return False

    def sessions_dir(self, project: Path | None = None) -> Path | None:
        """The folder with the sessions of a project (or of all), if it exists."""
        return next((root for root in self.roots() if root.is_dir()), None)

    def list_sessions(self, project: Path | None = None) -> list[SessionFile]:
        """The session files of a project (or of all) on this machine, newest first. Never raises."""
        found = []
        folder = self.sessions_dir(project)
        folders = [folder] if project is not None else [root for root in self.roots() if root.is_dir()]
        for root in folders:
            if root is None:
                continue
            for path in self.session_files(root):
                try:
                    stat = path.stat()
                except OSError:
                    continue
                found.append(
                    SessionFile(path, self.name, stat.st_size, stat.st_mtime, self.is_subagent_file(path)),
                )
        return sorted(found, key=lambda file: (-file.modified, str(file.path)))

    def detect(self, path: Path | str) -> float:
        """How sure we are, from 0 to 1, that the file is ours; 0 for one that is missing. Never raises."""
        try:
            return self.claims(Head.of(Source(Path(path))))
        except SourceError:
            return 0.0

    def sessions(self, path: Path | str) -> Iterator[Session]:
        """The conversations of a file."""
        return self.read(Source(Path(path)), Ledger())

    def resume_command(self, session: Session) -> str | None:
        """The shell command that reopens the session in its own tool, if there is one."""
        return None


def home_folder(variable: str, default: str) -> Path:
    """The folder an environment variable names, else one below the home folder."""
    value = os.environ.get(variable)
    return Path(value).expanduser() if value else Path.home() / default
