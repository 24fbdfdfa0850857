"""The sessions that a command computes over: those that are named, else those that the filters select.

They are read one by one, so that memory holds one at a time. What cannot be read is told on stderr and left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from mempalace import discover, library, lookup
from mempalace.cli.output import number, one_line, style
from mempalace.cli.sessions.selection import selection_options
from mempalace.errors import EXIT_PARTIAL, MempalaceError, UnknownFormat, UsageError, expanded
from mempalace.formats import registry
from mempalace.formats.base import SessionFile
from mempalace.model import Session
from mempalace.records import Ledger
from mempalace.source import Source

F = TypeVar("F", bound=Callable[..., Any])


class Chosen:
    """An iterator over sessions, with the `problems` that were met so far."""

    def __init__(self, sessions: Callable[[Chosen], Iterator[Session]], problems: list[MempalaceError]) -> None:
        self._sessions = sessions
        self.problems = problems

    def __iter__(self) -> Iterator[Session]:
        return self._sessions(self)

    def tell(self, problem: MempalaceError) -> None:
        """Name what could not be read."""
        self.problems.append(problem)
        click.echo(style(f"left out: {one_line(str(problem))}", fg="yellow", err=True), err=True)

    def check(self, path: Path, ledger: Ledger) -> None:
        """Name the records of a file that are damaged, and in no session therefore."""
        if ledger.damaged:
            line = next((problem.line for problem in ledger.problems if problem.kind == "damaged"), None)
            records = "record" if ledger.damaged == 1 else "records"
            self.tell(MempalaceError(f"{number(ledger.damaged)} damaged {records}", path=path, line=line))

    def problem_data(self) -> list[dict[str, Any]]:
        """The problems as JSON data."""
        return [
            {
                "kind": one.kind,
                "path": None if one.path is None else str(one.path),
                "line": one.line,
                "message": one.message,
            }
            for one in self.problems
        ]

    def finish(self) -> None:
        """End the command with the exit code for what was met."""
        if self.problems:
            click.get_current_context().exit(EXIT_PARTIAL)


def chosen_sessions(command: F) -> F:
    """Arguments and options that choose sessions; the command gets `chosen`, a Chosen."""

    def of_files(*args: Any, files: list[SessionFile], problems: list[MempalaceError], **options: Any) -> Any:
        if options.get("subagents") and any(file.is_subagent for file in files):
            raise UsageError(
                "--subagents would count some twice", hint="--mode all lists them all: leave out --subagents"
            )
        return command(*args, chosen=Chosen(lambda chosen: _listed(files, chosen), problems), **options)

    own = {parameter.name for parameter in getattr(command, "__click_params__", [])}
    select: Any = selection_options(wraps(command)(of_files))
    filters = {parameter.name for parameter in select.__click_params__} - own

    @wraps(select)
    def run(*args: Any, which: tuple[str, ...], **options: Any) -> Any:
        if not which:
            return select(*args, **options)
        context = click.get_current_context()
        given = [name for name in filters if context.get_parameter_source(str(name)) == ParameterSource.COMMANDLINE]
        if given:
            option = f"--{given[0]}".replace("_", "-")
            raise UsageError(f"{option} selects sessions, and some are named already: give one or the other")
        rest = {name: value for name, value in options.items() if name not in filters}
        return command(*args, chosen=Chosen(lambda chosen: _named(which, chosen), []), **rest)

    return click.argument("which", metavar="[SESSION]...", nargs=-1)(run)  # type: ignore[return-value]


def _listed(files: list[SessionFile], chosen: Chosen) -> Iterator[Session]:
    for file in files:
        ledger = Ledger()
        try:
            session = lookup.read(file, registry.default(), ledger)
        except MempalaceError as error:
            chosen.tell(error)
            continue
        chosen.check(file.path, ledger)
        yield session


def _named(which: tuple[str, ...], chosen: Chosen) -> Iterator[Session]:
    """Files and folders with all that they hold; anything else is what `find_session` takes."""
    for name in which:
        path = expanded(name)
        if not os.path.exists(path):
            yield library.find_session(name)
            continue
        for found in discover.files([path], registry.default()):
            if found.error:
                chosen.tell(MempalaceError(found.error, path=found.path))
            elif not found.skip and found.size:
                yield from _of_file(found.path, chosen, is_named=path.is_file())


def _of_file(path: Path, chosen: Chosen, *, is_named: bool) -> Iterator[Session]:
    ledger = Ledger()
    try:
        format = registry.default().detect(path)
        sessions = [one for one in format.read(Source(path), ledger) if one.message_count or one.subagents]
    except UnknownFormat as error:
        if is_named:
            raise
        click.echo(f"no conversation: {one_line(str(error))}", err=True)
        return
    except MempalaceError as error:
        chosen.tell(error)
        return
    chosen.check(path, ledger)
    # In a folder the files of sub-agents lie beside, and are read as sessions of their own.
    yield from map(format.with_subagents, sessions) if is_named else sessions
