"""A session by its id in a palace, or by the file that holds it, together with the bytes that it was read from."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mempalace.errors import AmbiguousId, NotFound, PalaceDamaged, ParseError
from mempalace.formats import registry
from mempalace.model import Image, Session
from mempalace.palace import archive, restore
from mempalace.palace.catalog import path_of
from mempalace.palace.reader import PalaceReader
from mempalace.records import Ledger
from mempalace.source import Source, raw_lines, read_span


@dataclass(frozen=True, slots=True)
class Original:
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


def find(given: str, palace: Path) -> Original:
    """The session that is meant: a file that is there, else the beginning of an id in the palace.

    Raises NotFound, AmbiguousId (with the candidates), or what reading the file or the palace raises.
    """
    path = Path(given).expanduser()
    if os.path.isfile(path):
        return of_file(path)
    try:
        return of_palace(given, palace)
    except NotFound as error:
        raise NotFound(
            f"{given!r} is no file, and no session's id in the palace begins like that",
            hint="find one: mempalace search ...",
        ) from error


def of_file(path: Path) -> Original:
    """The one session of a file. Raises AmbiguousId if there are more, ParseError if there is none."""
    source = Source(path.absolute())
    found = list(registry.default().detect(path).read(source, Ledger()))
    if not found:
        raise ParseError("no session in this file", path=path)
    if len(found) > 1:
        ids = [session.key or f"(without id, number {number})" for number, session in enumerate(found, 1)]
        raise AmbiguousId(
            f"{path} holds {len(found)} sessions: {', '.join(ids[:20])}",
            ids,
            hint="mine the file, then name the session by its id",
        )
    return Original(found[0], source.path, source, is_whole=found[0].end is None)


def of_palace(prefix: str, palace: Path) -> Original:
    """A session of the palace, with the newest bytes that were kept of it. Raises NotFound or AmbiguousId."""
    with PalaceReader(palace) as reader:
        catalog = reader.catalog
        session = restore.session(catalog, registry.default(), reader.find_session(prefix))
        number = reader.find_session(prefix)
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
    return Original(session, where, Source(where, data, member=member or None), whole)
