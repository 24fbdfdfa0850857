"""Which files there are: those of every known tool, or those below the paths that are given.

files(paths, registry)          every file, for the miner
sessions(selection, registry)   the session files that a selection takes, as their tools keep them
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from mempalace import tree
from mempalace.errors import MempalaceError, SourceError, UsageError, expanded
from mempalace.formats.base import Format, SessionFile, newest_first
from mempalace.formats.registry import Registry
from mempalace.model import Image, Session, Text, Thinking, ToolResult
from mempalace.records import Ledger
from mempalace.source import Source
from mempalace.values import project_name

_SKIPPED_FOLDERS = frozenset(
    {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".tox", ".mypy_cache", ".pytest_cache"}
)


_LARGEST_INT = (1 << 63) - 1  # of SQLite; some file systems number files beyond it


@dataclass(frozen=True, slots=True)
class Found:
    """A file to look at. `skip` says why it must not be read, `error` why it cannot be."""

    path: Path
    size: int = 0
    mtime_ns: int = 0
    inode: int = 0
    skip: str | None = None
    error: str | None = None


def everywhere(registry: Registry) -> list[Path]:
    """The folders of all known tools on this machine: those that exist, and those of which that cannot be told."""
    roots = dict.fromkeys(root.absolute() for format in registry for root in format.roots() if _may_be_there(root))
    return [root for root in roots if not any(other in root.parents for other in roots)]


def _may_be_there(root: Path) -> bool:
    try:
        return os.path.isdir(root) or not os.stat(root)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # forbidden: it is named when it is read


def files(paths: Iterable[Path], registry: Registry, exclude: Iterable[Path] = ()) -> Iterator[Found]:
    """Every file at or below the paths, each once, in a stable order. Links found on the way are not followed.

    `exclude` names folders that are left out (the palace itself).
    """
    seen: set[str] = set()
    excluded = {str(path.absolute()) for path in exclude}
    for path in paths:
        for found in _walk(path.absolute(), registry, excluded):
            if str(found.path) not in seen:
                seen.add(str(found.path))
                yield found


def _walk(path: Path, registry: Registry, excluded: set[str]) -> Iterator[Found]:
    if not os.path.isdir(path):
        yield _look_at(path, registry)
        return
    errors: list[OSError] = []
    for folder, folders, names in os.walk(path, onerror=errors.append):
        yield from _unreadable(errors)
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        folders[:] = sorted(
            name for name in folders if name not in _SKIPPED_FOLDERS and os.path.join(folder, name) not in excluded
        )
        for name in sorted([*names, *links]):
            entry = Path(folder, name)
            if os.path.islink(entry):
                yield Found(entry, skip="a symbolic link: not followed")
            else:
                yield _look_at(entry, registry)
    yield from _unreadable(errors)


def _unreadable(errors: list[OSError]) -> Iterator[Found]:
    """The folders that could not be listed, each once."""
    for error in errors:
        yield Found(Path(str(error.filename)), error=f"cannot be read: {error.strerror}")
    errors.clear()


def _look_at(path: Path, registry: Registry) -> Found:
    try:
        stat = path.stat()
    except OSError as error:
        return Found(path, error=f"cannot be read: {error.strerror}")
    found = Found(path, stat.st_size, stat.st_mtime_ns, stat.st_ino & _LARGEST_INT)
    if not os.path.isfile(path):
        return Found(path, skip="not a regular file")
    if any(format.is_side_file(path) for format in registry):
        return Found(path, found.size, found.mtime_ns, found.inode, skip="kept beside sessions: not a conversation")
    return found


# --- session files ------------------------------------------------------------------------------------------

MODES = ("all", "interactive", "subagent")
SORTS = ("date", "duration", "name")

OnProblem = Callable[[MempalaceError], None]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which session files are taken; without anything, all of them, newest first.

    `project` is a folder, or as a `str` without separators the last part of one. A file's date is when it was last
    written: `days` counts back from now, `since` and `until` (inclusive) are aware, or in local time. `grep` is a
    regular expression that something in the conversation must match: words, calls, results, thoughts, title. `mode`
    `interactive` leaves out sub-agents, `subagent` takes only them. `sort` is `date`, `duration` (from the first
    to the last message), both with the greatest first, or `name` (the title).
    """

    project: Path | str | None = None
    format: str | None = None
    days: float | None = None
    since: datetime | None = None
    until: datetime | None = None
    grep: str | None = None
    mode: str = "all"
    agent_type: str | None = None
    limit: int | None = None
    sort: str = "date"

    @property
    def folder(self) -> Path | None:
        """The project, if it is a folder."""
        return None if self.project is None or self._is_name else expanded(self.project)

    @property
    def name(self) -> str | None:
        """The project, if it is the last part of a folder."""
        return str(self.project) if self._is_name else None

    @property
    def _is_name(self) -> bool:
        return (
            isinstance(self.project, str)
            and re.fullmatch(r"[^/\\~]+", self.project) is not None
            and (self.project not in (".", ".."))
        )


