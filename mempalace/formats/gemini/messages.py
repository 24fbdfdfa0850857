"""One message record of Gemini CLI -> messages, with the tokens it spent."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from mempalace.model import Block, Image, Message, Origin, Role, Text, Thinking, TokenUsage, ToolResult, ToolUse
from mempalace.records import Record, locate
from mempalace.values import dumps, parse_time

KINDS = {
    **dict.fromkeys(("user", "function"), "user"),
    **dict.fromkeys(("gemini", "model"), "gemini"),
    **dict.fromkeys(("info", "error", "warning", "system"), "notice"),
}

# What the tool itself puts in front of (or behind) a prompt; until the end of 2025 the context had no tag.
_INJECTED = re.compile(
    r"\s*(?:<(session_context|hook_context)>.*?(?:</\1>\s*|\Z)"
    r"|This is the Gemini CLI\. We are setting up the context for our chat\..*)",
    re.DOTALL,
)
_SUMMARY = re.compile(r"\s*(?:<scratchpad>.*?</scratchpad>\s*)?<state_snapshot>", re.DOTALL)
_COMMAND = re.compile(r"\s*(?:/[A-Za-z][\w:.-]*(?:\s|$)|\?\s*$)")
_MASKED = "<tool_output_masked>"


@dataclass(slots=True)
class Entry:
    """What one message record became. `state` is live, abandoned (rewound) or compacted."""

    id: str | None
    kind: str
    messages: list[Message] = field(default_factory=list)
    usage: TokenUsage | None = None
    model: str | None = None
    state: str = "live"

    @property
    def results(self) -> list[ToolResult]:
        return [block for message in self.messages for block in message.content if isinstance(block, ToolResult)]

    @property
    def is_answer(self) -> bool:
        """Whether it is a user message made of nothing but function responses."""
        return self.kind == "user" and all(message.role == Role.TOOL for message in self.messages)

    @property
    def is_summary(self) -> bool:
        return any(message.origin == Origin.SUMMARY for message in self.messages)

    @property
    def is_masked(self) -> bool:
        return any(result.content.lstrip().startswith(_MASKED) for result in self.results)

    def says(self) -> tuple[Any, ...]:
        """What has to be equal in two versions for one to be a copy of the other."""
        return self.usage, self.model, [replace(message, line=None) for message in self.messages]


class Converter:
    """Message records -> entries. Calls without an id (in checkpoints) are numbered by name, to pair them."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()
        self._answers: Counter[str] = Counter()
        self.spawns: dict[str, str] = {}  # the call that started a sub-agent, by the agent's id

    def entry(self, value: dict[str, Any], record: Record) -> Entry | None:
        """The entry of a message record; None for a record of a type that we do not know."""
        type = value.get("type", value.get("role"))
        kind = KINDS.get(type) if isinstance(type, str) else None
        if kind is None:
            return None
        model = text_of(value.get("model")) or None
        entry = Entry(text_of(value.get("id")) or None, kind, model=model, usage=usage_of(value.get("tokens"), model))
        said = [
            block for block in self._blocks(value.get("content", value.get("parts")), record) if not _is_blank(block)
        ]
        results = [block for block in said if isinstance(block, ToolResult)]
        said = [block for block in said if not isinstance(block, ToolResult)]
        moment = time_of(value.get("timestamp", value.get("ts")))
        parts: list[tuple[Origin, Sequence[Block]]]
        if kind == "user":
            shown = [block for block in self._blocks(value.get("displayContent"), record) if not _is_blank(block)]
            parts = [(Origin.TOOL_RESULT, results), *_by_origin(shown or said)]
            if shown and shown != said:
                parts.append((Origin.INJECTED, said))
        elif kind == "gemini":
            calls = self._tool_calls(value.get("toolCalls"), record)
            uses = [use for use, _ in calls]
            results += [result for _, result in calls if result is not None]
            said = [
                *_thoughts(value.get("thoughts")),
                *(block for block in said if not any(same(block, use) for use in uses)),
                *uses,
            ]
            parts = [(Origin.ASSISTANT, said), (Origin.TOOL_RESULT, results)]
        else:
            parts = [(Origin.INJECTED, [*said, *results])]
        entry.messages = _messages(parts, entry, moment, record.line)
        return entry

    def _blocks(self, content: Any, record: Record) -> list[Block]:
        """The blocks of `content`: a string, a part, or a list of both."""
        parts = content if isinstance(content, list) else [content]
        blocks = (self._block(part, record) for part in parts if part is not None and part != {})
        return [block for block in blocks if block is not None]

    def _block(self, part: Any, record: Record) -> Block | None:
        if isinstance(part, str):
            return Text(part)
        if not isinstance(part, dict):
            return Text(_json(part))
        signature = text_of(part.get("thoughtSignature")) or None
        if isinstance(part.get("text"), str):
            return Thinking(part["text"], signature) if part.get("thought") is True else Text(part["text"])
        if isinstance(call := part.get("functionCall"), dict):
            return ToolUse(_call_id(call, self._calls), text_of(call.get("name")), call.get("args"))
        if isinstance(answer := part.get("functionResponse"), dict):
            text, failed = _response(answer.get("response"))
            images = tuple(block for block in self._blocks(answer.get("parts"), record) if isinstance(block, Image))
            return ToolResult(_call_id(answer, self._answers), text, True if failed else None, images)
        if isinstance(inline := part.get("inlineData"), dict):
            return _image(inline, record)
        if isinstance(file := part.get("fileData"), dict):
            return Image(text_of(file.get("mimeType")) or None, ref=text_of(file.get("fileUri")) or None)
        return None if part.keys() <= {"thoughtSignature"} else Text(_json(part))

    def _tool_calls(self, calls: Any, record: Record) -> list[tuple[ToolUse, ToolResult | None]]:
        found: list[tuple[ToolUse, ToolResult | None]] = []
        for call in calls if isinstance(calls, list) else []:
            if isinstance(call, dict):
                use = ToolUse(_call_id(call, self._calls), text_of(call.get("name")), call.get("args"))
                found.append((use, self._result(use.id, call, record)))
                if agent_id := text_of(call.get("agentId")):
                    self.spawns.setdefault(agent_id, use.id)
        return found

    def _result(self, id: str, call: dict[str, Any], record: Record) -> ToolResult | None:
        """The result of a call; None while there is none, or where only a function response holds it."""
        texts: list[str] = []
        images: list[Image] = []
        failed = call.get("status") in ("error", "cancelled")
        for block in self._blocks(call.get("result"), record):
            if isinstance(block, ToolResult):
                texts.append(block.content)
                images += block.images
                failed = failed or block.is_error is True
            elif isinstance(block, Image):
                images.append(block)
            else:
                texts.append(_json(block.input) if isinstance(block, ToolUse) else block.text)
        text = "\n".join(filter(None, texts))
        display = call.get("resultDisplay")
        if not text and not images and display is not None:
            text = display if isinstance(display, str) else _json(display)
        if not text and not images and not failed:
            return None
        succeeded = False if call.get("status") == "success" else None
        return ToolResult(id, text, True if failed else succeeded, tuple(images))


