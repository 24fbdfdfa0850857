"""A session made ready for another tool: one row of items in order, each with a time, calls and results paired.

Both agents' logs and the chat API want the same things: the active branch only, a speaker's words and calls apart from
results, an id for every call that its result names. What has to be left out or changed is counted on the way.
"""

from __future__ import annotations

import binascii
import hashlib
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum, auto

from mempalace.errors import ConvertError, MempalaceError
from mempalace.model import (
    Block,
    Image,
    Message,
    Origin,
    Role,
    Session,
    Text,
    Thinking,
    TokenUsage,
    ToolResult,
    ToolUse,
)
from mempalace.transcript import image_note

ReadImage = Callable[[Image], bytes]

# What these put in is of use to themselves only; a system message of a chat is part of the conversation.
_HARNESSES = frozenset({"claude-code", "codex", "gemini"})
_COMPACTION = "This session is being continued"  # else a summary in Claude Code's logs is a recap
_REFUSED = re.compile(r"[^A-Za-z0-9_-]")
_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_NO_TIME = datetime(2000, 1, 1, tzinfo=UTC)  # for a session without any: the earliest that readers take


class Kind(Enum):
    """What an item is to the target."""

    PERSON = auto()
    ASSISTANT = auto()
    RESULT = auto()
    ASIDE = auto()  # context that nobody in the conversation said
    SUMMARY = auto()  # stands for all before it
    NOTICE = auto()  # words of the client in the assistant's place


@dataclass(frozen=True, slots=True)
class Item:
    """A message, or the part of one that the target holds by itself. `usage` is that of the turn that it ends."""

    kind: Kind
    message: Message
    blocks: tuple[Block, ...]
    when: datetime
    opens_turn: bool = False
    usage: TokenUsage | None = None

    @property
    def texts(self) -> list[str]:
        """The texts of its Text blocks."""
        return [block.text for block in self.blocks if isinstance(block, Text)]

    def begins_with(self, words: tuple[str, ...]) -> bool:
        """Whether a person says it and one of its texts begins with such words (given in small letters)."""
        is_said = self.message.origin is Origin.PERSON
        return is_said and any(text.lstrip()[:80].lower().startswith(words) for text in self.texts)


@dataclass(frozen=True, slots=True)
class Plan:
    """The items of a session for one target, and what was counted so far."""

    session: Session
    target: str
    items: tuple[Item, ...]
    counts: Counter[str]
    read_image: ReadImage

    @property
    def is_own(self) -> bool:
        """Whether the session comes from the target's own logs."""
        return self.session.format == self.target

    @property
    def started(self) -> datetime:
        """When the session began."""
        return self.session.metadata.timestamp or self.items[0].when

    def cwd(self, given: str | None) -> str:
        """The working folder to write: the given one, the project's if that is a folder's path, else the root."""
        project = self.session.metadata.project or ""
        is_path = project.startswith("/") or re.match(r"[A-Za-z]:[\\/]|\\\\", project) is not None
        return given or (project if is_path else "/")

    def image_data(self, image: Image) -> bytes | None:
        """The bytes of an image; None if the source is gone or holds none."""
        if image.offset is None or image.length is None:
            return None
        try:
            data = self.read_image(image)
        except (MempalaceError, OSError, binascii.Error, ValueError):
            return None
        return data if image.size is None or abs(len(data) - image.size) <= 2 else None


def make(session: Session, target: str, read_image: ReadImage | None = None) -> Plan:
    """The plan for a target. Raises ConvertError for a session in which nobody says anything."""
    counts: Counter[str] = Counter()
    planner = _Planner(session, target, counts)
    items = tuple(planner.items())
    if not any(item.kind in (Kind.PERSON, Kind.ASSISTANT) for item in items):
        raise ConvertError(
            f"nothing to write as {target}: no person and no assistant says anything in this session",
            path=session.path,
            hint="--to json and --to native keep everything that the log holds",
        )
    counts["sub-agents"] += len(session.subagents)
    counts["system prompt"] += session.metadata.system_prompt is not None and target not in (session.format, "openai")
    return Plan(session, target, items, counts, read_image or session.read_image)


