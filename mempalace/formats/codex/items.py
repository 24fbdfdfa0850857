"""Content of Codex items -> blocks, and which texts the harness wrote. Pure functions.

Names of items and fields follow codex-rs (`protocol/src/models.rs`, `items.rs`, `protocol.rs`, up to 0.151).
Every function takes any JSON value where the log should hold a certain shape, and never raises.
"""

from __future__ import annotations

import re
from typing import Any

from mempalace.model import Block, Image, Origin, Text
from mempalace.records import Record, locate
from mempalace.values import dumps

Json = dict[str, Any]


def as_str(value: Any) -> str | None:
    """The value if it is a text that holds something, else None."""
    return value if isinstance(value, str) and value else None


def as_dict(value: Any) -> Json:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: Any) -> str:
    """A text as it is, nothing as "", any other value as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else dumps(value).decode("utf-8", "replace")


# --- content ------------------------------------------------------------------------------------------------

_IMAGE_OPEN = re.compile(r"<image(?: name=([^>]*))?>\s*\Z")
_IMAGE_CLOSE = re.compile(r"\s*</image>\s*\Z")


def read_content(content: Any, record: Record) -> list[Block]:
    """Texts and images of a message or of a tool output, in order; encrypted parts are left out.

    Texts that only wrap an image (`<image name=[Image #1]>`, `</image>`; codex-rs event_mapping.rs) are not
    words of anybody: the name becomes the image's `ref`.
    """
    if isinstance(content, str):
        return [Text(content)] if content else []
    items = [content] if isinstance(content, dict) else as_list(content)
    blocks: list[Block] = []
    for item in items:
        block = Text(item) if isinstance(item, str) and item else _content_item(item, record)
        if block is None:
            continue
        before = blocks[-1] if blocks else None
        if isinstance(block, Image) and isinstance(before, Text) and (opened := _IMAGE_OPEN.match(before.text)):
            blocks.pop()
            block = named(block, opened.group(1))
        elif isinstance(block, Text) and isinstance(before, Image) and _IMAGE_CLOSE.match(block.text):
            continue
        blocks.append(block)
    return blocks


def _content_item(item: Any, record: Record) -> Block | None:
    if not isinstance(item, dict) or item.get("type") == "encrypted_content":
        return None
    if text := as_str(item.get("text")) or as_str(item.get("refusal")):
        return Text(text)
    url = item.get("image_url") or item.get("imageUrl")
    url = url.get("url") if isinstance(url, dict) else url
    if isinstance(url, str) and url:
        return read_image(url, record)
    if item.get("type") in ("local_image", "localImage") and (path := as_str(item.get("path"))):
        return Image(ref=path)
    if item.get("type") == "image" and (data := as_str(item.get("data"))):
        media = as_str(item.get("mimeType"))
        return read_image(f"data:{media or ''};base64,{data}", record)
    return None


def read_image(url: str, record: Record) -> Image:
    """An image by its data URL (found again in the source by offset and length) or by its address."""
    if not url.startswith("data:"):
        return Image(ref=url)
    head, _, payload = url.partition(",")
    media = head[5:].split(";", 1)[0] or None
    size = max(0, len(payload) * 3 // 4 - payload[-2:].count("="))
    span = locate(record, payload)
    if span is None:
        return Image(media_type=media, size=size)
    return Image(media_type=media, size=size, offset=span[0], length=span[1])


def named(image: Image, name: str | None) -> Image:
    """The image with a name for it, if it has none."""
    if image.ref or not name:
        return image
    return Image(image.media_type, image.size, image.offset, image.length, name)


def read_texts(value: Any) -> list[str]:
    """The texts, blank ones left out, of a text or of a list of texts or of `{"text": ...}` items."""
    if not value:
        return []
    found = value if isinstance(value, list) else [value]
    texts = [item.get("text") if isinstance(item, dict) else item for item in found]
    return [text for text in texts if isinstance(text, str) and text.strip()]


def texts_of(blocks: list[Block]) -> list[str]:
    """The Text blocks' texts that are not blank."""
    return [block.text for block in blocks if isinstance(block, Text) and block.text.strip()]


