"""`mempalace sessions messages`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import click

from mempalace.cli.output import beginning, columns, json_option, local_time, one_line, print_json, width
from mempalace.cli.sessions.chosen import Chosen, chosen_sessions
from mempalace.model import Message, Origin, Role, Session, Turn
from mempalace.model_data import format_time
from mempalace.transcript import render, unquote
from mempalace.tree import flatten
from mempalace.values import dumps

# Origins that whole messages have; the others are only those of parts.
_ORIGINS = [str(origin) for origin in Origin if origin not in (Origin.TOOL_CALL, Origin.THINKING)]


@click.command(
    epilog="""\b
Examples:
  mempalace sessions messages --origin person --days 7    what you typed this week
  mempalace sessions messages 8ef64fdd --role assistant
  mempalace sessions messages --all-projects --origin summary --json-lines
""",
)
@chosen_sessions
@click.option(
    "--role", "roles", type=click.Choice([str(role) for role in Role]), multiple=True, help="Only of this role. Repeat."
)
@click.option("--origin", "origins", type=click.Choice(_ORIGINS), multiple=True, help="Only of this origin. Repeat.")
@click.option("--subagents", is_flag=True, help="Those of attached sub-agents, too.")
@click.option("--json-lines", is_flag=True, help="Print JSON, one message per line, as they are read.")
@json_option
def command(
    chosen: Chosen, roles: tuple[str, ...], origins: tuple[str, ...], subagents: bool, json_lines: bool, as_json: bool
) -> None:
    """All messages of sessions, one per line: time, session, role, words and calls.

    On a terminal lines are cut to its width; elsewhere they are whole. SESSION is an id, words of a title, a file or
    a folder; without one the options select.
    """
    found = _messages(chosen, set(roles), set(origins), subagents)
    if json_lines:
        for one in found:
            click.echo(dumps(_data(*one)).decode())
    elif as_json:
        print_json({"schema_version": 1, "messages": [_data(*one) for one in found], "problems": chosen.problem_data()})
    else:
        for session, _, message in found:
            click.echo(_line(session, message))
    chosen.finish()


Found = tuple[Session, int, Message]


def _messages(chosen: Chosen, roles: set[str], origins: set[str], subagents: bool) -> Iterator[Found]:
    for session in chosen:
        for one in flatten([session]) if subagents else [session]:
            for number, turn in enumerate(one.turns):
                for message in turn.messages:
                    if (not roles or message.role in roles) and (not origins or message.origin in origins):
                        yield one, number, message


def _data(session: Session, turn: int, message: Message) -> dict[str, Any]:
    """A message as Session.to_dict has it, with its session and turn (from 0)."""
    alone = replace(session, turns=(Turn((message,)),), subagents=())
    (data,) = alone.to_dict()["turns"][0]["messages"]
    return {"session_id": session.key, "turn": turn, **data}


def _line(session: Session, message: Message) -> str:
    """The message as its transcript has it, on one line and without the marks of what a person said."""
    alone = replace(session, turns=(Turn((message,)),), subagents=())
    own = (session.key or session.path.name).rpartition("/")[2]
    text = render(alone)
    said = one_line(unquote(text) if message.role == Role.USER else text)
    line = f"{local_time(format_time(message.timestamp))}  {one_line(own)[:8]}  {message.role:9}  {said}"
    if sys.stdout.isatty() and columns(line) > width():
        return beginning(line, width() - 1) + "…"
    return line
