"""One file of Claude Code -> one Session.

Apart from `claude_code` (where files lie, how to recognise one) because reading needs the whole file's state:
lines of one API message lie apart, a prompt may stand in the log twice, and which branch was left is known
only at the end. Everything is done in one pass with dictionaries; `session` then puts the parts together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mempalace.errors import SourceError
from mempalace.formats.claude_code_blocks import (
    JsonObject,
    Pieces,
    as_text,
    is_slash_command,
    parse_blocks,
    split_prompt,
    starts_command,
    starts_summary,
)
from mempalace.model import (
    Block,
    Message,
    Origin,
    Role,
    Session,
    SessionMetadata,
    Text,
    TokenUsage,
    ToolResult,
    ToolUse,
    add_usage,
    group_turns,
)
from mempalace.records import Ledger, Record, Source, jsonl, loads, parse_time

_CONTROL = frozenset(
    {
        "agent-color",
        "agent-setting",
        "content-replacement",
        "cost-state",
        "file-history-delta",
        "file-history-snapshot",
        "frame-link",
        "last-prompt",
        "mode",
        "permission-mode",
        "pr-link",
        "progress",  # repeats a sub-agent's messages, or the output of a command that still runs
        "tag",
        "worktree-state",
    }
)
_CONTROL_SUBTYPES = frozenset({"compact_boundary", "microcompact_boundary", "stop_hook_summary", "turn_duration"})
_TITLES = {"custom-title": "customTitle", "ai-title": "aiTitle", "agent-name": "agentName"}

# `origin.kind` of prompts that no person typed (from 2.1 on); `promptSource` says "system" for them.
_MACHINE_KINDS = frozenset({"auto-continuation", "task-notification"})

_AGENT_TOOLS = ("Task", "Agent")
_SYNTHETIC = "<synthetic>"
_SPEAKERS = frozenset({Origin.PERSON, Origin.SUBAGENT})
_BRANCHED = frozenset({Origin.PERSON, Origin.ASSISTANT, Origin.TOOL_RESULT})


@dataclass(slots=True, eq=False)
class _Draft:
    """A message that is still being put together."""

    role: Role
    origin: Origin
    blocks: list[Block]
    id: str | None
    uuid: str | None
    line: int
    place: int
    time: datetime | None = None
    model: str | None = None
    records: int = 1
    pieces: Pieces | None = None
    dropped: bool = False

    def add(self, blocks: list[Block]) -> None:
        """Take up the blocks of a further line of the same message."""
        if self.pieces is None:
            self.pieces = Pieces(self.blocks)
        self.pieces.add(blocks)
        self.records += 1


@dataclass(slots=True, eq=False)
class _Thread:
    """The main conversation of a file, or a sub-agent's inside it."""

    agent_id: str | None = None
    drafts: list[_Draft] = field(default_factory=list)
    merged: dict[str, _Draft] = field(default_factory=dict)
    usage: dict[tuple[str | None, str | int | None], tuple[TokenUsage, _Draft]] = field(default_factory=dict)
    time: datetime | None = None
    model: str | None = None
    has_messages: bool = False

    def live(self) -> list[_Draft]:
        """The drafts that become messages."""
        return [draft for draft in self.drafts if not draft.dropped]


@dataclass(slots=True, eq=False)
class _Queued:
    """Words typed while a tool ran. `kept` is False until they are sent, None once they are taken back."""

    text: str
    place: int
    thread: _Thread
    drafts: list[_Draft]
    is_attachment: bool = False
    kept: bool | None = False
    early: bool = False