def count_facts(plan: Plan, *kept: str) -> None:
    """Count what the log says of the session as a whole and the target has no place for."""
    meta = plan.session.metadata
    known = ("project", "git_branch", "client_version", "lineage", "extra")
    plan.counts["session facts"] = sum(bool(getattr(meta, name)) for name in known if name not in kept)


def fingerprint(plan: Plan, *more: object) -> str:
    """A hash (64 hexadecimal digits) of the session's identity and content and of what is given besides."""
    hasher = hashlib.sha256()
    for part in (plan.target, plan.session.format, plan.session.key, *more):
        hasher.update(f"{part}\x1f".encode("utf-8", "replace"))
    for item in plan.items:
        hasher.update(f"\x1e{item.kind.name}\x1f{item.when}\x1f{item.blocks!r}".encode("utf-8", "replace"))
    return hasher.hexdigest()


def short_hash(*parts: object) -> str:
    """A hash of some values, 32 hexadecimal digits."""
    return hashlib.sha256("\x1f".join(map(str, parts)).encode("utf-8", "replace")).hexdigest()[:32]


def uuid_of(*parts: object) -> str:
    """A UUID that is always the same for the same values (version 8: made by a rule of one's own)."""
    return _stamped(short_hash(*parts), 8)


def uuid7_of(moment: datetime, *parts: object) -> str:
    """A UUID of version 7 (its first 48 bits are the time in ms), its rest always the same for the same values."""
    milliseconds = int(moment.timestamp() * 1000)
    return _stamped(f"{milliseconds:012x}{short_hash(*parts)[12:]}", 7)


def _stamped(digits: str, version: int) -> str:
    variant = "89ab"[int(digits[16], 16) % 4]
    return str(uuid.UUID(f"{digits[:12]}{version}{digits[13:16]}{variant}{digits[17:]}"))


