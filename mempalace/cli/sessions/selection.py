"""Which sessions a command is about: the options that `list` shares with its neighbours, and what they select."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from mempalace.cli.output import one_line, style
from mempalace.cli.times import moment
from mempalace.discover import MODES, SORTS, Selection, sessions
from mempalace.errors import MempalaceError, UsageError
from mempalace.formats import registry
from mempalace.formats.base import SessionFile

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--project", metavar="NAME", help="A project: its folder, or the last part of it.  [default: here]"),
    click.option("--all-projects", is_flag=True, help="Of every project."),
    click.option("--tool", metavar="NAME", help="Only of this tool (see: mempalace formats)."),
    click.option("--days", type=click.FloatRange(min=0), metavar="N", help="Only of the last N days."),
    click.option("--since", metavar="DATE", help="Only from this day or time on."),
    click.option("--until", metavar="DATE", help="Only up to this day (inclusive) or time."),
    click.option("--grep", metavar="REGEX", help="Only those in which something matches."),
    click.option("--mode", type=click.Choice(MODES), help="Main sessions, sub-agents, or all.  [default: interactive]"),
    click.option("--agent-type", metavar="TYPE", help="Only sub-agents of this type."),
    click.option("--sort", type=click.Choice(SORTS), default="date", show_default=True, help="By what."),
)


def selection_options(command: F) -> F:
    """Options that select sessions; the command gets `files`, the SessionFiles in order, and `problems`.

    `files` is a list of at most `--limit` (every one without it). `problems` is a list of errors: what could not be
    read. They are told on stderr before the command runs.
    """

    @wraps(command)
    def run(*args: Any, limit: int | None, **options: Any) -> Any:
        problems: list[MempalaceError] = []
        chosen = _selection(limit=limit, **{name: options.pop(name) for name in _NAMES})
        files = sessions(chosen, registry.default(), problems.append)
        for problem in problems:
            click.echo(style(f"cannot be read: {one_line(str(problem))}", fg="yellow", err=True), err=True)
        return command(*args, files=files, problems=problems, **options)

    option = click.option("--limit", "-n", type=click.IntRange(min=1), metavar="N", help="At most so many.")
    wrapped: Any = option(run)
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return]


_NAMES = ("project", "all_projects", "tool", "days", "since", "until", "grep", "mode", "agent_type", "sort")


def _selection(
    *,
    project: str | None,
    all_projects: bool,
    tool: str | None,
    since: str | None,
    until: str | None,
    mode: str | None,
    agent_type: str | None,
    **same: Any,
) -> Selection:
    if all_projects and project is not None:
        raise UsageError("--project and --all-projects contradict each other: give one of them")
    return Selection(
        project=None if all_projects else project or _here(),
        format=tool,
        since=moment(since, end=False),
        until=moment(until, end=True),
        mode=mode or ("subagent" if agent_type else "interactive"),
        agent_type=agent_type,
        **same,
    )


def _here() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        hint = "go to another one, or say --all-projects or --project"
        raise UsageError("the current folder no longer exists", hint=hint) from error


def described(file: SessionFile) -> dict[str, Any]:
    """A session file as JSON data."""
    return file.to_dict()