class Reader:
    """Reads one source. Records are counted in the ledger, and `session` gives the result.

    Prompts of the queue. A prompt typed while a tool runs is logged as `queue-operation enqueue`, then
    `dequeue` (it becomes a user record of its own), `remove` (2.1: it reaches the model inside the running
    turn, and a `queued_command` attachment may follow) or `popAll` (it goes back to the input line). So:
    words that stand again later in the file, as a user record or an attachment, are an echo of that one;
    words that went back are superseded; all others are the person's, kept where they were typed. Only an
    enqueue before the first message of the file that nothing has taken by then is bookkeeping: nothing runs
    that one could type beside, and the client of `claude -p` queues its own prompt first.

    Two session ids in one file come from `--resume` of 1.x, which copied the history into a new file: the
    session's id is the one that the file is named after, else that of its last message.
    """

    def __init__(self, source: Source, ledger: Ledger, format: str) -> None:
        self._source = source
        self._ledger = ledger
        self._format = format
        self._main = _Thread()
        self._sidechains: dict[str, _Thread] = {}
        self._side_roots: dict[str, str] = {}
        self._parents: dict[str, str | None] = {}
        self._prompts: dict[str, list[str]] = {}  # uuids of a person's prompts by their parent
        self._last_uuid: str | None = None
        self._said: list[tuple[int, str]] = []
        self._queued: list[_Queued] = []
        self._waiting: deque[_Queued] = deque()
        self._spawns: dict[str, str] = {}
        self._titles: dict[str, str] = {}
        self._summaries: list[tuple[str, str]] = []
        self._session_ids: dict[str, None] = {}
        self._session_id: str | None = None  # of the last message
        self._forked_from: str | None = None
        self._facts: dict[str, str] = {}
        self._wanted: tuple[str, ...] = ("sessionId", "cwd", "timestamp", "gitBranch", "version", "entrypoint")
        self._place = 0
        self._began = False

    def session(self) -> Session | None:
        """Read the source. None if it holds no record of a user or an assistant. Raises SourceError."""
        handlers = {
            "user": self._user,
            "human": self._user,
            "assistant": self._assistant,
            "system": self._system,
            "attachment": self._attachment,
            "queue-operation": self._queue_operation,
            "summary": self._summary,
            **dict.fromkeys(_TITLES, self._title),
        }
        ledger = self._ledger
        for record in jsonl(self._source, ledger):
            value = record.value
            self._place += 1
            if self._wanted:
                self._note_facts(value)
            if self._is_repeat(value):
                ledger.repeat()
                continue
            kind = value.get("type")
            handler = handlers.get(kind) if type(kind) is str else None
            if handler is not None:
                handler(record, value)
            elif kind == "progress":
                self._progress(value)
            else:
                ledger.skip("control" if type(kind) is str and kind in _CONTROL else "unknown")
        self._settle_queue()
        threads = [self._main, *self._sidechains.values()]
        if not any(thread.has_messages for thread in threads):
            ledger.skip("control", sum(draft.records for thread in threads for draft in thread.live()))
            return None
        return self._assemble()

    # --- what every record may say --------------------------------------------------------------------------

    def _note_facts(self, value: JsonObject) -> None:
        """Take from the first record that has it what is asked for once per session."""
        found = False
        for key in self._wanted:
            text = value.get(key)
            if text and type(text) is str:
                self._facts[key] = text
                found = True
        if found:
            self._wanted = tuple(key for key in self._wanted if key not in self._facts)

    def _is_repeat(self, value: JsonObject) -> bool:
        """Whether the file held this record before: branching has written each message twice."""
        uuid = value.get("uuid")
        if type(uuid) is not str or not uuid:
            return False
        if uuid in self._parents:
            return True
        parent = value.get("parentUuid") or value.get("logicalParentUuid")
        self._parents[uuid] = parent if type(parent) is str else None
        if value.get("isSidechain") is True:
            self._side_roots[uuid] = self._side_roots.get(parent, uuid) if type(parent) is str else uuid
        else:
            self._last_uuid = uuid
        return False

    def _thread(self, value: JsonObject) -> _Thread:
        """The thread that a record belongs to: a sub-agent's by its id, before 2.0.28 by its first record."""
        if value.get("isSidechain") is not True:
            return self._main
        agent_id = value.get("agentId")
        if type(agent_id) is str and agent_id:
            self._facts.setdefault("agentId", agent_id)
        else:
            uuid = value.get("uuid")
            agent_id = self._side_roots.get(uuid, "sidechain") if type(uuid) is str else "sidechain"
        thread = self._sidechains.get(agent_id)
        if thread is None:
            thread = self._sidechains[agent_id] = _Thread(agent_id)
        return thread

    def _draft(
        self, thread: _Thread, record: Record, role: Role, origin: Origin, blocks: list[Block], id: str | None
    ) -> _Draft:
        value = record.value
        draft = _Draft(role, origin, blocks, id, text_of(value, "uuid"), record.line, self._place)
        draft.time = parse_time(value.get("timestamp"))
        if thread.time is None:
            thread.time = draft.time
        thread.drafts.append(draft)
        return draft

    def _began_with(self, thread: _Thread, value: JsonObject) -> None:
        thread.has_messages = True
        if not self._began:
            self._began = True
            self._waiting.clear()
        session_id = value.get("sessionId")
        if session_id != self._session_id and type(session_id) is str and session_id:
            self._session_id = session_id
            self._session_ids[session_id] = None
        if "forkedFrom" in value and self._forked_from is None:
            origin = value["forkedFrom"]
            self._forked_from = text_of(origin, "sessionId") if isinstance(origin, dict) else None

    # --- user records ---------------------------------------------------------------------------------------

    def _user(self, record: Record, value: JsonObject) -> None:
        message = value.get("message")
        blocks = parse_blocks(message.get("content") if isinstance(message, dict) else message, record)
        if not blocks:
            self._ledger.skip("empty")
            return
        thread = self._thread(value)
        self._began_with(thread, value)
        uuid = text_of(value, "uuid")
        results = [block for block in blocks if isinstance(block, ToolResult)]
        if not results:
            self._say(thread, record, blocks, uuid)
            return
        self._draft(thread, record, Role.TOOL, Origin.TOOL_RESULT, list(results), uuid)
        outcome = value.get("toolUseResult")
        agent_id = outcome.get("agentId") if isinstance(outcome, dict) else None
        if isinstance(agent_id, str) and agent_id and results[0].tool_use_id:
            self._spawns[agent_id] = results[0].tool_use_id
        words: list[Block] = [block for block in blocks if not isinstance(block, ToolResult)]
        if words:  # typed while the tool ran, delivered with its result
            self._say(thread, record, words, uuid and f"{uuid}#text", records=0)

    def _say(
        self, thread: _Thread, record: Record, blocks: list[Block], id: str | None, records: int = 1
    ) -> list[_Draft]:
        """The messages of one record's words: the person's own, then what the client put around them.

        The first one has the record's id and counts it. The person's stands first although a wrapper mostly
        precedes it in the record: so the wrapper is part of the turn that it came with.
        """
        value = record.value
        origin = _whole_origin(value, blocks)
        if origin is None:
            parts = _split_blocks(blocks, Origin.PERSON if thread is self._main else Origin.SUBAGENT)
            if _is_machine_prompt(value):
                parts = [(Origin.INJECTED if part[0] in _SPEAKERS else part[0], part[1]) for part in parts]
            self._note_said(blocks)
        else:
            parts = [(origin, blocks)]
        parts.sort(key=lambda part: part[0] not in _SPEAKERS)
        drafts = []
        for at, (origin, content) in enumerate(parts):
            role = Role.USER if origin in _SPEAKERS else Role.SYSTEM
            draft = self._draft(thread, record, role, origin, content, id if at == 0 else id and f"{id}#{at}")
            draft.records = records if at == 0 else 0
            drafts.append(draft)
        parent = value.get("parentUuid")
        uuid = drafts[0].uuid
        if drafts[0].origin is Origin.PERSON and records and uuid and type(parent) is str:
            self._prompts.setdefault(parent, []).append(uuid)
        return drafts

    def _note_said(self, blocks: list[Block]) -> None:
        text = "\n".join(block.text for block in blocks if isinstance(block, Text)).strip()
        if text:
            self._said.append((self._place, text))

    # --- assistant records ----------------------------------------------------------------------------------

    def _assistant(self, record: Record, value: JsonObject) -> None:
        message = value.get("message")
        fields: JsonObject = message if isinstance(message, dict) else {"content": message}
        blocks = parse_blocks(fields.get("content"), record)
        thread = self._thread(value)
        message_id = text_of(fields, "id")
        draft = thread.merged.get(message_id) if message_id else None
        if draft is not None:
            draft.add(blocks)
        elif blocks:
            draft = self._draft(
                thread, record, Role.ASSISTANT, Origin.ASSISTANT, blocks, message_id or text_of(value, "uuid")
            )
            if message_id:
                thread.merged[message_id] = draft
        else:
            self._ledger.skip("empty")
        self._began_with(thread, value)
        model = text_of(fields, "model")
        if model == _SYNTHETIC or value.get("isApiErrorMessage") is True:
            if draft is not None:
                draft.origin = Origin.INJECTED  # written by the client: "API Error: ...", "No response requested."
            return
        if draft is not None and draft.model is None:
            draft.model = model
        if thread.model is None:
            thread.model = model
        self._note_usage(thread, fields, draft, text_of(value, "requestId"), model)

    def _note_usage(
        self, thread: _Thread, message: JsonObject, draft: _Draft | None, request_id: str | None, model: str | None
    ) -> None:
        """Take up a line's token counts: each line repeats those of its message, and they grow (5,628 of 29,967)."""
        usage = message.get("usage")
        if type(usage) is not dict:
            return
        message_id = text_of(message, "id")
        key = (message_id, request_id if message_id or request_id else self._place)
        output = count_of(usage, "output_tokens") or 0
        known = thread.usage.get(key)
        if known is not None:
            if known[0].output >= output:
                return
            draft = known[1]
        elif draft is None:
            if not thread.drafts:
                return
            draft = thread.drafts[-1]
        tokens = TokenUsage(
            input=count_of(usage, "input_tokens") or 0,
            output=output,
            cache_read=count_of(usage, "cache_read_input_tokens"),
            cache_create=count_of(usage, "cache_creation_input_tokens"),
            model=model,
        )
        thread.usage[key] = (tokens, draft)

    # --- other records --------------------------------------------------------------------------------------

    def _system(self, record: Record, value: JsonObject) -> None:
        """Words of the client: local commands (2.1), hook output (1.0: no subtype), API errors, recaps."""
        subtype = value.get("subtype")
        subtype = subtype if type(subtype) is str else ""
        blocks = [] if subtype in _CONTROL_SUBTYPES else parse_blocks(value.get("content"), record)
        if not blocks and subtype == "api_error":
            blocks = parse_blocks(_error_text(value.get("error")), record)
        if not blocks:
            self._ledger.skip("control")
            return
        origin = Origin.INJECTED
        if subtype == "local_command":
            origin = Origin.COMMAND
        elif subtype == "away_summary":
            origin = Origin.SUMMARY
        self._draft(self._thread(value), record, Role.SYSTEM, origin, blocks, text_of(value, "uuid"))

    def _attachment(self, record: Record, value: JsonObject) -> None:
        attachment = value.get("attachment")
        attachment = attachment if isinstance(attachment, dict) else {}
        kind = attachment.get("type")
        if kind == "queued_command":
            blocks = parse_blocks(attachment.get("prompt"), record)
            if blocks:
                self._enqueue(record, blocks, is_attachment=True)
                return
        elif kind == "hook_additional_context":  # up to 2.0 a <user-prompt-submit-hook> in the prompt
            blocks = parse_blocks(attachment.get("content"), record)
            if blocks:
                uuid = text_of(value, "uuid")
                self._draft(self._thread(value), record, Role.SYSTEM, Origin.INJECTED, blocks, uuid)
                return
        self._ledger.skip("control")

    def _queue_operation(self, record: Record, value: JsonObject) -> None:
        operation = value.get("operation")
        blocks = parse_blocks(value.get("content"), record)
        if operation == "enqueue" and blocks:
            self._enqueue(record, blocks)
            return
        self._ledger.skip("control")
        if operation == "popAll":
            for queued in self._waiting:
                queued.kept = None
            self._waiting.clear()
        elif operation in ("dequeue", "remove") and self._waiting:
            text = _words(blocks)
            first = self._waiting[0]
            taken = next((queued for queued in self._waiting if queued.text == text), first) if text else first
            taken.kept = True
            self._waiting.remove(taken)

    def _enqueue(self, record: Record, blocks: list[Block], is_attachment: bool = False) -> None:
        """Words from the queue, as messages where they stand in the file; `_settle_queue` may drop them."""
        text = _words(blocks)
        thread = self._thread(record.value)
        drafts = self._say_queued(thread, record, blocks, text)
        queued = _Queued(text, self._place, thread, drafts, is_attachment, is_attachment, not self._began)
        self._queued.append(queued)
        if not is_attachment:
            self._waiting.append(queued)

    def _say_queued(self, thread: _Thread, record: Record, blocks: list[Block], text: str) -> list[_Draft]:
        value = record.value
        uuid = text_of(value, "uuid")
        if is_slash_command(text):
            return [self._draft(thread, record, Role.SYSTEM, Origin.COMMAND, blocks, uuid)]
        attachment = value.get("attachment")
        origin = attachment.get("origin") if isinstance(attachment, dict) else None
        kept = self._said
        self._said = []  # what is queued is no echo of itself
        drafts = self._say(thread, record, blocks, uuid)
        self._said = kept
        if _is_machine_prompt({"origin": origin}):
            for draft in drafts:
                draft.role, draft.origin = Role.SYSTEM, Origin.INJECTED
        return drafts

    def _progress(self, value: JsonObject) -> None:
        """Not a message; but it tells which call started a sub-agent, also when that never finished."""
        self._ledger.skip("control")
        data = value.get("data")
        if not isinstance(data, dict) or data.get("type") != "agent_progress":
            return
        agent_id, call = data.get("agentId"), value.get("parentToolUseID")
        if isinstance(agent_id, str) and isinstance(call, str) and agent_id and call:
            self._spawns.setdefault(agent_id, call)

    def _summary(self, record: Record, value: JsonObject) -> None:
        self._ledger.skip("metadata")
        summary, leaf = text_of(value, "summary"), text_of(value, "leafUuid")
        if summary and leaf:
            self._summaries.append((leaf, summary))

    def _title(self, record: Record, value: JsonObject) -> None:
        self._ledger.skip("metadata")
        kind = value["type"]
        title = text_of(value, _TITLES[kind]) or text_of(value, "title")
        if title:
            self._titles[kind] = title

    # --- what is known at the end ---------------------------------------------------------------------------

    def _settle_queue(self) -> None:
        """Drop queued words that stand elsewhere, went back or never counted; see the class."""
        if not self._queued:
            return
        records: dict[str, deque[int]] = {}
        later: dict[str, deque[int]] = {}
        for place, text in self._said:
            records.setdefault(text, deque()).append(place)
            later.setdefault(text, deque()).append(place)
        for queued in self._queued:
            if queued.is_attachment:
                later.setdefault(queued.text, deque()).append(queued.place)
        for places in later.values():
            if len(places) > 1:
                ordered = sorted(places)
                places.clear()
                places.extend(ordered)
        for queued in self._queued:
            if _take_later(records if queued.is_attachment else later, queued):
                reason = "echo"
            elif queued.kept is None:
                reason = "superseded"
            elif queued.early and not queued.kept:
                reason = "control"
            else:
                queued.thread.has_messages = True
                continue
            self._ledger.skip(reason)
            for draft in queued.drafts:
                draft.dropped = True

    def _assemble(self) -> Session:
        self._mark_abandoned()
        agent = None if self._main.has_messages else self._lone_agent()
        session_id = self._best_session_id()
        if agent is not None:
            return self._build(agent, session_id, agent_type=self._sidecar_type())
        calls = self._agent_calls() if self._sidechains else {}
        subagents = []
        for thread in self._sidechains.values():
            if not thread.live():
                continue
            call = calls.get(self._spawns.get(thread.agent_id or "", "")) or calls.get(_first_words(thread))
            agent_type = call.input.get("subagent_type") if call and isinstance(call.input, dict) else None
            agent_type = agent_type if isinstance(agent_type, str) else None
            subagents.append(self._build(thread, session_id, agent_type=agent_type, call=call))
        return self._build(self._main, session_id, subagents=subagents)

    def _best_session_id(self) -> str | None:
        stem = self._source.name.removesuffix(".zst").removesuffix(".jsonl")
        if stem in self._session_ids:
            return stem
        return self._session_id or self._facts.get("sessionId")

    def _lone_agent(self) -> _Thread | None:
        """The one thread of a sub-agent's own file, where every message is a sidechain's."""
        stem = self._source.name.partition(".")[0]
        named = stem.removeprefix("agent-") if stem.startswith("agent-") else None
        if named is None and len(self._sidechains) != 1:
            return None
        whole = _Thread(self._facts.get("agentId") or named or next(iter(self._sidechains)), has_messages=True)
        threads = [self._main, *self._sidechains.values()]
        whole.drafts = sorted((draft for thread in threads for draft in thread.drafts), key=lambda d: d.place)
        for thread in threads:
            whole.usage.update(thread.usage)
            whole.model = whole.model or thread.model
        whole.time = next((draft.time for draft in whole.drafts if draft.time is not None), None)
        return whole

    def _sidecar_type(self) -> str | None:
        """`agentType` of the `agent-<id>.meta.json` beside the file (from 2.1 on)."""
        path = self._source.path
        if self._source.data is not None or not path.name.endswith(".jsonl"):
            return None
        try:
            data = loads(Source(path.with_name(path.name.removesuffix(".jsonl") + ".meta.json")).read())
        except (SourceError, ValueError):
            return None
        return text_of(data, "agentType") if isinstance(data, dict) else None

    def _agent_calls(self) -> dict[str, ToolUse]:
        """The calls that start sub-agents, by their id and by the prompt they give."""
        calls: dict[str, ToolUse] = {}
        for draft in self._main.drafts:
            for block in draft.blocks:
                if isinstance(block, ToolUse) and block.name in _AGENT_TOOLS:
                    calls[block.id] = block
                    prompt = block.input.get("prompt") if isinstance(block.input, dict) else None
                    if isinstance(prompt, str):
                        calls.setdefault(prompt.strip(), block)
        calls.pop("", None)
        return calls

    def _mark_abandoned(self) -> None:
        """Label what was left behind by rewinding: Escape twice, then another prompt in the same place.

        The evidence is two prompts of a person with the same parent. Of those the one on the way back from
        the file's last record stays, else the later one; the other and all that followed from it is left.
        Other forks are no evidence: parallel calls, merged lines and queued prompts fork the tree as well.
        """
        groups = [uuids for uuids in self._prompts.values() if len(uuids) > 1]
        if not groups:
            return
        active: set[str] = set()
        uuid = self._last_uuid
        while uuid is not None and uuid not in active:
            active.add(uuid)
            uuid = self._parents.get(uuid)
        children: dict[str, list[str]] = {}
        for child, parent in self._parents.items():
            if parent is not None:
                children.setdefault(parent, []).append(child)
        left: set[str] = set()
        for uuids in groups:
            stays = next((uuid for uuid in reversed(uuids) if uuid in active), uuids[-1])
            todo = [uuid for uuid in uuids if uuid != stays]
            while todo:
                uuid = todo.pop()
                if uuid not in left and uuid not in active:
                    left.add(uuid)
                    todo += children.get(uuid, ())
        for draft in self._main.drafts:
            if draft.uuid in left and draft.origin in _BRANCHED:
                draft.origin = Origin.ABANDONED

    def _build(
        self,
        thread: _Thread,
        session_id: str | None,
        agent_type: str | None = None,
        call: ToolUse | None = None,
        subagents: Iterable[Session] = (),
    ) -> Session:
        drafts = thread.live()
        is_agent = thread.agent_id is not None
        facts = self._facts
        lineage = self._lineage(session_id)
        spawns = None if is_agent and call is not None else self._spawns
        metadata = SessionMetadata(
            session_id=session_id,
            timestamp=(None if is_agent else parse_time(facts.get("timestamp"))) or thread.time,
            provider="anthropic",
            model=thread.model,
            project=facts.get("cwd"),
            title=None if is_agent else self._best_title(),
            source=self._format,
            git_branch=facts.get("gitBranch"),
            client_version=facts.get("version"),
            interactive=_is_interactive(facts.get("entrypoint")),
            parent_tool_use_id=call.id if call is not None else None,
            lineage=lineage,
            extra={"spawns": dict(spawns)} if spawns else {},
        )
        return Session(
            path=self._source.path,
            format=self._format,
            metadata=metadata,
            turns=group_turns([_message(draft) for draft in drafts], _usage_by_index(thread, drafts)),
            subagents=tuple(subagents),
            parent_id=session_id if is_agent else None,
            agent_id=thread.agent_id,
            subagent_type=(agent_type or "subagent") if is_agent else None,
            member=self._source.member,
        )

    def _lineage(self, session_id: str | None) -> dict[str, str]:
        """What the session was forked from: as `forkedFrom` says (2.1), else the file's other session id (1.x)."""
        forked_from = self._forked_from or next((i for i in self._session_ids if i != session_id), None)
        return {"forked_from": forked_from} if forked_from and forked_from != session_id else {}

    def _best_title(self) -> str | None:
        """The person's own title, else the client's, else the last summary of a message in this very file."""
        for kind in _TITLES:
            if kind in self._titles:
                return self._titles[kind]
        return next((title for leaf, title in reversed(self._summaries) if leaf in self._parents), None)


