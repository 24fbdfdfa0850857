"""Session -> a rollout of Codex CLI, such that `codex resume` takes it up.

What its releases ask for (codex-rs up to 0.151): `sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl` with a
`session_meta` first, whose `source` is an interactive client's and whose `model_provider` is named; response items,
which the model sees, and events, which the person sees; a `turn_context` before the assistant's first word. Newer
releases also keep a database of threads, which is left alone: see docs/sessions.md.

A tool output has no slot for its outcome: as the `shell` tool of old does, one that says whether it failed stands as
the JSON text {"output", "metadata": {"exit_code"}}.
"""

from __future__ import annotations

import base64
import re
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from mempalace.convert.plan import Item, Kind, Plan, count_facts, fingerprint, uuid7_of
from mempalace.model import Image, Origin, Text, Thinking, TokenUsage, ToolResult, ToolUse
from mempalace.transcript import image_note
from mempalace.values import dumps, is_plain_id, parse_time

NAME = "codex"
VERSION = "0.151.0"  # the newest release whose sources were looked at; for sessions of other tools
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", re.IGNORECASE)
# Beginnings from which Codex (and our reader) tells an outcome, which must not be told where the log does not say it.
_TELLS = ("{", "failed ", "failed:", "execution error", "aborted by user", "apply_patch verification failed", "Script ")
_HEADER_CHARS = 600
_SHELL = "<user_shell_command>"
# How all begins that Codex and its editors' extensions write in the user's role.
_HARNESS_WORDS = ("<", "# ", "## my request for codex:", "another language model started to solve")
_CONTEXT = "additional_context"  # a tag that Codex (and our reader) knows as no person's words

Json = dict[str, Any]


def records(plan: Plan, cwd: str | None = None) -> tuple[str, list[Json]]:
    """The place of the rollout below `sessions` (its time in UTC) and its records."""
    writer = _Writer(plan, plan.cwd(cwd))
    found = list(writer.records())
    count_facts(plan, "project", "git_branch", *(["client_version", "lineage", "extra"] if plan.is_own else []))
    plan.counts["message ids"] = len({item.message.id for item in plan.items if item.message.id})
    moment = plan.started.astimezone(UTC)
    name = f"rollout-{moment:%Y-%m-%dT%H-%M-%S}-{writer.session_id}.jsonl"
    return f"{moment:%Y/%m/%d}/{name}", found


