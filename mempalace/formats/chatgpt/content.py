"""One message of a ChatGPT conversation: what its many content types hold, as blocks."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from mempalace import values
from mempalace.documents import as_dict, as_list, as_size, as_string, as_texts
from mempalace.model import Block, Image, Message, Origin, Role, Text, Thinking, ToolResult, ToolUse

_ROLES = {
    "user": (Role.USER, Origin.PERSON),
    "assistant": (Role.ASSISTANT, Origin.ASSISTANT),
    "tool": (Role.TOOL, Origin.TOOL_RESULT),
}
_UNKNOWN_ROLE = (Role.SYSTEM, Origin.INJECTED)
_CONTEXTS = ("user_editable_context", "model_editable_context")
_THINKING = ("thoughts", "reasoning_recap")


def read_message(
    value: dict[str, Any],
    key: str,
    calls: tuple[ToolUse, ...],
    time: datetime | None,
    ordinal: int,
    is_current: bool,
) -> Message | None:
    """A node's message, None if it says nothing. `calls` are the last calls of tools before it."""
    author = as_dict(value.get("author"))
    content = as_dict(value.get("content"))
    metadata = as_dict(value.get("metadata"))
    blocks = _blocks(content, metadata)
    if not blocks:
        return None
    identity = as_string(value.get("id")) or key
    role, origin = _ROLES.get(str(author.get("role")), _UNKNOWN_ROLE)
    recipient = as_string(value.get("recipient")) or "all"
    if role is Role.ASSISTANT and recipient != "all" and content.get("content_type") not in _THINKING:
        blocks = [_tool_use(identity, recipient, content, blocks)]
    elif role is Role.TOOL:
        blocks = [_tool_result(as_string(author.get("name")), content, metadata, blocks, calls)]
    if _is_hidden(content, metadata, value.get("weight")):
        origin = Origin.INJECTED
        role = Role.SYSTEM if role is Role.USER else role
    elif not is_current and origin is not Origin.INJECTED:
        origin = Origin.ABANDONED
    return Message(
        role,
        tuple(blocks),
        time,
        identity,
        origin,
        as_string(author.get("name")) if role is Role.USER else None,
        as_string(metadata.get("model_slug")) if role is Role.ASSISTANT else None,
        ordinal,
    )


def _is_hidden(content: dict[str, Any], metadata: dict[str, Any], weight: Any) -> bool:
    """Whether the client shows no such node: custom instructions, memory, retracted answers (weight 0)."""
    return (
        metadata.get("is_visually_hidden_from_conversation") is True
        or content.get("content_type") in _CONTEXTS
        or (isinstance(weight, int | float) and not isinstance(weight, bool) and weight == 0)
    )


def _tool_use(identity: str, recipient: str, content: dict[str, Any], blocks: list[Block]) -> ToolUse:
    text = "\n".join(block.text for block in blocks if isinstance(block, Text))
    if text.lstrip()[:1] in ("{", "["):
        try:
            return ToolUse(identity, recipient, values.loads(text))
        except (ValueError, RecursionError):
            pass
    if content.get("content_type") == "code" or recipient == "python":
        return ToolUse(identity, recipient, {"code": text})
    return ToolUse(identity, recipient, {"raw": text})


def _tool_result(
    name: str | None, content: dict[str, Any], metadata: dict[str, Any], blocks: list[Block], calls: tuple[ToolUse, ...]
) -> ToolResult:
    """What a tool said, tied to the last call of the same tool, else to the last call."""
    family = (name or "").split(".")[0]
    named = [call for call in calls if call.name == name] or [
        call for call in calls if call.name.split(".")[0] == family
    ]
    call = (named or list(calls))[-1:]
    texts = [block.text for block in blocks if isinstance(block, Text | Thinking)]
    return ToolResult(
        tool_use_id=call[0].id if call else "",
        content="\n".join(texts),
        is_error=_is_error(content, metadata),
        images=tuple(block for block in blocks if isinstance(block, Image)),
    )


def _is_error(content: dict[str, Any], metadata: dict[str, Any]) -> bool | None:
    if content.get("content_type") == "system_error":
        return True
    outcome = as_dict(metadata.get("aggregate_result"))
    status = str(outcome.get("status") or "")
    if outcome.get("in_kernel_exception") or status.startswith("failed"):
        return True
    return False if status == "success" else None


# --- content ------------------------------------------------------------------------------------------------


