"""Failures that no command foresaw, told like all others: one line, exit 1, JSON with --json."""

from __future__ import annotations

import errno
import os
import sys

from mempalace.cli.output import report
from mempalace.errors import EXIT_FAILURE, MempalaceError

DEBUG = "MEMPALACE_DEBUG"
_FULL = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))


def tell(error: Exception, as_json: bool) -> int:
    """Tell an error that is none of ours; the exit code."""
    lost = _lost_output(error)
    if lost is not None:
        report(MempalaceError(f"the output cannot be written: {lost.strerror}"), as_json=False)
        return EXIT_FAILURE
    return report(_named(error), as_json)


def _named(error: Exception) -> MempalaceError:
    if isinstance(error, OSError):
        if isinstance(error, FileNotFoundError) and error.filename is None and not _has_folder():
            return MempalaceError("the current folder no longer exists", hint="go to another one, and try again")
        path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else None
        return MempalaceError(error.strerror or _described(error), path=path, hint=_hint())
    return MempalaceError(_described(error), hint=_hint())


def _described(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _hint() -> str:
    return f"{DEBUG}=1 shows where it comes from"


def _has_folder() -> bool:
    try:
        return bool(os.getcwd())
    except OSError:
        return False


def _lost_output(error: Exception) -> OSError | None:
    """Why standard output takes no more, if so. What is left for it is given up: it would fail again at exit."""
    lost = None
    if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
        lost = error
    try:
        sys.stdout.flush()  # fails again, unless the stream keeps nothing
    except OSError as again:
        lost = again
    if lost is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return lost
