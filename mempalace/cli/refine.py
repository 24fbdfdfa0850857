"""`mempalace refine`."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import click

from mempalace.cli.mine import Progress
from mempalace.cli.output import json_option, number, palace_option, print_json
from mempalace.library import Palace


@click.command(
    epilog="""\b
Examples:
  mempalace refine                 everything that is left, newest first; stop it at any moment
  mempalace refine --limit 2000    about a minute and a half on one core
""",
)
@click.option("--limit", "-n", type=click.IntRange(1), help="At most so many chunks.")
@palace_option
@json_option
def command(limit: int | None, palace: Path, as_json: bool) -> None:
    """Make searches faster: keep what the sentence encoder says of each piece of dialogue.

    A search puts its best candidates in order by a sentence encoder, and computes what is not kept: up to a second
    or two. What it finds is the same either way. This runs at low priority beside everything else; what is done
    stays done.
    """
    with suppress(OSError, AttributeError):
        os.nice(10)
    with Progress() as progress, Palace(palace) as opened:
        done, left = opened.refine(limit, on_event=progress.on_event)
    if as_json:
        print_json({"schema_version": 1, "refined": done, "left": left})
    else:
        click.echo(f"{number(done)} chunks refined, {number(left)} left")
