"""The report: what `analyze` finds in a session, and the sum of several. Plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeVar

from mempalace.analysis import chains, failures, retries, tools
from mempalace.analysis.parts import (
    Correction,
    Cost,
    DedupTokens,
    ErrorPattern,
    LargeResult,
    ModelUsage,
    RetryHotspot,
    TokenStats,
    ToolChain,
    ToolPattern,
    ToolStats,
    TurnContext,
    add_counts,
)

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class SessionAnalysis:
    """Statistics of one session, or of several. docs/sessions.md defines each figure.

    `ids` names the sessions that are counted, sub-agents too; a session without an id stands with its file's path.
    `subagents` of them are sub-agents; `subagents_left_out` more are attached to them and were not counted. Turns
    and places (of blocks) in the parts are numbered from 0 within their session.
    """

    ids: tuple[str, ...] = ()
    subagents: int = 0
    subagents_left_out: int = 0
    formats: Mapping[str, int] = field(default_factory=dict)
    message_counts: Mapping[str, int] = field(default_factory=dict)
    tool_stats: Mapping[str, ToolStats] = field(default_factory=dict)
    unpaired_results: int = 0
    token_stats: TokenStats = field(default_factory=TokenStats)
    models: Mapping[str, ModelUsage] = field(default_factory=dict)
    error_patterns: tuple[ErrorPattern, ...] = ()
    file_tokens: Mapping[str, int] = field(default_factory=dict)
    parallel_opportunities: int = 0
    parallel_opportunities_strict: int = 0
    total_turns: int = 0
    context_per_turn: tuple[TurnContext, ...] = ()
    tool_chains: tuple[ToolChain, ...] = ()
    transitions: Mapping[tuple[str, str], int] = field(default_factory=dict)
    retry_hotspots: tuple[RetryHotspot, ...] = ()
    corrections: tuple[Correction, ...] = ()
    largest_tool_results: tuple[LargeResult, ...] = ()
    dedup_tokens: DedupTokens = field(default_factory=DedupTokens)

    @property
    def sessions(self) -> int:
        """Main sessions that are counted."""
        return len(self.ids) - self.subagents

    @property
    def total_tool_calls(self) -> int:
        """Calls of all tools."""
        return sum(one.calls for one in self.tool_stats.values())

    @property
    def total_errors(self) -> int:
        """Calls whose result is an error, of all tools."""
        return sum(one.errors for one in self.tool_stats.values())

    @property
    def success_rate(self) -> float | None:
        """(calls - errors) / calls of all tools; None without a call."""
        return ToolStats(self.total_tool_calls, self.total_errors).success_rate

    @property
    def tool_patterns(self) -> tuple[ToolPattern, ...]:
        """Sequences of tools that return in the chains."""
        return chains.tool_patterns(self.tool_chains)

    @property
    def costs(self) -> dict[str, Cost | None]:
        """What each model cost; None for one without a price."""
        return {model: usage.cost for model, usage in self.models.items()}

    @property
    def cost(self) -> Cost | None:
        """What all turns with a price cost; None if no turn has one. `unpriced` names what is missing from it."""
        priced = [usage.priced for usage in self.models.values() if usage.turns > usage.unpriced_turns]
        return _sum(priced, Cost()) if priced else None

    @property
    def unpriced(self) -> dict[str, int]:
        """Turns without a price, by model."""
        return {model: usage.unpriced_turns for model, usage in self.models.items() if usage.unpriced_turns}

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON data, with the rates and sums that follow from it. Money is rounded to 1e-6."""
        return report_data(self)


def aggregate(reports: Iterable[SessionAnalysis]) -> SessionAnalysis:
    """The sum of several reports, itself a report. Neither their order nor how they are grouped matters.

    Sums count a session as often as it is given. Lists are joined in the order of sessions and turns; examples and
    largest results are the first, and the largest, of all. A retry hotspot was one in each session that it counts.
    """
    known = list(reports)
    return SessionAnalysis(
        ids=tuple(sorted(name for one in known for name in one.ids)),
        subagents=sum(one.subagents for one in known),
        subagents_left_out=sum(one.subagents_left_out for one in known),
        formats=add_counts(one.formats for one in known),
        message_counts=add_counts(one.message_counts for one in known),
        tool_stats=_merged((one.tool_stats for one in known), ToolStats(), lambda one: -one.calls),
        unpaired_results=sum(one.unpaired_results for one in known),
        token_stats=_sum((one.token_stats for one in known), TokenStats()),
        models=_merged((one.models for one in known), ModelUsage(), lambda one: -one.turns),
        error_patterns=failures.merge(part for one in known for part in one.error_patterns),
        file_tokens=add_counts(one.file_tokens for one in known),
        parallel_opportunities=sum(one.parallel_opportunities for one in known),
        parallel_opportunities_strict=sum(one.parallel_opportunities_strict for one in known),
        total_turns=sum(one.total_turns for one in known),
        context_per_turn=tuple(sorted((part for one in known for part in one.context_per_turn), key=_by_turn)),
        tool_chains=tuple(sorted(part for one in known for part in one.tool_chains)),
        transitions=_steps(known),
        retry_hotspots=retries.merge(part for one in known for part in one.retry_hotspots),
        corrections=tuple(sorted(part for one in known for part in one.corrections)),
        largest_tool_results=tools.largest(part for one in known for part in one.largest_tool_results),
        dedup_tokens=_sum((one.dedup_tokens for one in known), DedupTokens()),
    )