# --- small questions about values ---------------------------------------------------------------------------


def text_of(value: JsonObject, key: str) -> str | None:
    """A field that is a string with something in it; None for all else."""
    text = value.get(key)
    return text if type(text) is str and text else None


def count_of(value: JsonObject, key: str) -> int | None:
    """A field that is a number of tokens; None for all else."""
    count = value.get(key)
    return count if type(count) is int and count >= 0 else None


def _words(blocks: Iterable[Block]) -> str:
    return "\n".join(block.text for block in blocks if isinstance(block, Text)).strip()


def _first_words(thread: _Thread) -> str:
    return next((_words(draft.blocks) for draft in thread.drafts if draft.role is Role.USER), "")


def _whole_origin(value: JsonObject, blocks: list[Block]) -> Origin | None:
    """The origin of a record that is not a person's as a whole; None if it has to be looked into."""
    first = blocks[0]
    text = first.text if isinstance(first, Text) else ""
    if value.get("isCompactSummary") is True or starts_summary(text):
        return Origin.SUMMARY
    if value.get("isMeta") is True:
        return Origin.COMMAND if text and starts_command(text) else Origin.INJECTED
    return None


def _is_machine_prompt(value: JsonObject) -> bool:
    if value.get("promptSource") == "system":
        return True
    origin = value.get("origin")
    kind = origin.get("kind") if isinstance(origin, dict) else None
    return isinstance(kind, str) and kind in _MACHINE_KINDS


