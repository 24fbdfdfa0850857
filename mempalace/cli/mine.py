"""`mempalace mine`."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mempalace import miner
from mempalace.cli import config
from mempalace.cli.output import json_option, number, one_line, palace_option, print_json, printable, size, style
from mempalace.errors import EXIT_OK, EXIT_PARTIAL
from mempalace.summary import Event, Summary

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

_MOST_PROBLEMS = 20
_QUIET_KINDS = frozenset({"ignored", "glued", "replaced"})


@click.command(
    epilog="""\b
Examples:
  mempalace mine --mode convos              every tool found on this machine
  mempalace mine --mode convos ~/logs       a folder, a file or an export archive
  mempalace mine --dry-run                  what it would do
""",
)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--mode", type=click.Choice(["convos"]), default="convos", help="What to read: conversations.")
@click.option("--wing", metavar="NAME", help="Label for the conversations.  [default: the project the log names]")
@click.option("--dry-run", is_flag=True, help="Write nothing, say what a run would do.")
@click.option("--wait", is_flag=True, help="Wait while another mine is running.")
@click.option(
    "--max-size", type=click.IntRange(min=1), metavar="BYTES", help="Leave out larger files (they are listed)."
)
@click.option("--no-vectors", is_flag=True, help="Leave the vectors to a later run: words are searchable at once.")
@click.option(
    "--include", type=click.Choice(["documents"]), help="Also read project documents and memories of exports."
)
@palace_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    paths: tuple[Path, ...],
    mode: str,
    wing: str | None,
    dry_run: bool,
    wait: bool,
    max_size: int | None,
    no_vectors: bool,
    include: str | None,
    palace: Path,
    as_json: bool,
) -> None:
    """Read conversations into the palace.

    PATHS are files, folders or exports; without any, every place where a known tool keeps its logs is read.
    Files that did not change since the last time are not read again.
    """
    options = miner.Options(
        wing=wing,
        dry_run=dry_run,
        wait=wait,
        max_size=max_size,
        embed=not no_vectors,
        documents=include == "documents",
        embedding=config.embedding(),
    )
    with Progress() as progress:
        summary = miner.mine(palace, paths or None, options, progress.on_event)
    if as_json:
        print_json(summary.to_dict())
    else:
        click.echo(report(summary, dry_run))
    ctx.exit(EXIT_PARTIAL if summary.is_partial else EXIT_OK)


def report(summary: Summary, dry_run: bool) -> str:
    """The end table: every line adds up."""
    states = [f"{number(summary.states[state])} {state}" for state in summary.STATES if summary.states[state]]
    reasons = ", ".join(f"{reason} {number(count)}" for reason, count in sorted(summary.skipped.items()))
    skipped = f"{number(sum(summary.skipped.values()))} skipped" + (f" ({reasons})" if reasons else "")
    records = (
        f"{number(summary.read)} read = {number(summary.stored)} stored + {number(summary.duplicate)} duplicate"
        f" + {number(summary.damaged)} damaged + {skipped}"
    )
    lines = [
        style("Dry run: nothing was written. A run would give:", bold=True)
        if dry_run
        else f"Palace    {summary.palace}",
        f"Files     {number(summary.found)} found" + (f" = {' + '.join(states)}" if states else ""),
        f"Records   {records}",
        f"Sessions  {number(summary.sessions_new)} new, {number(summary.sessions_updated)} updated",
        f"Chunks    {number(summary.chunks_new)} new, {number(summary.chunks_total)} in all",
        f"Vectors   {number(summary.vectors_new)} new, {number(summary.vectors_queued)} queued",
        f"Time      {summary.seconds:.1f} s",
        *_problems(summary),
    ]
    if not summary.found:
        lines.append("No conversations were found. Give a path, or see where they are looked for: mempalace formats")
    elif not dry_run and summary.chunks_total:
        lines.append('Search them: mempalace search "..."')
    return "\n".join(lines)


def _problems(summary: Summary) -> list[str]:
    told = [problem for problem in summary.problems if problem.kind not in _QUIET_KINDS]
    lines = []
    for problem in told[:_MOST_PROBLEMS]:
        where = f"{problem.path}:{problem.line}" if problem.line else problem.path
        lines.append("  " + one_line(f"{problem.kind}: {where}: {problem.message}"))
    if len(told) > _MOST_PROBLEMS:
        lines.append(f"  ... and {number(len(told) - _MOST_PROBLEMS)} more: --json lists them all")
    return lines


class Progress:
    """A bar with the time left, on a terminal; elsewhere nothing but problems worth a line."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._files = self._read = self._total = 0

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[done]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar = self._stack.enter_context(bar)
        return self

    def __exit__(self, *details: object) -> None:
        self._stack.close()

    def on_event(self, event: Event) -> None:
        """Show how far the run is."""
        if event.kind == "waiting":
            click.echo(f"waiting for another mine{printable(event.text)}", err=True)
        if self._bar is None:
            return
        if event.kind in ("found", "phase") and self._task is not None:
            self._bar.remove_task(self._task)
        if event.kind == "found":
            self._task = self._bar.add_task("reading", total=event.size or 1, done=f"0 of {number(event.count)} files")
            self._total = event.count
        elif event.kind == "file" and self._task is not None:
            self._files += 1
            self._read += event.size
            done = f"{number(self._files)} of {number(self._total)} files, {size(self._read)}"
            self._bar.update(self._task, completed=self._read, done=done)
        elif event.kind == "phase":
            self._task = self._bar.add_task(event.text, total=event.count or None, done="")
        elif event.kind == "embedded" and self._task is not None:
            self._bar.advance(self._task, event.count)
