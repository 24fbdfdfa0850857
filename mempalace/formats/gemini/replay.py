"""A log or document of Gemini CLI, replayed -> a session.

The tool's loader keeps an ordered map of messages by id: a record with a known id replaces the earlier one in
place, `$rewindTo` deletes a message and all after it (an unknown id: all), `$set.messages` rebuilds the map.
Here the same events only label: what they delete stays at its place, as abandoned. What a compaction leaves
out (its summary comes with it) was not taken back by anyone and keeps its origin.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from pathlib import PurePath
from typing import Any
from urllib.parse import unquote

from mempalace.formats.gemini.messages import KINDS, Converter, Entry, same, text_of, time_of, usage_of
from mempalace.model import Message, Origin, Session, SessionMetadata, TokenUsage, add_usage, group_turns
from mempalace.records import Ledger, Record
from mempalace.source import Source

FOREIGN_KEYS = ("message", "payload", "uuid")
_PART_KEYS = frozenset({"text", "thought", "functionCall", "functionResponse", "inlineData", "fileData"})
_OWN_KEYS = frozenset({"sessionId", "startTime", "start_time", "summary", "type", "messages", "history"})
_RESERVED_KEYS = frozenset({"files", "spawns"})  # of `SessionMetadata.extra`, with a meaning of ours


# --- recognising --------------------------------------------------------------------------------------------


def is_header(record: dict[str, Any]) -> bool:
    """Whether a record (or a document) begins a session as the releases write it."""
    named = isinstance(record.get("sessionId"), str) and isinstance(record.get("projectHash"), str)
    if not named or "type" in record or any(key in record for key in FOREIGN_KEYS):
        return False
    # Logs of Qwen Code, a fork, have the same envelope around messages of type "qwen".
    messages = record.get("messages")
    return not isinstance(messages, list) or "qwen" not in map(_type_of, messages)


def is_patch(record: dict[str, Any]) -> bool:
    """Whether a record changes what earlier ones said."""
    return isinstance(record.get("$set"), dict) or isinstance(record.get("$rewindTo"), str)


def messages_of(document: Any, whole: bool = True) -> list[Any] | None:
    """The messages of a document that is a session or a checkpoint; None for what is neither."""
    history = document
    if isinstance(document, dict):
        messages = document.get("messages")
        if is_header(document):
            return messages if isinstance(messages, list) else []
        if any(key in document for key in FOREIGN_KEYS):
            return None
        if isinstance(messages, list):
            return messages if _is_talk(messages) else None
        history = document.get("history")
    return history if isinstance(history, list) and _is_history(history, whole) else None


def _type_of(item: Any) -> str:
    return text_of(item.get("type")) if isinstance(item, dict) else ""


def _is_talk(items: list[Any]) -> bool:
    """Whether messages are a session's beyond doubt, although its ids are not in sight (sorted keys, cut off)."""
    whole = items[:-1]
    return "gemini" in map(_type_of, whole) and all(
        _type_of(item) in KINDS and {"id", "timestamp"} <= item.keys() and not any(key in item for key in FOREIGN_KEYS)
        for item in whole
    )


def _is_history(items: list[Any], whole: bool) -> bool:
    """Whether these are the turns of a checkpoint; the last one of a cut-off file may lack its parts."""
    roles = set()
    for item in items if whole else items[:-1]:
        if not isinstance(item, dict) or not isinstance(item.get("parts"), list):
            return False
        if not all(
            isinstance(part, str) or (isinstance(part, dict) and _PART_KEYS & part.keys()) for part in item["parts"]
        ):
            return False
        roles.add(KINDS.get(text_of(item.get("role"))))
    return roles == {"user", "gemini"}


# --- replay -------------------------------------------------------------------------------------------------


