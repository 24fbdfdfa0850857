"""One Slack message as messages of the model: who speaks, what is said, what came along.

People are USER and keep their names. A bot is ASSISTANT if it talks with people as one: its name is that of
an AI, or it answers in a direct message, or in a thread where a person mentioned it. Any other bot (builds,
commits, calendars, USLACKBOT) is SYSTEM and INJECTED, with its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from mempalace import values
from mempalace.documents import as_dict, as_list, as_size, as_string
from mempalace.formats.slack.text import Directory, attachment_text, blocks_text, resolve
from mempalace.model import Block, Image, Message, Origin, Role, Text

CONTROL = frozenset(
    {
        *(f"{kind}_{what}" for kind in ("channel", "group") for what in ("join", "leave", "topic", "purpose", "name")),
        *(
            f"{kind}_{what}"
            for kind in ("channel", "group")
            for what in ("archive", "unarchive", "posting_permissions")
        ),
        *("channel_convert_to_private", "channel_convert_to_public", "channel_canvas_updated", "pinned_item"),
        *("unpinned_item", "bot_add", "bot_remove", "bot_enable", "bot_disable", "reminder_add", "sh_room_created"),
        *(
            "huddle_thread",
            "tombstone",
            "message_deleted",
            "message_replied",
            "assistant_app_thread",
            "ekm_access_denied",
        ),
    }
)
_AI = re.compile(
    r"\b(?:claude|anthropic|chatgpt|gpt(?:-?\d\w*)?|openai|gemini|bard|copilot|perplexity|devin|codex|grok|mistral"
    r"|llama|deepseek|qwen|a\.?i\.?|assistant|llm)\b",
    re.IGNORECASE,
)
_MENTION = re.compile(r"<@([A-Z0-9]+)")


def speaker(value: dict[str, Any], directory: Directory) -> str:
    """The name of who speaks: the person's, the bot's, else an id."""
    profile = as_dict(value.get("user_profile"))
    user = as_string(value.get("user")) or as_string(as_dict(value.get("comment")).get("user"))
    names = [
        as_string(profile.get("display_name")),
        directory.people.get(user) if user else None,
        as_string(profile.get("real_name")),
        as_string(profile.get("name")),
        as_string(value.get("username")),
        as_string(as_dict(value.get("bot_profile")).get("name")),
        user,
        as_string(value.get("bot_id")),
    ]
    return next((name for name in names if name), "unknown")


def is_bot(value: dict[str, Any], directory: Directory) -> bool:
    """Whether no person wrote it. People post through apps too: who is in the list of users is no bot."""
    user = as_string(value.get("user"))
    if user in directory.bots or user == "USLACKBOT" or value.get("subtype") == "bot_message":
        return True
    return bool(value.get("bot_id")) and user not in directory.people


def mentioned(values: Iterable[dict[str, Any]]) -> set[str]:
    """The ids of users whom the messages mention."""
    return {name for value in values for name in _MENTION.findall(as_string(value.get("text")) or "")}


def read_message(
    value: dict[str, Any], directory: Directory, line: int, asked: set[str], is_direct: bool
) -> list[Message]:
    """The messages that one record holds: its own, and the previews that Slack added. None if it says nothing.

    `asked` are the users who are mentioned in the same thread.
    """
    bot = is_bot(value, directory)
    name = speaker(value, directory)
    role, origin = Role.USER, Origin.PERSON
    if bot:
        user = as_string(value.get("user"))
        answers = user != "USLACKBOT" and (is_direct or user in asked)
        is_ai = answers or bool(_AI.search(name.replace("_", " ")))
        role, origin = (Role.ASSISTANT, Origin.ASSISTANT) if is_ai else (Role.SYSTEM, Origin.INJECTED)
    own, added = _words(value, directory, bot)
    blocks: list[Block] = [Text(text) for text in own if text.strip()]
    blocks += _files(value)
    ts = as_string(value.get("ts"))
    time = values.parse_time(ts)
    if not blocks:
        return []
    messages = [Message(role, tuple(blocks), time, ts, origin, name, line=line)]
    previews = tuple(Text(text) for text in added if text.strip())
    if previews:
        identity = f"{ts}/2" if ts else None
        messages.append(Message(Role.SYSTEM, previews, time, identity, Origin.INJECTED, line=line, records=0))
    return messages


def _words(value: dict[str, Any], directory: Directory, bot: bool) -> tuple[list[str], list[str]]:
    """What the speaker wrote, and what Slack put below it (previews of links and of shared messages)."""
    text = as_string(value.get("text")) or ""
    own = [resolve(text, directory)] if text.strip() else []
    below = [attachment_text(one, directory) for one in as_list(value.get("attachments"))]
    if not own:
        own = [blocks_text(value.get("blocks"), directory)]
    comment = as_string(as_dict(value.get("comment")).get("comment"))
    if comment and not text:
        own.append(resolve(comment, directory))
    if bot or not any(part.strip() for part in own):
        return own + below, []
    return own, below


def _files(value: dict[str, Any]) -> list[Block]:
    """Files by name; of a snippet the text that the export shows. (`file` before 2018, `files` since.)"""
    blocks: list[Block] = []
    for one in [value.get("file"), *as_list(value.get("files"))]:
        item = as_dict(one)
        name = next((text for key in ("name", "title", "id") if (text := as_string(item.get(key)))), None)
        if name is None or item.get("mode") == "tombstone":
            continue
        blocks.append(Image(as_string(item.get("mimetype")), as_size(item.get("size")), ref=name))
        shown = as_string(item.get("preview"))
        if shown is not None:
            blocks.append(Text(f"[file: {name}]\n{shown}"))
    return blocks
