"""The records of one Codex rollout -> one Session.

A rollout tells most things twice: response items (what the model sees, with the context that the harness
injects) and events (what the person sees); since 0.148 a third time as completed items. The streams are
paired by text, near each other in the file: what two of them tell becomes one message, what only one tells
is kept too, so that neither a session with one stream nor one that changes streams half-way loses a word.
Of paired records the first gives the place; a person's words are taken from the event, everything else from
the response item; the second counts as `echo`.

Each response item becomes one message of its own (reasoning, text, call, output): Codex writes and stamps
them one by one, and joining them would lose their ids, times and order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any

from mempalace.formats.codex.drafts import Drafts
from mempalace.formats.codex.handlers import EVENTS, RESPONSES, agents, call, compacted, control, output, tool_event
from mempalace.formats.codex.items import Json, as_dict, as_str
from mempalace.formats.codex.meta import (
    CopiedPrefix,
    id_in_name,
    is_spawned,
    parent_of,
    read_metadata,
    subagent_type,
    thread_id,
)
from mempalace.formats.codex.tools import CALLS, OUTPUTS
from mempalace.model import Session, TokenUsage, group_turns
from mempalace.records import Ledger, Record
from mempalace.source import Source
from mempalace.values import parse_time


class Builder:
    """Takes the records of one rollout in order; gives the session and the account of every record."""

    def __init__(self) -> None:
        self._meta: Json | None = None
        self._meta_time: datetime | None = None
        self._own_headers: list[Any] = []
        self._own_skips: Counter[str] = Counter()
        self._copied: CopiedPrefix | None = None
        self._count = 0
        self._start(Counter())

    def _start(self, skips: Counter[str]) -> None:
        """Begin with nothing but the own header."""
        self._skips = skips
        self._drafts = Drafts(skips)
        self._headers = list(self._own_headers)
        self._cwd: str | None = None
        self._title: str | None = None
        self._rollbacks: list[tuple[int, int]] = []
        self._spent: list[tuple[int, TokenUsage]] = []
        self._last_total: Any = None

    def add(self, record: Record) -> None:
        """Take the next record."""
        value = record.value
        kind = value.get("type")
        payload = value.get("payload")
        if not isinstance(kind, str) or not isinstance(payload, dict):
            kind, payload = self._bare(value, kind)
        stamp = value.get("timestamp") or value.get("created_at")
        copied = self._copied
        if copied is not None and copied.active and copied.ends_before(kind, payload, parse_time(stamp)):
            self._drop_copied()
        self._count += 1
        drafts = self._drafts
        drafts.at, drafts.record, drafts.stamp = self._count, record, stamp
        handler = _RECORDS.get(kind)
        if handler is None:
            self._skips["unknown"] += 1
        else:
            handler(self, payload)

    def _bare(self, value: Json, kind: Any) -> tuple[str, Json]:
        """The kind and payload of a record without envelope (Codex before September 2025, and odd writers)."""
        if isinstance(kind, str):
            return (kind if kind in _RECORDS else "response_item"), value
        if "record_type" in value:
            return "state", value
        if self._count == 0 and "role" not in value and "id" in value and "timestamp" in value:
            return "session_meta", value
        return ("response_item" if "role" in value else ""), value

    def _drop_copied(self) -> None:
        copied = self._count - self._own_skips.total()
        self._start(self._own_skips + Counter(replayed=copied))

    def finish(self, source: Source, ledger: Ledger) -> Session | None:
        """The session, if the records hold one; the ledger gets the account of every record."""
        if self._copied is not None and self._copied.holds_all():
            self._drop_copied()
        meta = self._meta or {}
        spawned = is_spawned(meta)
        self._drafts.settle(spawned, self._rollbacks)
        messages, usage = self._drafts.messages(self._spent)
        for reason, count in self._skips.items():
            ledger.skip(reason, count)
        if self._meta is None and not messages:
            return None
        own = thread_id(meta) or id_in_name(source.name)
        first = next((message.timestamp for message in messages if message.timestamp), None)
        context = {
            "timestamp": self._meta_time or first,
            "model": self._drafts.model,
            "cwd": self._cwd,
            "title": self._title,
            "headers": self._headers,
        }
        return Session(
            path=source.path,
            format="codex",
            metadata=read_metadata(meta, own, context),
            turns=group_turns(messages, usage),
            parent_id=parent_of(meta),
            agent_id=own if spawned else None,
            subagent_type=subagent_type(meta) if spawned else None,
            member=source.member,
        )

    # --- headers and bookkeeping --------------------------------------------------------------------------

    def _session_meta(self, payload: Json) -> None:
        self._skips["metadata"] += 1
        self._headers.append(self._drafts.record.value)
        if self._meta is not None:
            return  # a resume repeats it; in a fork the ancestor's follow
        self._meta = payload
        self._meta_time = parse_time(payload.get("timestamp")) or parse_time(self._drafts.stamp)
        self._own_headers = list(self._headers)
        self._own_skips = self._skips.copy()
        if not self._drafts.all and (parent_of(payload) or as_str(payload.get("forked_from_id"))):
            self._copied = CopiedPrefix(payload, self._meta_time)

    def _turn_context(self, payload: Json) -> None:
        self._skips["metadata"] += 1
        self._headers.append(self._drafts.record.value)
        self._drafts.model = as_str(payload.get("model")) or self._drafts.model
        self._cwd = as_str(payload.get("cwd")) or self._cwd

    def _thread_name(self, payload: Json) -> None:
        self._skips["metadata"] += 1
        self._title = as_str(payload.get("thread_name")) or self._title

    def _rolled_back(self, payload: Json) -> None:
        self._skips["control"] += 1
        self._rollbacks.append((len(self._drafts.all), _count(payload, "num_turns") or 0))

    def _token_count(self, payload: Json) -> None:
        """Tokens of the last request: `input` without what was cached, `output` with its reasoning.

        Totals are not used: they go on across forks. Codex repeats a count with each change of the rate
        limits: one whose total did not move is nothing new.
        """
        self._skips["metadata"] += 1
        info = as_dict(payload.get("info"))
        last, total = info.get("last_token_usage"), info.get("total_token_usage")
        if not isinstance(last, dict) or (total is not None and total == self._last_total):
            return
        self._last_total = total
        cached, written = _count(last, "cached_input_tokens"), _count(last, "cache_write_input_tokens")
        usage = TokenUsage(
            input=max(0, (_count(last, "input_tokens") or 0) - (cached or 0) - (written or 0)),
            output=_count(last, "output_tokens") or 0,
            cache_read=cached,
            cache_create=written,
            model=self._drafts.model,
        )
        self._spent.append((len(self._drafts.all), usage))

    # --- the streams --------------------------------------------------------------------------------------

    def _response(self, payload: Json) -> None:
        kind = payload.get("type")
        if not isinstance(kind, str):
            kind = "message" if "role" in payload else ""
        if kind in CALLS:
            call(self._drafts, kind, payload)
        elif kind in OUTPUTS:
            output(self._drafts, kind, payload)
        elif handler := RESPONSES.get(kind):
            handler(self._drafts, payload)
        else:
            self._event(payload)

    def _event(self, payload: Json) -> None:
        kind = payload.get("type")
        if not isinstance(kind, str):
            self._skips["unknown"] += 1
        elif handler := EVENTS.get(kind):
            handler(self._drafts, payload)
        elif own := _OWN_EVENTS.get(kind):
            own(self, payload)
        elif kind.endswith(("_begin", "_delta", "_request")) and kind != "dynamic_tool_call_request":
            control(self._drafts, payload)
        else:
            tool_event(self._drafts, kind, payload)


def _count(value: Json, name: str) -> int | None:
    """A count that is one: a whole number that is not negative."""
    count = value.get(name)
    return count if isinstance(count, int) and not isinstance(count, bool) and count >= 0 else None


_RECORDS: dict[str, Callable[[Builder, Json], None]] = {
    "session_meta": Builder._session_meta,
    "turn_context": Builder._turn_context,
    "response_item": Builder._response,
    "event_msg": Builder._event,
    "compacted": lambda builder, payload: compacted(builder._drafts, payload),
    "inter_agent_communication": lambda builder, payload: agents(builder._drafts, payload),
    "inter_agent_communication_metadata": lambda builder, payload: control(builder._drafts, payload),
    "world_state": lambda builder, payload: control(builder._drafts, payload),
    "state": lambda builder, payload: control(builder._drafts, payload),
}
RECORD_KINDS = frozenset(_RECORDS) - {"state"}

_OWN_EVENTS: dict[str, Callable[[Builder, Json], None]] = {
    "token_count": Builder._token_count,
    "thread_name_updated": Builder._thread_name,
    "thread_rolled_back": Builder._rolled_back,
}
