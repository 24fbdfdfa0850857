"""Neutral shapes: OpenAI chat-completions messages and ShareGPT, as many tools and data sets write them.

    [{"role": "user", "content": "..."}, ...]        one conversation; or one message a line
    {"messages": [...]}                              one conversation; a list of them; or one a line
    {"custom_id": "...", "body": {"messages": ...}}  a line of a batch
    {"conversations": [{"from": "human", "value": "..."}]}  ShareGPT

`claims` asks for a user and an assistant, and gives way to every tool whose own files look alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mempalace import values
from mempalace.documents import Element, as_dict, as_json, as_list, as_string, as_texts, elements, locate
from mempalace.formats.base import Format
from mempalace.head import Head
from mempalace.model import (
    Block,
    Image,
    Message,
    Origin,
    Role,
    Session,
    SessionMetadata,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    group_turns,
)
from mempalace.records import Ledger
from mempalace.source import Source

_SCORE = 0.4
_LISTS = ("messages", "conversations", "conversation")
_TIMES = ("timestamp", "created_at", "create_time", "created", "ts", "date")
_SPEAKERS = {
    "user": (Role.USER, Origin.PERSON),
    "human": (Role.USER, Origin.PERSON),
    "assistant": (Role.ASSISTANT, Origin.ASSISTANT),
    "gpt": (Role.ASSISTANT, Origin.ASSISTANT),
    "chatgpt": (Role.ASSISTANT, Origin.ASSISTANT),
    "bing": (Role.ASSISTANT, Origin.ASSISTANT),
    "bard": (Role.ASSISTANT, Origin.ASSISTANT),
    "claude": (Role.ASSISTANT, Origin.ASSISTANT),
    "model": (Role.ASSISTANT, Origin.ASSISTANT),
    "function_call": (Role.ASSISTANT, Origin.ASSISTANT),
    "tool": (Role.TOOL, Origin.TOOL_RESULT),
    "function": (Role.TOOL, Origin.TOOL_RESULT),
    "observation": (Role.TOOL, Origin.TOOL_RESULT),
    "system": (Role.SYSTEM, Origin.INJECTED),
    "developer": (Role.SYSTEM, Origin.INJECTED),
}
# Keys that say whose file it is: Gemini, ChatGPT, Claude.ai, Amp, VS Code, Continue.
_FOREIGN_ENVELOPE = frozenset(
    {"sessionId", "projectHash", "mapping", "chat_messages", "env", "requests", "history", "session_metadata"}
)
# A message of Claude Code, Codex, Pi (`type`), Gemini (`parts`), Amp (`messageId`), Cline (`ts`), Cursor (`message`).
_FOREIGN_MESSAGE = frozenset({"type", "parts", "messageId", "ts", "message", "sessionId", "uuid", "parentUuid"})
_ANTHROPIC = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking"})
_WRAPPED = ("<task>", "<user_message>", "<environment_details>")  # how Cline and Roo wrap what was typed


class Chat(Format):
    """Chat messages in the shapes that no single tool owns."""

    name = "chat"
    title = "Chat messages (OpenAI, ShareGPT)"
    suffixes = (".json", ".jsonl")

    def claims(self, head: Head) -> float:
        if head.kind == "jsonl":
            values: list[Any] = list(head.records)
            if all(_speaker(value) for value in values):
                return _SCORE if _is_exchange(values) else 0.0
        else:
            value = head.document if head.kind == "json" else None
            values = value if isinstance(value, list) else [value]
            if isinstance(value, list) and _is_exchange(value):
                return _SCORE
        claimed = [value for value in values[:20] if _is_claimed(value)]
        return _SCORE if values and claimed and len(claimed) * 2 > len(values[:20]) else 0.0

    def read(self, source: Source, ledger: Ledger) -> Iterator[Session]:
        loose: list[tuple[Element, dict[str, Any]]] = []
        for element in elements(source, ledger, (), _is_element):
            value = as_dict(element.value)
            if _speaker(value):
                loose.append((element, value))
                continue
            if loose:
                yield from self._session(source, _Conversation({}, loose), ledger)
                loose = []
            inner = _messages_of(element.value)
            if inner is None:
                ledger.read += 1
                ledger.skip("unknown")
                ledger.note("unrecognised", "not a conversation", element.ordinal)
            else:
                found = [(element, as_dict(message)) for message in inner]
                yield from self._session(source, _Conversation(_envelope(value), found), ledger)
        if loose:
            yield from self._session(source, _Conversation({}, loose), ledger)

    def _session(self, source: Source, conversation: _Conversation, ledger: Ledger) -> Iterator[Session]:
        messages = conversation.messages(ledger)
        if messages:
            first, last = conversation.found[0][0], conversation.found[-1][0]
            yield Session(
                path=source.path,
                format=self.name,
                metadata=conversation.metadata(messages),
                turns=group_turns(messages),
                member=source.member,
                start=first.start,
                end=last.end,
            )


# --- shapes -------------------------------------------------------------------------------------------------


def _speaker(value: Any) -> str | None:
    """Who speaks, if the value is a message (with a role and content, or from and value)."""
    if not isinstance(value, dict):
        return None
    name = value.get("role") if "role" in value else value.get("from")
    said = ("content", "tool_calls", "function_call") if "role" in value else ("value",)
    return name if isinstance(name, str) and name in _SPEAKERS and any(key in value for key in said) else None


def _messages_of(value: Any) -> list[Any] | None:
    """The messages of a conversation in any of the shapes; None if it is none."""
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        return None
    body = value["body"] if isinstance(value.get("body"), dict) else value
    return next((body[key] for key in _LISTS if isinstance(body.get(key), list)), None)


def _envelope(value: dict[str, Any]) -> dict[str, Any]:
    return {**value, **as_dict(value.get("body"))}


def _is_element(value: Any) -> bool:
    return _speaker(value) is not None or (isinstance(value, dict) and bool(_messages_of(value)))


def _is_claimed(value: Any) -> bool:
    if isinstance(value, dict) and not _FOREIGN_ENVELOPE.isdisjoint(value):
        return False
    messages = _messages_of(value)
    if messages is None:
        return False
    if isinstance(value, dict) and as_dict(value.get("metadata")).get("written_by") == "mempalace":
        return all(_speaker(message) for message in messages[:50])  # our own export, be it of one voice only
    return _is_exchange(messages)


def _is_exchange(values: list[Any]) -> bool:
    """Whether these are messages only, of a user and an assistant at least, and of no tool that we know."""
    speakers = set()
    # The last one may be cut off: of a large file only the beginning is seen.
    for value in values[:50] if len(values) < 3 else values[: min(50, len(values) - 1)]:
        name = _speaker(value)
        if name is None or not _FOREIGN_MESSAGE.isdisjoint(value):
            return False
        for block in as_list(value.get("content")):
            kind = as_dict(block).get("type")
            if isinstance(kind, str) and kind in _ANTHROPIC:
                return False
        if _first_text(value.get("content")).startswith(_WRAPPED):
            return False
        speakers.add(_SPEAKERS[name][0])
    speakers |= {_SPEAKERS[name][0] for value in values[:50] if (name := _speaker(value))}
    return {Role.USER, Role.ASSISTANT} <= speakers


def _first_text(content: Any) -> str:
    if isinstance(content, list):
        content = as_dict(content[0]).get("text") if content else None
    return content.lstrip() if isinstance(content, str) else ""


# --- reading ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Conversation:
    """The messages of one conversation, each with the element of the file that it stands in."""

    envelope: dict[str, Any]
    found: list[tuple[Element, dict[str, Any]]]

    def messages(self, ledger: Ledger) -> list[Message]:
        ledger.read += max(len(self.found), 1)
        ledger.skip("empty", 0 if self.found else 1)
        kept: list[Message] = []
        calls: list[str] = []
        for line, (element, value) in enumerate(self.found, 1):
            message = _read_message(element, value, line, calls)
            if message is not None:
                kept.append(message)
            elif _speaker(value) is None and value:
                ledger.skip("unknown")
            else:
                ledger.skip("empty")
        return kept

    def metadata(self, messages: list[Message]) -> SessionMetadata:
        told = as_dict(self.envelope.get("metadata"))
        value = {**told, **self.envelope}
        names = ("id", "conversation_id", "session_id", "custom_id", "uuid")
        times = [moment for key in _TIMES if (moment := values.parse_time(value.get(key)))]
        return SessionMetadata(
            session_id=next((text for key in names if (text := as_string(value.get(key)))), None),
            timestamp=times[0] if times else messages[0].timestamp,
            provider=as_string(value.get("provider")),
            model=as_string(value.get("model")),
            title=as_string(value.get("title")) or as_string(value.get("name")),
            source=as_string(told.get("source")) or "chat",
        )


def _read_message(element: Element, value: dict[str, Any], line: int, calls: list[str]) -> Message | None:
    """One message. `calls` are the ids of the calls made so far: ShareGPT's results do not name theirs."""
    name = _speaker(value) or "system"
    role, origin = _SPEAKERS[name]
    content = value.get("content") if "role" in value else value.get("value")
    blocks: list[Block] = [Thinking(text) for text in as_texts(value.get("reasoning_content")) if text.strip()]
    if name == "function_call":
        blocks += [_call({"name": "function", "arguments": content}, f"call-{line}", calls)]
    elif role is Role.TOOL:
        answered = as_string(value.get("tool_call_id")) or (calls[-1] if calls else "")
        text, images = (content, ()) if isinstance(content, str) else _plain(_content(element, content))
        blocks += [ToolResult(answered, text, None, images)] if text or images or value.get("tool_call_id") else []
    else:
        blocks += _content(element, content)
    for number, item in enumerate(as_list(value.get("tool_calls")), 1):
        call = as_dict(item)
        identity = as_string(call.get("id")) or f"call-{line}-{number}"
        blocks.append(_call(as_dict(call.get("function")) or call, identity, calls))
    if isinstance(value.get("function_call"), dict):
        blocks.append(_call(value["function_call"], f"call-{line}", calls))
    blocks += [Text(text) for text in as_texts(value.get("refusal")) if text.strip()]
    if not blocks:
        return None
    return Message(
        role,
        tuple(blocks),
        timestamp=next((moment for key in _TIMES if (moment := values.parse_time(value.get(key)))), None),
        id=as_string(value.get("id")),
        origin=origin,
        name=as_string(value.get("name")) if role is Role.USER else None,
        model=as_string(value.get("model")) if role is Role.ASSISTANT else None,
        line=line,
    )


