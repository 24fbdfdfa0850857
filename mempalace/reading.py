"""One source being mined, or the files of one export together: archived, parsed, filed, counted.

All of it happens inside one transaction; the counts are reported after it has held.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from mempalace import tree
from mempalace.discover import Found
from mempalace.errors import MempalaceError, PalaceDamaged
from mempalace.folders import SIDE_FILES, Folder
from mempalace.formats.base import Format
from mempalace.formats.registry import Registry
from mempalace.model import Session
from mempalace.palace import archive, filing, restore
from mempalace.palace.catalog import Catalog, SourceRow, path_of, path_text
from mempalace.records import Ledger
from mempalace.source import Source
from mempalace.summary import Summary


class Merged(NamedTuple):
    """A session put together from several readings: which these are (source, revision), and how new."""

    session: Session
    of: frozenset[tuple[int, int]]
    freshness: str


@dataclass(slots=True)
class Work:
    """What all readings of a run share. `merged` holds a few sessions, by number, so that each of many snapshots
    of one is merged with what the others gave and not with each of them; a reading that fails empties it."""

    catalog: Catalog
    registry: Registry
    reader: int
    wing: str | None
    documents: bool
    known: dict[tuple[str, str], SourceRow]  # all sources, by path and member
    archived: set[tuple[str, str]] = field(default_factory=set)  # those that this run has archived
    merged: dict[int, Merged] = field(default_factory=dict)


_MOST_MERGED = 8


@dataclass(slots=True)
class Counts:
    """What filing sessions added."""

    stored: int = 0
    replaced: int = 0  # records of the same source that were stored before, in messages that have changed
    repeated: int = 0
    sessions: int = 0
    sessions_new: int = 0
    sessions_updated: int = 0
    chunks: int = 0


class Filer:
    """Files the sessions of one reading into the catalog, each with what earlier readings of it hold."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._catalog = work.catalog
        self.counts = Counts()
        self.filed: set[int] = set()
        self._held: dict[tuple[int, int], int] = {}  # where a session stands in a source first
        self._ordinal = -1
        self._exports: dict[str, restore.Export] = {}  # all files of a reading are archived before it files any
        self._nameless: dict[int, list[tuple[str, bytes]]] = {}

    def file(self, session: Session, row: SourceRow) -> None:
        """File the next session of a source (not its sub-agents: they are sessions of their own)."""
        self._ordinal += 1
        if not session.message_count:
            return
        self.counts.sessions += 1
        read, now = session, tree.identities(session.messages)
        key = session.key or self._content_key(session, now, row)
        known = filing.find(self._catalog, session.format, key)
        if known is None:
            self._count(session, now, {}, row, newer=True)
        else:
            held = restore.holders(self._catalog, known.id)
            ours = known.id not in self.filed and any(one.source == row.id for one in held)
            newer = ours or filing.freshness(session) >= known.freshness
            self._count(session, now, known.messages, row, newer=newer)
            self._hold(known.id, session, row)
            idents = {ident for ident, _ in now}
            if not newer and idents <= known.messages.keys():
                return
            if not newer or known.messages.keys() - idents:
                session = self._merged(known, session, key, held, row)
                now = tree.identities(session.messages)
            else:
                self._work.merged.pop(known.id, None)
        filed = filing.file(self._catalog, session, key, row.id, known, self._work.wing, now)
        self._hold(filed.session, read, row)
        self.filed.add(filed.session)
        self.counts.sessions_new += filed.is_new
        self.counts.sessions_updated += filed.changed and not filed.is_new
        self.counts.chunks += filed.chunks

    def _count(
        self,
        session: Session,
        now: list[tuple[bytes, bytes]],
        here: dict[bytes, filing.KnownMessage],
        row: SourceRow,
        *,
        newer: bool,
    ) -> None:
        """Divide the session's records into stored ones and duplicates of what is already there."""
        unknown = [ident for ident, _ in now if ident not in here]
        elsewhere = {
            (bytes(ident), bytes(content))
            for ident, content in self._catalog.rows_in("SELECT ident, hash FROM messages WHERE ident IN (?)", unknown)
        }
        for message, (ident, content) in zip(session.messages, now, strict=True):
            known = here.get(ident)
            held = known is not None and (known.content == content or not newer)
            if held or (ident, content) in elsewhere:
                self.counts.repeated += message.records
                continue
            self.counts.stored += message.records
            if known is not None and known.source == row.id:
                self.counts.replaced += known.records

    def _content_key(self, session: Session, now: list[tuple[bytes, bytes]], row: SourceRow) -> str:
        """The key of a session without an id: that of its content, which it keeps while its file grows.

        Of the nameless sessions that the source held before this reading, the first that begins alike and was
        not yet met again is taken for the same.
        """
        if row.id not in self._nameless:
            self._nameless[row.id] = [
                (str(key), bytes(first))
                for key, first in self._catalog.rows(
                    "SELECT s.key, m.ident FROM sessions s JOIN session_sources h ON h.session = s.id"
                    " JOIN messages m ON m.session = s.id AND m.seq = 0"
                    " WHERE h.source = ? AND s.format = ? AND s.key LIKE 'content-%' ORDER BY h.ordinal",
                    row.id,
                    session.format,
                )
            ]
        before = self._nameless[row.id]
        for at, (key, first) in enumerate(before):
            if first == now[0][0]:
                del before[at]
                return key
        return "content-" + tree.digest(*(ident.hex() for ident, _ in now)).hex()[:16]

    def _hold(self, number: int, session: Session, row: SourceRow) -> None:
        """Note where the session stands; one that stands in several places of a file is looked for in all of it."""
        place = (number, row.id)
        ordinal = self._held.setdefault(place, self._ordinal)
        end = session.end if ordinal == self._ordinal else None
        self._catalog.db.execute(
            "INSERT OR REPLACE INTO session_sources VALUES (?, ?, ?, ?, ?, ?)",
            (number, row.id, row.revision, ordinal, session.start, end),
        )

    def _merged(
        self, known: filing.SessionRow, session: Session, key: str, held: list[restore.Holder], row: SourceRow
    ) -> Session:
        """The session with what only earlier readings of it hold, and other parts of the same file.

        Raises PalaceDamaged if there were some and none is left, for what they said would be taken out of the catalog.
        """
        work, number = self._work, known.id
        again = number in self.filed
        others = [one for one in held if again or one.container or (one.source, one.revision) != (row.id, row.revision)]
        before = work.merged.pop(number, None)
        of = {(one.source, one.revision) for one in others}
        if again or before is None or not of <= before.of or any(one.container for one in others):
            found = restore.readings(work.catalog, work.registry, session.format, key, others, self._exports)
            before = Merged(restore.merged(found), frozenset(of), max(map(filing.freshness, found))) if found else None
        if before is None:
            if others and not known.messages.keys() <= {ident for ident, _ in tree.identities(session.messages)}:
                raise PalaceDamaged(f"the archive has no reading of session {key}: it was left as it was")
            return session
        fresh = filing.freshness(session)
        ordered = [before.session, session] if fresh >= before.freshness else [session, before.session]
        merged = replace(tree.merge_all(ordered), path=session.path)
        if len(work.merged) >= _MOST_MERGED:
            del work.merged[next(iter(work.merged))]
        work.merged[number] = Merged(merged, before.of | {(row.id, row.revision)}, max(fresh, before.freshness))
        return merged