class _Writer:
    def __init__(self, plan: Plan, cwd: str) -> None:
        self._plan = plan
        self._cwd = cwd
        own = plan.session.metadata.session_id or ""
        # A sub-agent's rollout cannot be resumed: it gets an id of its own, as does one whose id is none of Codex's.
        keeps = plan.is_own and not plan.session.is_subagent and (not own or is_plain_id(own))
        headers = plan.session.metadata.headers if keeps else ()
        self._headers = deque(header for header in headers if _is_usable(header))
        plan.counts["header records"] += len(plan.session.metadata.headers) - len(self._headers)
        keeps = keeps and (bool(self._headers) or _UUID.match(own) is not None)
        self.session_id = own if keeps and own else uuid7_of(plan.started, fingerprint(plan, cwd))
        self._total: dict[str, int] = {}
        self._custom: set[str] = set()
        self._model: str | None = None
        self._answering = _answering(plan)
        self._has_context = False

    def records(self) -> Iterator[Json]:
        """All records in order."""
        has_meta = bool(self._headers) and self._headers[0].get("type") == "session_meta"
        yield self._headers.popleft() if has_meta else self._meta()
        title = self._plan.session.metadata.title
        if title:
            named = {"type": "thread_name_updated", "thread_id": self.session_id, "thread_name": title}
            yield self._line(self._plan.started, "event_msg", named)
        replays = bool(self._headers)
        for item, model in zip(self._plan.items, self._answering, strict=True):
            if replays:
                yield from self._due(item)
            elif item.opens_turn or not self._has_context or model != self._model:
                yield self._context(item, model)
            yield from self._item(item)
            if item.usage is not None:
                yield self._tokens(item, item.usage)
        yield from self._headers

    # --- headers ------------------------------------------------------------------------------------------------

    def _meta(self) -> Json:
        meta = self._plan.session.metadata
        started = self._plan.started
        payload: Json = {
            "id": self.session_id,
            "timestamp": _time(started),
            "cwd": self._cwd,
            "originator": "mempalace",
            "cli_version": (meta.client_version if self._plan.is_own else None) or VERSION,
            "source": "cli",
            "model_provider": "openai",
            "base_instructions": None,
        }
        if meta.git_branch:
            payload["git"] = {"branch": meta.git_branch}
        source = meta.source or self._plan.session.format
        if source != NAME:
            origin = meta.lineage.get("converted_from") or meta.session_id
            payload["converted_from"] = {"tool": source, "session_id": origin}
        return self._line(started, "session_meta", payload)

    def _due(self, item: Item) -> Iterator[Json]:
        """The kept headers that stood before an item, by their times; before the assistant one context at least."""
        while self._headers:
            moment = parse_time(self._headers[0].get("timestamp"))
            needed = item.kind is Kind.ASSISTANT and not self._has_context
            if not needed and moment is not None and moment > item.when:
                return
            header = self._headers.popleft()
            self._has_context = self._has_context or header.get("type") == "turn_context"
            yield header

    def _context(self, item: Item, model: str | None) -> Json:
        """The context of a turn, with the model that answers in it; it must have the key, so that none is ""."""
        self._model = model
        self._has_context = True
        payload = {
            "cwd": self._cwd,
            "approval_policy": "on-request",
            "sandbox_policy": {"type": "read-only"},
            "model": model or "",
            "summary": "auto",
        }
        return self._line(item.when, "turn_context", payload)

    def _tokens(self, item: Item, usage: TokenUsage) -> Json:
        """The tokens of a turn. Codex counts what was cached as part of the input."""
        cached, written = usage.cache_read or 0, usage.cache_create or 0
        last = {
            "input_tokens": usage.input + cached + written,
            "cached_input_tokens": cached,
            "output_tokens": usage.output,
            "reasoning_output_tokens": 0,
            "total_tokens": usage.input + cached + written + usage.output,
        }
        if usage.cache_create is not None:
            last["cache_write_input_tokens"] = written
        self._total = {name: self._total.get(name, 0) + count for name, count in last.items()}
        info = {"total_token_usage": dict(self._total), "last_token_usage": last, "model_context_window": None}
        return self._line(item.when, "event_msg", {"type": "token_count", "info": info, "rate_limits": None})

    # --- items --------------------------------------------------------------------------------------------------

    def _item(self, item: Item) -> Iterator[Json]:
        if item.kind is Kind.PERSON:
            yield from self._person(item)
        elif item.kind is Kind.SUMMARY:
            yield self._line(item.when, "compacted", {"message": "\n".join(item.texts)})
        elif item.kind is Kind.NOTICE:
            for text in item.texts:
                yield self._line(item.when, "event_msg", {"type": "error", "message": text})
        elif item.kind is Kind.ASIDE:
            yield self._aside(item)
        else:
            yield from self._answer(item)

    def _person(self, item: Item) -> Iterator[Json]:
        """A person's message for the model and for the screen; by their one text they are known to be the same."""
        texts = item.texts
        self._plan.counts["joined texts"] += max(0, len(texts) - 1)
        urls, notes = self._images(block for block in item.blocks if isinstance(block, Image))
        text = "\n".join([*texts, *notes])
        parts: list[Json] = [{"type": "input_text", "text": text}] if text else []
        parts += [{"type": "input_image", "image_url": url} for url in urls]
        # By the mark our reader knows that a person said what begins as the harness's own words do.
        mark = {"said_by_person": True} if item.begins_with(_HARNESS_WORDS) else {}
        yield self._line(item.when, "response_item", {"type": "message", "role": "user", "content": parts, **mark})
        shown = {"type": "user_message", "message": text, "images": urls, "local_images": [], "text_elements": []}
        yield self._line(item.when, "event_msg", {**shown, **mark})

    def _aside(self, item: Item) -> Json:
        """Context that nobody said: in a tag in the user's role, for a developer's words weigh more than a tool's."""
        text = "\n".join(item.texts)
        role = "user"
        if item.message.origin is Origin.INJECTED:
            role = "developer"
        elif not text.lstrip().startswith(_SHELL):
            text = f"<{_CONTEXT}>\n{text}\n</{_CONTEXT}>"
        content = [{"type": "input_text", "text": text}]
        return self._line(item.when, "response_item", {"type": "message", "role": role, "content": content})

    def _answer(self, item: Item) -> Iterator[Json]:
        """An assistant's words, calls and the results, each an item of its own."""
        words: list[Text] = []
        for block in item.blocks:
            if isinstance(block, Text):
                words.append(block)
                continue
            yield from self._words(item, words)
            words = []
            if isinstance(block, Thinking):
                yield self._line(item.when, "event_msg", {"type": "agent_reasoning", "text": block.text})
            elif isinstance(block, ToolUse):
                yield self._line(item.when, "response_item", self._call(block))
            elif isinstance(block, ToolResult):
                yield self._line(item.when, "response_item", self._output(block))
        yield from self._words(item, words)

    def _words(self, item: Item, words: list[Text]) -> Iterator[Json]:
        if words:
            self._plan.counts["joined texts"] += len(words) - 1
            text = "\n".join(block.text for block in words)
            parts = [{"type": "output_text", "text": text}]
            yield self._line(item.when, "response_item", {"type": "message", "role": "assistant", "content": parts})
            yield self._line(item.when, "event_msg", {"type": "agent_message", "message": text})

    def _call(self, call: ToolUse) -> Json:
        """A call; of a tool whose input is a text (`apply_patch`), in the form that Codex has for those."""
        text = call.input.get("raw") if list(call.input) == ["raw"] else None
        if isinstance(text, str) and not text.lstrip().startswith("{"):
            self._custom.add(call.id)
            free = {"type": "custom_tool_call", "status": "completed", "call_id": call.id, "name": call.name}
            return {**free, "input": text}
        arguments = dumps(call.input).decode()
        return {"type": "function_call", "name": call.name, "arguments": arguments, "call_id": call.id}

    def _output(self, result: ToolResult) -> Json:
        urls, notes = self._images(result.images)
        text = "\n".join([*([result.content] if result.content else []), *notes])
        output: Any = text
        if urls:
            self._plan.counts["outcomes"] += result.is_error is not None
            words = [{"type": "input_text", "text": text}] if text else []
            output = [*words, *({"type": "input_image", "image_url": url} for url in urls)]
        elif result.is_error is not None or text.startswith(_TELLS) or "Output:" in text[:_HEADER_CHARS]:
            code = None if result.is_error is None else int(result.is_error)
            output = dumps({"output": text, "metadata": {"exit_code": code}}).decode()
        kind = "custom_tool_call_output" if result.tool_use_id in self._custom else "function_call_output"
        return {"type": kind, "call_id": result.tool_use_id, "output": output}

    def _images(self, images: Any) -> tuple[list[str], list[str]]:
        """The addresses of images (data URLs), and notes for those whose bytes are not at hand."""
        urls: list[str] = []
        notes: list[str] = []
        for image in images:
            data = self._plan.image_data(image)
            if data is not None:
                kind = image.media_type or "image/png"
                urls.append(f"data:{kind};base64,{base64.b64encode(data).decode()}")
            elif image.ref and image.ref.startswith(("http://", "https://")):
                urls.append(image.ref)
            else:
                self._plan.counts["images"] += 1
                notes.append(image_note(image))
        return urls, notes

    @staticmethod
    def _line(moment: datetime, kind: str, payload: Json) -> Json:
        return {"timestamp": _time(moment), "type": kind, "payload": payload}


def _is_usable(header: Any) -> bool:
    """Whether Codex takes a header: the bare ones of before September 2025, and those without an id, are made anew."""
    payload = header.get("payload") if isinstance(header, dict) else None
    return isinstance(payload, dict) and (header.get("type") != "session_meta" or bool(payload.get("id")))


def _answering(plan: Plan) -> list[str | None]:
    """For each item the model that answers next, else the last one that did."""
    models: list[str | None] = []
    model = None
    for item in reversed(plan.items):
        if item.kind is Kind.ASSISTANT:
            model = item.message.model or model
        models.append(model)
    last = plan.session.metadata.model
    for at in range(len(models) - 1, -1, -1):
        last = models[at] = models[at] or last
    return models[::-1]


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
