"""Messages in the making: the streams of a Codex rollout paired, and what is decided only at its end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from mempalace.formats.codex.items import as_dict, as_list, images_of, is_one_element
from mempalace.model import (
    Block,
    Image,
    Message,
    Origin,
    Role,
    Text,
    Thinking,
    TokenUsage,
    ToolResult,
    ToolUse,
    add_usage,
)
from mempalace.records import Record
from mempalace.values import parse_time

# How many records apart two streams may tell the same thing. Codex writes them one after the other; between
# them stand at most the other items of one model response.
WINDOW = 32

# Who tells of a message: what the model sees, what the client shows, and (since 0.148) a completed item.
RESPONSE, EVENT, ITEM = 1, 2, 4
# Whose words are taken, best first: a person's as the client had them, a model's as they came.
_BEST_FOR_PEOPLE = {EVENT: 0, ITEM: 1, RESPONSE: 2}
_BEST_FOR_MODELS = {RESPONSE: 0, ITEM: 1, EVENT: 2}
_WORDS = (Text, Thinking)


@dataclass(slots=True, eq=False)
class Draft:
    """A message in the making.

    `at` is the ordinal of its record, `place` its index among the drafts. `whole` is the text by which other
    streams find it, `streams` says which of them told it, `stream` whose words it holds; `parts` are the parts
    of it that a stream told alone. `lead` is what the harness put before a person's words. `tool` is set for
    what only an event tells: a call, its result, or both. `within` marks words that may stand in a neighbour.
    """

    at: int
    place: int
    line: int
    role: Role
    origin: Origin
    blocks: list[Block]
    timestamp: datetime | None
    model: str | None = None
    id: str | None = None
    name: str | None = None
    kind: str = ""
    stream: int = RESPONSE
    streams: int = 0
    whole: str = ""
    parts: tuple[tuple[int, str], ...] = ()
    lead: list[Block] | None = None
    tool: tuple[ToolUse | None, ToolResult | None] | None = None
    within: bool = False
    records: int = 1
    dropped: bool = False

    @property
    def text(self) -> str:
        """Its Text blocks, joined by newlines."""
        return "\n".join(block.text for block in self.blocks if isinstance(block, Text))


class Drafts:
    """The drafts of one session in file order, and the account of the records that are in none.

    `at`, `record` and `stamp` (its time as it stands there) are those of the current record.
    """

    def __init__(self, skips: Counter[str]) -> None:
        self.skips = skips
        self.all: list[Draft] = []
        self.calls: dict[str, Draft] = {}
        self.outputs: dict[str, Draft] = {}
        self.events_tell_users = False
        self.model: str | None = None
        self.at = 0
        self.record = Record({}, 0, 0, b"")
        self.stamp: Any = None
        self._index: defaultdict[str, dict[str, Draft | list[Draft]]] = defaultdict(dict)

    def new(self, blocks: list[Block], role: Role, origin: Origin) -> Draft:
        """A draft made of the current record."""
        model = self.model if role is Role.ASSISTANT else None
        moment = parse_time(self.stamp)
        draft = Draft(self.at, len(self.all), self.record.line, role, origin, blocks, moment, model)
        self.all.append(draft)
        return draft

    def told(self, kind: str, text: str) -> bool:
        """Whether any stream has told this text."""
        return text.strip() in self._index[kind]

    def tell(
        self, kind: str, stream: int, blocks: list[Block], role: Role, origin: Origin, id: str | None = None
    ) -> Draft | None:
        """Add what one stream tells, or join it with the draft of another stream that tells the same.

        None if the record holds nothing (it is counted as empty).
        """
        texts = [block.text for block in blocks if isinstance(block, _WORDS)]
        # Events join the parts of a message without anything between them (codex-rs UserMessageItem::message).
        whole = "".join(texts).strip()
        if not whole and not images_of(blocks):
            self.skips["empty"] += 1
            return None
        keys = [key for text in texts if (key := text.strip())] if len(texts) > 1 else []
        draft = self._join(kind, stream, blocks, origin, whole, keys)
        if draft is None:
            draft = self.new(blocks, role, origin)
            draft.kind, draft.stream, draft.streams, draft.whole = kind, stream, stream, whole
            self._enter(kind, whole, draft)
            for key in keys:
                self._enter(kind, key, draft)
        if id is not None:
            draft.id = draft.id or id
        return draft

    def _enter(self, kind: str, key: str, draft: Draft) -> None:
        before = self._index[kind].setdefault(key, draft)
        if before is draft:
            return
        if isinstance(before, list):
            before.append(draft)
        else:
            self._index[kind][key] = [before, draft]

    def _twin(self, kind: str, stream: int, key: str) -> Draft | None:
        """The nearest draft in which another stream, and not this one, tells the text."""
        found = self._index[kind].get(key)
        if found is None:
            return None
        for draft in reversed(found) if isinstance(found, list) else (found,):
            if self.at - draft.at > WINDOW:
                return None
            if not draft.dropped and not draft.streams & stream and (stream, key) not in draft.parts:
                return draft
        return None

    def _join(
        self, kind: str, stream: int, blocks: list[Block], origin: Origin, whole: str, keys: list[str]
    ) -> Draft | None:
        """The draft that now also stands for the current record, if another stream told the same.

        Events tell each part of a message on its own: parts told before are replaced by the message, and a
        part told afterwards adds nothing to it.
        """
        draft = self._twin(kind, stream, whole)
        if draft is not None:
            self.skips["echo"] += 1
            self._absorb(draft, stream, blocks, origin, whole)
            return draft
        if not keys:
            return None
        parts = [part for key in dict.fromkeys(keys) if (part := self._twin(kind, stream, key)) and part.whole == key]
        if not parts:
            return None
        draft = parts[0]
        self.skips["echo"] += 1
        for other in parts[1:]:
            self.drop(other)
        draft.parts += tuple((part.stream, part.whole) for part in parts)
        draft.blocks, draft.stream, draft.streams, draft.whole = blocks, stream, stream, whole
        for key in (whole, *keys):
            self._enter(kind, key, draft)
        return draft

    def _absorb(self, draft: Draft, stream: int, blocks: list[Block], origin: Origin, whole: str) -> None:
        """Take from a second stream what it tells better; images are kept whichever stream has them."""
        best = _BEST_FOR_PEOPLE if draft.kind == "user" else _BEST_FOR_MODELS
        better = False
        if draft.whole == whole:
            draft.streams |= stream
            better = best[stream] < best[draft.stream]
        else:
            draft.parts += ((stream, whole),)
        if draft.kind == "user" and stream != RESPONSE:
            draft.origin, draft.role = origin, user_role(origin)
        images = [] if draft.kind == "thinking" else _join_images(images_of(draft.blocks), images_of(blocks))
        if better:
            draft.stream = stream
            draft.blocks = blocks
        if images:
            draft.blocks = [block for block in draft.blocks if not isinstance(block, Image)]
            draft.blocks += images

    def near(self, draft: Draft) -> Iterator[Draft]:
        """The drafts made of records around that of a draft."""
        for other in self.all[max(0, draft.place - WINDOW) : draft.place + WINDOW + 1]:
            if other is not draft and not other.dropped and abs(other.at - draft.at) <= WINDOW:
                yield other

    def drop(self, draft: Draft) -> None:
        """Count a draft as an echo of another."""
        draft.dropped = True
        self.skips["echo"] += draft.records

    # --- at the end ---------------------------------------------------------------------------------------

    def settle(self, spawned: bool, rollbacks: list[tuple[int, int]]) -> None:
        """Decide what could not be decided record by record."""
        self._settle_tools()
        for draft in self.all:
            if draft.within:
                self._settle_echo(draft)
            elif draft.kind == "user" and draft.origin is Origin.PERSON:
                self._settle_user(draft, spawned)
        self._settle_rollbacks(rollbacks)

    def _settle_tools(self) -> None:
        """Keep of the tool events what response items do not tell: most calls and outputs stand there already."""
        told: dict[str, Draft] = {}
        for draft in self.all:
            use, result = draft.tool or (None, None)
            if use is None:
                continue
            call = self.calls.get(use.id) or self._same_search(draft, use)
            output = self.outputs.get(use.id)
            earlier = told.get(use.id)
            if output is not None and result is not None:
                _fill_outcome(output, result)
            if earlier is not None:
                new = earlier.tool is None or earlier.tool[1] is None
                draft.tool = (None, result if new and output is None else None)
            elif output is not None:
                draft.tool = (None if call else use, None)
            elif call is not None:
                draft.tool = (None, None if result is None else replace(result, tool_use_id=_call_id(call)))
            if use.id and earlier is None:
                told[use.id] = draft
            if draft.tool == (None, None) or self._is_shell_echo(draft, use):
                self.drop(draft)

    def _is_shell_echo(self, draft: Draft, use: ToolUse) -> bool:
        """Whether a command that the person ran stands as `<user_shell_command>` beside its event."""
        if draft.kind != "user_shell":
            return False
        command = as_dict(use.input).get("command")
        words = as_list(command)[-1:] or [command]
        return isinstance(words[0], str) and any(
            near.origin is Origin.COMMAND and words[0] in near.text for near in self.near(draft)
        )

    def _same_search(self, draft: Draft, use: ToolUse) -> Draft | None:
        """The web search call with the same action beside an event that bears another id."""
        action = as_dict(use.input).get("action")
        if use.name != "web_search" or not action:
            return None
        for near in self.near(draft):
            call = near.blocks[0] if near.blocks else None
            if isinstance(call, ToolUse) and call.name == "web_search" and call.input == action:
                return near
        return None

    def _settle_echo(self, draft: Draft) -> None:
        """Drop a plan, a review or a hook's text that stands inside a message beside it."""
        words = [part.strip() for part in draft.text.split("\n\n")]
        for near in self.near(draft):
            text = "" if near.within else near.text
            if text and all(word in text for word in words):
                self.drop(draft)
                return

    def _settle_user(self, draft: Draft, spawned: bool) -> None:
        """Say who speaks in the user's role.

        Where events tell what the person sent, a response item that is one unknown element is the harness's.
        In a spawned session it is the parent that speaks.
        """
        if self.events_tell_users and draft.stream == RESPONSE and is_one_element(draft.text):
            draft.origin, draft.role = Origin.INJECTED, Role.SYSTEM
        elif spawned:
            draft.origin = Origin.SUBAGENT

    def _settle_rollbacks(self, rollbacks: list[tuple[int, int]]) -> None:
        """Mark the turns that were rewound; what the harness injected into them stays marked as that."""
        for end, turns in rollbacks:
            left = turns
            for draft in reversed(self.all[:end]):
                if left == 0:
                    break
                if draft.dropped or draft.origin in (Origin.ABANDONED, Origin.INJECTED, Origin.SUMMARY):
                    continue
                if draft.role is Role.USER and draft.origin is not Origin.COMMAND:
                    left -= 1
                draft.origin = Origin.ABANDONED

    def messages(self, spent: list[tuple[int, TokenUsage]]) -> tuple[list[Message], dict[int, TokenUsage]]:
        """The messages, and for the index of each the tokens spent up to it.

        `spent` holds usages with the number of drafts that stood before them.
        """
        messages: list[Message] = []
        usage: dict[int, TokenUsage] = {}
        waiting = list(reversed(spent))
        for draft in self.all:
            if not draft.dropped:
                messages += _as_messages(draft)
            while messages and waiting and waiting[-1][0] <= draft.place + 1:
                tokens = waiting.pop()[1]
                before = usage.get(len(messages) - 1)
                usage[len(messages) - 1] = tokens if before is None else add_usage([before, tokens]) or tokens
        return messages, usage


