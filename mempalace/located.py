"""A session by its id in a palace, or by the file that holds it, together with the bytes that it was read from."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from mempalace import lookup, tree
from mempalace.convert.native import to_native
from mempalace.errors import MempalaceError, NoPalace, NotFound
from mempalace.folders import source_of
from mempalace.formats import registry
from mempalace.model import Image, Session
from mempalace.palace import archive, restore
from mempalace.palace.catalog import path_of
from mempalace.palace.reader import PalaceReader
from mempalace.records import Ledger
from mempalace.source import Original, Source, raw_lines, read_span


@dataclass(frozen=True, slots=True)
class Located:
    """A session and where its bytes are.

    `path` is where the log lies (or lay), `source` has the bytes that places in the session refer to. `files` are the
    files as they lie on disk: one, each day of a Slack channel, or of an export this conversation's part alone.
    `kept` says that they come out of the palace, `missing` how many of the session's messages are not in them: other
    files, or earlier states of this one, hold those.
    """

    session: Session
    path: Path
    source: Source
    files: tuple[Original, ...]
    kept: bool = False
    missing: int = 0

    def native(self) -> bytes:
        """The native container of the session."""
        return b"".join(to_native(self.session, self.files if self.kept else None))

    @property
    def raw(self) -> Iterator[bytes]:
        """Every line of the session's part of the log, as `Session.raw` gives those of a file that is there."""
        if not self.kept:
            return self.session.raw
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
    source = source_of(session.path, session.member)
    if session.end is None:
        return Located(session, session.path, source, tuple(session.originals()))
    return Located(session, session.path, source, (Original(source.name, lambda: session.raw),))


def of_palace(prefix: str, palace: Path) -> Located:
    """A session of the palace, with the most complete bytes of it. Raises NoPalace, NotFound or AmbiguousId."""
    with PalaceReader(palace) as reader:
        catalog = reader.catalog
        number = reader.find_session(prefix)
        session, best = restore.whole(catalog, registry.default(), number)
        files = [Original(file.name, partial(iter, list(file.read()))) for file in restore.files_of(catalog, best)]
        assert best.holder is not None
        data = b"".join(archive.read(catalog, best.holder.source, best.holder.revision))
    source = Source(path_of(best.holder.path), data, member=best.holder.member or None)
    if session.end is not None:
        part = read_span(source, session.start, session.end - session.start)
        files = [Original(source.name, partial(iter, [part]))]
    missing = session.message_count - best.session.message_count
    located = Located(session, source.path, source, tuple(files), kept=True, missing=missing)
    return _grown(located) if len(files) == 1 and not source.member and session.end is None else located


def _grown(located: Located) -> Located:
    """The same with what its tool has written since it was mined, if it goes on from there."""
    session = located.session
    kept = b"".join(located.files[0].read())
    try:
        if os.path.getsize(located.path) <= len(kept):
            return located
        with open(located.path, "rb") as stream:
            if stream.read(len(kept)) != kept:
                return located
        read = tree.flatten(registry.default().get(session.format).read(Source(located.path), Ledger()))
        fresh = next((one for one in read if one.key == session.key), None)
    except (OSError, MempalaceError):
        return located
    if fresh is None:
        return located
    whole = tree.merge(session, fresh)
    return replace(_on_disk(whole), missing=whole.message_count - fresh.message_count)
