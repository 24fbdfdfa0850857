"""What a mine tells: events while it runs, a summary that adds up at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """Progress: `kind` is `found` (files, bytes), `file` (1, bytes), `phase`, `embedded`, `problem`, `waiting`."""

    kind: str
    text: str = ""
    count: int = 0
    size: int = 0


OnEvent = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class MineProblem:
    """Something to tell about a source, as in `mine --json`."""

    path: str
    line: int | None
    kind: str
    message: str


@dataclass(slots=True)
class Summary:
    """What a run did. `found` is the sum of the eight states, `read` that of stored, duplicate, damaged, skipped."""

    palace: str
    states: Counter[str] = field(default_factory=Counter)
    read: int = 0
    stored: int = 0
    duplicate: int = 0
    damaged: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    sessions_new: int = 0
    sessions_updated: int = 0
    chunks_new: int = 0
    chunks_total: int = 0
    vectors_new: int = 0
    vectors_queued: int = 0
    problems: list[MineProblem] = field(default_factory=list)
    seconds: float = 0.0

    STATES = ("new", "grown", "unchanged", "unrecognised", "ignored", "empty", "excluded", "failed")

    @property
    def found(self) -> int:
        """All files that were looked at."""
        return sum(self.states.values())

    @property
    def is_partial(self) -> bool:
        """Whether this run met damaged records, or files that failed or were excluded by a limit."""
        return bool(self.damaged or self.states["failed"] or self.states["excluded"])

    def to_dict(self) -> dict[str, Any]:
        """The JSON contract of `mine --json`, version 1."""
        return {
            "schema_version": 1,
            "palace": self.palace,
            "sources": {"found": self.found, **{state: self.states[state] for state in self.STATES}},
            "records": {
                "read": self.read,
                "stored": self.stored,
                "duplicate": self.duplicate,
                "damaged": self.damaged,
                "skipped": dict(sorted(self.skipped.items())),
            },
            "sessions": {"new": self.sessions_new, "updated": self.sessions_updated},
            "chunks": {"new": self.chunks_new, "total": self.chunks_total},
            "vectors": {"new": self.vectors_new, "queued": self.vectors_queued},
            "problems": [
                {"path": problem.path, "line": problem.line, "kind": problem.kind, "message": problem.message}
                for problem in self.problems
            ],
            "seconds": round(self.seconds, 3),
        }
