"""`mempalace search`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from mempalace.cli.bars import cut
from mempalace.cli.output import (
    argument,
    beginning,
    columns,
    is_colourful,
    json_option,
    local_time,
    number,
    one_line,
    palace_option,
    percent,
    print_json,
    printable,
    style,
    width,
)
from mempalace.cli.times import moment, span
from mempalace.errors import UsageError
from mempalace.formats import registry
from mempalace.query import ALL, INCLUDES, SCOPES, Filters, Hit, Neighbour, SearchResults
from mempalace.search import Reader
from mempalace.transcript import unquote

_LINES = 4
_FEWEST_COLUMNS = 20  # for text, however narrow the terminal is
_LIKE_EXCLUDED = re.compile(r"-(?:\w(?!\d*$)|\d{2})")  # -word and -404, but not -n and -n5


class _Command(click.Command):
    """Says what to do where a word that must not occur is taken for an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        excluded = next((word for word in args if _LIKE_EXCLUDED.match(word)), None)
        try:
            return super().parse_args(ctx, args)
        except (click.NoSuchOption, click.BadParameter) as error:
            if excluded is None:
                raise
            word = excluded.split(maxsplit=1)[0]
            raise UsageError(
                error.format_message(),
                hint="to leave out texts with a word, quote the whole query: mempalace search"
                f" {argument(f'deploy {word}')}; one that begins with a dash goes behind --: mempalace search --"
                f" {argument(f'{word} deploy')}",
            ) from error


