"""Sessions out of the archive: read again from the bytes that were kept, also after their files are gone."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from mempalace import tree
from mempalace.errors import PalaceDamaged, UnknownFormat
from mempalace.folders import Folder
from mempalace.formats.registry import Registry
from mempalace.model import Session
from mempalace.palace import archive, filing
from mempalace.palace.catalog import Catalog
from mempalace.records import Ledger
from mempalace.source import Source


def reading(catalog: Catalog, registry: Registry, format: str, key: str, source: int, revision: int) -> Session | None:
    """The session of that key as one kept revision of a source tells it; None if it does not."""
    path, member, container = catalog.row("SELECT path, member, container FROM sources WHERE id = ?", source)
    reader = registry.get(format)
    if container:
        folder = KeptFolder(catalog, container)
        if reader.folder_files(folder.names):
            found = reader.read_folder(folder, lambda name: Ledger())
            return _find(found, key)
    kept = Source(Path(path), b"".join(archive.read(catalog, source, revision)), member=member or None)
    return _find(reader.documents(kept, Ledger()), key)


def _find(sessions: Iterable[Session], key: str) -> Session | None:
    for session in tree.flatten(sessions):
        if (session.key or key) == key and session.message_count:
            return session
    return None


class KeptFolder(Folder):
    """An export that was read as a whole, out of the archive."""

    def __init__(self, catalog: Catalog, container: str) -> None:
        self._catalog = catalog
        self._rows = {
            member or os.path.relpath(path, container).replace(os.sep, "/"): (int(number), int(revision))
            for number, path, member, revision in catalog.rows(
                "SELECT id, path, member, revision FROM sources WHERE container = ?", container
            )
        }
        super().__init__(Path(container), list(self._rows), [], None)

    def source(self, name: str) -> Source:
        """One file as it was kept."""
        data = b"".join(archive.read(self._catalog, *self._rows[name]))
        return Source(self.path / name, data, member=name)


def merged(sessions: Iterable[Session]) -> Session:
    """One session out of several readings of it, the newest of which decides."""
    ordered = sorted(sessions, key=filing.freshness)
    result = ordered[0]
    for session in ordered[1:]:
        result = tree.merge(result, session)
    return result


def session(catalog: Catalog, registry: Registry, number: int) -> Session:
    """A session of the palace, from all its kept readings. Raises PalaceDamaged if none is left."""
    format, key = catalog.row("SELECT format, key FROM sessions WHERE id = ?", number)
    holders = catalog.rows("SELECT source, revision FROM session_sources WHERE session = ?", number)
    try:
        found = [
            one for source, revision in holders if (one := reading(catalog, registry, format, key, source, revision))
        ]
    except UnknownFormat as error:
        raise PalaceDamaged(f"session {key} needs a format that is not installed: {format}") from error
    if not found:
        raise PalaceDamaged(f"the archive has no reading of session {key}", path=catalog.path)
    return merged(found)


def transcript(catalog: Catalog, number: int, kinds: Iterable[str] | None = None) -> str:
    """The transcript of a session, as its chunks hold it: all of it, or the chunks of some kinds."""
    allowed = None if kinds is None else set(kinds)
    rows = catalog.rows(
        "SELECT t.body, c.gap, c.kind FROM chunks c JOIN texts t ON t.id = c.text WHERE c.session = ? ORDER BY c.seq",
        number,
    )
    return "".join(body + "\n" * gap for body, gap, kind in rows if allowed is None or kind in allowed)
