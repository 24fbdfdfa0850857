"""What a format is: where its files live, how to recognise one, how to read it.

A format of ours subclasses `Format` and gives `name`, `title`, `roots`, `claims` and `read`. A third party may
do the same, or offer any object with `name`, `sessions_dir`, `list_sessions`, `detect` and `sessions`, under
the entry-point group `mempalace.formats` (see `mempalace.formats.registry`).
"""

from __future__ import annotations

import os
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from mempalace import tree
from mempalace.errors import ParseError, SourceError
from mempalace.folders import Folder
from mempalace.head import Head
from mempalace.model import Session
from mempalace.model_data import format_time
from mempalace.records import Ledger
from mempalace.source import Source
from mempalace.transcript import first_words
from mempalace.values import is_plain_id

PEEK_BYTES = 64 * 1024
_LINE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class SessionFile:
    """A file that holds sessions, as found on disk. `modified` is in seconds since the epoch, `size` in bytes.

    The rest is what `Format.peek` read at its beginning. `session_id` tells the session from all others (that of a
    sub-agent is `parent/agent`), `title` is that of the log, else the first line that was said. `is_subagent`
    without a peek is what the file's place says.
    """

    path: Path
    format: str
    size: int
    modified: float
    is_subagent: bool = False
    session_id: str | None = None
    parent_id: str | None = None
    agent_type: str | None = None
    project: str | None = None
    title: str | None = None
    started: datetime | None = None

    def to_dict(self) -> dict[str, Any]:
        """The same as plain JSON data; times are RFC 3339."""
        plain: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        modified = format_time(datetime.fromtimestamp(self.modified, UTC))
        return {**plain, "path": str(self.path), "started": format_time(self.started), "modified": modified}


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
        """The folder with the sessions of a project (or of all), if it exists.

        Where folders do not tell projects apart, it is that of all also for a project.
        """
        return next((root for root in self.roots() if os.path.isdir(root)), None)

    def project_dirs(self, project: Path) -> list[Path]:
        """Every existing folder with sessions of a project."""
        folder = self.sessions_dir(project)
        return [] if folder is None else [folder]

    def list_sessions(self, project: Path | None = None) -> list[SessionFile]:
        """The session files of a project (or of all) on this machine, newest first. Never raises."""
        roots = [root for root in self.roots() if os.path.isdir(root)]
        if project is None:
            return self.files_below(roots)
        folders = self.project_dirs(project)
        if not set(folders) & set(roots):
            return self.files_below(folders)
        return [file for file in map(self.peek_quietly, self.files_below(roots)) if self.is_of_project(file, project)]

    def files_below(self, folders: Iterable[Path]) -> list[SessionFile]:
        """The session files below some folders, newest first. What cannot be looked at is passed over."""
        found = []
        for path in (path for folder in folders for path in self.session_files(folder)):
            try:
                stat = path.stat()
            except OSError:
                continue
            found.append(SessionFile(path, self.name, stat.st_size, stat.st_mtime, self.is_subagent_file(path)))
        return sorted(found, key=newest_first)

    def is_of_project(self, file: SessionFile, project: Path) -> bool:
        """Whether a file that was peeked at began in that folder."""
        return file.project is not None and is_same_folder(file.project, project)

    def peek_quietly(self, file: SessionFile) -> SessionFile:
        """The file with what its beginning says; as it is if it cannot be read."""
        try:
            return self.peek(file)
        except SourceError:
            return file

    def peek(self, file: SessionFile) -> SessionFile:
        """The file with what its beginning says of its (first) session; as it is if it holds none.

        Reads 64 KiB, and the whole file only if those hold no message. Raises SourceError.
        """
        session = self._first(Source(file.path, size=PEEK_BYTES))
        if session is None and file.size > PEEK_BYTES:
            session = self._first(Source(file.path))
        if session is None:
            return file
        return replace(
            file,
            is_subagent=file.is_subagent or session.is_subagent,
            session_id=session.key,
            parent_id=session.parent_id,
            agent_type=session.subagent_type,
            project=self.first_project(session),
            title=session.metadata.title or first_words(session),
            started=session.metadata.timestamp,
        )

    def first_project(self, session: Session) -> str | None:
        """The folder in which a session began, where it can move to another."""
        return session.metadata.project

    def _first(self, source: Source) -> Session | None:
        try:
            return next(iter(self.read(source, Ledger())), None)
        except ParseError:
            return None

    def detect(self, path: Path | str) -> float:
        """How sure we are, from 0 to 1, that the file is ours; 0 for one that is missing. Never raises."""
        try:
            return self.claims(Head.of(Source(Path(path))))
        except SourceError:
            return 0.0

    def sessions(self, path: Path | str) -> Iterator[Session]:
        """The conversations of a file."""
        return self.read(Source(Path(path)), Ledger())

    def subagent_files(self, session: Session) -> Iterable[Path]:
        """The files that may hold sub-agents of a session, as they lie beside its own."""
        return ()

    def with_subagents(self, session: Session) -> Session:
        """The session with the sub-agents that lie in files of their own, each with its own, the earliest first.

        Raises SourceError or ParseError if one of them cannot be read.
        """
        return self._with_subagents(session, {session.key})

    def _with_subagents(self, session: Session, seen: set[str | None]) -> Session:
        if session.member is not None:
            return session
        known = tree.names(session)
        agents = [
            agent
            for path in self.subagent_files(session)
            for agent in self.read(Source(path), Ledger())
            if agent.is_subagent and tree.parent_id(agent) in known and agent.key not in seen
        ]
        agents.sort(key=lambda agent: (agent.metadata.timestamp is None, agent.metadata.timestamp, str(agent.path)))
        seen |= {agent.key for agent in agents}
        return tree.attach(session, [self._with_subagents(agent, seen) for agent in agents])

    def finds(self, path: Path, session_id: str) -> bool:
        """Whether the tool can take up a session that lies in a file of that name among its sessions."""
        return True

    def resume_command(self, session: Session) -> str | None:
        """The shell command that reopens the session in its own tool, if there is one."""
        return None


def reopening(session_id: str | None, project: str | None, *words: str) -> str | None:
    """The shell command that goes to a project's folder and calls a tool with these words and a session's id.

    None for an id that none of the tools makes: it might be an option of theirs.
    """
    if session_id is None or not is_plain_id(session_id):
        return None
    command = shlex.join([*words, session_id])
    if not project:
        return command
    end_of_options = "-- " if project.startswith("-") else ""
    return f"cd {end_of_options}{shlex.quote(project)} && {command}"


def newest_first(file: SessionFile) -> tuple[float, str]:
    """The key that sorts session files by time, the newest first, and those of one time by their path."""
    return (-file.modified, str(file.path))


def is_same_folder(named: str, project: Path) -> bool:
    """Whether a log's name of a folder means that folder, as it is written or with links followed."""
    return named in (os.path.abspath(project.expanduser()), os.path.realpath(project.expanduser()))


def begins_with(path: Path, words: str) -> bool:
    """Whether the first line of a log (of it 256 KiB) holds these words. Never raises."""
    try:
        with Source(path).open() as stream:
            return words.encode("utf-8", "replace") in stream.readline(_LINE_BYTES)
    except (SourceError, ParseError, OSError):
        return False


def home_folder(variable: str, default: str) -> Path:
    """The folder an environment variable names, else one below the home folder."""
    value = os.environ.get(variable)
    return Path(value).expanduser() if value else Path.home() / default