def user_role(origin: Origin) -> Role:
    """The role of what stands in the user's role: only people (and their commands) are users."""
    return Role.SYSTEM if origin in (Origin.INJECTED, Origin.SUMMARY) else Role.USER


def _join_images(first: list[Image], second: list[Image]) -> list[Image]:
    """The images of two streams that show the same: a place in the file and a name make one image."""
    if not second or len(first) != len(second):
        return max(first, second, key=len)
    return [
        replace(one if one.offset is not None else other, ref=one.ref or other.ref)
        for one, other in zip(first, second, strict=True)
    ]


def _call_id(call: Draft) -> str:
    block = call.blocks[0]
    return block.id if isinstance(block, ToolUse) else ""


def _fill_outcome(output: Draft, told: ToolResult) -> None:
    """Give an output whose text does not say whether it is an error the outcome that the event says."""
    block = output.blocks[0]
    if isinstance(block, ToolResult) and block.is_error is None:
        output.blocks[0] = replace(block, is_error=told.is_error)


def _as_messages(draft: Draft) -> list[Message]:
    """The messages of a draft: one, or two where one record holds two (of which the second counts 0 records)."""
    one = Message(
        draft.role,
        tuple(draft.blocks),
        draft.timestamp,
        draft.id,
        draft.origin,
        draft.name,
        draft.model,
        draft.line,
        draft.records,
    )
    if draft.lead:
        lead = replace(one, role=Role.SYSTEM, content=tuple(draft.lead), id=None, origin=Origin.INJECTED, records=0)
        return [lead, one]
    if draft.tool is None:
        return [one]
    use, result = draft.tool
    found = [] if use is None else [replace(one, content=(use,))]
    if result is not None:
        origin = Origin.TOOL_RESULT if draft.origin is Origin.ASSISTANT else draft.origin
        records = draft.records if use is None else 0
        found.append(
            replace(one, role=Role.TOOL, content=(result,), origin=origin, model=None, records=records),
        )
    return found
