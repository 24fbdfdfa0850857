"""Tokens: totals, the context of each turn, and how much of it was new."""

from __future__ import annotations

from mempalace.analysis.parts import DedupTokens, TokenStats, TurnContext
from mempalace.model import Origin, Role, Session, TokenUsage, Turn


def context(usage: TokenUsage) -> int:
    """Tokens that a turn put before the model: fresh and from the cache, over all of its requests."""
    return usage.input + (usage.cache_read or 0)


def token_stats(session: Session) -> TokenStats:
    """The totals of a session."""
    total = TokenStats()
    for turn in session.turns:
        usage = turn.token_usage
        if usage is None:
            continue
        size = context(usage)
        total = total.plus(
            TokenStats(usage.input, usage.output, usage.cache_read, usage.cache_create, 1, _requests(turn), size, size)
        )
    return total


def _requests(turn: Turn) -> int:
    """The assistant's messages of a turn; those that the client makes up (API errors) are no requests."""
    return sum(message.role == Role.ASSISTANT and message.origin != Origin.INJECTED for message in turn.messages)


def context_per_turn(session: Session, name: str) -> tuple[TurnContext, ...]:
    """The context of every turn."""
    return tuple(
        TurnContext(name, number, None if turn.token_usage is None else context(turn.token_usage))
        for number, turn in enumerate(session.turns)
    )


def dedup_tokens(session: Session) -> DedupTokens:
    """New input is what the context of a turn has beyond that of the turn before; output is always new."""
    before = unique = output = billed = 0
    for turn in session.turns:
        usage = turn.token_usage
        if usage is None:
            continue
        size = context(usage)
        unique += max(0, size - before)
        before = size
        output += usage.output
        billed += size + usage.output
    return DedupTokens(unique, output, billed)