@click.command(
    cls=_Command,
    epilog="""\b
Examples:
  mempalace search "why did we move to GraphQL"
  mempalace search '"undefined symbol" -clang' --last 30d     literal words; none with clang
  mempalace search E0502 --include tool                       what tools printed, too
  mempalace search deploy --project shop --role user --json
  mempalace search "who approved the budget" -n 1 --context 2   with the two messages before and after
""",
)
@click.argument("query", nargs=-1, required=True)
@click.option("--limit", "-n", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many results.")
@click.option("--project", metavar="NAME", help="Only of this project: its path, or the last part of it.")
@click.option("--wing", metavar="NAME", help="Only with this label.")
@click.option("--tool", metavar="NAME", help="Only of this tool (see: mempalace formats).")
@click.option("--role", type=click.Choice(["user", "assistant", "system", "tool"]), help="Only what this role said.")
@click.option("--since", metavar="DATE", help="Only from this day or time on.")
@click.option("--until", metavar="DATE", help="Only up to this day (inclusive) or time.")
@click.option("--last", metavar="SPAN", help="Only the last 12h, 7d, 4w.")
@click.option("--session", metavar="ID", help="Only in this session (a unique beginning of its id is enough).")
@click.option(
    "--include",
    metavar="WHAT",
    multiple=True,
    help=f"Search these too: {', '.join([*INCLUDES, *SCOPES, ALL])}. Repeat, or part by commas.",
)
@click.option(
    "--context", "-C", type=click.IntRange(0, 50), default=0, help="Show so many messages before and after each hit."
)
@click.option("--fast", is_flag=True, help="Words only, no vectors.")
@palace_option
@json_option
def command(
    query: tuple[str, ...],
    limit: int,
    project: str | None,
    wing: str | None,
    tool: str | None,
    role: str | None,
    since: str | None,
    until: str | None,
    last: str | None,
    session: str | None,
    include: tuple[str, ...],
    context: int,
    fast: bool,
    palace: Path,
    as_json: bool,
) -> None:
    """Find an exchange again.

    QUERY is words, a question, an identifier. "Words in quotes" must occur literally, -word must not: put the whole
    query into quotes then, behind -- if it begins with a dash. Dialogue of people and assistants is searched; tool
    output, thinking, sub-agents and the rest on request.
    """
    if last is not None and since is not None:
        raise UsageError("--last and --since say the same: give one of them")
    filters = Filters(
        project=project,
        wing=wing,
        tool=tool,
        role=role,
        since=span(last) if last is not None else moment(since, end=False),
        until=moment(until, end=True),
        session=session,
        include=tuple(name.strip() for part in include for name in part.split(",") if name.strip()),
    )
    with Reader(palace) as reader:
        results = reader.search(" ".join(query), limit, filters, lexical_only=fast, context=context)
        unknown = [] if as_json or results.results else list(_unknown(reader, filters))
    if as_json:
        print_json(results.to_dict())
    else:
        click.echo(render(results, unknown))


def render(results: SearchResults, more: list[str] | None = None) -> str:
    """The results as people read them, with `more` lines to the notes below them."""
    parts = [_hit(hit, results.terms) for hit in results.results]
    if not parts:
        parts.append("Nothing found.")
    notes = [*(more or ()), *_notes(results)]
    if notes:
        parts.append("\n".join(style(note, fg="bright_black") for note in notes))
    return "\n\n".join(parts)


def _unknown(reader: Reader, filters: Filters) -> Iterator[str]:
    """The filters that no session at all fits."""
    for what, column, name in (
        ("project", "? IN (project, project_name)", filters.project),
        ("wing", "COALESCE(wing, project_name) = ?", filters.wing),
        ("tool", "format = ?" if registry.find(filters.tool or "") else "format LIKE ? || '%'", filters.tool),
    ):
        if name and not reader.catalog.rows(f"SELECT 1 FROM sessions WHERE {column} LIMIT 1", name):
            yield f"No session is of the {what} {name!r}: mempalace status names those that there are"


def _notes(results: SearchResults) -> list[str]:
    notes = []
    for word, others in results.similar.items():
        notes.append(f"No text has {word!r}; looked for {one_line(', '.join(others))} instead")
    if results.hidden:
        told = ", ".join(f"in {number(count)} {_PLACES[name]}" for name, count in results.hidden.items())
        names = ",".join(results.hidden)
        notes.append(f"All of these words also occur {told}: --include {names}")
    if results.behind:
        notes.append(f"{number(results.behind)} chunks are not indexed yet: mempalace mine")
    if results.embedded < 1:
        notes.append(f"{percent(results.embedded)} of the dialogue has vectors: mempalace mine goes on with it")
    return notes


_PLACES = {
    "tool": "tool outputs",
    "thinking": "thoughts",
    "injected": "injected texts",
    "abandoned": "abandoned branches",
    "subagent": "parts of sub-agents",
    "headless": "parts of headless runs",
}
_SPEAKERS = {"user": "you", "assistant": "assistant", "tool": "tool", "system": "system"}


def _hit(hit: Hit, terms: list[str]) -> str:
    project = (hit.project or "").replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
    facts = [one_line(fact) for fact in (local_time(hit.timestamp), hit.format, project) if fact]
    head = "  ".join(style(fact, bold=True) for fact in facts)
    if hit.title:
        room = width() - 6 - sum(columns(fact) + 2 for fact in facts)
        head += f"  {cut(hit.title, room)}" if room > _FEWEST_COLUMNS else ""
    lines = [f"{hit.rank:2}  {head}"]
    lines += [_around(message) for message in hit.before]
    for at, line in enumerate(_excerpt(hit, terms)):
        label = f"{_speaker(hit)}: " if at == 0 else ""
        lines.append(f"    {style(label, fg='cyan')}{line}")
    lines += [_around(message) for message in hit.after]
    lines.append("    " + style(_show(hit.session_id), fg="bright_black"))
    if hit.resume:
        lines.append("    " + style(one_line(hit.resume), fg="bright_black"))
    if hit.copies:
        named = ", ".join(one_line(copy) for copy in hit.copies[:3])
        lines.append(f"    also in {len(hit.copies)} other session{'s' * (len(hit.copies) > 1)}: {named}")
    if hit.source_gone:
        lines.append("    its log file is gone; the words are kept here")
    return "\n".join(lines)


def _show(session: str) -> str:
    return f"mempalace show {'-- ' * session.startswith('-')}{argument(session)}"


def _speaker(said: Hit | Neighbour) -> str:
    name = said.speaker or ("sub-agent" if said.origin == "subagent" else _SPEAKERS.get(said.role, said.role))
    return one_line(name)


def _around(message: Neighbour) -> str:
    """A message beside a hit, in one line."""
    text = cut(f"{_speaker(message)}: {message.text}", max(_FEWEST_COLUMNS, width() - 6))
    return "    " + style(text, fg="bright_black")


def _excerpt(hit: Hit, terms: list[str]) -> list[str]:
    """The lines of the matching message that match best, with the terms marked."""
    start, end = hit.match
    said = hit.text[start:end] or hit.text
    if hit.role == "user":
        said = unquote(said)
    if hit.speaker:
        said = said.removeprefix(f"[{hit.speaker}] ")
    lines = [line for line in said.splitlines() if line.strip()]
    if not lines:
        return []
    words = [term.casefold() for term in terms]

    def worth(line: str) -> int:
        folded = line.casefold()
        return sum(len(word) for word in words if word in folded)

    best = max(range(len(lines)), key=lambda at: worth(lines[at]))
    start = max(0, min(best - 1, len(lines) - _LINES))
    shown = [_mark(_clip(printable(line), words), terms) for line in lines[start : start + _LINES]]
    if start > 0:
        shown[0] = f"… {shown[0]}"
    if start + _LINES < len(lines):
        shown[-1] = f"{shown[-1]} …"
    return shown


def _clip(line: str, words: list[str]) -> str:
    """At most a line's width of a long line, around the first word that was looked for."""
    room = max(_FEWEST_COLUMNS, width() - 18)
    if columns(line) <= room:
        return line
    folded = line.casefold()
    at = min((place for word in words if (place := folded.find(word)) >= 0), default=0)
    at = min(at, len(line))  # folding may lengthen a text
    before = beginning(line[:at][::-1], max(room // 3, room - columns(line[at:])))
    start = at - len(before)
    shown = beginning(line[start:], room)
    return ("…" if start else "") + shown + ("…" if start + len(shown) < len(line) else "")


def _mark(line: str, terms: list[str]) -> str:
    if not is_colourful() or not terms:
        return line
    pattern = "|".join(re.escape(term) for term in terms if len(term) > 1)
    if not pattern:
        return line
    return re.sub(pattern, lambda match: click.style(match[0], fg="yellow", bold=True), line, flags=re.IGNORECASE)
