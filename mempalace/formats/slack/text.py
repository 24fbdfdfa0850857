"""The words of a Slack message: mentions and links resolved, rich text and attachments as plain text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mempalace.documents import as_dict, as_json, as_list, as_string, as_texts

_TOKEN = re.compile(r"<([^<>\n]+)>")
_ENTITIES = (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&"))
_DEPTH = 12  # rich text nests three deep; what is deeper is not Slack's


@dataclass(frozen=True, slots=True)
class Directory:
    """Who and what the ids of a workspace stand for. `bots` are the ids of users that are none, `team` is its own."""

    people: Mapping[str, str] = field(default_factory=dict)
    channels: Mapping[str, str] = field(default_factory=dict)
    bots: frozenset[str] = frozenset()
    team: str | None = None

    def person(self, identity: str) -> str:
        """A person's name; the id of someone who is not in the list of users."""
        return self.people.get(identity, identity)


def resolve(text: str, directory: Directory) -> str:
    """Slack's own markup as people see it: `<@U1>` is @name, `<url|label>` is [label](url)."""
    shown = _TOKEN.sub(lambda found: _token(found.group(1), directory), text)
    for entity, letter in _ENTITIES:
        shown = shown.replace(entity, letter)
    return shown


def _token(token: str, directory: Directory) -> str:
    target, _, label = token.partition("|")
    kind, name = target[:1], target[1:]
    if kind == "@":
        return "@" + (directory.people.get(name) or label.lstrip("@") or name)
    if kind == "#":
        return "#" + (label or directory.channels.get(name) or name)
    if kind == "!":
        if target.startswith("!date^"):
            return label or target
        return "@" + (label.lstrip("@") or name.partition("^")[2] or name)
    if target.startswith("mailto:"):
        return label or target.removeprefix("mailto:")
    if re.match(r"[a-zA-Z][\w+.-]*:", target):
        return f"[{label}]({target})" if label and label != target else target
    return f"<{token}>"


def attachment_text(value: Any, directory: Directory) -> str:
    """What an attachment says (a bot's report, a preview of a link); its fallback where it says nothing else."""
    item = as_dict(value)
    title, link = as_string(item.get("title")), as_string(item.get("title_link"))
    parts = [as_string(item.get("pretext")), as_string(item.get("author_name"))]
    parts.append(f"[{title}]({link})" if title and link else title)
    parts.append(as_string(item.get("text")))
    if not any(parts):
        parts += as_texts(item.get("fallback"))[:1] if item.get("fields") else []  # what the fields are about
    for one in as_list(item.get("fields")):
        pair = as_dict(one)
        parts.append(": ".join(text for name in ("title", "value") for text in as_texts(pair.get(name))))
    shown = [resolve(part, directory) for part in parts if part]
    if not shown:
        shown = [text for text in [blocks_text(item.get("blocks"), directory)] if text]
    if not shown:
        shown = [resolve(text, directory) for text in as_texts(item.get("fallback"))]
    return "\n".join(shown)


def blocks_text(value: Any, directory: Directory) -> str:
    """The words of Block Kit blocks, one block a line."""
    lines = [_element(block, directory, 0) for block in as_list(value)]
    return "\n".join(line for line in lines if line)


def _element(value: Any, directory: Directory, depth: int) -> str:
    if isinstance(value, str):
        return resolve(value, directory)
    if not isinstance(value, dict):
        return "\n".join(as_texts(value))
    if depth > _DEPTH:
        return as_json(value)
    item: dict[str, Any] = value
    kind = str(item.get("type"))
    below = [_element(one, directory, depth + 1) for one in as_list(item.get("elements"))]
    if kind == "rich_text_list":
        return "\n".join(f"• {one}" for one in below)
    if kind == "rich_text_preformatted":
        return "```\n" + "".join(below) + "\n```"
    if kind == "rich_text_quote":
        return "\n".join(f"> {line}" for line in "".join(below).split("\n"))
    if kind == "rich_text_section":
        return "".join(below)
    if kind in ("rich_text", "context"):
        return "\n".join(one for one in below if one)
    leaf = _leaf(kind, item, directory)
    if leaf is not None:
        return leaf
    words = [_element(item[name], directory, depth + 1) for name in ("text", "title", "alt_text") if name in item]
    words += [_element(one, directory, depth + 1) for one in as_list(item.get("fields"))]
    return "\n".join(word for word in words if word)


def _leaf(kind: str, item: dict[str, Any], directory: Directory) -> str | None:
    """A piece of rich text, None for a block that holds words below other names."""
    if kind == "user":
        return "@" + directory.person(str(item.get("user_id")))
    if kind == "channel":
        identity = str(item.get("channel_id"))
        return "#" + directory.channels.get(identity, identity)
    if kind == "usergroup":
        return f"@{item.get('usergroup_id')}"
    if kind == "broadcast":
        return f"@{item.get('range')}"
    if kind == "emoji":
        return f":{item.get('name')}:"
    if kind == "link":
        url, label = str(item.get("url")), as_string(item.get("text"))
        return f"[{label}]({url})" if label and label != url else url
    if kind == "date":
        return as_string(item.get("fallback")) or str(item.get("timestamp"))
    if kind == "text" and isinstance(item.get("text"), str):
        return str(item["text"])
    return None
