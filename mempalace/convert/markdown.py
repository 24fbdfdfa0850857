"""Session -> Markdown with a heading for each speaker, and what its reader needs to take it apart again.

    <!-- mempalace: claude-code Session 0b5e6a52-7d0e-4c55-9a35-6d1d3a6a7c01 -->

    # The title

    ## User (2026-09-14 09:01:00Z)

    words, verbatim

    ## Assistant (claude-opus-4-5 2026-09-14 09:01:05Z)

    words
    <tool-use data-tool-name="Bash">
    ...

Calls, results and reasoning are folded away as SpecStory does it. A line of the text that would be taken for one of
ours has a backslash before it, which `unescape` takes away; so every text comes back as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from mempalace.convert.plan import Item, Kind, Plan, count_facts
from mempalace.model import Block, Image, Text, Thinking, ToolResult, ToolUse
from mempalace.transcript import image_note, render_call

MARK = "<!-- mempalace: "
SPEAKER = re.compile(r"## (?P<name>User|Assistant|System|Tool)(?: \((?P<note>[^()]*)\))?\r?\Z")
SESSION = re.compile(r"<!-- mempalace: (?P<tool>[\w-]+) Session (?P<id>[\w-]*) -->")
_OURS = re.compile(r"\\*(?:## (?:User|Assistant|System|Tool)(?: \([^()]*\))?\r?\Z|</?(?:tool-use|think)\b)")

_NAMES = {
    Kind.PERSON: "User",
    Kind.ASSISTANT: "Assistant",
    Kind.RESULT: "Tool",
    Kind.ASIDE: "System",
    Kind.SUMMARY: "System",
    Kind.NOTICE: "System",
}


def page(plan: Plan) -> str:
    """The whole text. Counts in the plan what it has no place for."""
    session, meta = plan.session, plan.session.metadata
    counts = plan.counts
    counts["token usage"] = sum(turn.token_usage is not None for turn in session.turns)
    counts["message ids"] = len({item.message.id for item in plan.items if item.message.id})
    counts["header records"] = len(meta.headers)
    count_facts(plan)
    counts["times"] = 0  # a message without one has none here either
    title = " ".join((meta.title or "").split())
    key = re.sub(r"[^\w-]", "-", session.key or "")
    parts = [f"<!-- mempalace: {meta.source or session.format} Session {key} -->"]
    parts += [f"# {title}"] if title else []
    for item in plan.items:
        head = f"## {_NAMES[item.kind]}{_note(item)}"
        groups = [(block,) for block in item.blocks] if item.kind is Kind.RESULT else [item.blocks]
        for blocks in groups:
            parts += [head, "\n".join(_shown(plan, blocks))]
        counts["joined texts"] += max(0, len(item.texts) - 1)
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """The text with a backslash before each line that looks like one of ours."""
    return "\n".join("\\" + line if _OURS.match(line) else line for line in text.split("\n"))


def unescape(text: str) -> str:
    """What `escape` was given."""
    return "\n".join(line[1:] if line.startswith("\\") and _OURS.match(line) else line for line in text.split("\n"))


def _note(item: Item) -> str:
    model = item.message.model if item.kind is Kind.ASSISTANT else None
    words = [re.sub(r"[()\s]", "_", model)] if model else []
    words += [_time(item.when)] if item.message.timestamp is not None else []
    return f" ({' '.join(words)})" if words else ""


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(sep=" ").replace("+00:00", "Z")


def _shown(plan: Plan, blocks: tuple[Block, ...]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, Text):
            yield escape(block.text)
        elif isinstance(block, Image):
            plan.counts["images"] += 1
            yield image_note(block)
        elif isinstance(block, Thinking):
            yield f"<think>\n{escape(block.text)}\n</think>"
        elif isinstance(block, ToolUse):
            plan.counts["tool inputs"] += 1
            yield _folded(block.name, render_call(block))
        else:
            yield _result(plan, block)


def _folded(name: str, text: str) -> str:
    head, _, rest = text.partition("\n")
    inside = [f"<summary>{_html(head)}</summary>", *(["", _fenced(rest)] if rest else [])]
    lines = [f'<tool-use data-tool-name="{_html(name)}">', "<details>", *inside, "</details>", "</tool-use>"]
    return "\n".join(lines)


def _result(plan: Plan, result: ToolResult) -> str:
    plan.counts["outcomes"] += result.is_error is False
    plan.counts["images"] += len(result.images)
    notes = [image_note(image) for image in result.images]
    error = "[error] " if result.is_error else ""
    return _fenced("\n".join([f"{error}{result.content}", *notes]))


def _fenced(text: str) -> str:
    """A text in a code fence that is longer than any in it."""
    longest = max((len(found) for found in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{escape(text)}\n{fence}"


def _html(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
