"""Calls, errors and output per tool; the largest results; which tool follows which."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from mempalace.analysis.calls import NO_CALL, Paired
from mempalace.analysis.parts import LargeResult, ToolStats

MOST_RESULTS = 10


def tool_stats(paired: Paired) -> dict[str, ToolStats]:
    """Statistics by the tool's name. A call is an error once, however many of its results say so."""
    stats: dict[str, ToolStats] = {}
    for call in paired.calls:
        one = ToolStats(1, int(call.is_error), call.output_chars)
        stats[call.use.name] = stats.get(call.use.name, ToolStats()).plus(one)
    return stats


def largest(results: Iterable[LargeResult]) -> tuple[LargeResult, ...]:
    """The ten largest, the largest first; equal ones in the order of their sessions and places."""
    return tuple(sorted(results, key=lambda one: (-one.chars, one.session, one.place, one))[:MOST_RESULTS])


def largest_tool_results(paired: Paired, session: str) -> tuple[LargeResult, ...]:
    """The ten largest results of a session."""
    return largest(
        LargeResult(
            len(answer.result.content), NO_CALL if call is None else call.use.name, session, answer.turn, answer.place
        )
        for answer, call in paired.answers
    )


def transitions(paired: Paired) -> dict[tuple[str, str], int]:
    """How often a call of one tool was followed by one of another, in the order of the session."""
    counts: dict[tuple[str, str], int] = {}
    names = [call.use.name for call in paired.calls]
    for step in pairwise(names):
        counts[step] = counts.get(step, 0) + 1
    return counts
