"""One message of a Claude.ai conversation, as messages of the model.

An answer holds the calls of its tools and what they returned in one list of blocks: each result becomes a
message of its own, so that one record may give several (the later ones with `records=0`).
"""

from __future__ import annotations

import re
from typing import Any

from mempalace import values
from mempalace.documents import as_dict, as_json, as_list, as_size, as_string, as_texts
from mempalace.model import Block, Image, Message, Origin, Role, Text, Thinking, ToolResult, ToolUse

ROOT = "00000000-0000-4000-8000-000000000000"

_SPEAKERS = {
    "human": (Role.USER, Origin.PERSON),
    "user": (Role.USER, Origin.PERSON),
    "assistant": (Role.ASSISTANT, Origin.ASSISTANT),
}
_SILENT = frozenset({"token_budget", "flag"})
# Stands in `text` where the flattened form cannot show a block (artifacts, tools).
_PLACEHOLDER = re.compile(r"(?:```\s*)?This block is not supported on your current device yet\.\s*(?:```)?")


def read_message(value: dict[str, Any], ordinal: int, is_current: bool) -> list[Message]:
    """The messages that one record holds, none if it says nothing."""
    sender = value.get("sender") or value.get("role")
    role, origin = _SPEAKERS.get(str(sender), (Role.SYSTEM, Origin.INJECTED))
    identity = as_string(value.get("uuid"))
    blocks = _content(value, identity or str(ordinal))
    blocks += _attachments(value)
    time = values.parse_time(value.get("created_at"))
    messages: list[Message] = []
    for part in _parts(blocks):
        is_result = isinstance(part[0], ToolResult)
        part_role, part_origin = (Role.TOOL, Origin.TOOL_RESULT) if is_result else (role, origin)
        if not is_current and part_origin is not Origin.INJECTED:
            part_origin = Origin.ABANDONED
        number = len(messages) + 1
        messages.append(
            Message(
                part_role,
                tuple(part),
                timestamp=time,
                id=f"{identity}/{number}" if identity and number > 1 else identity,
                origin=part_origin,
                line=ordinal,
                records=1 if number == 1 else 0,
            )
        )
    return messages


def _parts(blocks: list[Block]) -> list[list[Block]]:
    """The blocks, cut so that results stand apart from what the speaker says."""
    parts: list[list[Block]] = []
    for block in blocks:
        if parts and isinstance(parts[-1][0], ToolResult) == isinstance(block, ToolResult):
            parts[-1].append(block)
        else:
            parts.append([block])
    return parts


def _content(value: dict[str, Any], identity: str) -> list[Block]:
    """The content blocks; the flattened `text` only where none of them has words."""
    blocks: list[Block] = []
    content = value.get("content")
    calls: list[str] = []
    for number, item in enumerate(as_list(content), 1):
        blocks += _block(as_dict(item), f"{identity}#{number}", calls)
    if isinstance(content, str):
        blocks += [Text(content)] if content.strip() else []
    if not any(isinstance(block, Text) for block in blocks):
        text = as_string(value.get("text")) or ""
        words = _PLACEHOLDER.sub("", text) if _PLACEHOLDER.search(text) else text
        if words.strip():
            blocks.append(Text(words))
    return blocks


def _block(item: dict[str, Any], identity: str, calls: list[str]) -> list[Block]:
    """One block. `calls` are the ids of the calls that wait for their result: old exports give neither."""
    kind = str(item.get("type"))
    if kind == "thinking":
        thought = as_string(item.get("thinking")) or "\n".join(_summaries(item))
        return [Thinking(thought, as_string(item.get("signature")))] if thought else []
    if kind == "tool_use":
        call = as_string(item.get("id")) or identity
        calls.append(call)
        return [ToolUse(call, as_string(item.get("name")) or "tool", item.get("input"))]
    if kind == "tool_result":
        named = as_string(item.get("tool_use_id"))
        if named in calls:
            calls.remove(named)
        call = named or (calls.pop(0) if calls else "")
        is_error = item.get("is_error")
        text, images = _result(item)
        return [ToolResult(call, text, is_error if isinstance(is_error, bool) else None, tuple(images))]
    if kind in _SILENT:
        return []
    if kind == "image":
        return [Image(ref=_reference(item))]
    found = [*as_texts(item.get("title")), *as_texts(item.get("text"))] if kind == "voice_note" else []
    words = found or as_texts(item.get("text")) or as_texts(item.get("content"))
    text = "\n".join(words)
    return [Text(text)] if text.strip() else []


def _summaries(item: dict[str, Any]) -> list[str]:
    return [text for summary in as_list(item.get("summaries")) for text in as_texts(as_dict(summary).get("summary"))]


def _result(item: dict[str, Any]) -> tuple[str, list[Image]]:
    """A tool's words (text, and of a search the title and address of each finding), and images by name."""
    content = item.get("content")
    words: list[str] = []
    images: list[Image] = []
    for part in content if isinstance(content, list) else [content]:
        if not isinstance(part, dict):
            words += as_texts(part)
        elif part.get("type") == "image":
            images.append(Image(as_string(part.get("media_type")), ref=_reference(part)))
        elif part.get("type") in ("text", "knowledge", "local_resource", None):
            names = ("title", "url", "name", "file_path", "text") if part.get("type") != "text" else ("text",)
            words += [text for name in names for text in as_texts(part.get(name))]
        else:
            words.append(as_json(part))
    return "\n".join(words), images


def _reference(item: dict[str, Any]) -> str:
    names = ("file_name", "title", "file_uuid", "url")
    return next((text for text in (as_string(item.get(name)) for name in names) if text), "image")


def _attachments(value: dict[str, Any]) -> list[Block]:
    """Attached files: their text where the export has it, else the name."""
    blocks: list[Block] = []
    for attachment in as_list(value.get("attachments")):
        item = as_dict(attachment)
        name = as_string(item.get("file_name")) or "file"
        text = as_string(item.get("extracted_content"))
        if text is not None:
            blocks.append(Text(f"[attachment: {name}]\n{text}"))
        elif item:
            blocks.append(Image(as_string(item.get("file_type")), as_size(item.get("file_size")), ref=name))
    seen = set()
    for file in [*as_list(value.get("files")), *as_list(value.get("files_v2"))]:
        item = as_dict(file)
        reference = as_string(item.get("file_name")) or as_string(item.get("file_uuid"))
        if reference is not None and reference not in seen:
            seen.add(reference)
            blocks.append(Image(as_string(item.get("file_type")), as_size(item.get("size_bytes")), ref=reference))
    return blocks
