"""Sessions out of the archive: read again from the bytes that were kept, also after their files are gone."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from mempalace import tree
from mempalace.errors import PalaceDamaged, ParseError, UnknownFormat
from mempalace.folders import Folder
from mempalace.formats.base import Format
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
    path: str
    member: str
    container: str
    mtime_ns: int


class Told(NamedTuple):
    """A session as one kept reading tells it; without a holder, as an export of many files told it once."""

    session: Session
    holder: Holder | None


def holders(catalog: Catalog, session: int) -> list[Holder]:
    """The readings of a session that are kept."""
    rows = catalog.rows(
        "SELECT h.source, h.revision, h.ordinal, h.start, h.end, s.path, s.member, s.container, s.mtime_ns"
        " FROM session_sources h JOIN sources s ON s.id = h.source WHERE h.session = ?",
        session,
    )
    return [Holder(*row) for row in rows]


def readings(
    catalog: Catalog,
    registry: Registry,
    format: str,
    key: str,
    held: Iterable[Holder],
    exports: dict[str, Export] | None = None,
) -> list[Session]:
    """The session of that key as the kept revisions of sources tell it, of an export of many files as all its
    states do; revisions that do not have it are left out.

    `exports` keeps what was read of exports for the next session; it is good until something is archived.
    """
    return [told.session for told in _told(catalog, registry, format, key, list(held), exports)]


def _told(
    catalog: Catalog,
    registry: Registry,
    format: str,
    key: str,
    held: list[Holder],
    exports: dict[str, Export] | None = None,
) -> list[Told]:
    """As `readings`, each with its holder: of a folder of an export only the last, for its files are kept."""
    exports = {} if exports is None else exports
    found: list[Told] = []
    seen: dict[tuple[str, str], bool] = {}  # parts of exports, and whether they tell of the session
    for holder in held:
        if holder.container:
            if holder.container not in exports:
                exports[holder.container] = Export(catalog, registry.get(format), holder.container)
            export = exports[holder.container]
            place = holder.container, export.part(holder)
            if place not in seen:
                told = export.sessions(place[1]).get(key, [])
                seen[place] = bool(told)
                if place[1].endswith("/"):
                    ours = [one for one in held if (one.container, export.part(one)) == place]
                    newest = max(ours, key=lambda one: (one.mtime_ns, one.source, one.revision))
                    found += [Told(session, newest if session is told[-1][1] else None) for _, session in told]
                else:
                    found += [Told(session, holder._replace(revision=revision)) for revision, session in told]
            if seen[place]:
                continue
        one = _reading(catalog, registry, format, key, holder)
        found += [] if one is None else [Told(one, holder)]
    return found


def _reading(catalog: Catalog, registry: Registry, format: str, key: str, holder: Holder) -> Session | None:
    """The session as one revision of one file tells it; None if it does not.

    Parts of it that stand apart in the file are put together; a session without an id is known by its place. If the
    file has grown to be another session's, as it may where records name their session, it is known by its messages.
    """
    if holder.end is not None:
        found = [one for one in _slice(catalog, registry, format, holder) if one.key == key]
        if found:
            return replace(merged(found), start=holder.start, end=holder.end)
    data = b"".join(archive.read(catalog, holder.source, holder.revision))
    source = Source(path_of(holder.path), data, member=holder.member or None)
    everyone = list(tree.flatten(registry.get(format).documents(source, Ledger())))
    found = [
        session
        for ordinal, session in enumerate(everyone)
        if session.message_count and (session.key == key or (session.key is None and ordinal == holder.ordinal))
    ]
    return merged(found) if found else _by_messages(catalog, format, key, everyone)


def _by_messages(catalog: Catalog, format: str, key: str, others: list[Session]) -> Session | None:
    """The messages of a session in the one, of other ids, that holds most of them."""
    rows = catalog.rows(
        "SELECT m.ident FROM messages m JOIN sessions s ON s.id = m.session WHERE s.format = ? AND s.key = ?",
        format,
        key,
    )
    known = {bytes(ident) for (ident,) in rows}
    found = [tree.only(session, known, key) for session in others]
    best = max(found, key=lambda session: session.message_count, default=None)
    return best if best is not None and best.message_count else None


def _slice(catalog: Catalog, registry: Registry, format: str, holder: Holder) -> list[Session]:
    """The conversation of an export by its own bytes, without reading the others; nothing if that fails."""
    assert holder.end is not None
    mark = mark_length(archive.read_slice(catalog, holder.source, holder.revision, 0, 4))
    if mark is None:
        return []  # the place is that in the decoded file
    data = archive.read_slice(catalog, holder.source, holder.revision, holder.start + mark, holder.end + mark)
    kept = Source(path_of(holder.path), b"[" + data + b"]", member=holder.member or None)
    try:
        return list(tree.flatten(registry.get(format).documents(kept, Ledger())))
    except ParseError:
        return []


# --- exports of many files ----------------------------------------------------------------------------------


class Export:
    """What is kept of an export of many files. It is read part by part: the folder of a channel, or a file alone,
    each with the lists beside it.

    A revision's number is that of the reading of the export which found it, so that what a file's newest
    revision up to a number says is what the export said then.
    """

    def __init__(self, catalog: Catalog, format: Format, container: str) -> None:
        self._catalog = catalog
        self._format = format
        self._root = path_of(container)
        self._files: dict[str, _KeptFile] = {}
        for number, path, member, revision in catalog.rows(
            "SELECT s.id, s.path, s.member, p.revision FROM sources s JOIN source_parts p ON p.source = s.id"
            " WHERE s.container = ? AND p.seq = 0"
            " UNION SELECT id, path, member, revision FROM sources WHERE container = ?",
            container,
            container,
        ):
            file = _KeptFile(number, path, member, [])
            self._files.setdefault(self._name(path, member), file).revisions.append(revision)
        for file in self._files.values():
            file.revisions.sort()
        self._together = set(format.folder_files(list(self._files)))
        self._last: tuple[str, dict[str, list[tuple[int, Session]]]] | None = None

    def _name(self, path: str, member: str) -> str:
        return member or os.path.relpath(path_of(path), self._root).replace(os.sep, "/")

    def part(self, holder: Holder) -> str:
        """Where a file belongs: its folder if that is read as a whole (it ends in "/"), else its name."""
        name = self._name(holder.path, holder.member)
        return name.rpartition("/")[0] + "/" if name in self._together else name

    def sessions(self, part: str) -> dict[str, list[tuple[int, Session]]]:
        """The sessions of a part by their keys, as every state of it tells them, each with the revision up to which
        that was so. The part read last is at hand."""
        if self._last is None or self._last[0] != part:
            found: dict[str, list[tuple[int, Session]]] = {}
            for revision, sessions in self._states(part):
                for session in tree.flatten(sessions):
                    if session.key is not None and session.message_count:
                        found.setdefault(session.key, []).append((revision, session))
            self._last = part, found
        return self._last[1]

    def _states(self, part: str) -> Iterator[tuple[int, Iterator[Session]]]:
        if not part.endswith("/"):
            folder = KeptFolder(self._catalog, self._root, self._files, self._files, _NEWEST)
            for revision in self._files[part].revisions:
                yield revision, self._format.documents(folder.source(part, revision), Ledger())
            return
        names = [name for name in self._together if name.rpartition("/")[0] + "/" == part]
        changes = sorted({revision for name in names for revision in self._files[name].revisions})
        for until in [*(change - 1 for change in changes[1:]), _NEWEST]:
            beside = self._files.keys() - self._together
            folder = KeptFolder(self._catalog, self._root, self._files, {*names, *beside}, until)
            yield until, self._format.read_folder(folder, lambda name: Ledger())


_NEWEST = 1 << 62


class _KeptFile(NamedTuple):
    number: int
    path: str
    member: str
    revisions: list[int]

    def until(self, revision: int) -> int | None:
        """The newest revision up to that one."""
        at = bisect_right(self.revisions, revision)
        return self.revisions[at - 1] if at else None


class KeptFolder(Folder):
    """Some files of an export out of the archive, as they were at a revision."""

    def __init__(
        self, catalog: Catalog, root: Path, files: Mapping[str, _KeptFile], names: Iterable[str], until: int
    ) -> None:
        self._catalog = catalog
        self._kept = {name: (files[name], at) for name in names if (at := files[name].until(until)) is not None}
        super().__init__(root, list(self._kept), [], None)

    def source(self, name: str, revision: int | None = None) -> Source:
        """One file as it was kept."""
        file, newest = self._kept[name]
        data = b"".join(archive.read(self._catalog, file.number, newest if revision is None else revision))
        return _Kept(path_of(file.path), data, member=file.member or None, folder=self, inside=name)


@dataclass(frozen=True, slots=True)
class _Kept(Source):
    """A file of a kept folder, which finds the others beside it there."""

    folder: KeptFolder | None = field(default=None, compare=False, repr=False)
    inside: str = ""

    def beside(self, name: str, above: int = 0) -> Source | None:
        folders = self.inside.split("/")[:-1]
        if self.folder is None or len(folders) < above:
            return None
        wanted = "/".join([*folders[: len(folders) - above], name])
        return self.folder.source(wanted) if wanted in self.folder.names else None


# --- sessions -----------------------------------------------------------------------------------------------


def merged(sessions: Iterable[Session]) -> Session:
    """One session out of several readings of it, the newest of which decides."""
    return tree.merge_all(sorted(sessions, key=filing.freshness))


def session(catalog: Catalog, registry: Registry, number: int) -> Session:
    """A session of the palace, from all its kept readings. Raises PalaceDamaged if none is left.

    Its project is the one that was known when it was filed: some tools write that beside their logs only.
    """
    return whole(catalog, registry, number)[0]


def whole(catalog: Catalog, registry: Registry, number: int) -> tuple[Session, Told]:
    """A session as `session` gives it, and the most complete of the readings whose bytes can be had."""
    format, key, project = catalog.row("SELECT format, key, project FROM sessions WHERE id = ?", number)
    try:
        roots = [str(root.absolute()) + os.sep for root in registry.get(format).roots()]
        found = _told(catalog, registry, format, key, holders(catalog, number))
    except UnknownFormat as error:
        raise PalaceDamaged(f"session {key} needs a format that is not installed: {format}") from error
    if not any(told.holder for told in found):
        raise PalaceDamaged(f"the archive has no reading of session {key}", path=catalog.path)
    found.sort(key=partial(_completeness, roots))
    made = tree.merge_all([told.session for told in found])
    if made.is_subagent:  # its type stood in a file beside it
        (kept,) = catalog.row("SELECT metadata FROM sessions WHERE id = ?", number)
        made = replace(made, subagent_type=loads(kept).get("subagent_type") or made.subagent_type)
    if project is not None:
        made = replace(made, metadata=replace(made.metadata, project=project))
    return made, [told for told in found if told.holder][-1]


def _completeness(roots: list[str], told: Told) -> tuple[str, bool, int, int, int]:
    """Of two readings, the greater holds more: more recent messages, or more of them. Of copies the one that lies
    where its tool keeps it counts, else the one that was written last."""
    fresh, holder = filing.freshness(told.session), told.holder
    if holder is None:
        return fresh, False, 0, 0, 0
    at_home = any(str(path_of(holder.path)).startswith(root) for root in roots)
    return fresh, at_home, holder.mtime_ns, holder.source, holder.revision


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
    """The files that a session was read from, as they were when they were read; see `Session.originals`.

    Of several files that hold the same session, or states of one, it is the most complete.
    """
    return files_of(catalog, whole(catalog, registry, number)[1])


def files_of(catalog: Catalog, told: Told) -> list[Original]:
    """The files that one reading of a session was made of."""
    assert told.holder is not None
    holder = told.holder
    path, member = holder.path, holder.member
    places = [(holder.source, holder.revision, path, member)]
    names = told.session.metadata.extra.get("files") if holder.container else None
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
