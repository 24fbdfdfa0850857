"""`mempalace sessions stats`."""

from __future__ import annotations

from pathlib import Path

import click

from mempalace.analysis import SessionAnalysis, aggregate, analyze, load_prices
from mempalace.analysis.cost import bundled_prices
from mempalace.analysis.groups import Group, by_label, by_model
from mempalace.cli.output import json_option, number, print_json, printable
from mempalace.cli.sessions import tables
from mempalace.cli.sessions.chosen import Chosen, chosen_sessions
from mempalace.errors import PriceError, UsageError
from mempalace.model import Session

_NO_SESSIONS = "No sessions. Those of every project: mempalace sessions stats --all-projects"


@click.command(
    epilog="""\b
Examples:
  mempalace sessions stats                              of the project in this folder
  mempalace sessions stats --all-projects --days 30 --by model
  mempalace sessions stats 8ef64fdd --subagents         one session with its sub-agents
  mempalace sessions stats logs/ --json                 all that a folder holds, as data
  mempalace sessions stats --all-projects --script my_metric.py
""",
)
@chosen_sessions
@click.option("--by", type=click.Choice(["tool", "model", "project", "day"]), help="A row for each instead.")
@click.option("--subagents", is_flag=True, help="Count attached sub-agents, too.")
@click.option("--prices", metavar="FILE", type=click.Path(path_type=Path), help="A table of prices of one's own.")
@click.option("--script", metavar="FILE", type=click.Path(path_type=Path), help="A metric of one's own instead.")
@json_option
def command(
    chosen: Chosen, by: str | None, subagents: bool, prices: Path | None, script: Path | None, as_json: bool
) -> None:
    """Statistics of sessions: of those that are named, else of those that the options select, added up.

    SESSION is an id, a unique beginning of it, words of a title, a file or a folder. Attached sub-agents are counted
    with --subagents only. --by tool means the program that wrote the log. docs/sessions.md defines every figure, and
    says how to write a script (Python or Lua) and a table of prices.
    """
    if script is not None:
        for name, given in (("--by", by), ("--prices", prices), ("--subagents", subagents)):
            if given:
                raise UsageError(f"{name} does not go with --script: a script computes all itself")
        _run_script(script, chosen, as_json)
        chosen.finish()
        return
    table = bundled_prices() if prices is None else load_prices(prices)
    labelled = [(_label(one, by), analyze(one, subagents=subagents, prices=table)) for one in chosen]
    total = aggregate(report for _, report in labelled)
    if prices is not None and total.unpriced:
        raise _without_price(total, prices)
    groups = _groups(by, labelled) if by else None
    if as_json:
        grouped = {} if groups is None else {"by": by, "groups": [group.to_dict() for group in groups]}
        known = {"path": str(table.path), "date": str(table.date), "currency": table.currency}
        report = {"schema_version": 1, "prices": known, "stats": total.to_dict(), **grouped}
        print_json({**report, "problems": chosen.problem_data()})
    elif not total.ids:
        click.echo(_NO_SESSIONS, err=True)
    elif groups is not None:
        click.echo(tables.groups(by or "", groups, table))
    else:
        click.echo(tables.report(total, table))
    chosen.finish()


def _groups(by: str, labelled: list[tuple[str, SessionAnalysis]]) -> list[Group]:
    return by_model(report for _, report in labelled) if by == "model" else by_label(labelled)


def _label(session: Session, by: str | None) -> str:
    if by == "tool":
        return session.format
    if by == "project":
        return session.metadata.project or "(none)"
    times = (one.timestamp for one in session.messages if one.timestamp is not None)
    moment = session.metadata.timestamp or next(times, None)
    return "(no date)" if moment is None else f"{moment.astimezone():%Y-%m-%d}"


def _without_price(total: SessionAnalysis, prices: Path) -> PriceError:
    names = ", ".join(f"{name} ({number(count)} turns)" for name, count in total.unpriced.items())
    hint = "add a [[family]] for each, or `extends = true` at the top to fall back on the bundled prices"
    return PriceError(f"no price for {names}", path=prices, hint=hint)


def _run_script(script: Path, chosen: Chosen, as_json: bool) -> None:
    from mempalace import scripts

    outcome = scripts.run(script, chosen)
    if as_json:
        print_json(
            {
                "schema_version": 1,
                "script": str(script),
                "values": [{"session_id": name, "value": value} for name, value in outcome.values],
                "result": outcome.result,
                "printed": outcome.printed,
                "problems": chosen.problem_data(),
            }
        )
        return
    if outcome.printed:
        click.echo(printable(outcome.printed), nl=False)
    if outcome.is_combined and outcome.result is None:
        return
    shown = tables.value(outcome.result) if outcome.is_combined else tables.values(outcome.values)
    click.echo(printable(shown))
