"""A session by its id in a palace, or by the file that holds it, together with the bytes that it was read from."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from mempalace import lookup, tree
from mempalace.errors import MempalaceError, NoPalace, NotFound, PalaceDamaged
from mempalace.formats import registry
from mempalace.model import Image, Session
from mempalace.palace import archive, restore
from mempalace.palace.catalog import path_of
from mempalace.palace.reader import PalaceReader
from mempalace.records import Ledger
from mempalace.source import Source, raw_lines, read_span


@dataclass(frozen=True, slots=True)
class Located:
    """A session and its source: `path` is where the file lies (or lay), `source` has its bytes.

    `is_whole` says that the file holds this session (with its sub-agents) and nothing else.
    """

    session: Session
    path: Path
    source: Source
    is_whole: bool

    def data(self) -> bytes:
        """The bytes of the file as it lies on disk; of a file with many sessions those of this one."""
        if self.is_whole or self.session.end is None:
            with self.source.open_raw() as stream:
                return stream.read()
        return read_span(self.source, self.session.start, self.session.end - self.session.start)

    @property
    def raw(self) -> Iterator[bytes]:
        """Every line of the session's part of the file, as `Session.raw` gives those of a file that is there."""
        return raw_lines(self.source, self.session.start, self.session.end)

    def read_image(self, image: Image) -> bytes:
        """The bytes of an image of the session. Raises ValueError if the source does not hold them."""
        if image.offset is None or image.length is None:
            raise ValueError("the log does not hold the bytes of this image")
        return base64.b64decode(read_span(self.source, image.offset, image.length), validate=True)


def find(given: str, palace: Path) -> Located:
    """The session that is meant: a file (`FILE::ID` for one of several), an id in the palace, or one in a tool's logs.

    Of a log that has grown since it was mined, what is there now counts. Raises NotFound, AmbiguousId (with the
    candidates), or what reading the file or the palace raises.
    """
    if os.path.isfile(os.path.expanduser(given.partition(lookup.PART)[0])):
        return _on_disk(lookup.find_session(given, registry.default(), palace))
    try:
        return of_palace(given, palace)
    except (NotFound, NoPalace):
        return _on_disk(lookup.find_session(given, registry.default(), palace))


def _on_disk(session: Session) -> Located:
    return Located(session, session.path, Source(session.path, member=session.member), session.end is None)


def of_palace(prefix: str, palace: Path) -> Located:
    """A session of the palace, with the newest bytes of it. Raises NoPalace, NotFound or AmbiguousId."""
    with PalaceReader(palace) as reader:
        catalog = reader.catalog
        number = reader.find_session(prefix)
        session = restore.session(catalog, registry.default(), number)
        kept = [
            (Path(path_of(path)) == session.path and (member or None) == session.member, revision, mined, source)
            for source, revision, path, member, mined in catalog.rows(
                "SELECT h.source, h.revision, s.path, s.member, s.mined_at FROM session_sources h"
                " JOIN sources s ON s.id = h.source WHERE h.session = ?",
                number,
            )
        ]
        if not kept:
            raise PalaceDamaged(f"the archive has no source of session {prefix}", path=catalog.path)
        _, revision, _, source = max(kept)
        data = b"".join(archive.read(catalog, source, revision))
        path, member, container = catalog.row("SELECT path, member, container FROM sources WHERE id = ?", source)
        (others,) = catalog.row(
            "SELECT COUNT(*) FROM session_sources h JOIN sessions s ON s.id = h.session"
            " WHERE h.source = ? AND s.kind <> 'subagent' AND s.id <> ?",
            source,
            number,
        )
    where = Path(path_of(path))
    whole = not others and not member and not container
    located = Located(session, where, Source(where, data, member=member or None), whole)
    return _grown(located, len(data)) if whole else located


def _grown(found: Located, kept: int) -> Located:
    """The same with what its tool has written since it was mined, if it goes on from there."""
    session = found.session
    try:
        if os.path.getsize(found.path) <= kept:
            return found
        source = Source(found.path)
        with source.open_raw() as stream:
            if stream.read(kept) != found.data():
                return found
        read = tree.flatten(registry.default().get(session.format).read(source, Ledger()))
        fresh = next((one for one in read if one.key == session.key), None)
    except (OSError, MempalaceError):
        return found
    if fresh is None:
        return found
    return replace(found, session=tree.merge(session, fresh), source=source)
