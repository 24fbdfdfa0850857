"""Sessions out of the archive: read again from the bytes that were kept, also after their files are gone."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from mempalace import tree
from mempalace.errors import PalaceDamaged, ParseError, UnknownFormat
from mempalace.folders import Folder
from mempalace.formats.registry import Registry
from mempalace.model import Session
from mempalace.palace import archive, filing
from mempalace.palace.catalog import Catalog, path_of, path_text
from mempalace.records import Ledger
from mempalace.source import Original, Source, mark_length
from mempalace.values import loads


class Holder(NamedTuple):
    """A kept reading of a session: a revision of a source, its place among the sessions there, and its bytes."""

    source: int
    revision: int
    ordinal: int
    start: int
    end: int | None


def holders(catalog: Catalog, session: int) -> list[Holder]:
    """The readings of a session that are kept."""
    rows = catalog.rows("SELECT source, revision, ordinal, start, end FROM session_sources WHERE session = ?", session)
    return [Holder(*row) for row in rows]


def reading(catalog: Catalog, registry: Registry, format: str, key: str, holder: Holder) -> Session | None:
    """The session of that key as one kept revision of a source tells it; None if it does not.

    Parts of it that stand apart in the file are put together; a session without an id is known by its place.
    """
    if holder.end is not None:
        found = [one for one in _slice(catalog, registry, format, holder) if one.key == key]
        if found:
            return replace(merged(found), start=holder.start, end=holder.end)
    found = [
        session
        for sessions in _readings(catalog, registry, format, holder)
        for ordinal, session in enumerate(tree.flatten(sessions))
        if session.message_count and (session.key == key or (session.key is None and ordinal == holder.ordinal))
    ]
    return merged(found) if found else None


def _slice(catalog: Catalog, registry: Registry, format: str, holder: Holder) -> list[Session]:
    """The conversation of an export by its own bytes, without reading the others; nothing if that fails."""
    assert holder.end is not None
    mark = mark_length(archive.read_slice(catalog, holder.source, holder.revision, 0, 4))
    if mark is None:
        return []  # the place is that in the decoded file
    data = archive.read_slice(catalog, holder.source, holder.revision, holder.start + mark, holder.end + mark)
    path, member = catalog.row("SELECT path, member FROM sources WHERE id = ?", holder.source)
    kept = Source(path_of(path), b"[" + data + b"]", member=member or None)
    try:
        return list(tree.flatten(registry.get(format).documents(kept, Ledger())))
    except ParseError:
        return []


def _readings(catalog: Catalog, registry: Registry, format: str, holder: Holder) -> Iterator[Iterator[Session]]:
    """The sessions of a source; of an export of many files, as each of its kept states tells them."""
    path, member, container = catalog.row("SELECT path, member, container FROM sources WHERE id = ?", holder.source)
    reader = registry.get(format)
    if container:
        (newest,) = catalog.row("SELECT MAX(revision) FROM sources WHERE container = ?", container)
        for revision in range(newest + 1):
            folder = KeptFolder(catalog, container, revision)
            if reader.folder_files(folder.names):
                yield reader.read_folder(folder, lambda name: Ledger())
        return
    data = b"".join(archive.read(catalog, holder.source, holder.revision))
    yield reader.documents(Source(path_of(path), data, member=member or None), Ledger())


class KeptFolder(Folder):
    """An export that was read as a whole, out of the archive: its files as of a revision, or their last before it."""

    def __init__(self, catalog: Catalog, container: str, newest: int) -> None:
        self._catalog = catalog
        self._rows = {
            member or os.path.relpath(path, container).replace(os.sep, "/"): (
                (int(number), min(int(revision), newest)),
                (path_of(path), member or None),
            )
            for number, path, member, revision in catalog.rows(
                "SELECT id, path, member, revision FROM sources WHERE container = ?", container
            )
        }
        super().__init__(Path(container), list(self._rows), [], None)

    def source(self, name: str) -> Source:
        """One file as it was kept."""
        kept, (path, member) = self._rows[name]
        return Source(path, b"".join(archive.read(self._catalog, *kept)), member=member)


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
    try:
        found = [
            one
            for holder in holders(catalog, number)
            if (one := reading(catalog, registry, format, key, holder)) is not None
        ]
    except UnknownFormat as error:
        raise PalaceDamaged(f"session {key} needs a format that is not installed: {format}") from error
    if not found:
        raise PalaceDamaged(f"the archive has no reading of session {key}", path=catalog.path)
    whole = merged(found)
    if whole.is_subagent:  # its type stood in a file beside it
        (kept,) = catalog.row("SELECT metadata FROM sessions WHERE id = ?", number)
        whole = replace(whole, subagent_type=loads(kept).get("subagent_type") or whole.subagent_type)
    return whole


def family(catalog: Catalog, registry: Registry, number: int) -> Session:
    """A session of the palace with its sub-agents, each with its own, the earliest first."""
    return _family(catalog, registry, number, {number})


def _family(catalog: Catalog, registry: Registry, number: int, seen: set[int]) -> Session:
    parent = session(catalog, registry, number)
    found = catalog.rows_in(
        "SELECT started IS NULL, started, key, id, format FROM sessions WHERE kind = 'subagent' AND parent_key IN (?)",
        tree.names(parent),
    )
    agents = [number for *_, number, format in sorted(found) if format == parent.format and number not in seen]
    seen.update(agents)
    return tree.attach(parent, [_family(catalog, registry, agent, seen) for agent in agents])


def originals(catalog: Catalog, registry: Registry, number: int) -> list[Original]:
    """The files that a session was read from, as they were when they were last read; see `Session.originals`.

    Of several files that hold the same session it is the one that was written last.
    """
    held = catalog.rows(
        "SELECT h.source, h.revision, s.path, s.member, s.container FROM session_sources h"
        " JOIN sources s ON s.id = h.source WHERE h.session = ? ORDER BY s.mtime_ns, s.id, h.revision",
        number,
    )
    if not held:
        raise PalaceDamaged("the archive has no reading of the session", path=catalog.path)
    source, revision, path, member, container = held[-1]
    places = [(source, revision, path, member)]
    names = session(catalog, registry, number).metadata.extra.get("files") if container else None
    if names:
        beside = [(path, name) if member else (path_text(path_of(path).with_name(name)), "") for name in names]
        places = [
            (*catalog.row("SELECT id, revision FROM sources WHERE path = ? AND member = ?", *place), *place)
            for place in beside
        ]
    return [
        Original(Source(path_of(path), member=member or None).name, partial(archive.read, catalog, source, revision))
        for source, revision, path, member in places
    ]


def transcript(catalog: Catalog, number: int, kinds: Iterable[str] | None = None) -> str:
    """The transcript of a session, as its chunks hold it: all of it, or the chunks of some kinds."""
    allowed = None if kinds is None else set(kinds)
    rows = catalog.rows(
        "SELECT t.body, c.gap, c.kind FROM chunks c JOIN texts t ON t.id = c.text WHERE c.session = ? ORDER BY c.seq",
        number,
    )
    return "".join(body + "\n" * gap for body, gap, kind in rows if allowed is None or kind in allowed)
