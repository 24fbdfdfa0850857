"""The Session model: one shape for the conversations of every tool. Pure data, no I/O.

    Session
      metadata: SessionMetadata
      turns: (Turn, ...)            a new message of a person opens a turn
        messages: (Message, ...)
          content: (Block, ...)     Text | ToolUse | ToolResult | Thinking | Image
        token_usage: TokenUsage | None
      subagents: (Session, ...)

All classes are frozen. `Session.to_dict` and `Session.from_dict` are inverse of each other; times are aware
datetimes in UTC, and RFC 3339 strings in dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any


class Role(StrEnum):
    """Who speaks, as the target of an API would name it."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"


class Origin(StrEnum):
    """Where a message (or a part of its transcript) comes from. Dialogue is PERSON and ASSISTANT."""

    PERSON = "person"  # typed by a person
    ASSISTANT = "assistant"  # written by the assistant
    TOOL_CALL = "tool_call"  # only on transcript spans: a ToolUse block
    TOOL_RESULT = "tool_result"
    THINKING = "thinking"  # only on transcript spans: a Thinking block
    INJECTED = "injected"  # put in by the harness: reminders, environment, AGENTS.md, API errors
    COMMAND = "command"  # slash and shell commands of the client, and what they printed
    SUMMARY = "summary"  # written by a machine when the context was compacted
    SUBAGENT = "subagent"  # what one agent told another: the prompt of a sub-agent
    ABANDONED = "abandoned"  # on a branch that was rewound, edited or regenerated


DIALOGUE = frozenset({Origin.PERSON, Origin.ASSISTANT})


@dataclass(frozen=True, slots=True)
class Text:
    """Words, verbatim."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A call of a tool. `input` is the decoded arguments; arguments that are not JSON stand as {"raw": text}."""

    id: str
    name: str
    input: Any


@dataclass(frozen=True, slots=True)
class Image:
    """An image or another blob that stays where it is.

    `offset` and `length` (bytes) locate its base64 text in the (decompressed) source; `ref` is a name, path
    or URL where the log has only that. `size` is the number of decoded bytes, if known.
    """

    media_type: str | None = None
    size: int | None = None
    offset: int | None = None
    length: int | None = None
    ref: str | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool returned, whole. `is_error` is None where the log does not say."""

    tool_use_id: str
    content: str
    is_error: bool | None = None
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True)
class Thinking:
    """The model's reasoning; `signature` is kept for conversion, encrypted reasoning is not shown."""

    text: str
    signature: str | None = None


Block = Text | ToolUse | ToolResult | Thinking | Image

_BLOCK_TAGS: dict[type[Any], str] = {
    Text: "text",
    ToolUse: "tool_use",
    ToolResult: "tool_result",
    Thinking: "thinking",
    Image: "image",
}
_BLOCK_TYPES = {tag: cls for cls, tag in _BLOCK_TAGS.items()}


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of a turn. `input` excludes cached tokens where the tool tells them apart; None is 'not said'."""

    input: int = 0
    output: int = 0
    cache_read: int | None = None
    cache_create: int | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    `id` is the log's own id for it. `name` is the speaker's name where people talk to each other. `line` is
    the 1-based line (or ordinal) of its first record in the source, `records` how many input records it
    holds (0 for the second message made of one record). `model` is the one that wrote it.
    """

    role: Role
    content: tuple[Block, ...]
    timestamp: datetime | None = None
    id: str | None = None
    origin: Origin = Origin.PERSON
    name: str | None = None
    model: str | None = None
    line: int | None = None
    records: int = 1

    @property
    def text(self) -> str:
        """The message's Text blocks, joined by newlines."""
        return "\n".join(block.text for block in self.content if isinstance(block, Text))


@dataclass(frozen=True, slots=True)
class Turn:
    """A person's message and all that answers it. The first turn may start without one."""

    messages: tuple[Message, ...]
    token_usage: TokenUsage | None = None