def _call(function: dict[str, Any], identity: str, calls: list[str]) -> ToolUse:
    calls.append(identity)
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = values.loads(arguments)
        except (ValueError, RecursionError):
            arguments = {"raw": arguments}
    return ToolUse(identity, as_string(function.get("name")) or "function", arguments)


def _plain(blocks: list[Block]) -> tuple[str, tuple[Image, ...]]:
    words = [block.text for block in blocks if isinstance(block, Text)]
    return "\n".join(words), tuple(block for block in blocks if isinstance(block, Image))


def _content(element: Element, content: Any) -> list[Block]:
    """A text, or a list of parts: text in any of the API's spellings, images, and (lenient) Anthropic's blocks."""
    blocks: list[Block] = []
    for part in content if isinstance(content, list) else [content]:
        item = as_dict(part)
        kind = str(item.get("type"))
        if "image_url" in item:
            address = item["image_url"]
            blocks.append(_image(element, as_dict(address).get("url") if isinstance(address, dict) else address))
        elif kind == "thinking":
            blocks += [Thinking(text) for text in as_texts(item.get("thinking")) if text.strip()]
        elif kind == "tool_use":
            blocks.append(ToolUse(as_string(item.get("id")) or "", str(item.get("name")), item.get("input")))
        elif kind == "tool_result":
            blocks.append(ToolResult(as_string(item.get("tool_use_id")) or "", "\n".join(_words(item.get("content")))))
        else:
            blocks += [Text(text) for text in _words(part) if text.strip()]
    return blocks


def _words(value: Any) -> list[str]:
    """The words of a part, or of a list of parts; a part of an unknown kind as JSON."""
    found: list[str] = []
    for part in value if isinstance(value, list) else [value]:
        item = as_dict(part)
        known = [text for name in ("text", "refusal", "transcript") for text in as_texts(item.get(name))]
        found += known or (as_texts(part) if not item else [as_json(part)])
    return found


def _image(element: Element, address: Any) -> Image:
    """An image by its address; one that stands in the file itself by its place there."""
    if not isinstance(address, str) or not address.startswith("data:"):
        return Image(ref=as_string(address) or "image")
    head, _, payload = address.partition(",")
    place = locate(element, payload)
    offset, length = place if place is not None else (None, None)
    size = len(payload.rstrip("=")) * 3 // 4 if head.endswith(";base64") else len(payload)
    return Image(head[5:].partition(";")[0] or None, size, offset, length, None if place else "image")
