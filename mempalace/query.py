"""What is asked of a search, and what it gives: filters, the query's grammar, hits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from mempalace.errors import UsageError
from mempalace.model_data import format_time
from mempalace.palace.lexical import Wanted
from mempalace.values import clean

INCLUDES: dict[str, tuple[str, ...]] = {
    "tool": ("tool",),
    "thinking": ("thinking",),
    "injected": ("injected", "command", "summary"),
    "abandoned": ("abandoned",),
}
SCOPES = ("subagent", "headless")
ALL = "all"


@dataclass(frozen=True, slots=True)
class Filters:
    """What may be found; empty means any. `include` adds to dialogue of main sessions: see INCLUDES, SCOPES, all."""

    project: str | None = None
    tool: str | None = None
    role: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    session: str | None = None
    wing: str | None = None
    include: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Those that are set, as JSON data."""
        found = {name: value for name, value in asdict(self).items() if value}
        for name in ("since", "until"):
            if name in found:
                found[name] = format_time(found[name])
        if "include" in found:
            found["include"] = list(found["include"])
        return found


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A message that stands before or after a hit in its session, whole."""

    message_id: str | None
    role: str
    speaker: str | None
    origin: str
    timestamp: str | None
    text: str


@dataclass(slots=True)
class Hit:
    """One result. `text` is a slice of the transcript.

    `role`, `origin`, `message_id`, `timestamp` and `line` are those of the best-matching message, whose part
    of `text` is `match` (start, end); `speaker` is its name where people talk to each other. `before` and
    `after` are the messages around it, in their order, if they were asked for.
    """

    rank: int
    score: float
    scores: dict[str, float | None]
    chunk_id: str
    session_id: str
    message_id: str | None
    parent_session_id: str | None
    format: str
    project: str | None
    title: str | None
    role: str
    speaker: str | None
    origin: str
    timestamp: str | None
    text: str
    match: tuple[int, int]
    path: str
    line: int | None
    source_gone: bool
    copies: list[str]
    resume: str | None
    before: list[Neighbour] = field(default_factory=list)
    after: list[Neighbour] = field(default_factory=list)


@dataclass(slots=True)
class SearchResults:
    """The hits, best first, and how they were found.

    `hidden` counts what also has all the words but was not asked for (tool output, sub-agents, ...); `terms`
    are the words to mark; `embedded` is the share of dialogue that has vectors; `similar` gives, for each word
    that no text has, those that were looked for instead.
    """

    query: str
    filters: Filters
    indexes: list[str]
    results: list[Hit]
    masked: int = 0
    hidden: dict[str, int] = field(default_factory=dict)
    terms: list[str] = field(default_factory=list)
    embedded: float = 1.0
    behind: int = 0
    similar: dict[str, list[str]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def to_dict(self) -> dict[str, Any]:
        """The JSON contract of `search --json`, version 1."""
        return {
            "schema_version": 1,
            "query": self.query,
            "filters": self.filters.to_dict(),
            "indexes": self.indexes,
            "masked": self.masked,
            "hidden": self.hidden,
            "embedded": round(self.embedded, 4),
            "terms": self.terms,
            "similar": self.similar,
            "results": [asdict(hit) for hit in self.results],
        }


_QUOTED = re.compile(r'(?<!\w)(-?)"([^"]+)"')
_EXCLUDED = re.compile(r"(?:^|(?<=\s))-(\w{2,}\S*)")


def parse_query(query: str) -> Wanted:
    """`"words in quotes"` must occur as they are, `-word` must not; the rest are free words.

    One letter behind a dash is a flag that somebody looks for, and a text that holds the whole query as it
    stands (`find . -name x`) is found in spite of its dashes. Raises UsageError for a query of nothing.
    """
    query = clean(query)
    phrases: list[str] = []
    excluded: list[str] = []

    def take(match: re.Match[str]) -> str:
        (excluded if match[1] else phrases).append(match[2])
        return " "

    rest = _QUOTED.sub(take, query)
    for word in _EXCLUDED.findall(rest):
        excluded.append(word)
    free = _EXCLUDED.sub(" ", rest).strip()
    if not free and phrases and not any(char.isalnum() for phrase in phrases for char in phrase):
        raise UsageError("words in quotes need a letter or a digit, or words beside them")
    if not free and not phrases:
        raise UsageError("there is nothing to search for", hint='give some words: mempalace search "why GraphQL"')
    return Wanted(free, tuple(phrases), tuple(excluded))
