"""`mempalace sessions`: a group. Each command is a module here with a click command of the name `command`."""

from __future__ import annotations

import click

from mempalace.cli import LazyGroup

_COMMANDS = {
    "list": "Which sessions there are.",
    "show": "Show one session, whole.",
    "stats": "Tools, tokens, costs, errors of sessions.",
    "messages": "All messages of sessions, one per line.",
    "patterns": "Which tool follows which, chains, retries, errors.",
}


@click.command(
    cls=LazyGroup,
    package=__name__,
    modules=_COMMANDS,
    epilog="""\b
Examples:
  mempalace sessions list --all-projects --days 7
  mempalace sessions show 8ef64fdd
""",
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """The sessions that the tools keep on this machine, read straight from their logs: no palace needed."""
    from mempalace.cli.config import narrowed

    ctx.default_map = narrowed(dict(ctx.default_map or {}), ctx, above="sessions.")
