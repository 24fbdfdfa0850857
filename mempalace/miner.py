"""The pipeline: files -> sessions -> palace, with a ledger that adds up. Emits events, prints nothing.

look at every file          unchanged ones are not read
archive, parse, file        one transaction per source
lexical index               searchable from here on
vectors                     from a queue, newest first; the lock is free between the phases
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from mempalace import discover, embedding, tree
from mempalace.discover import Found
from mempalace.errors import MempalaceError, PalaceLocked, ParseError
from mempalace.formats import registry as formats
from mempalace.formats.base import Format
from mempalace.formats.registry import Registry
from mempalace.head import Head
from mempalace.model import Session
from mempalace.palace import archive, filing, folder, indexing, lock, restore
from mempalace.palace.catalog import Catalog, SourceRow
from mempalace.records import Ledger, Problem
from mempalace.source import Source
from mempalace.summary import Event, MineProblem, OnEvent, Summary

# Grows when the parsers read something differently: sources read by an older one are read again.
READER_VERSION = 1


@dataclass(frozen=True, slots=True)
class Options:
    """How to mine. `max_size` (bytes) excludes larger files; `wing` labels the sessions; `embed` makes vectors."""

    wing: str | None = None
    dry_run: bool = False
    wait: bool = False
    max_size: int | None = None
    embed: bool = True


def mine(
    palace: Path,
    paths: Sequence[Path] | None = None,
    options: Options = Options(),
    on_event: OnEvent | None = None,
    registry: Registry | None = None,
) -> Summary:
    """Read the conversations below the paths (without any: of every known tool) into a palace.

    Raises PalaceLocked, ForeignFolder, StoreError and ModelError; what is wrong with a single file is counted
    and told in the summary.
    """
    started = time.monotonic()
    known = registry or formats.default()
    emit = on_event or (lambda event: None)
    roots = discover.everywhere(known) if paths is None else list(paths)
    if options.dry_run:
        return _rehearse(palace, roots, options, emit, known, started)
    folder.create(palace)
    with _locked(palace, options, emit), Catalog.open_for_writing(palace) as catalog:
        run = _Run(catalog, palace, known, options, emit)
        try:
            run.sources(roots)
        finally:
            emit(Event("phase", "indexing"))
            indexing.update_lexical(catalog, palace)
    with Catalog.open_for_writing(palace) as catalog:
        run.catalog = catalog
        if options.embed:
            run.vectors()
        run.finish(started)
    return run.summary


def _rehearse(
    palace: Path, roots: Sequence[Path], options: Options, emit: OnEvent, registry: Registry, started: float
) -> Summary:
    """The same run against a scratch copy of what the palace knows: nothing of the palace is written."""
    with ExitStack() as stack:
        kept = None
        if palace.exists():
            folder.require(palace)
            kept = stack.enter_context(Catalog.open(palace))
        catalog = stack.enter_context(Catalog.scratch(kept))
        run = _Run(catalog, palace, registry, options, emit)
        run.archive = kept or catalog
        run.sources(roots)
        run.finish(started)
    return run.summary


@contextmanager
def _locked(palace: Path, options: Options, emit: OnEvent) -> Iterator[None]:
    with lock.writing(palace, wait=options.wait, on_wait=lambda holder: emit(Event("waiting", holder))):
        yield


class _Run:
    """One run over many sources."""

    def __init__(self, catalog: Catalog, palace: Path, registry: Registry, options: Options, emit: OnEvent) -> None:
        self.catalog = catalog
        self.palace = palace
        self.registry = registry
        self.options = options
        self.emit = emit
        self.summary = Summary(str(palace))
        self.archive = catalog
        self.known = catalog.sources()
        # A format more or less is a reason to look again at what nobody claimed.
        self.reader = int.from_bytes(tree.digest(READER_VERSION, *registry.names())[:6], "big")

    def sources(self, roots: Sequence[Path]) -> None:
        """Mine every file below the roots."""
        found = list(discover.files(roots, self.registry, exclude=[self.palace]))
        self.emit(Event("found", count=len(found), size=sum(one.size for one in found)))
        for one in found:
            self._source(one)
            self.emit(Event("file", str(one.path), 1, one.size))

    def _source(self, found: Found) -> None:
        row = self.known.get((str(found.path), "")) or SourceRow(str(found.path))
        if found.error is not None:
            self._settle(row, found, "failed", [Problem("failed", found.error)])
            return
        fresh = row.id and row.reader == self.reader and row.state != "failed"
        if fresh and row.is_unchanged(found.size, found.mtime_ns, found.inode) and not self._is_excluded(found):
            self.summary.states["unchanged"] += 1
            return
        if found.skip is not None:
            self._settle(row, found, "ignored", [Problem("ignored", found.skip)])
        elif self._is_excluded(found):
            limit = self.options.max_size
            self._settle(row, found, "excluded", [Problem("excluded", f"{found.size} bytes, the limit is {limit}")])
        elif found.size == 0:
            self._settle(row, found, "empty", [])
        else:
            self._read(row, found)

    def _is_excluded(self, found: Found) -> bool:
        return self.options.max_size is not None and found.size > self.options.max_size

    def _read(self, row: SourceRow, found: Found) -> None:
        """Mine one file. Whatever a parser does wrong concerns this file only."""
        source = Source(found.path, size=found.size)
        reading = _Reading(self, replace(row), found, source)
        try:
            head = Head.of(source)
            format = self.registry.identify(head)
            if format is None:
                self._unrecognised(row, found, head)
                return
            with self.catalog.transaction():
                reading.mine(format)
        except ParseError as error:
            self._settle(row, found, "failed", [Problem("failed", error.message, error.line)])
        except MempalaceError as error:
            if error.path is not None and error.path != found.path:
                raise  # the palace's trouble, not the file's
            self._settle(row, found, "failed", [Problem("failed", error.message, error.line)])
        except (RecursionError, MemoryError) as error:
            self._settle(row, found, "failed", [Problem("failed", f"too large or too deep: {error}")])
        except Exception as error:  # one file must not stop the batch; the trap of the miner
            problem = Problem("failed", f"a fault in the reader: {type(error).__name__}: {error}")
            self._settle(row, found, "failed", [problem])
        else:
            reading.report()

    def _unrecognised(self, row: SourceRow, found: Found, head: Head) -> None:
        if head.kind == "empty":
            self._settle(row, found, "empty", [])
            return
        if head.trouble is not None:
            self._settle(row, found, "failed", [Problem("failed", head.trouble)])
            return
        what = {"json": "JSON", "jsonl": "JSON lines", "text": "text", "zip": "a zip archive", "sqlite": "a database"}
        message = f"{what.get(head.kind, 'binary data')} that no known format claims"
        self._settle(row, found, "unrecognised", [Problem("unrecognised", message)])

    def _settle(self, row: SourceRow, found: Found, state: str, problems: list[Problem]) -> None:
        """Remember what became of a file from which nothing was read, and count it."""
        self.summary.states[state] += 1
        self.tell(row.path, problems)
        row.state = state
        row.size, row.mtime_ns, row.inode = found.size, found.mtime_ns, found.inode
        row.reader = self.reader
        row.mined_at = time.time()
        row.problems = [(problem.kind, problem.message, problem.line) for problem in problems]
        with self.catalog.transaction():
            self.catalog.save_source(row)

    def tell(self, path: str, problems: list[Problem]) -> None:
        """Put problems into the summary and emit them."""
        for problem in problems:
            self.summary.problems.append(MineProblem(path, problem.line, problem.kind, problem.message))
            where = f"{path}:{problem.line}" if problem.line else path
            self.emit(Event("problem", f"{problem.kind}: {where}: {problem.message}"))

    def vectors(self) -> None:
        """Embed what is queued and give it to the vector store; another run may do that instead of us."""
        queued = self.catalog.count("embed_queue")
        self.emit(Event("phase", "embedding", queued))
        try:
            if queued:
                with _locked(self.palace, self.options, self.emit):
                    self.summary.vectors_new = indexing.embed_queued(
                        self.catalog, embedding.default(), lambda count: self.emit(Event("embedded", count=count))
                    )
            if self.catalog.count("store_queue") >= indexing.FEWEST_TO_STORE:
                self.emit(Event("phase", "storing vectors"))
                with _locked(self.palace, self.options, self.emit):
                    indexing.store_queued(self.catalog, self.palace)
        except PalaceLocked:
            pass  # the queue stays for whoever holds the lock

    def finish(self, started: float) -> None:
        """Complete the summary."""
        self.summary.chunks_total = self.catalog.count("chunks")
        self.summary.vectors_queued = self.catalog.count("embed_queue")
        self.summary.seconds = time.monotonic() - started


class _Reading:
    """One file being mined, inside one transaction."""

    def __init__(self, run: _Run, row: SourceRow, found: Found, source: Source) -> None:
        self._run = run
        self._row = row
        self._found = found
        self._source = source
        self._ledger = Ledger()
        self._stored = 0
        self._repeated = 0
        self._sessions_new = self._sessions_updated = self._chunks = 0
        self._sessions = 0
        self._state = "new"

    def mine(self, format: Format) -> None:
        """Archive the file and file its sessions."""
        row, run = self._row, self._run
        before = (row.stored, row.state) if row.id else None
        row.path, row.format, row.state = str(self._found.path), format.name, "read"
        row.size, row.mtime_ns, row.inode = self._found.size, self._found.mtime_ns, self._found.inode
        row.mined_at = time.time()
        run.catalog.save_source(row)
        with self._source.open_raw() as stream:
            kept = archive.keep(run.catalog, row.id, row.revision, stream)
        if kept.unchanged and row.reader == run.reader:
            self._state, row.state = "unchanged", before[1] if before else "read"
            run.catalog.save_source(row)
            return
        row.revision, row.reader = kept.revision, run.reader
        self._state = "grown" if before and before[1] == "read" else "new"
        for session in format.read(self._source, self._ledger):
            for one in tree.flatten([session]):
                self._session(one)
        if not self._sessions:
            row.state = self._state = "empty"
        ledger = self._ledger
        row.read, row.damaged, row.skipped = ledger.read, ledger.damaged, dict(ledger.skipped)
        row.stored = (before[0] if before and kept.grown else 0) + self._stored
        row.duplicate = ledger.read - ledger.damaged - sum(ledger.skipped.values()) - row.stored
        row.problems = [(problem.kind, problem.message, problem.line) for problem in ledger.problems]
        run.catalog.save_source(row)
        run.catalog.next_generation()

    def _session(self, session: Session) -> None:
        if not session.message_count:
            return
        self._sessions += 1
        catalog, row = self._run.catalog, self._row
        now = tree.identities(session.messages)
        key = session.key or self._content_key(session, now)
        known = filing.find(catalog, session.format, key)
        if known is None:
            self._count(session, now, {}, newer=True)
        else:
            held = self._holders(known.id)
            newer = any(source == row.id for source, _ in held) or filing.freshness(session) >= known.freshness
            self._count(session, now, known.idents, newer=newer)
            self._hold(known.id)
            idents = {ident for ident, _ in now}
            if not newer and idents <= known.idents.keys():
                return
            if not newer or known.idents.keys() - idents:
                session = self._merged(session, key, [pair for pair in held if pair != (row.id, row.revision)])
                now = tree.identities(session.messages)
        filed = filing.file(catalog, session, key, row.id, known, self._run.options.wing, now)
        self._hold(filed.session)
        self._sessions_new += filed.is_new
        self._sessions_updated += filed.changed and not filed.is_new
        self._chunks += filed.chunks

    def _count(
        self, session: Session, now: list[tuple[bytes, bytes]], here: dict[bytes, bytes], *, newer: bool
    ) -> None:
        """Divide the session's records into stored ones and duplicates of what is already there."""
        unknown = [ident for ident, _ in now if ident not in here]
        elsewhere = {
            bytes(found[0])
            for found in self._run.catalog.rows_in("SELECT ident FROM messages WHERE ident IN (?)", unknown)
        }
        for message, (ident, content) in zip(session.messages, now, strict=True):
            held = ident in here and (here[ident] == content or not newer)
            if held or ident in elsewhere:
                self._repeated += message.records
            else:
                self._stored += message.records

    def _content_key(self, session: Session, now: list[tuple[bytes, bytes]]) -> str:
        """The key of a session without an id: what this file's session had if it only grew, else its content's."""
        catalog = self._run.catalog
        known = catalog.row(
            "SELECT s.key FROM sessions s JOIN session_sources h ON h.session = s.id"
            " JOIN messages m ON m.session = s.id"
            " WHERE h.source = ? AND s.format = ? AND s.key LIKE 'content-%' AND m.seq = 0 AND m.ident = ?",
            self._row.id,
            session.format,
            now[0][0],
        )
        if known is not None:
            return str(known[0])
        return "content-" + tree.digest(*(ident.hex() for ident, _ in now)).hex()[:16]

    def _holders(self, session: int) -> list[tuple[int, int]]:
        """The readings of a session that are kept: (source, revision) of each."""
        rows = self._run.catalog.rows("SELECT source, revision FROM session_sources WHERE session = ?", session)
        return [(int(source), int(revision)) for source, revision in rows]

    def _hold(self, session: int) -> None:
        self._run.catalog.db.execute(
            "INSERT OR IGNORE INTO session_sources VALUES (?, ?, ?)", (session, self._row.id, self._row.revision)
        )

    def _merged(self, session: Session, key: str, others: list[tuple[int, int]]) -> Session:
        """The session together with what only earlier readings of it hold, from the archive."""
        run = self._run
        readings = [restore.reading(run.archive, run.registry, session.format, key, *pair) for pair in others]
        return replace(restore.merged([*filter(None, readings), session]), path=session.path)

    def report(self) -> None:
        """Add what was done to the summary; called only after the transaction has held."""
        summary, ledger = self._run.summary, self._ledger
        summary.states[self._state] += 1
        summary.read += ledger.read
        summary.stored += self._stored
        summary.duplicate += self._repeated + ledger.duplicate
        summary.damaged += ledger.damaged
        summary.skipped.update(ledger.skipped)
        summary.sessions_new += self._sessions_new
        summary.sessions_updated += self._sessions_updated
        summary.chunks_new += self._chunks
        self._run.tell(self._row.path, ledger.problems)
