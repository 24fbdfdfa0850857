"""What the records of one Claude Code file say, before it is a session: filled by the reader, then put together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from mempalace.formats.claude_code.blocks import JsonObject, Pieces
from mempalace.model import Block, Origin, Role, Text, TokenUsage


@dataclass(slots=True, eq=False)
class Draft:
    """A message that is still being put together."""

    role: Role
    origin: Origin
    blocks: list[Block]
    id: str | None
    uuid: str | None
    line: int
    place: int
    time: datetime | None = None
    model: str | None = None
    records: int = 1
    pieces: Pieces | None = None
    dropped: bool = False

    def add(self, blocks: list[Block]) -> None:
        """Take up the blocks of a further line of the same message."""
        if self.pieces is None:
            self.pieces = Pieces(self.blocks)
        self.pieces.add(blocks)
        self.records += 1


@dataclass(slots=True, eq=False)
class Thread:
    """The main conversation of a file, or a sub-agent's inside it."""

    agent_id: str | None = None
    drafts: list[Draft] = field(default_factory=list)
    merged: dict[str, Draft] = field(default_factory=dict)
    usage: dict[tuple[str | None, str | int | None], tuple[TokenUsage, Draft]] = field(default_factory=dict)
    time: datetime | None = None
    model: str | None = None
    has_messages: bool = False

    def live(self) -> list[Draft]:
        """The drafts that become messages."""
        return [draft for draft in self.drafts if not draft.dropped]


@dataclass(slots=True, eq=False)
class Queued:
    """Words typed while a tool ran. `kept` is False until they are sent, None once they are taken back."""

    text: str
    place: int
    thread: Thread
    drafts: list[Draft]
    is_attachment: bool = False
    kept: bool | None = False
    early: bool = False


@dataclass(slots=True, eq=False)
class Log:
    """All that a file holds. Threads hold the messages; the rest says how they hang together."""

    main: Thread = field(default_factory=Thread)
    sidechains: dict[str, Thread] = field(default_factory=dict)
    parents: dict[str, str | None] = field(default_factory=dict)  # of every record with a uuid
    prompts: dict[str, list[str]] = field(default_factory=dict)  # uuids of a person's prompts by their parent
    last_uuid: str | None = None  # of the last record that is no sidechain's
    said: list[tuple[int, str]] = field(default_factory=list)  # place and words of user records
    queued: list[Queued] = field(default_factory=list)
    spawns: dict[str, str] = field(default_factory=dict)  # the call that started a sub-agent, by agent id
    titles: dict[str, str] = field(default_factory=dict)
    summaries: list[tuple[str, str]] = field(default_factory=list)  # (uuid, title)
    session_ids: dict[str, None] = field(default_factory=dict)
    session_id: str | None = None  # of the last message
    forked_from: str | None = None
    converted_from: JsonObject = field(default_factory=dict)  # the tool and session of which this is a conversion
    facts: dict[str, str] = field(default_factory=dict)  # fields from the first record that has them

    def note_origins(self, value: JsonObject) -> None:
        """Take from the first record that has it of what session this one is a fork or (our own mark) a conversion."""
        fork, conversion = value.get("forkedFrom"), value.get("convertedFrom")
        if self.forked_from is None and isinstance(fork, dict):
            self.forked_from = text_of(fork, "sessionId")
        if not self.converted_from and isinstance(conversion, dict):
            self.converted_from = conversion


def text_of(value: JsonObject, key: str) -> str | None:
    """A field that is a string with something in it; None for all else."""
    text = value.get(key)
    return text if type(text) is str and text else None


def count_of(value: JsonObject, key: str) -> int | None:
    """A field that is a number of tokens; None for all else."""
    count = value.get(key)
    return count if type(count) is int and count >= 0 else None


def words_of(blocks: Iterable[Block]) -> str:
    """The text of some blocks, to compare it."""
    return "\n".join(block.text for block in blocks if isinstance(block, Text)).strip()
