"""Session -> the body of a chat-completions request: `{"model", "messages", "metadata"}`.

The messages are those of `Session.to_openai` over what a chat has a place for; `metadata` holds the id, the title and
the tool that wrote the session.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from mempalace.convert.plan import Item, Kind, Plan, count_facts
from mempalace.model import Block, Image, Message, Origin, Role, Text, ToolResult, group_turns
from mempalace.model_data import to_openai
from mempalace.transcript import image_note

NAME = "openai"

_SPEAKERS = {
    Kind.PERSON: (Role.USER, Origin.PERSON),
    Kind.ASSISTANT: (Role.ASSISTANT, Origin.ASSISTANT),
    Kind.RESULT: (Role.TOOL, Origin.TOOL_RESULT),
    Kind.ASIDE: (Role.SYSTEM, Origin.INJECTED),
    Kind.SUMMARY: (Role.SYSTEM, Origin.SUMMARY),
    Kind.NOTICE: (Role.SYSTEM, Origin.INJECTED),
}


def body(plan: Plan) -> dict[str, Any]:
    """The request body. Counts in the plan what a chat has no place for."""
    session, meta = plan.session, plan.session.metadata
    messages = list(_messages(plan))
    counts = plan.counts
    count_facts(plan)
    counts["times"] = sum(item.message.timestamp is not None for item in plan.items)
    counts["message ids"] = len({item.message.id for item in plan.items if item.message.id})
    counts["models"] = len({item.message.model for item in plan.items if item.message.model} - {meta.model})
    counts["token usage"] = sum(turn.token_usage is not None for turn in session.turns)
    counts["header records"] = len(meta.headers)
    told = {"session_id": session.key, "title": meta.title, "source": meta.source or session.format}
    told["written_by"] = "mempalace"
    chat = replace(session, turns=group_turns(messages))
    return {
        **({"model": meta.model} if meta.model else {}),
        "messages": to_openai(chat, plan.read_image),
        "metadata": {name: value for name, value in told.items() if value},
    }


def _messages(plan: Plan) -> Iterator[Message]:
    for item in plan.items:
        role, origin = _SPEAKERS[item.kind]
        blocks = tuple(_block(plan, block) for block in item.blocks)
        plan.counts["joined texts"] += _joined(item)
        name = item.message.name if item.kind is Kind.PERSON else None
        yield replace(item.message, role=role, origin=origin, content=blocks, name=name)


def _joined(item: Item) -> int:
    """How many borders between texts are lost: words alone become one text."""
    if any(isinstance(block, Image) for block in item.blocks):
        return 0
    return max(0, len(item.texts) - 1)


def _block(plan: Plan, block: Block) -> Block:
    if isinstance(block, Image):
        address = block.ref or ""
        if plan.image_data(block) is None and not address.startswith(("http://", "https://", "data:")):
            plan.counts["images"] += 1
            return Text(image_note(block))
    elif isinstance(block, ToolResult):
        plan.counts["outcomes"] += block.is_error is not None
        plan.counts["images"] += len(block.images)
        notes = [image_note(image) for image in block.images]
        return replace(block, content="\n".join([*([block.content] if block.content else []), *notes]))
    return block
