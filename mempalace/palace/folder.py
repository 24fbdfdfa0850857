"""The palace's folder: where it is, whether it is ours, what lies in it.

mempalace.json      marker: this folder belongs to mempalace; holds the layout version
catalog.sqlite3     the truth
lexical/            tantivy, derived
vectors/            Chroma, derived
lock                held by the one writer
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mempalace.errors import ForeignFolder, NoPalace, PalaceDamaged, StoreError, expanded

LAYOUT_VERSION = 1
MARKER = "mempalace.json"
CATALOG = "catalog.sqlite3"
LEXICAL = "lexical"
VECTORS = "vectors"
LOCK = "lock"


def default_path() -> Path:
    """The palace that is meant when none is named: MEMPALACE_PALACE_PATH, else ~/.mempalace/conversations."""
    named = os.environ.get("MEMPALACE_PALACE_PATH")
    return expanded(named) if named else Path.home() / ".mempalace" / "conversations"


def require(path: Path) -> None:
    """Check that there is a palace of ours. Raises NoPalace, ForeignFolder or PalaceDamaged."""
    if not exists(path):
        raise NoPalace("there is no palace yet", path=path, hint="make one: mempalace mine --mode convos")
    if _has_lost_its_catalog(path):
        raise _lost_catalog(path)
    if not (path / CATALOG).exists():
        raise NoPalace("the palace is being made, or was never finished", path=path, hint="mempalace mine")


def _has_lost_its_catalog(path: Path) -> bool:
    """Whether there are indexes but no catalog. A bare marker is a palace that was never finished: it is mended."""
    try:
        empty = (path / CATALOG).stat().st_size == 0
    except FileNotFoundError:
        empty = True
    return empty and ((path / LEXICAL).exists() or (path / VECTORS).exists())


def _lost_catalog(path: Path) -> PalaceDamaged:
    return PalaceDamaged(
        "the palace has lost its catalog",
        path=path / CATALOG,
        hint="restore it from a backup, or mine into a new --palace; nothing was changed",
    )


def create(path: Path) -> None:
    """Make the folder and its marker, if it is not there; leave a palace of ours as it is.

    Raises ForeignFolder if something else is there, StoreError if it cannot be made.
    """
    if exists(path):
        if _has_lost_its_catalog(path):
            raise _lost_catalog(path)
        return
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.chmod(path, 0o700)
        with private_files():
            aside = path / f"{MARKER}.{os.getpid()}"
            aside.write_text(json.dumps({"mempalace": "conversations", "layout": LAYOUT_VERSION}) + "\n")
            aside.replace(path / MARKER)
    except OSError as error:
        raise StoreError(
            f"the palace cannot be made: {error.strerror or error}",
            path=path,
            hint="choose another folder with --palace",
        ) from error


def exists(path: Path) -> bool:
    """Whether a palace of ours is there; False where nothing is. Raises ForeignFolder for anything else."""
    hint = "choose another folder with --palace"
    try:
        if not path.exists():
            return False
        if path.is_dir():
            next(path.iterdir(), None)
    except OSError as error:
        raise StoreError(f"the palace cannot be read: {error.strerror or error}", path=path, hint=hint) from error
    if not path.is_dir():
        raise ForeignFolder("the palace must be a folder, this is a file", path=path, hint=hint)
    try:
        if (path / MARKER).stat().st_size == 0 and len(list(path.iterdir())) == 1:
            return False  # a marker that was never finished: it is made anew
        marker = json.loads((path / MARKER).read_text())
    except FileNotFoundError:
        if any(path.iterdir()):
            raise ForeignFolder(
                "this folder holds something that is not ours; it was left untouched", path=path, hint=hint
            ) from None
        return False
    except (OSError, ValueError) as error:
        raise PalaceDamaged(f"the palace's marker cannot be read: {error}", path=path / MARKER) from error
    if not isinstance(marker, dict) or marker.get("mempalace") != "conversations":
        raise ForeignFolder("this folder belongs to something else; it was left untouched", path=path, hint=hint)
    if marker.get("layout") != LAYOUT_VERSION:
        raise PalaceDamaged(
            f"the palace has layout {marker.get('layout')}, this version reads {LAYOUT_VERSION}",
            path=path / MARKER,
            hint="install the mempalace version that made it, or mine into a new --palace",
        )
    return True


@contextmanager
def private_files() -> Iterator[None]:
    """Files made meanwhile are for their owner only. The umask belongs to the process, so to all threads."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def size_of(path: Path) -> int:
    """Bytes on disk of a file or of all files below a folder."""
    if path.is_file():
        return path.stat().st_size
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except OSError:
                continue
    return total


def remove(path: Path) -> None:
    """Delete a folder that can be made again, if it is there."""
    shutil.rmtree(path, ignore_errors=True)
