"""Which files there are: those of every known tool, or those below the paths that are given."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mempalace.formats.registry import Registry

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
    """The folders of all known tools that exist on this machine."""
    roots = dict.fromkeys(root.absolute() for format in registry for root in format.roots() if os.path.isdir(root))
    return [root for root in roots if not any(other in root.parents for other in roots)]


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
