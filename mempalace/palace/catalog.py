"""The catalog: one SQLite file that is the truth about everything kept. The indexes are derived from it."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote_to_bytes

import orjson

from mempalace.errors import PalaceDamaged, StoreError
from mempalace.palace import folder

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

_VARIABLES = 500  # parameters in one IN (...): far below SQLite's limit in every build

# What a scratch copy takes of each table: all but the large texts and blobs.
_SCRATCH = {
    "meta": "*",
    "sources": "*",
    "parts": "id, hash, size, x''",
    "source_parts": "*",
    "sessions": "*",
    "session_sources": "*",
    "messages": "*",
    "texts": "id, hash, words, ''",
    "chunks": "*",
    "embed_queue": "*",
}

_RAW_PATH = "bytes:"

# What came into the schema later: palaces made before get it when they are next written.
_LATER = ("CREATE TABLE IF NOT EXISTS refined (text INTEGER PRIMARY KEY, vector BLOB NOT NULL)",)

State = str  # read, empty, unrecognised, ignored, failed, excluded


@dataclass(slots=True)
class SourceRow:
    """A row of `sources`; `id` is 0 until it is saved. See schema.sql for the columns."""

    path: str
    member: str = ""
    container: str = ""
    id: int = 0
    format: str | None = None
    state: State = "read"
    size: int = 0
    mtime_ns: int = 0
    inode: int = 0
    revision: int = 0
    reader: int = 0
    read: int = 0
    stored: int = 0
    duplicate: int = 0
    damaged: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    problems: list[tuple[str, str, int | None]] = field(default_factory=list)
    mined_at: float = 0.0

    def is_unchanged(self, size: int, mtime_ns: int, inode: int) -> bool:
        """Whether the file on disk is the one that was read."""
        return self.size == size and self.mtime_ns == mtime_ns and self.inode == inode


class Catalog:
    """An open catalog. Use as a context manager; writers hold the palace's lock."""

    def __init__(self, connection: sqlite3.Connection, path: Path, *, is_writing: bool = False) -> None:
        self.db = connection
        self.path = path
        self.is_writing = is_writing
        self.original: Catalog | None = None  # of a scratch copy: where the large values are
        self._copy: TemporaryDirectory[str] | None = None  # what is read of a read-only disk
        self._identity = _identity(path)

    @classmethod
    def open(cls, palace: Path) -> Catalog:
        """The catalog of an existing palace, for reading: nothing is ever written through it."""
        path = palace / folder.CATALOG
        uri = path.resolve().as_uri()
        try:
            return cls(_connect(f"{uri}?mode=ro"), path)
        except sqlite3.DatabaseError as first:
            # On a read-only file system SQLite cannot make the file of shared memory that a WAL needs.
            if not str(first).startswith(("unable to open", "attempt to write")):
                raise _damaged(first, path) from first
        try:
            if _has_bytes(path.with_name(f"{path.name}-wal")):
                return cls._open_copy(path)
            return cls(_connect(f"{uri}?mode=ro&immutable=1"), path)
        except sqlite3.DatabaseError as error:
            raise _damaged(error, path) from error

    @classmethod
    def _open_copy(cls, path: Path) -> Catalog:
        """What was written last still stands in the log beside the file, which SQLite can only read beside a copy."""
        from tempfile import TemporaryDirectory

        copy = TemporaryDirectory(prefix="mempalace-")
        try:
            for name in (path.name, f"{path.name}-wal"):
                shutil.copyfile(path.with_name(name), Path(copy.name, name))
            catalog = cls(_connect(f"{Path(copy.name, path.name).as_uri()}?mode=rw"), path)
        except BaseException:
            copy.cleanup()
            raise
        catalog._copy = copy
        return catalog

    @classmethod
    def open_for_writing(cls, palace: Path) -> Catalog:
        """The catalog of a palace, made if it is not there. The caller holds the lock."""
        path = palace / folder.CATALOG
        try:
            connection = _connect(f"{path.resolve().as_uri()}?mode=rwc")
        except sqlite3.DatabaseError as error:
            raise _damaged(error, path) from error
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            # Index pages are written again and again in a mine: fewer checkpoints save a twentieth of its CPU.
            connection.execute("PRAGMA wal_autocheckpoint = 8000")
            connection.execute("PRAGMA secure_delete = ON")
            catalog = cls(connection, path, is_writing=True)
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
                from importlib import resources

                schema = resources.files("mempalace.palace").joinpath("schema.sql").read_text(encoding="utf-8")
                connection.executescript(f"BEGIN; {schema} COMMIT;")
            for statement in _LATER:
                connection.execute(statement)
        except sqlite3.DatabaseError as error:
            connection.close()
            raise _damaged(error, path) from error
        return catalog

    @classmethod
    @contextmanager
    def scratch(cls, kept: Catalog | None) -> Iterator[Catalog]:
        """A temporary catalog that knows what `kept` does (not its texts and archive), to try a run on."""
        from tempfile import TemporaryDirectory

        with TemporaryDirectory(prefix="mempalace-") as temporary, cls.open_for_writing(Path(temporary)) as scratch:
            if kept is not None:
                scratch.db.execute("ATTACH ? AS kept", (f"{kept.path.resolve().as_uri()}?mode=ro",))
                with scratch.transaction():
                    scratch.original = kept
                    for table, columns in _SCRATCH.items():
                        scratch.db.execute(f"INSERT INTO main.{table} SELECT {columns} FROM kept.{table}")
                scratch.db.execute("DETACH kept")
            yield scratch

    def __enter__(self) -> Catalog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the files. A writer leaves all of it in the one file, for those who cannot read the log beside it."""
        if self.is_writing:
            with suppress(sqlite3.DatabaseError):  # in use: whoever closes it last does it
                self.db.execute("PRAGMA busy_timeout = 0")
                self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.db.close()
        if self._copy is not None:
            self._copy.cleanup()

    def is_current(self) -> bool:
        """Whether the file at its path is the one that is open."""
        try:
            return _identity(self.path) == self._identity
        except FileNotFoundError:
            return False

    @contextmanager
    def at_one_moment(self) -> Iterator[None]:
        """All that is read within is of one moment, whatever others write meanwhile."""
        self.rows("BEGIN")
        try:
            yield
        finally:
            self._roll_back()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing. A disk that is full raises StoreError and leaves what was there."""
        try:
            self.db.execute("BEGIN IMMEDIATE")
            yield
            self.db.execute("COMMIT")
        except sqlite3.OperationalError as error:
            self._roll_back()
            raise StoreError(f"the catalog cannot be written: {error}", path=self.path) from error
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
            self._roll_back()
            raise
        except sqlite3.DatabaseError as error:
            self._roll_back()
            raise _damaged(error, self.path) from error
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        if self.db.in_transaction:
            with suppress(sqlite3.DatabaseError):  # a damaged file cannot even roll back; closing it does
                self.db.execute("ROLLBACK")

    def rows(self, sql: str, *values: Any) -> list[Any]:
        """All rows of a query. Raises PalaceDamaged if the file is."""
        try:
            return self.db.execute(sql, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise _damaged(error, self.path) from error

    def row(self, sql: str, *values: Any) -> Any:
        """The first row of a query, or None."""
        found = self.rows(sql, *values)
        return found[0] if found else None

    def rows_in(self, sql: str, keys: Iterable[Any]) -> Iterator[Any]:
        """The rows of a query with `IN (?)` over any number of keys."""
        left = list(keys)
        for start in range(0, len(left), _VARIABLES):
            part = left[start : start + _VARIABLES]
            yield from self.rows(sql.replace("(?)", f"({','.join('?' * len(part))})"), *part)

    # --- meta -----------------------------------------------------------------------------------------------

    def get(self, key: str, default: str | None = None) -> str | None:
        """A value of the meta table."""
        found = self.row("SELECT value FROM meta WHERE key = ?", key)
        return default if found is None else str(found[0])

    def set(self, key: str, value: Any) -> None:
        """Set a value of the meta table."""
        self.db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, str(value)))

    @property
    def version(self) -> int:
        """Another number after each commit of another connection."""
        return int(self.row("PRAGMA data_version")[0])

    @property
    def generation(self) -> int:
        """Grows with every change, so that long-lived readers notice one."""
        return int(self.get("generation", "0") or 0)

    def next_generation(self) -> None:
        """Tell readers that something changed."""
        self.set("generation", self.generation + 1)

    # --- sources --------------------------------------------------------------------------------------------

    def sources(self) -> dict[tuple[str, str], SourceRow]:
        """All sources by (path, member)."""
        found = {}
        for row in self.rows(
            "SELECT path, member, container, id, format, state, size, mtime_ns, inode, revision, reader, records_read,"
            " records_stored, records_duplicate, records_damaged, records_skipped, problems, mined_at FROM sources"
        ):
            values = list(row)
            values[15], values[16] = orjson.loads(values[15]), orjson.loads(values[16])
            source = SourceRow(*values)
            found[source.path, source.member] = source
        return found

    def save_source(self, source: SourceRow) -> None:
        """Insert or update a source; gives it an id."""
        values = (
            source.path,
            source.member,
            source.container,
            source.format,
            source.state,
            source.size,
            source.mtime_ns,
            source.inode,
            source.revision,
            source.reader,
            source.read,
            source.stored,
            source.duplicate,
            source.damaged,
            orjson.dumps(source.skipped).decode(),
            orjson.dumps(source.problems).decode(),
            source.mined_at,
        )
        columns = (
            "path, member, container, format, state, size, mtime_ns, inode, revision, reader, records_read,"
            " records_stored, records_duplicate, records_damaged, records_skipped, problems, mined_at"
        )
        if source.id:
            self.db.execute(
                f"UPDATE sources SET ({columns}) = ({','.join('?' * len(values))}) WHERE id = ?",
                (*values, source.id),
            )
        else:
            cursor = self.db.execute(
                f"INSERT INTO sources ({columns}) VALUES ({','.join('?' * len(values))})",
                values,
            )
            source.id = int(cursor.lastrowid or 0)

    # --- counts ---------------------------------------------------------------------------------------------

    def count(self, table: str, where: str = "1") -> int:
        """The number of rows of a table."""
        return int(self.row(f"SELECT COUNT(*) FROM {table} WHERE {where}")[0])

    def add_many(self, sql: str, rows: Sequence[Any]) -> None:
        """Run a statement for each row."""
        if rows:
            self.db.executemany(sql, rows)


def path_text(path: Path) -> str:
    """A path as the catalog keeps it. One whose name is not UTF-8 is kept percent-encoded, behind `bytes:`."""
    text = str(path)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return _RAW_PATH + quote(os.fsencode(text))
    return text


def path_of(text: str) -> Path:
    """The path that `path_text` made a text of."""
    if text.startswith(_RAW_PATH):
        return Path(os.fsdecode(unquote_to_bytes(text.removeprefix(_RAW_PATH))))
    return Path(text)


def _identity(path: Path) -> tuple[int, int]:
    """What tells a file from another at the same path."""
    stat = path.stat()
    return stat.st_dev, stat.st_ino


def _has_bytes(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _connect(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, timeout=30, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA cache_size = -32768")
        connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _damaged(error: sqlite3.DatabaseError, path: Path) -> PalaceDamaged:
    return PalaceDamaged(
        f"the catalog cannot be read: {error}",
        path=path,
        hint="restore it from a backup; nothing was changed",
    )
