"""`mempalace formats`."""

from __future__ import annotations

import click

from mempalace.cli.output import json_option, number, print_json, table
from mempalace.formats import registry


@click.command(epilog="Example:  mempalace formats --json")
@json_option
def command(as_json: bool) -> None:
    """Which tools can be read, where they keep their logs, and how many are there."""
    found = [
        {
            "name": format.name,
            "title": format.title,
            "roots": [str(root) for root in format.roots()],
            "files": len(format.list_sessions()),
        }
        for format in registry.default()
    ]
    if as_json:
        print_json({"schema_version": 1, "formats": found})
        return
    rows = [("name", "tool", "files here", "looked for in")]
    for one in found:
        roots = one["roots"]
        rows.append((one["name"], one["title"], number(one["files"]), ", ".join(roots) or "(give a path)"))  # type: ignore[arg-type]
    click.echo(table(rows, right=(2,)))
