"""Chains: turns in a row with a single tool call each, and the sequences that return in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from mempalace.analysis.calls import Paired
from mempalace.analysis.parts import ToolChain, ToolPattern

SHORTEST_CHAIN = 3
PATTERN_LENGTHS = range(2, 6)
FEWEST_HITS = 2


def tool_chains(paired: Paired, turns: int, session: str) -> tuple[ToolChain, ...]:
    """Three or more turns in a row with exactly one tool call each."""
    in_turn: dict[int, list[str]] = {}
    for call in paired.calls:
        in_turn.setdefault(call.turn, []).append(call.use.name)
    chains: list[ToolChain] = []
    names: list[str] = []
    for turn in range(turns + 1):
        found = in_turn.get(turn, [])
        if len(found) == 1:
            names.append(found[0])
            continue
        if len(names) >= SHORTEST_CHAIN:
            chains.append(ToolChain(session, turn - len(names), turn - 1, tuple(names)))
        names = []
    return tuple(chains)


def tool_patterns(chains: Iterable[ToolChain]) -> tuple[ToolPattern, ...]:
    """Sequences of 2 to 5 tools that stand in the chains at least twice: the most frequent first, then the longest."""
    counts = Counter(
        chain.tools[start : start + length]
        for chain in chains
        for length in PATTERN_LENGTHS
        for start in range(len(chain.tools) - length + 1)
    )
    found = [ToolPattern(tools, count) for tools, count in counts.items() if count >= FEWEST_HITS]
    return tuple(sorted(found, key=lambda one: (-one.occurrences, -len(one.tools), one.tools)))
