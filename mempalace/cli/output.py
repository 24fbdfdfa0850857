"""What all commands share: the palace option, output for people and for programs, errors, times."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import click

from mempalace.errors import AmbiguousId, MempalaceError, expanded
from mempalace.palace import folder

F = TypeVar("F", bound=Callable[..., Any])

# Control characters but tab and newline, and what turns the direction of the text that follows.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f\u202a-\u202e\u2066-\u2069]")


def palace_option(command: F) -> F:
    """`--palace DIR`, resolved to a Path."""
    return click.option(
        "--palace",
        envvar="MEMPALACE_PALACE_PATH",
        metavar="DIR",
        type=click.Path(),
        callback=lambda ctx, param, value: expanded(value) if value else folder.default_path(),
        help="Folder of the palace.  [default: ~/.mempalace/conversations]",
    )(command)


def json_option(command: F) -> F:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(command)


def prepare_streams() -> None:
    """What a console cannot show is replaced on the screen only; it never stops a command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def print_json(data: Any) -> None:
    """JSON on stdout, ASCII only, so that every console and pipe can carry it."""
    import json

    indent = 2 if sys.stdout.isatty() else None
    click.echo(json.dumps(data, ensure_ascii=True, indent=indent, default=str))


def report(error: MempalaceError, as_json: bool) -> int:
    """Tell an error, on stderr or as JSON on stdout; the exit code."""
    if as_json:
        told: dict[str, Any] = {
            "kind": error.kind,
            "message": error.message,
            "hint": error.hint,
            "path": None if error.path is None else str(error.path),
            "line": error.line,
        }
        if isinstance(error, AmbiguousId):
            told["candidates"] = error.candidates
        print_json({"schema_version": 1, "error": told})
    else:
        click.echo(f"{style('error:', fg='red', bold=True, err=True)} {printable(str(error))}", err=True)
        if error.hint:
            click.echo(f"  {printable(error.hint)}", err=True)
    return error.exit_code


def is_colourful(err: bool = False) -> bool:
    """Whether to use colour: on a terminal, unless NO_COLOR is set."""
    stream = sys.stderr if err else sys.stdout
    return stream.isatty() and not os.environ.get("NO_COLOR")


def style(text: str, *, err: bool = False, **styles: Any) -> str:
    """A text in colour, where there is colour."""
    return click.style(text, **styles) if is_colourful(err) else text


def printable(text: str) -> str:
    """A text without control characters: what a log holds must not steer the terminal."""
    return _CONTROL.sub("\ufffd", text)


def one_line(text: str) -> str:
    """A printable text on one line: a title, a name, an id, a path, a cell of a table."""
    return " ".join(printable(text).split())


def argument(text: str) -> str:
    """A text as an argument of a command that is shown to be pasted into a shell."""
    import shlex

    return shlex.quote(one_line(text))


def columns(text: str) -> int:
    """Columns that a text takes on a terminal: wide characters take two, combining ones none."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    import unicodedata

    if unicodedata.east_asian_width(character) in "WF":
        return 2
    return 0 if unicodedata.category(character) in ("Mn", "Me", "Cf") else 1


def beginning(text: str, room: int) -> str:
    """As much of a text as fits into so many columns."""
    if text.isascii():
        return text[: max(0, room)]
    used = 0
    for at, character in enumerate(text):
        used += _columns(character)
        if used > room:
            return text[:at]
    return text


def width() -> int:
    """Columns to fill: those of the terminal, at most 120; 100 where there is none."""
    return min(shutil.get_terminal_size((100, 24)).columns, 120)


def local_time(text: str | None) -> str:
    """An RFC 3339 time as people read it, in their zone, to the minute."""
    if text is None:
        return "no date"
    return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M")


def number(value: int) -> str:
    """With separators: 12,345."""
    return f"{value:,}"


def percent(share: float) -> str:
    """A share in whole percent, rounded down: 100% is all of it."""
    return f"{int(share * 100 + 1e-9)}%"


def size(value: float) -> str:
    """Bytes with a fitting unit: 1.2 MB."""
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def table(rows: Sequence[tuple[str, ...]], right: tuple[int, ...] = ()) -> str:
    """Rows in columns, parted by two spaces; `right` names columns that are set flush right."""
    if not rows:
        return ""
    cleaned = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(columns, column)) for column in zip(*cleaned, strict=True)]
    lines = []
    for row in cleaned:
        padded = []
        for at, (cell, wide) in enumerate(zip(row, widths, strict=True)):
            pad = " " * (wide - columns(cell))
            padded.append(pad + cell if at in right else cell + pad)
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)
