"""`mempalace sessions list`."""

from __future__ import annotations

import re

import click

from mempalace.cli.bars import cut
from mempalace.cli.output import columns, json_option, local_time, print_json, size, style, table, width
from mempalace.cli.sessions.selection import described, selection_options
from mempalace.errors import MempalaceError
from mempalace.formats.base import SessionFile
from mempalace.values import project_name

_FEWEST_CHARS = 20
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@click.command(
    epilog="""\b
Examples:
  mempalace sessions list                            of the project in this folder
  mempalace sessions list --all-projects --days 7
  mempalace sessions list --project shop --grep 'E05\\d\\d' --json
  mempalace sessions list --all-projects --agent-type Explore --sort duration -n 10
""",
)
@selection_options
@json_option
def command(files: list[SessionFile], problems: list[MempalaceError], as_json: bool) -> None:
    """Which sessions there are, as the tools keep them: the newest first.

    A session's date is when its log was last written. --grep takes a regular expression (Python's; (?i) before it
    ignores case) and reads whole logs.
    """
    if as_json:
        told = [
            {"kind": one.kind, "path": None if one.path is None else str(one.path), "message": one.message}
            for one in problems
        ]
        print_json({"schema_version": 1, "sessions": [described(file) for file in files], "problems": told})
        return
    if not files:
        click.echo("No sessions. Those of every project: mempalace sessions list --all-projects", err=True)
        return
    click.echo(_table(files))


def _short(file: SessionFile) -> str:
    """The beginning of an id that `show` takes: of a UUID the part that tells sessions of one minute apart."""
    own = (file.session_id or file.path.name).rpartition("/")[2]
    return own[:13] if _UUID.fullmatch(own) else own


def _table(files: list[SessionFile]) -> str:
    rows = [("date", "tool", "project", "size", "session", "title")]
    for file in files:
        facts = described(file)
        title = f"[{file.agent_type}] {file.title or ''}" if file.is_subagent else file.title or ""
        shown = (
            local_time(facts["modified"]),
            file.format,
            project_name(file.project) or "",
            size(file.size),
            _short(file),
            title,
        )
        rows.append(shown)
    used = max(columns(line) for line in table([row[:-1] for row in rows], right=(3,)).split("\n")) + 2
    room = max(_FEWEST_CHARS, width() - used)
    head, _, body = table([(*row[:-1], cut(row[-1], room)) for row in rows], right=(3,)).partition("\n")
    return f"{style(head, bold=True)}\n{body}"
