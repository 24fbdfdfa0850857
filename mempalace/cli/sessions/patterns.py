"""`mempalace sessions patterns`."""

from __future__ import annotations

import click

from mempalace.analysis import SessionAnalysis, aggregate, analyze
from mempalace.analysis.report import report_data
from mempalace.cli.bars import bar, cut, shorten
from mempalace.cli.output import json_option, number, print_json, table, width
from mempalace.cli.sessions import tables
from mempalace.cli.sessions.chosen import Chosen, chosen_sessions

_KEYS = ("tool_chains", "tool_patterns", "transitions", "retry_hotspots", "error_patterns")
_MOST = 20


@click.command(
    epilog="""\b
Examples:
  mempalace sessions patterns                        of the project in this folder
  mempalace sessions patterns --all-projects --days 30
  mempalace sessions patterns 8ef64fdd --json
""",
)
@chosen_sessions
@click.option("--subagents", is_flag=True, help="Count attached sub-agents, too.")
@json_option
def command(chosen: Chosen, subagents: bool, as_json: bool) -> None:
    """What returns in sessions: which tool follows which, chains of single calls, commands retried, errors.

    The share of a step is of all that follows a call of its first tool in the same session. SESSION is an id, words
    of a title, a file or a folder; without one the options select.
    """
    total = aggregate(analyze(session, subagents=subagents) for session in chosen)
    if as_json:
        data = report_data(total)
        kept = {key: data[key] for key in ("sessions", "subagents", "subagents_left_out", *_KEYS)}
        print_json({"schema_version": 1, **kept, "problems": chosen.problem_data()})
    elif not total.ids:
        click.echo("No sessions. Those of every project: mempalace sessions patterns --all-projects", err=True)
    else:
        parts = [_transitions(total), _chains(total), _retries(total), tables.errors(total)]
        shown = "\n\n".join(filter(None, parts))
        click.echo(shown or "Nothing returns: these sessions call no tools.")
    chosen.finish()


def _transitions(total: SessionAnalysis) -> str:
    steps = report_data(total)["transitions"]
    if not steps:
        return ""
    rows = [("step", "", "times", "share", "")]
    rows += [
        (
            shorten(step["from"], _room()),
            f"→ {shorten(step['to'], _room())}",
            number(step["count"]),
            f"{step['probability']:.0%}",
            bar(step["probability"], 1, 8),
        )
        for step in steps[:_MOST]
    ]
    return table(rows, right=(2, 3)) + _more(len(steps), "more step")


def _chains(total: SessionAnalysis) -> str:
    if not total.tool_chains:
        return ""
    longest = max(len(chain.tools) for chain in total.tool_chains)
    lines = [
        f"{tables.plural(len(total.tool_chains), 'chain')} of turns with a single call each, the longest of {longest}"
    ]
    patterns = total.tool_patterns
    rows = [(f"{number(one.occurrences)}x", cut(" → ".join(one.tools), width() - 10)) for one in patterns[:_MOST]]
    if rows:
        lines.append(table(rows, right=(0,)) + _more(len(patterns), "more pattern"))
    return "\n".join(lines)


def _retries(total: SessionAnalysis) -> str:
    if not total.retry_hotspots:
        return ""
    rows = [("retried", "failures", "attempts", "sessions", "")]
    rows += [
        (
            shorten(one.pattern, _room()),
            number(one.failures),
            number(one.attempts),
            number(one.sessions),
            bar(one.failures, one.attempts, 8),
        )
        for one in total.retry_hotspots[:_MOST]
    ]
    return table(rows, right=(1, 2, 3)) + _more(len(total.retry_hotspots), "more command")


def _more(count: int, word: str) -> str:
    return f"\n... and {tables.plural(count - _MOST, word)}: --json" if count > _MOST else ""


def _room() -> int:
    """Columns for a name, of which two stand side by side."""
    return (width() - 32) // 2