def _messages(
    parts: Iterable[tuple[Origin, Sequence[Block]]], entry: Entry, moment: datetime | None, line: int
) -> list[Message]:
    """The messages of one record; the first that is dialogue (else the first) carries its id and its count."""
    roles = {Origin.ASSISTANT: Role.ASSISTANT, Origin.TOOL_RESULT: Role.TOOL}
    roles |= {Origin.INJECTED: Role.SYSTEM, Origin.SUMMARY: Role.SYSTEM}
    messages = [
        Message(roles.get(origin, Role.USER), tuple(blocks), moment, origin=origin, line=line, records=0)
        for origin, blocks in parts
        if blocks
    ]
    spoken = [i for i, message in enumerate(messages) if message.role in (Role.USER, Role.ASSISTANT)]
    for i in (spoken or range(len(messages)))[:1]:
        messages[i] = replace(messages[i], id=entry.id, model=entry.model, records=1)
    return messages


def _by_origin(blocks: Iterable[Block]) -> list[tuple[Origin, Sequence[Block]]]:
    """What a person typed, apart from what the tool added to it: decided by a tag at the start of a part."""
    found: dict[Origin, list[Block]] = {}
    for block in blocks:
        if isinstance(block, Text):
            rest = block.text
            while match := _INJECTED.match(rest):
                found.setdefault(Origin.INJECTED, []).append(Text(match.group()))
                rest = rest[match.end() :]
            if not rest.strip():
                continue
            block = Text(rest)
            if _SUMMARY.match(rest):
                found.setdefault(Origin.SUMMARY, []).append(block)
                continue
        found.setdefault(Origin.PERSON, []).append(block)
    typed = found.get(Origin.PERSON, [])
    first = typed[0] if typed else None
    if isinstance(first, Text) and _COMMAND.match(first.text):
        return [(Origin.COMMAND if origin == Origin.PERSON else origin, said) for origin, said in found.items()]
    return list(found.items())