def _blocks(content: dict[str, Any], metadata: dict[str, Any]) -> list[Block]:
    """What a node holds, by its content type (list of them: the export of 2026)."""
    kind = str(content.get("content_type"))
    if kind in _THINKING:
        blocks = _thoughts(content)
    elif kind in ("text", "multimodal_text"):
        blocks = _parts(content)
    else:
        texts = [text for name in _FIELDS.get(kind, _ANY_FIELDS) for text in as_texts(content.get(name))]
        blocks = [Text("\n".join(texts))] if texts else []
        blocks += _parts(content) if "parts" not in _FIELDS.get(kind, ()) else []
        blocks += _pointer(content.get("screenshot"))
    if "aggregate_result" in metadata:
        blocks += _result_images(metadata)
    if "attachments" in metadata:
        blocks += _attachments(metadata, blocks)
    return blocks


_FIELDS = {
    "code": ("text",),
    "execution_output": ("text",),
    "tether_quote": ("title", "url", "text"),
    "tether_browsing_display": ("result", "summary"),
    "sonic_webpage": ("title", "url", "text"),
    "computer_output": ("text",),
    "user_editable_context": ("user_profile", "user_instructions"),
    "model_editable_context": ("model_set_context",),
    "system_error": ("name", "text"),
    "citable_code_output": ("output_str",),
    "app_pairing_content": ("context_parts", "workspace"),
}
_ANY_FIELDS = ("text", "content", "result")
KNOWN_TYPES = {*_FIELDS, *_THINKING, "text", "multimodal_text"}


def _thoughts(content: dict[str, Any]) -> list[Block]:
    found = []
    for thought in as_list(content.get("thoughts")):
        item = as_dict(thought)
        texts = [*as_texts(item.get("summary")), *as_texts(item.get("content"))]
        found.append("\n".join(dict.fromkeys(texts)))
    found += as_texts(content.get("content")) + [
        part for part in as_list(content.get("parts")) if isinstance(part, str)
    ]
    return [Thinking(text) for text in found if text]


def _parts(content: dict[str, Any]) -> list[Block]:
    """Words, images and voice, in their order."""
    blocks: list[Block] = []
    for part in as_list(content.get("parts")):
        if isinstance(part, str):
            blocks += [Text(part)] if part.strip() else []
        elif isinstance(part, dict):
            texts = as_texts(part.get("text"))
            blocks += [Text(text) for text in texts if text.strip()]
            pointers = _pointer(part)
            blocks += pointers
            if not texts and not pointers:
                blocks += [Text(text) for text in as_texts(part.get("content")) if text.strip()]
    return blocks


def _pointer(part: Any) -> list[Block]:
    """An asset that a part names (image, sound, the frames of a video), and the prompt it was made from."""
    item = as_dict(part)
    blocks = _reference(item)
    prompt = as_dict(as_dict(item.get("metadata")).get("dalle")).get("prompt")
    blocks += [Text(text) for text in as_texts(prompt)]
    for name in ("audio_asset_pointer", "video_container_asset_pointer"):
        below = item.get(name)
        blocks += _reference(below if isinstance(below, dict) else {"asset_pointer": below})
    for frame in as_list(item.get("frames_asset_pointers")):
        blocks += _reference(as_dict(frame))
    return blocks


def _reference(item: dict[str, Any]) -> list[Block]:
    reference = as_string(item.get("asset_pointer"))
    if reference is None:
        return []
    media = f"audio/{as_string(item.get('format')) or 'wav'}" if "audio" in str(item.get("content_type")) else None
    return [Image(media, as_size(item.get("size_bytes")), ref=reference)]


def _result_images(metadata: dict[str, Any]) -> list[Block]:
    """The plots that a run of code showed."""
    shown = [as_dict(item) for item in as_list(as_dict(metadata.get("aggregate_result")).get("messages"))]
    references = [as_string(item.get("image_url")) for item in shown if item.get("message_type") == "image"]
    return [Image(ref=reference) for reference in references if reference is not None]


def _attachments(metadata: dict[str, Any], blocks: list[Block]) -> list[Block]:
    """Uploaded files by name. One that also stands as an image in the parts is named there by its id only."""
    found: list[Block] = []
    pointers = {
        block.ref.rsplit("/", 1)[-1]: at for at, block in enumerate(blocks) if isinstance(block, Image) and block.ref
    }
    for attachment in as_list(metadata.get("attachments")):
        item = as_dict(attachment)
        identity, name = as_string(item.get("id")), as_string(item.get("name"))
        if not name and not identity:
            continue
        reference = f"{name} ({identity})" if name and identity else name or identity
        image = Image(as_string(item.get("mime_type")), as_size(item.get("size")), ref=reference)
        if identity in pointers:
            blocks[pointers[identity]] = image
        else:
            found.append(image)
    return found