@dataclass(frozen=True, slots=True)
class SessionMetadata:
    """What the log says of a session as a whole; everything is optional.

    `project` is the working folder (or workspace, channel) that the log itself names. `source` is the tool
    that wrote the session first (provenance), also after a conversion. `headers` holds verbatim header
    records (Codex: session_meta, turn_context), `lineage` ids of what it was forked or spawned from:
    `forked_from`, `parent_session_id`, `parent_message_id`. `interactive` is False for headless runs.
    """

    session_id: str | None = None
    timestamp: datetime | None = None
    provider: str | None = None
    model: str | None = None
    project: str | None = None
    title: str | None = None
    source: str | None = None
    git_branch: str | None = None
    client_version: str | None = None
    interactive: bool | None = None
    system_prompt: str | None = None
    parent_tool_use_id: str | None = None
    headers: tuple[Any, ...] = ()
    lineage: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation.

    `path` is the file it was read from, `member` the name inside an archive, `start` and `end` the byte
    range of this conversation where the file holds several.
    """

    path: Path
    format: str
    metadata: SessionMetadata = SessionMetadata()
    turns: tuple[Turn, ...] = ()
    subagents: tuple[Session, ...] = ()
    parent_id: str | None = None
    agent_id: str | None = None
    subagent_type: str | None = None
    member: str | None = None
    start: int = 0
    end: int | None = None

    @property
    def key(self) -> str | None:
        """The id that tells this session from all others: a sub-agent's is `parent/agent`."""
        if self.agent_id is not None:
            parent = self.parent_id or self.metadata.session_id
            return f"{parent}/{self.agent_id}" if parent else self.agent_id
        return self.metadata.session_id

    @property
    def messages(self) -> Iterator[Message]:
        """All messages of this session (not of its sub-agents) in order."""
        for turn in self.turns:
            yield from turn.messages

    @property
    def is_subagent(self) -> bool:
        """Whether another session spawned this one."""
        return self.agent_id is not None or self.subagent_type is not None

    @property
    def message_count(self) -> int:
        """Number of messages."""
        return sum(len(turn.messages) for turn in self.turns)

    def messages_by_role(self, role: Role | str) -> list[Message]:
        """The messages of one role, in order."""
        return [message for message in self.messages if message.role == role]

    @property
    def tool_uses(self) -> list[ToolUse]:
        """All tool calls, in order."""
        return [block for message in self.messages for block in message.content if isinstance(block, ToolUse)]

    @property
    def tool_results(self) -> list[ToolResult]:
        """All tool results, in order."""
        return [block for message in self.messages for block in message.content if isinstance(block, ToolResult)]

    @property
    def total_tokens(self) -> TokenUsage:
        """The sum over turns. A cache figure stays None when no turn has it; `model` is that of the session."""
        usages = [turn.token_usage for turn in self.turns if turn.token_usage is not None]
        return TokenUsage(
            input=sum(usage.input for usage in usages),
            output=sum(usage.output for usage in usages),
            cache_read=_sum_known(usage.cache_read for usage in usages),
            cache_create=_sum_known(usage.cache_create for usage in usages),
            model=self.metadata.model,
        )

    def to_dict(self) -> dict[str, Any]:
        """The session as plain JSON data; `from_dict` gives back an equal session."""
        return {
            "path": str(self.path),
            "format": self.format,
            "metadata": _metadata_to_dict(self.metadata),
            "turns": [_turn_to_dict(turn) for turn in self.turns],
            "subagents": [subagent.to_dict() for subagent in self.subagents],
            "parent_id": self.parent_id,
            "agent_id": self.agent_id,
            "subagent_type": self.subagent_type,
            "member": self.member,
            "start": self.start,
            "end": self.end,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Session:
        """The session that `to_dict` made `data` from. Missing keys take their defaults."""
        known = {key: data[key] for key in ("parent_id", "agent_id", "subagent_type", "member", "end") if key in data}
        return cls(
            path=Path(data["path"]),
            format=data["format"],
            metadata=_metadata_from_dict(data.get("metadata", {})),
            turns=tuple(_turn_from_dict(turn) for turn in data.get("turns", ())),
            subagents=tuple(cls.from_dict(subagent) for subagent in data.get("subagents", ())),
            start=data.get("start", 0),
            **known,
        )


def group_turns(messages: Iterable[Message], usage: Mapping[int, TokenUsage] | None = None) -> tuple[Turn, ...]:
    """Messages as turns: each message of a person (or, in a sub-agent, of its parent) opens one.

    `usage` maps an index into `messages` to the tokens spent by that message; a turn's usage is their sum.
    """
    turns: list[Turn] = []
    current: list[Message] = []
    spent: list[TokenUsage] = []

    def close() -> None:
        if current:
            turns.append(Turn(tuple(current), add_usage(spent)))
            current.clear()
            spent.clear()

    for index, message in enumerate(messages):
        if message.role == Role.USER and opens_turn(message):
            close()
        current.append(message)
        if usage is not None and index in usage:
            spent.append(usage[index])
    close()
    return tuple(turns)


def opens_turn(message: Message) -> bool:
    """Whether a user message starts a turn: what people and parents of sub-agents say does."""
    return message.origin in (Origin.PERSON, Origin.SUBAGENT, Origin.ABANDONED)


def add_usage(usages: Iterable[TokenUsage]) -> TokenUsage | None:
    """The sum of several usages (None of none); the model is the last one named."""
    known = list(usages)
    if not known:
        return None
    models = [usage.model for usage in known if usage.model is not None]
    return TokenUsage(
        input=sum(usage.input for usage in known),
        output=sum(usage.output for usage in known),
        cache_read=_sum_known(usage.cache_read for usage in known),
        cache_create=_sum_known(usage.cache_create for usage in known),
        model=models[-1] if models else None,
    )


def _sum_known(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def format_time(moment: datetime | None) -> str | None:
    """RFC 3339 in UTC with `Z`, with as many digits as needed."""
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _read_time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _metadata_to_dict(metadata: SessionMetadata) -> dict[str, Any]:
    result: dict[str, Any] = {item.name: getattr(metadata, item.name) for item in fields(metadata)}
    result["timestamp"] = format_time(metadata.timestamp)
    result["headers"] = list(metadata.headers)
    result["lineage"] = dict(metadata.lineage)
    result["extra"] = dict(metadata.extra)
    return result


def _metadata_from_dict(data: Mapping[str, Any]) -> SessionMetadata:
    known = {item.name: data[item.name] for item in fields(SessionMetadata) if item.name in data}
    known["timestamp"] = _read_time(data.get("timestamp"))
    known["headers"] = tuple(data.get("headers", ()))
    return SessionMetadata(**known)


def _turn_to_dict(turn: Turn) -> dict[str, Any]:
    usage = turn.token_usage
    return {
        "messages": [_message_to_dict(message) for message in turn.messages],
        "token_usage": None if usage is None else {item.name: getattr(usage, item.name) for item in fields(usage)},
    }


def _turn_from_dict(data: Mapping[str, Any]) -> Turn:
    usage = data.get("token_usage")
    return Turn(
        messages=tuple(_message_from_dict(message) for message in data["messages"]),
        token_usage=None if usage is None else TokenUsage(**usage),
    )


def _message_to_dict(message: Message) -> dict[str, Any]:
    return {
        "role": str(message.role),
        "origin": str(message.origin),
        "timestamp": format_time(message.timestamp),
        "id": message.id,
        "name": message.name,
        "model": message.model,
        "line": message.line,
        "records": message.records,
        "content": [_block_to_dict(block) for block in message.content],
    }


def _message_from_dict(data: Mapping[str, Any]) -> Message:
    known = {key: data[key] for key in ("id", "name", "model", "line", "records") if key in data}
    return Message(
        role=Role(data["role"]),
        content=tuple(_block_from_dict(block) for block in data["content"]),
        timestamp=_read_time(data.get("timestamp")),
        origin=Origin(data.get("origin", "person")),
        **known,
    )


def _block_to_dict(block: Block) -> dict[str, Any]:
    result: dict[str, Any] = {"type": _BLOCK_TAGS[type(block)]}
    for item in fields(block):
        value = getattr(block, item.name)
        result[item.name] = [_block_to_dict(image) for image in value] if item.name == "images" else value
    return result


def _block_from_dict(data: Mapping[str, Any]) -> Block:
    known = {key: value for key, value in data.items() if key != "type"}
    if "images" in known:
        known["images"] = tuple(_block_from_dict(image) for image in known["images"])
    block: Block = _BLOCK_TYPES[data["type"]](**known)
    return block