def _split_blocks(blocks: list[Block], speaker: Origin) -> list[tuple[Origin, list[Block]]]:
    """A record's blocks by origin, in order; all that the person said or showed is one part."""
    parts: list[tuple[Origin, list[Block]]] = []
    spoken: list[Block] | None = None
    for block in blocks:
        pieces = split_prompt(block.text) if isinstance(block, Text) else [(Origin.PERSON, "")]
        for origin, text in pieces:
            piece = block if len(pieces) == 1 else Text(text)
            if origin is Origin.PERSON:
                if spoken is None:
                    spoken = []
                    parts.append((speaker, spoken))
                spoken.append(piece)
            elif parts and parts[-1][0] is origin:
                parts[-1][1].append(piece)
            else:
                parts.append((origin, [piece]))
    return parts


def _error_text(error: Any) -> str:
    """`529 overloaded_error: Overloaded` from the nested objects of an API error."""
    if not isinstance(error, dict):
        return as_text(error)
    status = as_text(error.get("status"))
    while isinstance(error.get("error"), dict):
        error = error["error"]
    words = ": ".join(as_text(error[key]) for key in ("type", "message") if error.get(key))
    return f"{status} {words}".strip()


def _take_later(places: dict[str, deque[int]], queued: _Queued) -> bool:
    """Whether the queued words stand again later in the file; each place answers for one of them."""
    waiting = places.get(queued.text)
    while waiting and waiting[0] <= queued.place:
        waiting.popleft()
    if not waiting:
        return False
    waiting.popleft()
    return True


def _is_interactive(entrypoint: str | None) -> bool | None:
    """False for the SDK and `claude -p` (`sdk-cli`, `sdk-ts`, ...); older logs do not tell."""
    return None if entrypoint is None else not entrypoint.startswith("sdk")


def _message(draft: _Draft) -> Message:
    return Message(
        role=draft.role,
        content=tuple(draft.blocks),
        timestamp=draft.time,
        id=draft.id,
        origin=draft.origin,
        model=draft.model,
        line=draft.line,
        records=draft.records,
    )


def _usage_by_index(thread: _Thread, drafts: list[_Draft]) -> dict[int, TokenUsage]:
    spent: dict[_Draft, list[TokenUsage]] = {}
    for tokens, draft in thread.usage.values():
        spent.setdefault(draft, []).append(tokens)
    usage: dict[int, TokenUsage] = {}
    for index, draft in enumerate(drafts):
        if draft in spent:
            tokens_of_draft = spent[draft]
            total = tokens_of_draft[0] if len(tokens_of_draft) == 1 else add_usage(tokens_of_draft)
            if total is not None:
                usage[index] = total
    return usage