def _sum(parts: Iterable[V], start: V) -> V:
    total: Any = start
    for part in parts:
        total = total.plus(part)
    return total  # type: ignore[no-any-return]


def _merged(parts: Iterable[Mapping[str, V]], zero: V, order: Callable[[V], int]) -> dict[str, V]:
    total: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, zero).plus(value)
    return dict(sorted(total.items(), key=lambda item: (order(item[1]), item[0])))


def _steps(reports: Iterable[SessionAnalysis]) -> dict[tuple[str, str], int]:
    total: dict[tuple[str, str], int] = {}
    for one in reports:
        for step, count in one.transitions.items():
            total[step] = total.get(step, 0) + count
    return dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))


def _by_turn(one: TurnContext) -> tuple[str, int, int]:
    return one.session, one.turn, -1 if one.tokens is None else one.tokens


# --- as data ------------------------------------------------------------------------------------------------


def report_data(report: SessionAnalysis) -> dict[str, Any]:
    """See SessionAnalysis.to_dict."""
    stats, dedup = report.token_stats, report.dedup_tokens
    return {
        "sessions": report.sessions,
        "subagents": report.subagents,
        "subagents_left_out": report.subagents_left_out,
        "ids": list(report.ids),
        "formats": dict(report.formats),
        "total_turns": report.total_turns,
        "message_counts": dict(report.message_counts),
        "total_tool_calls": report.total_tool_calls,
        "total_errors": report.total_errors,
        "success_rate": _rate(report.success_rate),
        "tool_stats": {
            name: {**_fields(one), "success_rate": _rate(one.success_rate)} for name, one in report.tool_stats.items()
        },
        "unpaired_results": report.unpaired_results,
        "token_stats": {
            **_fields(stats),
            "avg_context": stats.avg_context,
            "context_per_request": stats.context_per_request,
        },
        "context_per_turn": [one._asdict() for one in report.context_per_turn],
        "dedup_tokens": {**_fields(dedup), "uniqueness_ratio": _rate(dedup.uniqueness_ratio)},
        "costs": {name: _model_data(one) for name, one in report.models.items()},
        "total_cost": cost_data(report.cost),
        "unpriced_turns": report.unpriced,
        "error_patterns": [
            {"category": one.category, "count": one.count, "examples": [part._asdict() for part in one.examples]}
            for one in report.error_patterns
        ],
        "file_tokens": dict(report.file_tokens),
        "parallel_opportunities": report.parallel_opportunities,
        "parallel_opportunities_strict": report.parallel_opportunities_strict,
        "tool_chains": [{**one._asdict(), "tools": list(one.tools)} for one in report.tool_chains],
        "tool_patterns": [{**one._asdict(), "tools": list(one.tools)} for one in report.tool_patterns],
        "transitions": transition_data(report.transitions),
        "retry_hotspots": [one._asdict() for one in report.retry_hotspots],
        "corrections": [one._asdict() for one in report.corrections],
        "largest_tool_results": [one._asdict() for one in report.largest_tool_results],
    }


def transition_data(transitions: Mapping[tuple[str, str], int]) -> list[dict[str, Any]]:
    """Transitions with their probability: of all that follows a call of `from`, the share of `to`."""
    leaving = add_counts({first: count} for (first, _), count in transitions.items())
    return [
        {"from": first, "to": second, "count": count, "probability": _rate(count / leaving[first])}
        for (first, second), count in transitions.items()
    ]


def cost_data(cost: Cost | None) -> dict[str, float] | None:
    """A cost as JSON data."""
    if cost is None:
        return None
    return {name: _money(value) for name, value in {**_fields(cost), "total": cost.total}.items()}


def _model_data(usage: ModelUsage) -> dict[str, Any]:
    fields = _fields(usage)
    del fields["priced"]
    return {**fields, "cost": cost_data(usage.cost)}


def _fields(part: Any) -> dict[str, Any]:
    return {name: getattr(part, name) for name in part.__slots__}


def _money(value: Decimal) -> float:
    return float(round(value, 6))


def _rate(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
