"""Session -> a log of Claude Code, such that `claude --resume` takes it up.

What its releases ask for (1.0 to 2.1): the file `<session id>.jsonl` in `projects/<folder as a slug>`; one session id;
a chain of `parentUuid` from a first null to the last record; a leading `summary` only if its `leafUuid` is one of the
file's records, else it answers "No conversation found"; a `tool_result` only behind its call, with a text or blocks.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from mempalace.convert.plan import Item, Kind, Plan, count_facts, fingerprint, short_hash, uuid_of
from mempalace.model import Block, Image, Origin, Text, Thinking, TokenUsage, ToolResult, ToolUse
from mempalace.transcript import image_note
from mempalace.values import is_plain_id

NAME = "claude-code"
VERSION = "2.1.114"  # the newest release whose logs were looked at; for sessions of other tools
_NOT_IN_SLUG = re.compile(r"[^A-Za-z0-9-]")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", re.IGNORECASE)
_MESSAGE_ID = re.compile(r"[A-Za-z0-9_-]+\Z")
# How all begins that Claude Code writes in the user's role.
_CLIENTS_WORDS = ("<", "[request interrupted", "this session is being continued")

Json = dict[str, Any]


def records(plan: Plan, cwd: str | None = None) -> tuple[str, list[Json]]:
    """The place of the log (`<slug>/<session id>.jsonl`) and its records."""
    writer = _Writer(plan, plan.cwd(cwd))
    chain = list(writer.chain())
    ids = {item.message.id for item in plan.items if item.message.id}
    count_facts(plan, "project", "git_branch", *(["client_version"] if plan.is_own else []))
    plan.counts["message ids"] = len(ids - writer.taken)
    title = plan.session.metadata.title
    if title:
        leaf = next(record["uuid"] for record in reversed(chain) if record["type"] in ("user", "assistant"))
        chain.insert(0, {"type": "summary", "summary": title, "leafUuid": leaf})
    return f"{slug(writer.cwd)}/{writer.session_id}.jsonl", chain


def slug(cwd: str) -> str:
    """The folder in which Claude Code keeps the sessions of a working folder."""
    return _NOT_IN_SLUG.sub("-", cwd)


class _Writer:
    def __init__(self, plan: Plan, cwd: str) -> None:
        self._plan = plan
        self.cwd = cwd
        meta = plan.session.metadata
        own = meta.session_id or ""
        keeps = plan.is_own and not plan.session.is_subagent and is_plain_id(own)
        self.session_id = own if keeps else uuid_of(fingerprint(plan, cwd))
        self.taken: set[str] = set()
        self._parent: str | None = None
        plan.counts["header records"] += len(meta.headers)
        self._version = meta.client_version if plan.is_own and meta.client_version else VERSION

    def chain(self) -> Iterator[Json]:
        """The records that hang together, in order.

        The API refuses a history in which a call has no result in the next message of the user's role: one that says
        so is put there, unless the results of other calls are still to come.
        """
        items = self._plan.items
        results = (block for item in items for block in item.blocks if isinstance(block, ToolResult))
        answered = {result.tool_use_id for result in results}
        to_come: set[str] = set()
        unanswered: list[str] = []
        for at, item in enumerate(items):
            if unanswered and not (item.kind is Kind.ASSISTANT and to_come):
                yield self._filler(at, items[at - 1], unanswered)
                unanswered = []
            yield from self._records(at, item)
            for block in item.blocks:
                if isinstance(block, ToolResult):
                    to_come.discard(block.tool_use_id)
                elif isinstance(block, ToolUse) and block.id in answered:
                    to_come.add(block.id)
                elif isinstance(block, ToolUse):
                    unanswered.append(block.id)
        if unanswered:
            yield self._filler(len(items), items[-1], unanswered)

    def _records(self, at: int, item: Item) -> Iterator[Json]:
        if item.kind is Kind.SUMMARY:
            yield self._record(at, item, "system", {**_BOUNDARY}, part="boundary")
            content = "\n".join(item.texts)
            flags = {"isCompactSummary": True, "isVisibleInTranscriptOnly": True}
            yield self._record(at, item, "user", {**flags, "message": {"role": "user", "content": content}})
        elif item.kind in (Kind.ASSISTANT, Kind.NOTICE):
            extra = {"isApiErrorMessage": True} if item.kind is Kind.NOTICE else {}
            yield self._record(at, item, "assistant", {"message": self._answer(at, item), **extra})
        elif item.kind is Kind.ASIDE:
            tagged = self._plan.is_own and item.message.origin is Origin.COMMAND and item.texts[0].startswith("<")
            meta = {} if tagged else {"isMeta": True}
            yield self._record(at, item, "user", {"message": self._said(item), **meta})
        else:
            # By the mark our reader knows that a person said what begins as the client's own words do.
            mark = {"saidByPerson": True} if item.begins_with(_CLIENTS_WORDS) else {}
            yield self._record(at, item, "user", {"message": self._said(item), **mark})

    def _filler(self, at: int, item: Item, calls: list[str]) -> Json:
        """Results for calls that have none; by its mark our reader knows that the log does not say this."""
        self._plan.counts["unanswered calls"] += len(calls)
        told = {"type": "tool_result", "content": "[the log has no result of this call]", "is_error": True}
        message = {"role": "user", "content": [{**told, "tool_use_id": call} for call in calls]}
        return self._record(at, item, "user", {"message": message, "addedByConversion": True}, part="filler")

    def _record(self, at: int, item: Item, kind: str, fields: Json, part: str = "") -> Json:
        meta = self._plan.session.metadata
        own = item.message.id or ""
        keeps = self._plan.is_own and _UUID.match(own) and not part
        made = self._fresh(own if keeps else "", uuid_of(self.session_id, at, part, item.blocks))
        record: Json = {
            "parentUuid": self._parent,
            "isSidechain": False,
            "userType": "external",
            "cwd": self.cwd,
            "sessionId": self.session_id,
            "version": self._version,
            "gitBranch": meta.git_branch or "",
            "type": kind,
            **fields,
            "uuid": made,
            "timestamp": _time(item.when),
        }
        if self._parent is None and (meta.source or self._plan.session.format) != NAME:
            origin = meta.lineage.get("converted_from") or meta.session_id
            record["convertedFrom"] = {"tool": meta.source or self._plan.session.format, "sessionId": origin}
        self._parent = made
        return record

    def _fresh(self, wanted: str, other: str) -> str:
        """The id that is wanted, if no record has it yet, else the other."""
        made = wanted if wanted and wanted not in self.taken else other
        self.taken.add(made)
        return made

    def _said(self, item: Item) -> Json:
        """A message in the user's role. Words alone stand as a text, as the client writes them."""
        if len(item.blocks) == 1 and isinstance(item.blocks[0], Text):
            return {"role": "user", "content": item.blocks[0].text}
        return {"role": "user", "content": [self._block(block) for block in item.blocks]}

    def _answer(self, at: int, item: Item) -> Json:
        own = item.message.id or ""
        model = "<synthetic>" if item.kind is Kind.NOTICE else item.message.model or self._plan.session.metadata.model
        usage = None if item.usage is None else _usage(item.usage)
        calls = any(isinstance(block, ToolUse) for block in item.blocks)
        made = short_hash(self.session_id, at, item.blocks)[:24]
        return {
            "id": self._fresh(own if self._plan.is_own and _MESSAGE_ID.match(own) else "", f"msg_{made}"),
            "type": "message",
            "role": "assistant",
            **({"model": model} if model else {}),
            "content": [self._block(block) for block in item.blocks],
            "stop_reason": "tool_use" if calls else "end_turn",
            "stop_sequence": None,
            **({"usage": usage} if usage else {}),
        }

    def _block(self, block: Block) -> Json:
        if isinstance(block, Text):
            return {"type": "text", "text": block.text}
        if isinstance(block, Thinking):
            return {"type": "thinking", "thinking": block.text, "signature": block.signature}
        if isinstance(block, ToolUse):
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.input}
        if isinstance(block, Image):
            return self._image(block)
        return self._result(block)

    def _result(self, result: ToolResult) -> Json:
        content: Any = result.content
        if result.images:
            words = [{"type": "text", "text": result.content}] if result.content else []
            content = [*words, *(self._image(image) for image in result.images)]
        outcome = {} if result.is_error is None else {"is_error": result.is_error}
        return {"type": "tool_result", "tool_use_id": result.tool_use_id, "content": content, **outcome}

    def _image(self, image: Image) -> Json:
        data = self._plan.image_data(image)
        if data is not None:
            kind = image.media_type or "image/png"
            told = {"type": "base64", "media_type": kind, "data": base64.b64encode(data).decode()}
            return {"type": "image" if kind.startswith("image/") else "document", "source": told}
        if image.ref and image.ref.startswith(("http://", "https://")):
            return {"type": "image", "source": {"type": "url", "url": image.ref}}
        self._plan.counts["images"] += 1
        return {"type": "text", "text": image_note(image)}


_BOUNDARY: Json = {
    "subtype": "compact_boundary",
    "content": "Conversation compacted",
    "isMeta": False,
    "level": "info",
    "compactMetadata": {"trigger": "auto", "preTokens": 0},
}


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _usage(usage: TokenUsage) -> Json:
    known = {"cache_creation_input_tokens": usage.cache_create, "cache_read_input_tokens": usage.cache_read}
    told = {name: count for name, count in known.items() if count is not None}
    return {"input_tokens": usage.input, **told, "output_tokens": usage.output}