def images_of(blocks: list[Block]) -> list[Image]:
    """The Image blocks."""
    return [block for block in blocks if isinstance(block, Image)]


# --- injected texts -----------------------------------------------------------------------------------------

# Start of what the harness writes in the user's role, and its end (codex-rs contextual_user_message.rs and its
# predecessors). Only the start of a text decides: the same words further on are the person's own.
_INJECTED = (
    ("# agents.md instructions", "</instructions>"),
    ("<user_instructions>", "</user_instructions>"),
    ("<environment_context>", "</environment_context>"),
    ("<environments_instructions>", "</environments_instructions>"),
    ("<instructions>", "</instructions>"),
    ("<permissions instructions>", "</permissions instructions>"),
    ("<collaboration_mode>", "</collaboration_mode>"),
    ("<multi_agent_mode>", "</multi_agent_mode>"),
    ("<skill>", "</skill>"),
    ("<skill ", "</skill>"),
    ("<skills_instructions>", "</skills_instructions>"),
    ("<turn_aborted>", "</turn_aborted>"),
    ("<turn_context>", "</turn_context>"),
    ("<subagent_notification>", "</subagent_notification>"),
    ("<model_switch>", "</model_switch>"),
    ("<personality_spec>", "</personality_spec>"),
    ("<additional_context>", "</additional_context>"),
    ("<hook_prompt", "</hook_prompt>"),
    ("<goal_context>", "</goal_context>"),
    ("<context_window", ">"),
    ("<token_budget", ">"),
    ("<user_action>", "</user_action>"),
    ("<realtime_conversation>", "</realtime_conversation>"),
)
_SHELL_COMMAND = ("<user_shell_command>", "</user_shell_command>")
_SUMMARY = "another language model started to solve this problem"
_LONGEST_MARK = 64
_WHOLE_TAG = re.compile(r"<([a-z][a-z0-9_]*)[ >].*</\1>\Z", re.DOTALL)


def harness_origin(text: str, *, closed: bool) -> Origin | None:
    """What a text in the user's role is, if the harness wrote it; None for a person's words.

    With `closed` the text must also end like one: an event says that a person sent it, so that a start
    alone proves nothing.
    """
    start = text[: _LONGEST_MARK * 2].lstrip()[:_LONGEST_MARK].lower()
    if start[:1] not in ("<", "#", "a"):
        return None
    if start.startswith(_SUMMARY):
        return Origin.SUMMARY
    end = text[-_LONGEST_MARK * 2 :].rstrip().lower() if closed else ""
    if start.startswith(_SHELL_COMMAND[0]) and (not closed or end.endswith(_SHELL_COMMAND[1])):
        return Origin.COMMAND
    for opening, closing in _INJECTED:
        if start.startswith(opening) and (not closed or end.endswith(closing)):
            return Origin.INJECTED
    return None


def is_one_element(text: str) -> bool:
    """Whether a text is one `<tag>...</tag>` from end to end, with a tag name as harnesses use them."""
    return _WHOLE_TAG.match(text.strip()) is not None


_IDE_STARTS = ("# Context from my IDE setup:", "# Files mentioned by the user:", "## My request for Codex:")
_IDE_REQUEST = re.compile(r"^## My request for Codex:[ \t]*(?:\r?\n|\Z)", re.MULTILINE)


def split_ide_context(text: str) -> tuple[str, str]:
    """What the editor put before the person's request, and the request; together they are the text.

    The VS Code extension sends both as one message; the request follows the last marker.
    """
    if not text.lstrip().startswith(_IDE_STARTS):
        return "", text
    marks = list(_IDE_REQUEST.finditer(text))
    if not marks:
        return "", text
    return text[: marks[-1].end()], text[marks[-1].end() :]
