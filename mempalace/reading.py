"""One source being mined, or the files of one export together: archived, parsed, filed, counted.

All of it happens inside one transaction; the counts are reported after it has held.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from mempalace import tree
from mempalace.discover import Found
from mempalace.folders import SIDE_FILES, Folder
from mempalace.formats.base import Format
from mempalace.formats.registry import Registry
from mempalace.model import Session
from mempalace.palace import archive, filing, restore
from mempalace.palace.catalog import Catalog, SourceRow
from mempalace.records import Ledger
from mempalace.source import Source
from mempalace.summary import Summary


@dataclass(slots=True)
class Work:
    """What all readings of a run share. `archive` is the catalog whose archive holds earlier readings."""

    catalog: Catalog
    archive: Catalog
    registry: Registry
    reader: int
    wing: str | None
    documents: bool


@dataclass(slots=True)
class Counts:
    """What filing sessions added."""

    stored: int = 0
    repeated: int = 0
    sessions: int = 0
    sessions_new: int = 0
    sessions_updated: int = 0
    chunks: int = 0


@dataclass(slots=True)
class Filer:
    """Files sessions into the catalog, each with what earlier readings of it hold."""

    work: Work
    counts: Counts = field(default_factory=Counts)

    def file(self, session: Session, row: SourceRow) -> None:
        """File one session (not its sub-agents) as read from a source."""
        if not session.message_count:
            return
        counts, catalog = self.counts, self.work.catalog
        counts.sessions += 1
        now = tree.identities(session.messages)
        key = session.key or self._content_key(session, now, row)
        known = filing.find(catalog, session.format, key)
        if known is None:
            self._count(session, now, {}, newer=True)
        else:
            held = self._holders(known.id)
            newer = any(source == row.id for source, _ in held) or filing.freshness(session) >= known.freshness
            self._count(session, now, known.idents, newer=newer)
            self._hold(known.id, row)
            idents = {ident for ident, _ in now}
            if not newer and idents <= known.idents.keys():
                return
            if not newer or known.idents.keys() - idents:
                session = self._merged(session, key, [pair for pair in held if pair != (row.id, row.revision)])
                now = tree.identities(session.messages)
        filed = filing.file(catalog, session, key, row.id, known, self.work.wing, now)
        self._hold(filed.session, row)
        counts.sessions_new += filed.is_new
        counts.sessions_updated += filed.changed and not filed.is_new
        counts.chunks += filed.chunks

    def _count(
        self, session: Session, now: list[tuple[bytes, bytes]], here: dict[bytes, bytes], *, newer: bool
    ) -> None:
        """Divide the session's records into stored ones and duplicates of what is already there."""
        unknown = [ident for ident, _ in now if ident not in here]
        elsewhere = {
            (bytes(ident), bytes(content))
            for ident, content in self.work.catalog.rows_in(
                "SELECT ident, hash FROM messages WHERE ident IN (?)", unknown
            )
        }
        for message, (ident, content) in zip(session.messages, now, strict=True):
            held = ident in here and (here[ident] == content or not newer)
            if held or (ident, content) in elsewhere:
                self.counts.repeated += message.records
            else:
                self.counts.stored += message.records

    def _content_key(self, session: Session, now: list[tuple[bytes, bytes]], row: SourceRow) -> str:
        """The key of a session without an id: what this file's session had if it only grew, else its content's."""
        known = self.work.catalog.row(
            "SELECT s.key FROM sessions s JOIN session_sources h ON h.session = s.id"
            " JOIN messages m ON m.session = s.id"
            " WHERE h.source = ? AND s.format = ? AND s.key LIKE 'content-%' AND m.seq = 0 AND m.ident = ?",
            row.id,
            session.format,
            now[0][0],
        )
        if known is not None:
            return str(known[0])
        return "content-" + tree.digest(*(ident.hex() for ident, _ in now)).hex()[:16]

    def _holders(self, session: int) -> list[tuple[int, int]]:
        """The readings of a session that are kept: (source, revision) of each."""
        rows = self.work.catalog.rows("SELECT source, revision FROM session_sources WHERE session = ?", session)
        return [(int(source), int(revision)) for source, revision in rows]

    def _hold(self, session: int, row: SourceRow) -> None:
        self.work.catalog.db.execute(
            "INSERT OR IGNORE INTO session_sources VALUES (?, ?, ?)", (session, row.id, row.revision)
        )

    def _merged(self, session: Session, key: str, others: list[tuple[int, int]]) -> Session:
        """The session together with what only earlier readings of it hold, from the archive."""
        work = self.work
        readings = [restore.reading(work.archive, work.registry, session.format, key, *pair) for pair in others]
        return replace(restore.merged([*filter(None, readings), session]), path=session.path)


class Reading:
    """One source, or several that make up one export."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._filer = Filer(work)
        self.states: list[str] = []
        self.ledgers: dict[str, Ledger] = {}

    def mine(self, format: Format, row: SourceRow, found: Found, source: Source) -> None:
        """Archive a source and file its sessions."""
        before = row.state if row.id else None
        kept = self._keep(format, row, found, source)
        if kept.unchanged and row.reader == self._work.reader:
            row.state = before or "read"
            self._work.catalog.save_source(row)
            self.states.append("unchanged")
            return
        row.reader = self._work.reader
        ledger = self.ledgers[shown(row)] = Ledger()
        read = format.documents if self._work.documents else format.read
        stored_before = row.stored if kept.grown else 0
        for session in tree.flatten(read(source, ledger)):
            self._filer.file(session, row)
        self._settle(row, ledger, stored_before + self._filer.counts.stored)
        if not self._filer.counts.sessions:
            row.state = "empty"
        self._work.catalog.save_source(row)
        self.states.append("empty" if row.state == "empty" else "grown" if before == "read" else "new")

    def mine_together(self, format: Format, folder: Folder, rows: dict[str, tuple[SourceRow, Found]]) -> None:
        """Archive the files of one export (by their names in the folder) and file its sessions.

        The lists of people and channels beside them are archived too: a session is restored with them.
        """
        files = set(format.folder_files(folder.names))
        for name, (row, found) in rows.items():
            before = row.state if row.id else None
            self._keep(format, row, found, folder.source(name))
            row.reader, row.container = self._work.reader, str(folder.path)
            if name in files:
                self.ledgers[name] = Ledger()
                self.states.append("grown" if before == "read" else "new")
            else:
                row.state = "ignored"
                self.states.append("ignored")
        of_place = {(row.path, row.member): row for row, _ in rows.values()}
        for session in tree.flatten(format.read_folder(folder, lambda name: self.ledgers[name])):
            self._filer.file(session, of_place[str(session.path), session.member or ""])
        for name, (row, _) in rows.items():
            ledger = self.ledgers.get(name, Ledger())
            self._settle(row, ledger, ledger.read - ledger.unstored)
            self._work.catalog.save_source(row)

    def _keep(self, format: Format, row: SourceRow, found: Found, source: Source) -> archive.Kept:
        catalog = self._work.catalog
        row.format, row.state = format.name, "read"
        row.size, row.mtime_ns, row.inode = found.size, found.mtime_ns, found.inode
        row.mined_at = time.time()
        catalog.save_source(row)
        with source.open_raw() as stream:
            kept = archive.keep(catalog, row.id, row.revision, stream)
        row.revision = kept.revision
        return kept

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