class Reading:
    """One source, or several that make up one export."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._filer = Filer(work)
        self.states: list[str] = []
        self.ledgers: dict[str, Ledger] = {}
        self.rows: dict[tuple[str, str], SourceRow] = {}  # of all files that were archived, by path and member

    def mine(self, format: Format, row: SourceRow, found: Found, source: Source) -> None:
        """Archive a source and file its sessions."""
        before = row.state if row.id else None
        beside = [one for one in format.beside(source) if one.path != source.path or one.member != source.member]
        if beside:
            row.container = path_text(source.path if source.member else beside[0].path.parent)
        following = self._following(row.container)
        kept = self._keep(format, row, found, source, following)
        for one in beside:
            self._keep_beside(format, row.container, one, following)
        # One that failed, was excluded or gone since it was read says so, not what it holds: it is read again.
        if kept.unchanged and row.reader == self._work.reader and before in ("read", "empty"):
            row.state = before
            self._work.catalog.save_source(row)
            self.states.append("unchanged")
            return
        row.reader = self._work.reader
        stored_before = row.stored if kept.grown or kept.unchanged else 0
        ledger = self.ledgers[shown(row)] = Ledger()
        read = format.documents if self._work.documents else format.read
        for session in tree.flatten(read(source, ledger)):
            self._filer.file(session, row)
        counts = self._filer.counts
        self._settle(row, ledger, stored_before + counts.stored - (counts.replaced if stored_before else 0))
        if not self._filer.counts.sessions:
            row.state = "empty"
        self._work.catalog.save_source(row)
        if row.state == "empty":
            self.states.append("empty")
        elif before != "read":
            self.states.append("unchanged" if kept.unchanged else "new")
        else:  # one that was written anew, perhaps shorter, and tells nothing new has not grown
            again = not kept.unchanged and not kept.grown and not counts.stored and not counts.sessions_new
            self.states.append("unchanged" if again else "grown")

    def mine_together(self, format: Format, folder: Folder, rows: dict[str, tuple[SourceRow, Found]]) -> None:
        """Archive the files of one export (by their names in the folder) and file its sessions.

        The lists of people and channels beside them are archived too: a session is restored with them.
        """
        files = set(format.folder_files(folder.names))
        containers = {name: _container(row, name, name in files) for name, (row, _) in rows.items()}
        following = {container: self._following(container) for container in sorted(set(containers.values()))}
        for name, (row, found) in rows.items():
            before = row.state if row.id else None
            row.container = containers[name]
            kept = self._keep(format, row, found, folder.source(name), following[row.container])
            row.reader = self._work.reader
            if name in files:
                self.ledgers[shown(row)] = Ledger()
                self.states.append("unchanged" if kept.unchanged else "grown" if before == "read" else "new")
            else:
                row.state = "ignored"
                self.states.append("ignored")
        of_place = {(row.path, row.member): row for row, _ in rows.values()}
        ledgers = {name: self.ledgers.get(shown(row), Ledger()) for name, (row, _) in rows.items()}
        for session in tree.flatten(format.read_folder(folder, ledgers.__getitem__)):
            self._filer.file(session, of_place[path_text(session.path), session.member or ""])
        # Threads go over several files: which of them told a record first is not known, only the sum.
        repeated = self._filer.counts.repeated
        for name, (row, _) in rows.items():
            told = ledgers[name].read - ledgers[name].unstored
            again = min(repeated, told)
            repeated -= again
            self._settle(row, ledgers[name], told - again)
            self._work.catalog.save_source(row)

    def _keep(
        self, format: Format, row: SourceRow, found: Found, source: Source, following: int | None
    ) -> archive.Kept:
        row.format, row.state = format.name, "read"
        row.size, row.mtime_ns, row.inode = found.size, found.mtime_ns, found.inode
        row.mined_at = time.time()
        return self._archive(row, source, following)

    def _archive(self, row: SourceRow, source: Source, following: int | None) -> archive.Kept:
        if following is not None:
            following = max(following, row.revision + 1) if row.id else following
            row.revision = row.revision if row.id else following
        with source.open_raw() as stream:
            self._work.catalog.save_source(row)
            kept = archive.keep(self._work.catalog, row.id, row.revision, stream, following)
        row.revision = kept.revision
        self.rows[row.path, row.member] = row
        return kept

    def _keep_beside(self, format: Format, container: str, source: Source, following: int | None) -> None:
        """Archive a list that a file is read with. It counts as a file of its own only where it is found as one."""
        place = (path_text(source.path), source.member or "")
        row = replace(self._work.known.get(place) or SourceRow(*place, format=format.name, state="ignored"))
        if place in self._work.archived and row.container == container:
            return
        row.container = container
        with suppress(MempalaceError):  # one that cannot be read: the reader does without it as well
            self._archive(row, source, following)
            self._work.catalog.save_source(row)

    def _following(self, container: str) -> int | None:
        """The number of this reading of an export: what has changed in it becomes a revision of that number.

        What was read before as a part of it, or from further up, belongs to it from now on.
        """
        if not container:
            return None
        catalog = self._work.catalog
        below = container + os.sep
        catalog.db.execute(
            "UPDATE sources SET container = ? WHERE container <> '' AND member = '' AND substr(path, 1, ?) = ?",
            (container, len(below), below),
        )
        newest = catalog.row("SELECT MAX(revision) FROM sources WHERE container = ?", container)[0]
        return 0 if newest is None else int(newest) + 1

    def _settle(self, row: SourceRow, ledger: Ledger, stored: int) -> None:
        """Write a source's ledger into its row."""
        row.read, row.damaged, row.skipped = ledger.read, ledger.damaged, dict(ledger.skipped)
        row.stored = stored
        row.duplicate = ledger.read - ledger.damaged - sum(ledger.skipped.values()) - stored
        row.problems = [(problem.kind, problem.message, problem.line) for problem in ledger.problems]
        self._work.catalog.next_generation()

    def report(self, summary: Summary) -> None:
        """Add what was done to the summary; called only after the transaction has held."""
        counts = self._filer.counts
        summary.states.update(self.states)
        for ledger in self.ledgers.values():
            summary.read += ledger.read
            summary.duplicate += ledger.duplicate
            summary.damaged += ledger.damaged
            summary.skipped.update(ledger.skipped)
        summary.stored += counts.stored
        summary.duplicate += counts.repeated
        summary.sessions_new += counts.sessions_new
        summary.sessions_updated += counts.sessions_updated
        summary.chunks_new += counts.chunks


def _container(row: SourceRow, name: str, is_part: bool) -> str:
    """Where the export lies of which a file is a part, two levels down, or a list at its top: the archive or folder."""
    if row.member:
        return row.path
    return path_text(path_of(row.path).parents[1 if is_part else 0])


def shown(row: SourceRow) -> str:
    """A source's name as it is told: a member of an archive behind the archive's."""
    return f"{row.path}/{row.member}" if row.member else row.path


def together(registry: Registry, names: Iterable[str]) -> tuple[Format, list[str]] | None:
    """The format that reads some of these files as one export, and which, with the lists beside them."""
    listed = sorted(names)
    for format in registry:
        files = format.folder_files(listed)
        if files:
            roots = {name.rsplit("/", 2)[0] if name.count("/") > 1 else "" for name in files}
            beside = [
                name
                for name in listed
                if name.rsplit("/", 1)[-1] in SIDE_FILES and (name.rsplit("/", 1)[0] if "/" in name else "") in roots
            ]
            return format, [*files, *beside]
    return None
