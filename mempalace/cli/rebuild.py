"""`mempalace rebuild`."""

from __future__ import annotations

from pathlib import Path

import click

from mempalace.cli.output import json_option, number, palace_option, print_json
from mempalace.palace import folder, indexing, lock
from mempalace.palace.catalog import Catalog


@click.command(epilog="Example:  mempalace rebuild --lexical")
@click.option("--lexical", "only_lexical", is_flag=True, help="Only the lexical index.")
@click.option("--vectors", "only_vectors", is_flag=True, help="Only the vector store.")
@palace_option
@json_option
def command(only_lexical: bool, only_vectors: bool, palace: Path, as_json: bool) -> None:
    """Make the indexes again from the catalog, beside the old ones, and put them in place.

    No model and no log file is needed; ids stay as they are.
    """
    folder.require(palace)
    both = only_lexical == only_vectors
    found = {}
    with lock.writing(palace), Catalog.open_for_writing(palace) as catalog:
        if both or only_lexical:
            found["lexical"] = indexing.rebuild_lexical(catalog, palace)
        if both or only_vectors:
            found["vectors"] = indexing.rebuild_vectors(catalog, palace)
    if as_json:
        print_json({"schema_version": 1, "rebuilt": found})
    else:
        click.echo(", ".join(f"{name}: {number(count)}" for name, count in found.items()))
