"""`mempalace rebuild`."""

from __future__ import annotations

from pathlib import Path

import click

from mempalace.cli import config
from mempalace.cli.mine import Progress
from mempalace.cli.output import json_option, number, palace_option, print_json
from mempalace.errors import UsageError
from mempalace.palace import folder, indexing, lock
from mempalace.palace.catalog import Catalog
from mempalace.summary import Event


@click.command(
    epilog="""\b
Examples:
  mempalace rebuild --lexical
  mempalace rebuild --vectors --model ollama:nomic-embed-text
  mempalace rebuild --vectors --model openai:bge-m3 --url http://localhost:8080/v1
  mempalace rebuild --vectors --model bundled                  the model that comes with mempalace
"""
)
@click.option("--lexical", "only_lexical", is_flag=True, help="Only the lexical index.")
@click.option("--vectors", "only_vectors", is_flag=True, help="Only the vector store.")
@click.option(
    "--model", metavar="NAME", help="Make the vectors anew by this model: bundled, ollama:NAME, openai:NAME, ..."
)
@click.option("--url", metavar="URL", help="Where the model's endpoint is.")
@palace_option
@json_option
def command(
    only_lexical: bool, only_vectors: bool, model: str | None, url: str | None, palace: Path, as_json: bool
) -> None:
    """Make the indexes again from the catalog, beside the old ones, and put them in place.

    No log file is needed, and without --model no model; ids stay as they are. A search goes on with the old ones
    until the new ones are there.
    """
    folder.require(palace)
    if model is None and url is not None:
        raise UsageError("--url needs --model: the endpoint's model")
    both = only_lexical == only_vectors and model is None
    found = {}
    with lock.writing(palace), Catalog.open_for_writing(palace) as catalog, Progress() as progress:
        if both or only_lexical:
            found["lexical"] = indexing.rebuild_lexical(catalog, palace)
        if model is not None:
            spec = config.embedding(model, url)
            assert spec is not None
            progress.on_event(Event("phase", f"embedding with {model}", indexing.texts_to_embed(catalog)))
            found["vectors"] = indexing.embed_again(
                catalog, palace, spec, lambda count: progress.on_event(Event("embedded", count=count))
            )
        elif both or only_vectors:
            found["vectors"] = indexing.rebuild_vectors(catalog, palace)
    if as_json:
        print_json({"schema_version": 1, "rebuilt": found})
    else:
        click.echo(", ".join(f"{name}: {number(count)}" for name, count in found.items()))