class Replay:
    """The state of a conversation while its records go by. Every record is counted in the ledger.

    `started` is False as long as messages belong to nothing: before the header of a log.
    """

    def __init__(self, ledger: Ledger, started: bool) -> None:
        self.ledger = ledger
        self.started = started
        self.header: dict[str, Any] = {}
        self.entries: list[Entry] = []
        self._live: dict[str, Entry] = {}
        self._updates: dict[str, TokenUsage] = {}
        self._converter = Converter()

    def document(self, document: Any, raw: bytes) -> None:
        """Take a whole file: each of its messages is a record."""
        messages = messages_of(document)
        if messages is None:
            return
        self.started = True
        if isinstance(document, dict):
            self._describe(document)
        for entry in self._embedded(messages, raw):
            self._put(entry)

    def add(self, record: Record) -> None:
        """Take one record of a log, in the order of checks of the tool's loader."""
        value = record.value
        kind = _type_of(value)
        if kind == "session_metadata" or is_header(value):
            self.started = True
            self._describe(value)
            self.ledger.skip("metadata")
            for entry in self._embedded(value.get("messages"), record.raw, record):
                self._put(entry)
        elif not self.started:
            self.ledger.skip("before_header")
        elif isinstance(value.get("$rewindTo"), str):
            self._rewind(value["$rewindTo"])
            self.ledger.skip("control")
        elif isinstance(value.get("$set"), dict):
            self._describe(value["$set"])
            self.ledger.skip("control")
            if isinstance(value["$set"].get("messages"), list):
                self._rebuild(self._embedded(value["$set"]["messages"], record.raw, record))
        elif kind == "message_update":
            usage = usage_of(value.get("tokens"), text_of(value.get("model")) or None)
            if usage is not None:
                self._updates[text_of(value.get("id"))] = usage
            self.ledger.skip("control")
        else:
            made = self._converter.entry(value, record)
            if made is None:
                self.ledger.skip("unknown")
            else:
                self._put(made)

    def _describe(self, values: dict[str, Any]) -> None:
        """Later values win, but a session keeps its first id (a resumed one is written on under it)."""
        kept = self.header.get("sessionId")
        self.header.update((key, value) for key, value in values.items() if key not in ("messages", "history"))
        if kept is not None:
            self.header["sessionId"] = kept

    def _embedded(self, values: Any, raw: bytes, around: Record | None = None) -> list[Entry]:
        """Messages that stand in a list: records of their own. Their line is that around them, or their ordinal."""
        entries = []
        for ordinal, value in enumerate(values if isinstance(values, list) else [], 1):
            line, offset = (around.line, around.offset) if around else (ordinal, 0)
            self.ledger.read += 1
            if not isinstance(value, dict):
                self.ledger.damage("not a JSON object", line)
            elif (entry := self._converter.entry(value, Record(value, line, offset, raw))) is not None:
                entries.append(entry)
            else:
                self.ledger.skip("unknown")
        return entries

    def _put(self, entry: Entry) -> None:
        old = self._live.get(entry.id) if entry.id else None
        if old is not None and old.kind == entry.kind:
            self._replace(old, entry)
            return
        self.entries.append(entry)
        if entry.id:
            self._live[entry.id] = entry

    def _replace(self, old: Entry, new: Entry, copied: bool = False) -> None:
        """Put a later version in the place of an earlier one; `copied` if it may be a mere copy.

        To save context the tool later masks long results: then the earlier version is the whole one.
        """
        if (copied and same(old.says(), new.says())) or (new.is_masked and not old.is_masked):
            self.ledger.repeat()
            return
        self.ledger.skip("superseded")
        old.messages, old.usage, old.model = new.messages, new.usage, new.model

    def _rewind(self, id: str) -> None:
        target = self._live.get(id)
        start = 0 if target is None else next(i for i, entry in enumerate(self.entries) if entry is target)
        for entry in self.entries[start:]:
            self._drop(entry, "abandoned")

    def _drop(self, entry: Entry, fate: str) -> None:
        if entry.state == "live":
            entry.state = fate
            if entry.id and self._live.get(entry.id) is entry:
                del self._live[entry.id]

    def _rebuild(self, fresh: list[Entry]) -> None:
        """`$set.messages`: `fresh` is the conversation now. What it leaves out comes before what it adds."""
        kinds = {entry.id: entry.kind for entry in fresh if entry.id}
        staying = {id: old for id, old in self._live.items() if kinds.get(id) == old.kind}
        summed_up = any(entry.is_summary and entry.id not in staying for entry in fresh)
        fate = "compacted" if summed_up else "abandoned"
        left = deque(self.entries)
        self.entries = []
        placed: set[int] = set()

        def pass_by() -> None:
            while left and (id(left[0]) in placed or staying.get(left[0].id or "") is not left[0]):
                entry = left.popleft()
                if id(entry) not in placed:
                    self._drop(entry, fate)
                    self.entries.append(entry)

        for entry in fresh:
            pass_by()
            old = staying.get(entry.id or "")
            if old is None or old.kind != entry.kind:
                self.entries.append(entry)
                if entry.id:
                    self._live[entry.id] = entry
                continue
            self._replace(old, entry, copied=True)
            if id(old) not in placed:
                placed.add(id(old))
                self.entries.append(old)
        pass_by()

    # --- the result ---

    def session(self, source: Source) -> Session | None:
        """The session, or None if the file holds no message of one. Call it once: it ends the count."""
        place = PurePath(source.member or source.path)
        nested = place.parent.parent.name == "chats"
        is_subagent = nested or self.header.get("kind") == "subagent"
        messages, usage = self._finish(is_subagent)
        if not messages:
            return None
        id = text_of(self.header.get("sessionId")) or (place.stem if nested else None)
        parent = place.parent.name if nested else None
        return Session(
            path=source.path,
            format="gemini",
            metadata=self._metadata(id, parent, place, messages),
            turns=group_turns(messages, usage),
            parent_id=parent,
            agent_id=id if is_subagent else None,
            subagent_type="subagent" if is_subagent else None,
            member=source.member,
        )

    def _finish(self, is_subagent: bool) -> tuple[list[Message], dict[int, TokenUsage]]:
        echoes = {
            (entry.state, result.tool_use_id, result.content)
            for entry in self.entries
            if entry.kind == "gemini"
            for result in entry.results
        }
        messages: list[Message] = []
        usage: dict[int, TokenUsage] = {}
        for entry in self.entries:
            said = _labelled(entry, is_subagent)
            at = len(messages)
            if not said:
                self.ledger.skip("empty")
                at -= 1  # its tokens were spent all the same
            elif entry.is_answer and all((entry.state, r.tool_use_id, r.content) in echoes for r in entry.results):
                self.ledger.skip("echo")
                continue
            messages += said
            spent = self._updates.get(entry.id or "", entry.usage)
            if spent is not None and at >= 0:
                spent = replace(spent, model=spent.model or entry.model)
                usage[at] = add_usage([usage[at], spent]) or spent if at in usage else spent
        return messages, usage

    def _metadata(
        self, id: str | None, parent: str | None, place: PurePath, messages: list[Message]
    ) -> SessionMetadata:
        header = self.header
        described = header.get("meta")
        models = [message.model for message in messages if message.model]
        if isinstance(described, dict):
            models.append(text_of(described.get("model")))
        # The name that a person gave a checkpoint is in its file name only.
        tag = unquote(place.stem.removeprefix("checkpoint-")) if place.stem.startswith("checkpoint-") else ""
        times = (message.timestamp for message in messages if message.timestamp)
        return SessionMetadata(
            session_id=id,
            timestamp=time_of(header.get("startTime", header.get("start_time"))) or next(times, None),
            provider="google",
            model=next(filter(None, models), None),
            title=text_of(header.get("summary")).strip() or tag or None,
            source="gemini",
            lineage={"parent_session_id": parent} if parent else {},
            extra={
                **{key: value for key, value in header.items() if key not in _OWN_KEYS | _RESERVED_KEYS},
                **({"spawns": self._converter.spawns} if self._converter.spawns else {}),
            },
        )


def _labelled(entry: Entry, is_subagent: bool) -> Iterable[Message]:
    if entry.state == "abandoned":
        return [replace(message, origin=Origin.ABANDONED) for message in entry.messages]
    if is_subagent:  # its prompts come from another agent
        return [
            replace(message, origin=Origin.SUBAGENT) if message.origin == Origin.PERSON else message
            for message in entry.messages
        ]
    return entry.messages
