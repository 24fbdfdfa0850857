"""`mempalace sessions show`."""

from __future__ import annotations

from pathlib import Path

import click

from mempalace import library
from mempalace.cli.output import json_option, local_time, one_line, palace_option, print_json, printable, style
from mempalace.model import DIALOGUE, Session
from mempalace.model_data import format_time
from mempalace.transcript import first_words, is_default, render


@click.command(
    epilog="""\b
Examples:
  mempalace sessions show 8ef64fdd                  dialogue, tool calls and results
  mempalace sessions show "move to GraphQL"         by words of its title
  mempalace sessions show rollout.jsonl --all       a file: everything that it holds
  mempalace sessions show 8ef64fdd --json           the session as data, with its sub-agents
""",
)
@click.argument("session")
@click.option("--all", "everything", is_flag=True, help="Everything that the log holds.")
@click.option("--dialogue", is_flag=True, help="Only what people and assistants said.")
@palace_option
@json_option
def command(session: str, everything: bool, dialogue: bool, palace: Path, as_json: bool) -> None:
    """Show one session, whole and word for word, straight from its tool's log.

    SESSION is its id, a unique beginning of it, words of its title, or a file (FILE::ID, where it holds several).
    What the tools no longer have is taken from the palace, if there is one.
    """
    found = library.find_session(session, palace)
    if as_json:
        print_json({"schema_version": 1, **found.to_dict()})
        return
    keep = None if everything else DIALOGUE.__contains__ if dialogue else is_default
    click.echo(_header(found))
    click.echo_via_pager(printable(render(found, keep)).rstrip("\n") + "\n")


def _header(session: Session) -> str:
    metadata = session.metadata
    started = local_time(format_time(metadata.timestamp))
    facts = [started, session.format, metadata.project, metadata.model, f"{session.message_count} messages"]
    title = metadata.title or first_words(session) or session.key or session.path.name
    lines = [style(one_line(title), bold=True), "  ".join(one_line(fact) for fact in facts if fact)]
    kind = f", {session.subagent_type} of {session.parent_id}" if session.is_subagent else ""
    lines.append(one_line(f"session {session.key}{kind}"))
    lines += [
        one_line(f"sub-agent {agent.key}  {agent.subagent_type}  {agent.message_count} messages")
        for agent in session.subagents
    ]
    lines.append(f"from {one_line(str(session.path))}")
    return "\n".join(lines) + "\n"
