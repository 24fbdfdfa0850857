"""Session <-> plain data: JSON dictionaries, and the messages of the chat-completions API."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

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
    TokenUsage,
    ToolResult,
    ToolUse,
    Turn,
)
from mempalace.values import dumps

_BLOCK_TAGS: dict[type[Any], str] = {
    Text: "text",
    ToolUse: "tool_use",
    ToolResult: "tool_result",
    Thinking: "thinking",
    Image: "image",
}
_BLOCK_TYPES = {tag: cls for cls, tag in _BLOCK_TAGS.items()}

ReadImage = Callable[[Image], bytes]


def to_dict(session: Session) -> dict[str, Any]:
    """The session as plain JSON data; `from_dict` gives back an equal session."""
    return {
        "path": str(session.path),
        "format": session.format,
        "metadata": _metadata_to_dict(session.metadata),
        "turns": [_turn_to_dict(turn) for turn in session.turns],
        "subagents": [to_dict(subagent) for subagent in session.subagents],
        "parent_id": session.parent_id,
        "agent_id": session.agent_id,
        "subagent_type": session.subagent_type,
        "member": session.member,
        "start": session.start,
        "end": session.end,
    }


def from_dict(data: Mapping[str, Any]) -> Session:
    """The session that `to_dict` made `data` from. Missing keys take their defaults."""
    known = {key: data[key] for key in ("parent_id", "agent_id", "subagent_type", "member", "end") if key in data}
    return Session(
        path=Path(data["path"]),
        format=data["format"],
        metadata=_metadata_from_dict(data.get("metadata", {})),
        turns=tuple(_turn_from_dict(turn) for turn in data.get("turns", ())),
        subagents=tuple(from_dict(subagent) for subagent in data.get("subagents", ())),
        start=data.get("start", 0),
        **known,
    )


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


# --- chat completions ---------------------------------------------------------------------------------------


def to_openai(session: Session, read_image: ReadImage | None = None) -> list[dict[str, Any]]:
    """The messages as the chat-completions API takes them: the active branch, without thinking.

    `read_image` gives the bytes of an image, for data URLs; without it an image that the log holds only as
    bytes stands as a line of text.
    """
    result: list[dict[str, Any]] = []
    if session.metadata.system_prompt:
        result.append({"role": "system", "content": session.metadata.system_prompt})
    for message in session.messages:
        if message.origin != Origin.ABANDONED:
            result += _chat_messages(message, read_image)
    return result


def _chat_messages(message: Message, read_image: ReadImage | None) -> Iterator[dict[str, Any]]:
    """The API's messages for one of ours: its words with its calls, and one for each tool result."""
    calls = [_chat_call(block) for block in message.content if isinstance(block, ToolUse)]
    parts = [
        _chat_part(block, read_image)
        for block in message.content
        if isinstance(block, Image) or (isinstance(block, Text) and block.text)
    ]
    spoken: dict[str, Any] = {"role": str(message.role), "content": _chat_content(parts)}
    if message.name:
        spoken["name"] = message.name
    if calls:
        spoken["tool_calls"] = calls
    if (parts or calls) and message.role != Role.TOOL:
        yield spoken
    for block in message.content:
        if isinstance(block, ToolResult):
            yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": block.content}


def _chat_content(parts: list[dict[str, Any]]) -> Any:
    """None for no words, a string for only words, else the list of parts."""
    if not parts:
        return None
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _chat_call(call: ToolUse) -> dict[str, Any]:
    arguments = dumps(call.input if call.input is not None else {}).decode()
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _chat_part(block: Text | Image, read_image: ReadImage | None) -> dict[str, Any]:
    if isinstance(block, Text):
        return {"type": "text", "text": block.text}
    if block.offset is not None and read_image is not None:
        data = base64.b64encode(read_image(block)).decode()
        url = f"data:{block.media_type or 'application/octet-stream'};base64,{data}"
    elif block.ref is not None and block.ref.startswith(("http://", "https://", "data:")):
        url = block.ref
    else:
        return {"type": "text", "text": f"[image {block.ref or block.media_type or ''}]".replace(" ]", "]")}
    return {"type": "image_url", "image_url": {"url": url}}
