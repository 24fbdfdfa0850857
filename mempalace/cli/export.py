"""`mempalace export`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from mempalace import convert
from mempalace.cli.output import json_option, palace_option, print_json, printable
from mempalace.convert.fidelity import MISSING, FidelityReport, Level
from mempalace.errors import UnknownFormat, UsageError
from mempalace.located import Located, find

_TARGETS = ("native", "original", *convert.TARGETS)


@click.command(
    epilog="""\b
Examples:
  mempalace export 8ef64fdd --to markdown               to standard output
  mempalace export 8ef64fdd --to html -o talk.html      one page, no scripts, opens anywhere
  mempalace export 8ef64fdd --to codex -o .             a rollout, under the name that Codex gives it
  mempalace export 8ef64fdd --to original -o log.jsonl  the log itself, also after its tool has deleted it
  mempalace export rollout.jsonl --to claude-code       a file, without a palace
""",
)
@click.argument("session")
@click.option("--to", "target", required=True, metavar="FORMAT", help=f"One of: {', '.join(_TARGETS)}.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE|DIR", help="Where to write it.")
@click.option("--force", is_flag=True, help="Write over a file that exists.")
@palace_option
@json_option
def command(session: str, target: str, output: Path | None, force: bool, palace: Path, as_json: bool) -> None:
    """Write one session as a file of another tool, a page, or the log that it was.

    SESSION is an id (a unique beginning is enough), the file of a log, or FILE::ID for one of several in it. What the
    target has no slot for is told on standard error.
    """
    if as_json and output is None:
        raise UsageError("--json needs -o: standard output holds the session", hint="add: -o FILE")
    if target not in _TARGETS:
        raise UnknownFormat(f"nothing can be written as {target!r}", hint=f"one of: {', '.join(_TARGETS)}")
    found = find(session, palace)
    files, report = _made(found, target)
    if len(files) > 1 and not (output is not None and os.path.isdir(output)):
        names = ", ".join(name for name, _ in files)
        raise UsageError(f"the session lies in {len(files)} files: {names}", hint="give a folder: -o DIR")
    written = _write(files, output, force)
    if as_json:
        told = {"session_id": found.session.key, "path": written[0], "paths": written, "report": report.to_dict()}
        print_json({"schema_version": 1, **told, "bytes": sum(len(data) for _, data in files)})
        return
    for line in [*(f"wrote {path}" for path in written), *report.lines()]:
        click.echo(printable(line), err=True)


def _made(found: Located, target: str) -> tuple[list[tuple[str, bytes]], FidelityReport]:
    """The names and contents of the files to write: one, or the log's own where it lies in several."""
    lacks = {MISSING: found.missing} if found.missing else {}
    if target == "original":
        files = [(Path(file.name).name, b"".join(file.read())) for file in found.files]
        return files, FidelityReport(target, Level.BYTES, lacks)
    if target == "native":
        name = f"{found.path.name}.native"
        return [(name, found.native())], FidelityReport(target, Level.BYTES, lacks)
    made = convert.convert(found.session, target, read_image=found.read_image, raw=found.raw)
    return [(Path(made.name).name, made.data)], made.report


def _write(files: list[tuple[str, bytes]], output: Path | None, force: bool) -> list[str]:
    """Write the files to where they were asked for, else to standard output; their paths."""
    if output is None:
        for _, data in files:
            sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return []
    into = os.path.isdir(output)
    placed = [(output / name if into else output, data) for name, data in files]
    convert.write_all(placed, overwrite=force)
    return [str(path) for path, _ in placed]