def sessions(selection: Selection, registry: Registry, on_problem: OnProblem | None = None) -> list[SessionFile]:
    """The session files that a selection takes, each with what its beginning says.

    Files without a conversation are left out. What cannot be read (a folder, a file) is told to `on_problem` and
    passed over. Whole files are read only for `grep` and to sort by duration. Raises UsageError for a selection
    that cannot be, UnknownFormat.
    """
    tell = on_problem or (lambda problem: None)
    pattern = _checked(selection)
    known = list(registry) if selection.format is None else [registry.get(selection.format)]
    if on_problem is not None:
        for format in known:
            for error in _unlisted(format, selection.folder):
                tell(error)
    listed = [file for format in known for file in format.list_sessions(selection.folder)]
    start, end = _window(selection)
    listed = sorted((file for file in listed if file.size and start <= file.modified <= end), key=newest_first)
    found = _taken(listed, selection, pattern, registry, tell)
    if selection.sort == "duration":
        found = iter(sorted(found, key=lambda file: (-duration(file, registry), *newest_first(file))))
    elif selection.sort == "name":
        found = iter(sorted(found, key=lambda file: ((file.title or file.path.name).casefold(), *newest_first(file))))
    return list(found if selection.limit is None else islice(found, selection.limit))


def _taken(
    listed: list[SessionFile],
    selection: Selection,
    pattern: re.Pattern[str] | None,
    registry: Registry,
    tell: OnProblem,
) -> Iterator[SessionFile]:
    for file in listed:
        if file.is_subagent and selection.mode == "interactive":
            continue
        try:
            peeked = file if file.session_id is not None else registry.get(file.format).peek(file)
            if _is_taken(peeked, selection) and (pattern is None or _matches(peeked, pattern, registry)):
                yield peeked
        except MempalaceError as error:
            tell(error)


def _is_taken(file: SessionFile, selection: Selection) -> bool:
    """Whether a file that was peeked at is one of those; one without any session is not."""
    if file.session_id is None and file.title is None and file.started is None:
        return False
    if selection.mode != "all" and file.is_subagent != (selection.mode == "subagent"):
        return False
    if selection.agent_type is not None and file.agent_type != selection.agent_type:
        return False
    return selection.name is None or project_name(file.project) == selection.name


def _checked(selection: Selection) -> re.Pattern[str] | None:
    """The pattern of a selection that makes sense."""
    for name, value, allowed in (("mode", selection.mode, MODES), ("sort", selection.sort, SORTS)):
        if value not in allowed:
            raise UsageError(f"there is no {name} {value!r}", hint=f"one of: {', '.join(allowed)}")
    if selection.limit is not None and selection.limit < 1:
        raise UsageError(f"the limit must be at least 1, not {selection.limit}")
    if selection.grep is None:
        return None
    try:
        return re.compile(selection.grep, re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as error:
        hint = "write signs that mean themselves behind a backslash: \\( \\[ \\. \\*"
        raise UsageError(f"not a regular expression: {selection.grep!r}: {error}", hint=hint) from error


def _window(selection: Selection) -> tuple[float, float]:
    """The first and the last moment, in seconds since the epoch."""
    start = float("-inf") if selection.since is None else selection.since.timestamp()
    if selection.days is not None:
        try:
            start = max(start, (datetime.now().astimezone() - timedelta(days=selection.days)).timestamp())
        except (OverflowError, ValueError):
            raise UsageError(f"not a number of days: {selection.days}") from None
    return start, float("inf") if selection.until is None else selection.until.timestamp()


def _unlisted(format: Format, project: Path | None) -> Iterator[SourceError]:
    """The folders of a tool that cannot be listed."""
    roots = format.roots() if project is None else format.project_dirs(project) or format.roots()
    for root in filter(_may_be_there, roots):
        errors: list[OSError] = []
        for _ in os.walk(root, onerror=errors.append):
            pass
        for found in _unreadable(errors):
            yield SourceError(found.error or "cannot be read", path=found.path)


def duration(file: SessionFile, registry: Registry) -> float:
    """Seconds from the first to the last message of a file; 0 where no message has a time. Reads it whole."""
    times = [
        message.timestamp
        for session in _whole(file, registry)
        for message in session.messages
        if message.timestamp is not None
    ]
    return (max(times) - min(times)).total_seconds() if times else 0.0


def _whole(file: SessionFile, registry: Registry) -> Iterator[Session]:
    return tree.flatten(registry.get(file.format).read(Source(file.path), Ledger()))


def _matches(file: SessionFile, pattern: re.Pattern[str], registry: Registry) -> bool:
    return any(pattern.search(text) for session in _whole(file, registry) for text in _texts(session))


def _texts(session: Session) -> Iterator[str]:
    """Everything in a session that can be read, piece by piece."""
    yield session.metadata.title or ""
    for message in session.messages:
        for block in message.content:
            if isinstance(block, Text | Thinking):
                yield block.text
            elif isinstance(block, ToolResult):
                yield block.content
            elif not isinstance(block, Image):
                yield block.name
                yield from _leaves(block.input)


def _leaves(value: Any) -> Iterator[str]:
    todo = [value]
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            todo += reversed(value.values())
        elif isinstance(value, list):
            todo += reversed(value)
        elif isinstance(value, str):
            yield value
