"""What a conversion keeps: a level, and every thing by name that the target has no slot for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    """How much of a session comes back from what was written."""

    BYTES = "byte-lossless"  # the bytes of the source themselves
    VALUES = "value-lossless"  # an equal Session; what stays in the source alone is named
    SEMANTIC = "semantic"  # the conversation; what is left out or changed is named


# Every name in a report, and what it means. `records: KIND` is made for each kind of record that a source holds and
# a session does not.
RESIDUE = {
    "abandoned messages": "on a branch that was rewound or regenerated; left out",
    "blank texts": "text blocks with nothing but white space; left out",
    "header records": "the tool's own header records; left out",
    "images": "bytes that are not at hand, or that the target has no place for; a note tells of them",
    "injected messages": "what the source's harness put in (reminders, environment, errors); left out",
    "joined texts": "text blocks of one message, joined by a newline",
    "message ids": "the log's own ids of messages; left out",
    "models": "which model wrote each message; left out",
    "orphan results": "tool results whose call is not in the log; kept as context, not as results",
    "origins": "messages that come back as another kind: commands, recaps, what agents tell each other",
    "outcomes": "whether a tool call failed; left out",
    "session facts": "project, branch, release, lineage and the like; left out",
    "speaker names": "names of people, put in brackets before their words",
    "sub-agents": "sessions of sub-agents; left out (export each by its own id)",
    "system prompt": "the prompt that the source's harness started with; left out",
    "thinking": "reasoning of the model; left out",
    "times": "times of messages; left out, or taken from a neighbour where the log has none",
    "token usage": "tokens spent; left out",
    "tool inputs": 'input that comes back as {"raw": ...}',
    "unanswered calls": "calls without a result, which the target's API refuses; one that says so is added",
    "tool names": "names with signs that the target's API refuses, which became _",
}


# What bytes alone may lack: a log that was written anew, or of which there are copies that went on apart.
MISSING = "messages elsewhere"
_OF_BYTES = {MISSING: "which only other files, or earlier states of this one, hold; left out"}


@dataclass(frozen=True, slots=True)
class FidelityReport:
    """What became of a session: `residue` counts by name what the target did not take as it is."""

    target: str
    level: Level
    residue: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return {"target": self.target, "level": str(self.level), "residue": dict(self.residue)}

    def lines(self) -> list[str]:
        """For people: the level, then a line for each thing."""
        told = [f"{self.target}: {self.level}" + ("" if self.residue else ", nothing left out")]
        for name, count in self.residue.items():
            meaning = {**RESIDUE, **_OF_BYTES}.get(name, "kinds of record that hold no message")
            told.append(f"  {count} {name}: {meaning}")
        return told


def report(target: str, level: Level, counts: Counter[str]) -> FidelityReport:
    """The report of what was counted, names in order."""
    return FidelityReport(target, level, {name: counts[name] for name in sorted(counts) if counts[name]})
