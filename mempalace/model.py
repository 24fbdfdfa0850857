"""The Session model: one shape for the conversations of every tool. Pure data; `raw` and images read on demand.

    Session
      metadata: SessionMetadata
      turns: (Turn, ...)            a new message of a person opens a turn
        messages: (Message, ...)
          content: (Block, ...)     Text | ToolUse | ToolResult | Thinking | Image
        token_usage: TokenUsage | None
      subagents: (Session, ...)

All classes are frozen. `Session.to_dict` and `Session.from_dict` are inverse of each other (see model_data); times
are aware datetimes in UTC, and RFC 3339 strings in dictionaries.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from mempalace.source import Original, Source, original, raw_lines, read_span


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
    `forked_from`, `parent_session_id`, `parent_message_id`, `converted_from`. `interactive` is False for headless runs.
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
    def is_part(self) -> bool:
        """Whether its file holds more than this session: an export, a log with several starts."""
        return self.start > 0 or self.end is not None

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

    @property
    def raw(self) -> Iterator[bytes]:
        """Every line of its source as it stands there (decompressed), read when asked for; joined they are the file.

        For one conversation of an export it is that conversation's part, for one that several files hold it is all
        of them one after another. Raises SourceError if a file is gone.
        """
        for source in self._sources():
            yield from raw_lines(source, self.start, self.end)

    def originals(self) -> list[Original]:
        """The whole files that it was read from, as they lie on disk: one, or each day of a Slack channel."""
        return [original(source) for source in self._sources()]

    def _sources(self) -> list[Source]:
        """Where its bytes are. `files` names what holds a session of several files: members, or files side by side."""
        from mempalace.folders import source_of

        own = self.member or self.path.name
        names = self.metadata.extra.get("files")
        if not isinstance(names, list) or own not in names or not all(isinstance(name, str) for name in names):
            return [source_of(self.path, self.member)]
        if self.member:
            return [source_of(self.path, name) for name in names]
        return [source_of(self.path.with_name(name)) for name in names if name and "/" not in name]

    def read_image(self, image: Image) -> bytes:
        """The bytes of an image that the source holds in base64."""
        if image.offset is None or image.length is None:
            raise ValueError("the log does not hold the bytes of this image")
        return base64.b64decode(read_span(self._sources()[0], image.offset, image.length))

    def to_dict(self) -> dict[str, Any]:
        """The session as plain JSON data; `from_dict` gives back an equal session."""
        return model_data.to_dict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Session:
        """The session that `to_dict` made `data` from. Missing keys take their defaults."""
        return model_data.from_dict(data)

    def to_openai(self, *, images: bool = False) -> list[dict[str, Any]]:
        """The messages as the chat-completions API takes them; `images` reads their bytes out of the source."""
        return model_data.to_openai(self, self.read_image if images else None)


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


from mempalace import model_data  # noqa: E402 - it needs the classes above