class _Planner:
    def __init__(self, session: Session, target: str, counts: Counter[str]) -> None:
        self._session = session
        self._target = target
        self._counts = counts
        self._is_own = session.format == target
        self._open: dict[str, list[str]] = {}  # the log's id of a call -> ids given to calls without a result yet
        self._given: set[str] = set()
        self._when = session.metadata.timestamp or next(
            (message.timestamp for message in session.messages if message.timestamp), _NO_TIME
        )

    def items(self) -> Iterator[Item]:
        for turn in self._session.turns:
            found = [item for message in turn.messages for item in self._message(message)]
            spenders = [at for at, item in enumerate(found) if item.kind is Kind.ASSISTANT]
            if turn.token_usage is not None and spenders:
                found[spenders[-1]] = replace(found[spenders[-1]], usage=turn.token_usage)
            elif turn.token_usage is not None:
                self._counts["token usage"] += 1
            if found:
                found[0] = replace(found[0], opens_turn=True)
            yield from found

    def _message(self, message: Message) -> Iterator[Item]:
        if message.origin is Origin.ABANDONED:
            self._counts["abandoned messages"] += 1
            return
        kind = self._kind(message)
        if kind is None:
            self._counts["injected messages"] += 1
            return
        if message.timestamp is None:
            self._counts["times"] += 1
        self._when = message.timestamp or self._when
        for part, blocks in self._parts(message, kind):
            yield Item(part, message, tuple(blocks), self._when)

    def _kind(self, message: Message) -> Kind | None:
        """What a message is to the target; None for what is left out."""
        origin = message.origin
        if origin is Origin.INJECTED:
            if message.role is Role.ASSISTANT and self._is_own:
                return Kind.NOTICE
            return Kind.ASIDE if self._is_own or self._session.format not in _HARNESSES else None
        if origin is Origin.SUMMARY and message.role is Role.SYSTEM and self._is_compaction(message):
            return Kind.SUMMARY
        if origin in (Origin.SUMMARY, Origin.COMMAND):
            self._counts["origins"] += not (self._is_own and origin is Origin.COMMAND)
            return Kind.ASIDE
        if origin is Origin.SUBAGENT:
            self._counts["origins"] += 1
        if message.role is Role.USER:
            return Kind.PERSON
        if message.role is Role.ASSISTANT:
            return Kind.ASSISTANT
        return Kind.RESULT if message.role is Role.TOOL else Kind.ASIDE

    def _is_compaction(self, message: Message) -> bool:
        return self._session.format != "claude-code" or message.text.startswith(_COMPACTION)

    def _parts(self, message: Message, kind: Kind) -> Iterator[tuple[Kind, list[Block]]]:
        """A message's blocks, in order, by what they are: words, calls and results stand apart in every target."""
        current: list[Block] = []
        current_kind = kind
        for block in message.content:
            own = self._block_kind(block, kind)
            if own is not current_kind and current:
                yield current_kind, current
                current = []
            current_kind = own
            made = self._block(block, own)
            if isinstance(block, ToolResult) and made is None:
                if current:
                    yield current_kind, current
                yield Kind.ASIDE, [_orphan(block)]
                current = []
            elif made is not None:
                current.append(made)
        has_slot = self._target == "openai" and kind is Kind.PERSON
        if current and message.name and kind in (Kind.PERSON, Kind.ASSISTANT) and not has_slot:
            self._counts["speaker names"] += 1
            current = _named(message.name, current)
        if current:
            yield current_kind, current

    def _block_kind(self, block: Block, kind: Kind) -> Kind:
        if isinstance(block, ToolResult):
            return Kind.RESULT
        if isinstance(block, ToolUse):
            return Kind.ASSISTANT
        if kind is Kind.RESULT and not isinstance(block, Thinking):
            self._counts["origins"] += 1
            return Kind.ASIDE
        return kind

    def _block(self, block: Block, kind: Kind) -> Block | None:
        """The block as the target takes it; None to leave it out."""
        if isinstance(block, Text):
            if block.text.strip():
                return block
            self._counts["blank texts"] += 1
            return None
        if isinstance(block, Thinking):
            has_slot = self._is_own and (block.signature or self._target == "codex")
            if (has_slot or self._target == "markdown") and (block.text.strip() or block.signature):
                return block
            self._counts["thinking"] += 1
            return None
        if isinstance(block, ToolUse):
            return self._call(block)
        if isinstance(block, ToolResult):
            return self._result(block)
        if kind is not Kind.PERSON:
            self._counts["images"] += 1
            return Text(image_note(block))
        return block

    def _call(self, call: ToolUse) -> ToolUse:
        """The call with an id that no other has and a name and input that the target's API takes."""
        given = call.id
        if not _CALL_ID.match(given) or given in self._given:
            given = f"call_{short_hash(call.id, len(self._given))[:24]}"
        self._given.add(given)
        self._open.setdefault(call.id, []).append(given)
        name = call.name if self._target == "markdown" else _REFUSED.sub("_", call.name) or "tool"
        self._counts["tool names"] += name != call.name
        made = call.input if call.input is not None else {}
        if not isinstance(made, dict):
            self._counts["tool inputs"] += 1
            made = {"raw": made}
        return ToolUse(given, name, made)

    def _result(self, result: ToolResult) -> ToolResult | None:
        """The result with the id of its call; None if no call waits for it."""
        waiting = self._open.get(result.tool_use_id)
        if waiting:  # an id that comes again is a later call's; without ids, results come in the order of the calls
            return replace(result, tool_use_id=waiting.pop(-1 if result.tool_use_id else 0))
        self._counts["orphan results"] += 1
        return None


def _orphan(result: ToolResult) -> Text:
    notes = [image_note(image) for image in result.images]
    head = f"[result of the tool call {result.tool_use_id or 'without id'}, which is not in the log]"
    return Text("\n".join([head, *([result.content] if result.content else []), *notes]))


def _named(name: str, blocks: list[Block]) -> list[Block]:
    """The blocks with the speaker's name before the words, as transcripts have it."""
    for at, block in enumerate(blocks):
        if isinstance(block, Text):
            return [*blocks[:at], Text(f"[{name}] {block.text}"), *blocks[at + 1 :]]
    return [Text(f"[{name}]"), *blocks]
