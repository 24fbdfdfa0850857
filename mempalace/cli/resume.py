"""`mempalace resume`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from mempalace.cli import restore_environment
from mempalace.cli.output import json_option, palace_option, print_json, printable
from mempalace.errors import ConvertError, UsageError
from mempalace.located import find
from mempalace.resume import Resume, prepare


@click.command(
    epilog="""\b
Examples:
  mempalace resume 8ef64fdd                     the command that reopens it in its own tool
  mempalace resume 8ef64fdd --in codex          write it for Codex, print the command
  mempalace resume 8ef64fdd --in codex --exec   and run it
""",
)
@click.argument("session")
@click.option("--in", "tool", metavar="TOOL", help="claude-code or codex.  [default: the tool that it comes from]")
@click.option("--exec", "run", is_flag=True, help="Run the command instead of printing it.")
@palace_option
@json_option
def command(session: str, tool: str | None, run: bool, palace: Path, as_json: bool) -> None:
    """Take a session up again, in its own tool or in another one.

    SESSION is an id (a unique beginning is enough) or the file of a log. For another tool the conversation is written
    where that tool looks for it, never over a file that exists; a log that its own tool has deleted is put back. What
    the other tool has no slot for is told on standard error.
    """
    if run and as_json:
        raise UsageError("--exec and --json exclude each other", hint="--json tells the command; run it yourself")
    ready = prepare(find(session, palace), tool)
    if as_json:
        print_json({"schema_version": 1, **_told(ready)})
        return
    for line in _lines(ready):
        click.echo(printable(line), err=True)
    if run:
        _run(ready)
    click.echo(printable(ready.command) if sys.stdout.isatty() else ready.command)


def _told(ready: Resume) -> dict[str, object]:
    return {
        "command": ready.command,
        "path": None if ready.path is None else str(ready.path),
        "written": ready.written,
        "report": None if ready.report is None else ready.report.to_dict(),
        "notes": list(ready.notes),
    }


def _lines(ready: Resume) -> list[str]:
    wrote = [f"wrote {ready.path}"] if ready.written else []
    return [*wrote, *ready.notes, *(ready.report.lines() if ready.report is not None and ready.written else [])]


def _run(ready: Resume) -> None:
    """Become the tool. Raises ConvertError if its folder or its program is not there."""
    sys.stdout.flush()
    sys.stderr.flush()
    restore_environment()
    try:
        if ready.folder is not None:
            os.chdir(ready.folder)
    except OSError as error:
        raise ConvertError(
            f"cannot go to the session's folder: {error.strerror}", path=ready.folder, hint=f"run: {ready.command}"
        ) from error
    try:
        os.execvp(ready.words[0], ready.words)  # noqa: S606 - the program is one of ours to name, no shell reads it
    except OSError as error:
        raise ConvertError(
            f"{ready.words[0]} cannot be started: {error.strerror}", hint=f"install it, then run: {ready.command}"
        ) from error
