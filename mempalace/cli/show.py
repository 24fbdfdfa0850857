"""`mempalace show`."""

from __future__ import annotations

from pathlib import Path

import click

from mempalace.cli.output import json_option, local_time, one_line, palace_option, print_json, printable, style
from mempalace.formats import registry
from mempalace.model_data import format_time
from mempalace.palace import restore
from mempalace.search import Reader

_DEFAULT_KINDS = ("dialogue", "tool")


@click.command(
    epilog="""\b
Examples:
  mempalace show 8ef64fdd                   dialogue, tool calls and results
  mempalace show 8ef64fdd --all             everything: thinking, injected text, abandoned branches
  mempalace show 8ef64fdd --json            the session as data
""",
)
@click.argument("session")
@click.option("--all", "everything", is_flag=True, help="Everything that the log holds.")
@click.option("--dialogue", is_flag=True, help="Only what people and assistants said.")
@palace_option
@json_option
def command(session: str, everything: bool, dialogue: bool, palace: Path, as_json: bool) -> None:
    """Show one session, whole and word for word.

    SESSION is its id; a unique beginning is enough.
    """
    with Reader(palace) as reader:
        number = reader.find_session(session)
        if as_json:
            print_json({"schema_version": 1, **restore.session(reader.catalog, registry.default(), number).to_dict()})
            return
        click.echo(_header(reader, number))
        kinds = None if everything else ("dialogue",) if dialogue else _DEFAULT_KINDS
        click.echo_via_pager(printable(restore.transcript(reader.catalog, number, kinds)).rstrip("\n") + "\n")


def _header(reader: Reader, number: int) -> str:
    key, parent, format, project, title, started, model, messages = reader.catalog.row(
        "SELECT key, parent_key, format, project, title, started, model, messages FROM sessions WHERE id = ?", number
    )
    from datetime import UTC, datetime

    moment = None if started is None else format_time(datetime.fromtimestamp(started, UTC))
    facts = [local_time(moment), format, project, model, f"{messages} messages"]
    lines = [style(one_line(title or key), bold=True), "  ".join(one_line(str(fact)) for fact in facts if fact)]
    lines.append(one_line(f"session {key}" + (f", sub-agent of {parent}" if parent else "")))
    for (path,) in reader.catalog.rows(
        "SELECT DISTINCT s.path FROM session_sources h JOIN sources s ON s.id = h.source WHERE h.session = ?", number
    ):
        lines.append(f"from {one_line(path)}")
    return "\n".join(lines) + "\n"
