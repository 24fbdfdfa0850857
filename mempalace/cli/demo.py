"""`mempalace demo`."""

from __future__ import annotations

from pathlib import Path

import click

from mempalace import discover, miner
from mempalace.cli.mine import Progress, report
from mempalace.cli.output import argument, palace_option, style
from mempalace.cli.search import render
from mempalace.formats import registry
from mempalace.palace import folder
from mempalace.search import Reader

EXAMPLES = Path(__file__).parent.parent / "examples"
_EXAMPLE_QUESTION = "why did we move to GraphQL"
_WORDS = 12


@click.command(epilog="Example:  mempalace demo")
@palace_option
def command(palace: Path) -> None:
    """Mine what this machine has, then show a search.

    Where no known tool has left a log, three bundled examples are mined instead, into a palace of their own
    beside the real one.
    """
    roots = discover.everywhere(registry.default())
    if not any(format.list_sessions() for format in registry.default()):
        roots = [EXAMPLES]
        palace = folder.default_path().with_name("demo")
        click.echo("No conversations were found on this machine: these are bundled examples.\n")
    with Progress() as progress:
        summary = miner.mine(palace, roots, on_event=progress.on_event)
    click.echo(report(summary, dry_run=False) + "\n")
    question = _EXAMPLE_QUESTION if roots == [EXAMPLES] else _recent_words(palace)
    if question is None:
        return
    named = f" --palace {argument(str(palace))}" if palace != folder.default_path() else ""
    click.echo(style(f"$ mempalace search {argument(question)} -n 3{named}\n", bold=True))
    with Reader(palace) as reader:
        click.echo(render(reader.search(question, 3)))


def _recent_words(palace: Path) -> str | None:
    """What a person asked lately, as an example of a question."""
    with Reader(palace) as reader:
        row = reader.catalog.row(
            "SELECT title FROM sessions WHERE kind = 'main' AND title IS NOT NULL ORDER BY ended DESC LIMIT 1"
        )
    if row is None:
        return None
    words = [word.strip("\"'`-") for word in str(row[0]).split()]
    return " ".join(word for word in words[:_WORDS] if word) or None
