"""The parts of a report: plain data, each with `plus` where it can be added."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class ToolStats:
    """What became of the calls of one tool. `errors` counts calls, not results; `output_chars` is of all results."""

    calls: int = 0
    errors: int = 0
    output_chars: int = 0

    @property
    def success_rate(self) -> float | None:
        """(calls - errors) / calls; None without a call."""
        return (self.calls - self.errors) / self.calls if self.calls else None

    def plus(self, other: ToolStats) -> ToolStats:
        """The sum of both."""
        return ToolStats(self.calls + other.calls, self.errors + other.errors, self.output_chars + other.output_chars)


@dataclass(frozen=True, slots=True)
class TokenStats:
    """Tokens as the log counts them. `cache_read` and `cache_create` are None where no turn tells them.

    `api_calls` counts turns that tell their tokens, `requests` the assistant's messages in them. A turn's context is
    its input + cache_read, over all of its requests; `min_context` and `max_context` are None without such a turn.
    """

    total_input: int = 0
    total_output: int = 0
    cache_read: int | None = None
    cache_create: int | None = None
    api_calls: int = 0
    requests: int = 0
    min_context: int | None = None
    max_context: int | None = None

    @property
    def avg_context(self) -> int | None:
        """Context per turn that tells its tokens, rounded down."""
        return (self.total_input + (self.cache_read or 0)) // self.api_calls if self.api_calls else None

    @property
    def context_per_request(self) -> int | None:
        """Context per message of the assistant, rounded down: how large a prompt was on average."""
        return (self.total_input + (self.cache_read or 0)) // self.requests if self.requests else None

    def plus(self, other: TokenStats) -> TokenStats:
        """The sum of both, and the least and greatest of both."""
        return TokenStats(
            self.total_input + other.total_input,
            self.total_output + other.total_output,
            _add(self.cache_read, other.cache_read),
            _add(self.cache_create, other.cache_create),
            self.api_calls + other.api_calls,
            self.requests + other.requests,
            min(_known(self.min_context, other.min_context), default=None),
            max(_known(self.max_context, other.max_context), default=None),
        )


@dataclass(frozen=True, slots=True)
class Cost:
    """What tokens cost, in the currency of the price table.

    `cache_savings` is what the tokens read from the cache would have cost as input, less what they did cost.
    """

    input: Decimal = Decimal(0)
    output: Decimal = Decimal(0)
    cache_write: Decimal = Decimal(0)
    cache_read: Decimal = Decimal(0)
    cache_savings: Decimal = Decimal(0)

    @property
    def total(self) -> Decimal:
        """All four prices together."""
        return self.input + self.output + self.cache_write + self.cache_read

    def plus(self, other: Cost) -> Cost:
        """The sum of both."""
        return Cost(
            self.input + other.input,
            self.output + other.output,
            self.cache_write + other.cache_write,
            self.cache_read + other.cache_read,
            self.cache_savings + other.cache_savings,
        )


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """Tokens and cost of the turns of one model. `priced` is the cost of the turns that have a price."""

    turns: int = 0
    unpriced_turns: int = 0
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_create: int = 0
    priced: Cost = Cost()

    @property
    def cost(self) -> Cost | None:
        """What its turns cost; None if one of them has no price: never 0 for what is not known."""
        return None if self.unpriced_turns else self.priced

    def plus(self, other: ModelUsage) -> ModelUsage:
        """The sum of both."""
        return ModelUsage(
            self.turns + other.turns,
            self.unpriced_turns + other.unpriced_turns,
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_create + other.cache_create,
            self.priced.plus(other.priced),
        )


@dataclass(frozen=True, slots=True)
class DedupTokens:
    """How much of what was sent and received was new.

    `unique_input` is by how much the context grew from turn to turn, `unique_output` the output, `total_billed`
    input + cache_read + output.
    """

    unique_input: int = 0
    unique_output: int = 0
    total_billed: int = 0

    @property
    def uniqueness_ratio(self) -> float | None:
        """(unique_input + unique_output) / total_billed; None if nothing was billed."""
        return (self.unique_input + self.unique_output) / self.total_billed if self.total_billed else None

    def plus(self, other: DedupTokens) -> DedupTokens:
        """The sum of both."""
        return DedupTokens(
            self.unique_input + other.unique_input,
            self.unique_output + other.unique_output,
            self.total_billed + other.total_billed,
        )


class TurnContext(NamedTuple):
    """The context of a turn (input + cache_read over all of its requests); None if the log does not tell."""

    session: str
    turn: int
    tokens: int | None


class Example(NamedTuple):
    """The beginning of an error, and where it stands."""

    session: str
    turn: int
    place: int
    text: str


@dataclass(frozen=True, slots=True)
class ErrorPattern:
    """Errors of one category, with the first three of them."""

    category: str
    count: int
    examples: tuple[Example, ...]


class ToolChain(NamedTuple):
    """Turns in a row with a single tool call each; `first` and `last` number them from 0."""

    session: str
    first: int
    last: int
    tools: tuple[str, ...]


class ToolPattern(NamedTuple):
    """A sequence of tools that occurs in chains more than once."""

    tools: tuple[str, ...]
    occurrences: int


class RetryHotspot(NamedTuple):
    """A command that was tried again and again: summed over the `sessions` in which it was."""

    pattern: str
    attempts: int
    failures: int
    sessions: int


class Correction(NamedTuple):
    """Words in which the assistant takes something back. `category` is apology, mistake, let_me_fix or actually."""

    session: str
    turn: int
    place: int
    category: str
    text: str


class LargeResult(NamedTuple):
    """A tool result, by its size in characters."""

    chars: int
    tool: str
    session: str
    turn: int
    place: int


def _known(*values: int | None) -> list[int]:
    return [value for value in values if value is not None]


def _add(*values: int | None) -> int | None:
    known = _known(*values)
    return sum(known) if known else None


def add_counts(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sum of several counts: the greatest first, then by name."""
    total: dict[str, int] = {}
    for count in counts:
        for name, number in count.items():
            total[name] = total.get(name, 0) + number
    return dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))
