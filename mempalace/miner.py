"""The pipeline: files -> sessions -> palace, with a ledger that adds up. Emits events, prints nothing.

look at every file          unchanged ones are not read
archive, parse, file        one transaction per source
lexical index               searchable from here on
vectors                     from a queue, newest first; the lock is free between the phases
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from mempalace import discover, tree
from mempalace.discover import Found
from mempalace.embedders import Spec
from mempalace.errors import MempalaceError, PalaceLocked
from mempalace.folders import SIDE_FILES, Folder, is_readable, unpacked
from mempalace.formats import registry as formats
from mempalace.formats.base import Format
from mempalace.formats.registry import Registry
from mempalace.head import Head
from mempalace.palace import folder, indexing, lock
from mempalace.palace.catalog import Catalog, SourceRow, path_text
from mempalace.reading import Reading, Work, shown, together
from mempalace.records import Problem
from mempalace.source import Source
from mempalace.summary import Event, MineProblem, OnEvent, Summary

# Grows when the parsers read something differently: sources read by an older one are read again.
READER_VERSION = 2


@dataclass(frozen=True, slots=True)
class Options:
    """How to mine. `max_size` (bytes) excludes larger files; `wing` labels the sessions; `embed` makes vectors,
    `documents` also reads what exports hold beside conversations."""

    wing: str | None = None
    dry_run: bool = False
    wait: bool = False
    max_size: int | None = None
    embed: bool = True
    documents: bool = False
    embedding: Spec | None = None  # for a new palace; an old one goes on with what it has


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
        if folder.exists(palace):
            folder.require(palace)
            kept = stack.enter_context(Catalog.open(palace))
        catalog = stack.enter_context(Catalog.scratch(kept))
        run = _Run(catalog, palace, registry, options, emit)
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
        self.known = catalog.sources()
        self.unpacked: set[Path] = set()  # folders that are exports
        # A format more or less is a reason to look again at what nobody claimed.
        reader = int.from_bytes(tree.digest(READER_VERSION, options.documents, *registry.names())[:6], "big")
        self.work = Work(catalog, registry, reader, options.wing, options.documents, self.known)

    def sources(self, roots: Sequence[Path]) -> None:
        """Mine every file below the roots."""
        found = list(discover.files(roots, self.registry, exclude=[self.palace]))
        self.emit(Event("found", count=len(found), size=sum(one.size for one in found)))
        self.unpacked = unpacked(one.path for one in found)
        done = self._exports(roots, found)
        # Lists come behind what is read with them.
        for one in sorted(found, key=lambda one: one.path.name in SIDE_FILES):
            if one.path not in done:
                self._source(one)
            self.emit(Event("file", str(one.path), 1, one.size))

    def _exports(self, roots: Sequence[Path], found: list[Found]) -> set[Path]:
        """Mine what lies in folders as one export of many files; the paths that are dealt with."""
        done: set[Path] = set()
        for root in roots:
            top = root.absolute()
            names = {
                one.path.relative_to(top).as_posix(): one
                for one in found
                if top in one.path.parents
                and one.error is None
                and one.skip is None
                and not self._is_excluded(one)
                and one.path not in done
            }
            export = together(self.registry, names)
            if export is not None:
                format, files = export
                folder = Folder(top, list(names), [], None)
                self._together(format, folder, {name: names[name] for name in files})
                done |= {names[name].path for name in files}
        return done

    def _together(self, format: Format, folder: Folder, found: dict[str, Found], *, archive: bool = False) -> None:
        """Mine the files of one export, unless none of them has changed."""
        rows = {name: (self._row(one.path, name if archive else ""), one) for name, one in found.items()}
        if all(self._is_fresh(row, one) for row, one in rows.values()):
            self.summary.states["unchanged"] += len(rows)
            return
        first = next(iter(rows.values()))
        with self._trap(first[0], *(one for _, one in rows.values())):
            reading = Reading(self.work)
            with self.catalog.transaction():
                reading.mine_together(format, folder, {name: (replace(row), one) for name, (row, one) in rows.items()})
            self._add(reading)

    def _row(self, path: Path, member: str = "") -> SourceRow:
        """What is known of a source: a copy, which counts only once its transaction has held."""
        return replace(self.known.get((path_text(path), member)) or SourceRow(path_text(path), member))

    def _is_fresh(self, row: SourceRow, found: Found) -> bool:
        """Whether the source was read as it is now, by the formats that there are now."""
        known = row.id and row.reader == self.work.reader and row.state not in ("failed", "excluded", "gone")
        return bool(known) and row.is_unchanged(found.size, found.mtime_ns, found.inode)

    def _source(self, found: Found) -> None:
        row = self._row(found.path)
        if found.error is not None:
            self._settle(row, found, "failed", [Problem("failed", found.error)])
        elif self._is_excluded(found):
            self._exclude(row, found)
        elif self._is_fresh(row, found):
            members = sum(
                known.path == row.path and known.member != "" and known.state != "gone" for known in self.known.values()
            )
            self.summary.states["unchanged"] += members if row.state == "archive" else 1
        elif found.skip is not None:
            self._settle(row, found, "ignored", [Problem("ignored", found.skip)])
        elif found.size == 0:
            self._settle(row, found, "empty", [])
        else:
            self._read(row, found, Source(found.path, size=found.size))

    def _exclude(self, row: SourceRow, found: Found) -> None:
        problem = Problem("excluded", f"{found.size} bytes, the limit is {self.options.max_size}")
        self._settle(row, found, "excluded", [problem])

    def _is_excluded(self, found: Found) -> bool:
        return self.options.max_size is not None and found.size > self.options.max_size

    def _read(self, row: SourceRow, found: Found, source: Source) -> None:
        """Mine one source."""
        with self._trap(row, found):
            head = Head.of(source)
            if head.kind == "zip" and not row.member:
                self._archive(row, found)
                return
            format = self.registry.identify(head)
            if format is None:
                self._unrecognised(row, found, head)
                return
            reading = Reading(self.work)
            with self.catalog.transaction():
                reading.mine(format, replace(row), found, source)
            self._add(reading)

    @contextmanager
    def _trap(self, row: SourceRow, *found: Found) -> Iterator[None]:
        """Whatever a reader does wrong concerns its source only: it is told, counted, and tried again next time."""
        try:
            with self._forgetting():
                yield
        except MempalaceError as error:
            if error.path is not None and error.path not in {one.path for one in found}:
                raise  # the palace's trouble, not the file's
            self._settle(row, found[0], "failed", [Problem("failed", error.message, error.line)])
        except (RecursionError, MemoryError) as error:
            self._settle(row, found[0], "failed", [Problem("failed", f"too large or too deep: {error}")])
        except Exception as error:  # one file must not stop the batch; the trap of the miner
            problem = Problem("failed", f"a fault in the reader: {type(error).__name__}: {error}")
            self._settle(row, found[0], "failed", [problem])

    @contextmanager
    def _forgetting(self) -> Iterator[None]:
        """What a reading that failed had put together is not in the palace."""
        try:
            yield
        except BaseException:
            self.work.merged.clear()
            raise

    def _archive(self, row: SourceRow, found: Found) -> None:
        """Mine the members of a zip archive."""
        lost = self.summary.states["failed"] + self.summary.states["excluded"]
        free = shutil.disk_usage(self.palace if self.palace.exists() else found.path.parent).free
        with Folder.open(found.path, free) as folder:
            members = {
                name: Found(found.path, size, found.mtime_ns, found.inode) for name, size in folder.sizes().items()
            }
            done = set(folder.ignored)
            export = together(self.registry, folder.names)
            if export is not None:
                format, files = export
                self._together(format, folder, {name: members[name] for name in files}, archive=True)
                done |= set(files)
            for name in sorted(set(folder.ignored) - set(export[1] if export else ())):
                if name.lower().endswith(".zip"):
                    problem = Problem("unrecognised", "an archive in an archive: unpack it and mine it")
                    self._settle(self._row(found.path, name), members[name], "unrecognised", [problem])
                else:
                    self._settle(self._row(found.path, name), members[name], "ignored", [])
            for source in folder.sources():
                name = source.member or ""
                if name in done:
                    continue
                if self._is_excluded(members[name]):
                    self._exclude(self._row(found.path, name), members[name])
                else:
                    self._read(self._row(found.path, name), members[name], source)
            self._mark_gone(row.path, folder.names)
            self.summary.states["excluded"] += len(folder.problems)
            self.tell(str(found.path), folder.problems)
        # What could not be read is tried again the next time.
        incomplete = self.summary.states["failed"] + self.summary.states["excluded"] > lost
        row.state, row.reader = "failed" if incomplete else "archive", self.work.reader
        row.size, row.mtime_ns, row.inode = found.size, found.mtime_ns, found.inode
        with self.catalog.transaction():
            self.catalog.save_source(row)

    def _mark_gone(self, path: str, names: list[str]) -> None:
        """Members that the archive no longer has: what they said stays, but they are not counted any more."""
        there = set(names)
        for known in self.known.values():
            if known.path == path and known.member and known.member not in there:
                known.state = "gone"
                with self.catalog.transaction():
                    self.catalog.save_source(known)

    def _unrecognised(self, row: SourceRow, found: Found, head: Head) -> None:
        if self._is_beside(row, found):
            self._settle(row, found, "ignored", [])
            return
        if head.kind == "empty" or (head.whole and head.document in ([], {})):
            self._settle(row, found, "empty", [])
            return
        if head.trouble is not None:
            self._settle(row, found, "failed", [Problem("failed", head.trouble)])
            return
        what = {"json": "JSON", "jsonl": "JSON lines", "text": "text", "zip": "a zip archive", "sqlite": "a database"}
        message = f"{what.get(head.kind, 'binary data')} that no known format claims"
        self._settle(row, found, "unrecognised", [Problem("unrecognised", message)])

    def _is_beside(self, row: SourceRow, found: Found) -> bool:
        """Whether the file lies in an export that was unpacked, in whose archive it would be passed over."""
        beside = row.container or not self.unpacked.isdisjoint(found.path.parents)
        return bool(beside) and not row.member and not is_readable(found.path.name)

    def _settle(self, row: SourceRow, found: Found, state: str, problems: list[Problem]) -> None:
        """Remember what became of a source from which nothing was read, and count it."""
        self.summary.states[state] += 1
        self.tell(shown(row), problems)
        row.state = state
        row.size, row.mtime_ns, row.inode = found.size, found.mtime_ns, found.inode
        row.reader = self.work.reader
        row.mined_at = time.time()
        row.problems = [(problem.kind, problem.message, problem.line) for problem in problems]
        with self.catalog.transaction():
            self.catalog.save_source(row)
        self.known[row.path, row.member] = row

    def _add(self, reading: Reading) -> None:
        """Count a reading whose transaction has held."""
        reading.report(self.summary)
        self.known.update(reading.rows)
        self.work.archived |= reading.rows.keys()
        for name, ledger in reading.ledgers.items():
            self.tell(name, ledger.problems)

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
                        self.catalog,
                        self.options.embedding,
                        lambda count: self.emit(Event("embedded", count=count)),
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
