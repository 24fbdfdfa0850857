"""Reports in groups: by whatever label their sessions have, or by model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mempalace.analysis.parts import Cost, ModelUsage
from mempalace.analysis.report import SessionAnalysis, aggregate, cost_data


@dataclass(frozen=True, slots=True)
class Group:
    """The sums of a group. `calls` and `errors` are None by model: calls have none of their own."""

    name: str
    sessions: int
    turns: int
    calls: int | None
    errors: int | None
    input: int
    output: int
    cache_read: int
    cache_create: int
    cost: Cost | None
    unpriced_turns: int

    @property
    def tokens(self) -> int:
        """All tokens: fresh, from the cache, written to it, and output."""
        return self.input + self.output + self.cache_read + self.cache_create

    def to_dict(self) -> dict[str, Any]:
        """The group as plain JSON data."""
        return {**{name: getattr(self, name) for name in self.__slots__}, "cost": cost_data(self.cost)}


def by_label(reports: Iterable[tuple[str, SessionAnalysis]]) -> list[Group]:
    """A group for each label, in the order of their names. Sub-agents count as sessions."""
    labelled: dict[str, list[SessionAnalysis]] = {}
    for label, report in reports:
        labelled.setdefault(label, []).append(report)
    return [_group(label, aggregate(labelled[label])) for label in sorted(labelled)]


def _group(name: str, report: SessionAnalysis) -> Group:
    stats = report.token_stats
    return Group(
        name=name,
        sessions=len(report.ids),
        turns=report.total_turns,
        calls=report.total_tool_calls,
        errors=report.total_errors,
        input=stats.total_input,
        output=stats.total_output,
        cache_read=stats.cache_read or 0,
        cache_create=stats.cache_create or 0,
        cost=report.cost,
        unpriced_turns=sum(report.unpriced.values()),
    )


def by_model(reports: Iterable[SessionAnalysis]) -> list[Group]:
    """A group for each model, the one with the most turns first. A session counts for each of its models."""
    known = list(reports)
    sessions: dict[str, int] = {}
    for report in known:
        for model in report.models:
            sessions[model] = sessions.get(model, 0) + 1
    return [_of_model(model, sessions[model], usage) for model, usage in aggregate(known).models.items()]


def _of_model(name: str, sessions: int, usage: ModelUsage) -> Group:
    return Group(
        name=name,
        sessions=sessions,
        turns=usage.turns,
        calls=None,
        errors=None,
        input=usage.input,
        output=usage.output,
        cache_read=usage.cache_read,
        cache_create=usage.cache_create,
        cost=usage.cost,
        unpriced_turns=usage.unpriced_turns,
    )
