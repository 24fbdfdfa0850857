"""The one error tree. Whatever goes wrong on purpose is a MempalaceError.

Each class says who sees it and with which exit code the command line ends. An error names the file (and
line) it speaks of and what to do next; the faces only print it.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

EXIT_OK = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_NO_PALACE = 3
EXIT_DAMAGED = 5
EXIT_LOCKED = 7
EXIT_PARTIAL = 8
EXIT_INTERRUPTED = 130


class MempalaceError(Exception):
    """Base of all errors that this project raises on purpose.

    `kind` is the stable name in JSON output, `hint` says what to do next, `path` and `line` (1-based) say
    where, if the error concerns a file.
    """

    kind: ClassVar[str] = "error"
    exit_code: ClassVar[int] = EXIT_FAILURE

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        path: Path | str | None = None,
        line: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.path = None if path is None else Path(path)
        self.line = line

    def __str__(self) -> str:
        where = ""
        if self.path is not None:
            where = f"{self.path}:{self.line}: " if self.line else f"{self.path}: "
        return f"{where}{self.message}"


class UsageError(MempalaceError):
    """The caller asked for something that cannot be: a bad option, an empty query, an unknown date."""

    kind = "usage"
    exit_code = EXIT_USAGE


def expanded(path: Path | str) -> Path:
    """A path with the folders that `~` and `~name` mean. Raises UsageError for the home of nobody."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise UsageError(f"no home folder is known for {path}", hint="a file of that name is: ./~name") from error


class UnknownFormat(MempalaceError):
    """No format claims the file, or no format has the given name. Seen by callers of `parse`."""

    kind = "unknown_format"


class PluginError(MempalaceError):
    """A format that another package registers cannot be loaded."""

    kind = "plugin"


class PriceError(MempalaceError):
    """A table of prices cannot be read, or has no price for a model that was used."""

    kind = "prices"


class ScriptError(MempalaceError):
    """A script of one's own cannot be run, or its function raises; `path` and `line` are the script's."""

    kind = "script"


class ParseError(MempalaceError):
    """A file is claimed by a format, but holds nothing that can be read as its sessions."""

    kind = "parse"


class ConvertError(MempalaceError):
    """A session cannot be written as another tool's file, or not at that place; nothing was written."""

    kind = "convert"


class SourceError(MempalaceError):
    """A file cannot be read at all: missing, forbidden, refused by a limit."""

    kind = "source"


class NoPalace(MempalaceError):
    """There is no palace at the given folder yet."""

    kind = "no_palace"
    exit_code = EXIT_NO_PALACE


class ForeignFolder(MempalaceError):
    """The folder given as palace holds something that is not ours. It is left as it was."""

    kind = "foreign_folder"


class PalaceLocked(MempalaceError):
    """Another process is writing to the palace."""

    kind = "locked"
    exit_code = EXIT_LOCKED


class StoreError(MempalaceError):
    """A part of the palace could not be read or written (disk full, read-only, gone)."""

    kind = "store"


class PalaceDamaged(MempalaceError):
    """A part of the palace is damaged; the hint names the command that makes it again."""

    kind = "damaged"
    exit_code = EXIT_DAMAGED


class ModelError(MempalaceError):
    """A model file is missing or is not the file it should be."""

    kind = "model"


class AmbiguousId(UsageError):
    """An id prefix fits several sessions; `candidates` lists them."""

    kind = "ambiguous_id"

    def __init__(self, message: str, candidates: list[str], *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.candidates = candidates


class NotFound(UsageError):
    """No session has the id that was asked for."""

    kind = "not_found"