def _thoughts(thoughts: Any) -> Iterator[Thinking]:
    for thought in thoughts if isinstance(thoughts, list) else [thoughts]:
        if isinstance(thought, dict):
            said = [text_of(thought.get(key)) for key in ("subject", "description", "summary")]
            yield from (Thinking(text) for text in [": ".join(filter(None, said))] if text)
        elif isinstance(thought, str) and thought:
            yield Thinking(thought)


def _image(inline: dict[str, Any], record: Record) -> Image:
    data = text_of(inline.get("data"))
    offset, length = locate(record, data) or (None, None)
    return Image(
        media_type=text_of(inline.get("mimeType")) or None,
        size=len(data) * 3 // 4 - data[-2:].count("="),
        offset=offset,
        length=length,
        ref=text_of(inline.get("displayName")) or None,
    )


def _response(response: Any) -> tuple[str, bool]:
    """The text of a function response and whether it is an error: {output} and {error} stand for their value."""
    failed = isinstance(response, dict) and bool(response.get("error"))
    if isinstance(response, dict) and len(response) == 1 and response.keys() <= {"output", "error"}:
        (response,) = response.values()
    if not response:
        return "", failed
    return response if isinstance(response, str) else _json(response), failed


def usage_of(tokens: Any, model: str | None) -> TokenUsage | None:
    """The tokens of one answer.

    The tool's `input` includes `cached`, here it does not; `thoughts` come on top of `output` and `tool` (the
    prompts of server-side tools) on top of `input`, so that input + cache_read + output is its `total`.
    """
    if not isinstance(tokens, dict):
        return None
    known = {key: n for key, n in tokens.items() if type(n) is int and n >= 0}
    if not known.keys() & {"input", "output", "cached"}:
        return None
    cached = known.get("cached")
    fresh = max(known.get("input", 0) - (cached or 0), 0)
    return TokenUsage(
        fresh + known.get("tool", 0), known.get("output", 0) + known.get("thoughts", 0), cached, model=model
    )


def _call_id(call: dict[str, Any], seen: Counter[str]) -> str:
    name = text_of(call.get("name"))
    if not text_of(call.get("id")):
        seen[name] += 1
    return text_of(call.get("id")) or f"{name}#{seen[name]}"


def _is_blank(block: Block) -> bool:
    return isinstance(block, Text | Thinking) and not block.text.strip()


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal; not if they are nested too deeply to tell."""
    try:
        return bool(one == other)
    except RecursionError:
        return False


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _json(value: Any) -> str:
    return dumps(value).decode("utf-8", "replace")


def time_of(value: Any) -> datetime | None:
    return None if isinstance(value, int) and abs(value) > 10**15 else parse_time(value)
