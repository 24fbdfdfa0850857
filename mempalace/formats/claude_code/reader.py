"""The records of one Claude Code file, each read and counted once.

format where files lie and how to recognise one; reader records -> log, in one pass; blocks content blocks and the
client's tags; log what the records say; session log -> Session: echoes, branches, sub-agents, metadata.
"""

from __future__ import annotations

from collections import deque

from mempalace.formats.claude_code.blocks import (
    JsonObject,
    error_text,
    is_machine_prompt,
    is_slash_command,
    parse_blocks,
    split_blocks,
    whole_origin,
)
from mempalace.formats.claude_code.log import Draft, Log, Queued, Thread, count_of, text_of, words_of
from mempalace.formats.claude_code.session import Assembly, settle_queue
from mempalace.model import Block, Origin, Role, Session, TokenUsage, ToolResult
from mempalace.records import Ledger, Record, jsonl
from mempalace.source import Source
from mempalace.values import parse_time

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

_SYNTHETIC = "<synthetic>"
_SPEAKERS = frozenset({Origin.PERSON, Origin.SUBAGENT})


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
        self._log = Log()
        self._side_roots: dict[str, str] = {}
        self._waiting: deque[Queued] = deque()
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
        settle_queue(self._log, ledger)
        threads = [self._log.main, *self._log.sidechains.values()]
        if not any(thread.has_messages for thread in threads):
            ledger.skip("control", sum(draft.records for thread in threads for draft in thread.live()))
            return None
        return Assembly(self._log, self._source, self._format).session()

    # --- what every record may say --------------------------------------------------------------------------

    def _note_facts(self, value: JsonObject) -> None:
        """Take from the first record that has it what is asked for once per session."""
        found = False
        for key in self._wanted:
            text = value.get(key)
            if text and type(text) is str:
                self._log.facts[key] = text
                found = True
        if found:
            self._wanted = tuple(key for key in self._wanted if key not in self._log.facts)

    def _is_repeat(self, value: JsonObject) -> bool:
        """Whether the file held this record before: branching has written each message twice."""
        uuid = value.get("uuid")
        if type(uuid) is not str or not uuid:
            return False
        if uuid in self._log.parents:
            return True
        parent = value.get("parentUuid") or value.get("logicalParentUuid")
        self._log.parents[uuid] = parent if type(parent) is str else None
        if value.get("isSidechain") is True:
            self._side_roots[uuid] = self._side_roots.get(parent, uuid) if type(parent) is str else uuid
        else:
            self._log.last_uuid = uuid
        return False

    def _thread(self, value: JsonObject) -> Thread:
        """The thread that a record belongs to: a sub-agent's by its id, before 2.0.28 by its first record."""
        if value.get("isSidechain") is not True:
            return self._log.main
        agent_id = value.get("agentId")
        if type(agent_id) is str and agent_id:
            self._log.facts.setdefault("agentId", agent_id)
        else:
            uuid = value.get("uuid")
            agent_id = self._side_roots.get(uuid, "sidechain") if type(uuid) is str else "sidechain"
        thread = self._log.sidechains.get(agent_id)
        if thread is None:
            thread = self._log.sidechains[agent_id] = Thread(agent_id)
        return thread

    def _draft(
        self, thread: Thread, record: Record, role: Role, origin: Origin, blocks: list[Block], id: str | None
    ) -> Draft:
        value = record.value
        draft = Draft(role, origin, blocks, id, text_of(value, "uuid"), record.line, self._place)
        draft.time = parse_time(value.get("timestamp"))
        if thread.time is None:
            thread.time = draft.time
        thread.drafts.append(draft)
        return draft

    def _began_with(self, thread: Thread, value: JsonObject) -> None:
        thread.has_messages = True
        if not self._began:
            self._began = True
            self._waiting.clear()
        session_id = value.get("sessionId")
        if session_id != self._log.session_id and type(session_id) is str and session_id:
            self._log.session_id = session_id
            self._log.session_ids[session_id] = None
        if "forkedFrom" in value or "convertedFrom" in value:
            self._log.note_origins(value)

    # --- user records ---------------------------------------------------------------------------------------

    def _user(self, record: Record, value: JsonObject) -> None:
        message = value.get("message")
        blocks = parse_blocks(message.get("content") if isinstance(message, dict) else message, record)
        if not blocks or value.get("addedByConversion") is True:  # results that our own conversion makes up
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
            self._log.spawns[agent_id] = results[0].tool_use_id
        words: list[Block] = [block for block in blocks if not isinstance(block, ToolResult)]
        if words:  # typed while the tool ran, delivered with its result
            self._say(thread, record, words, uuid and f"{uuid}#text", records=0)

    def _say(
        self, thread: Thread, record: Record, blocks: list[Block], id: str | None, records: int = 1
    ) -> list[Draft]:
        """The messages of one record's words: the person's own, then what the client put around them.

        The first one has the record's id and counts it. The person's stands first although a wrapper mostly
        precedes it in the record: so the wrapper is part of the turn that it came with.
        """
        value = record.value
        origin = whole_origin(value, blocks)
        if origin is None:
            parts = split_blocks(blocks, Origin.PERSON if thread is self._log.main else Origin.SUBAGENT)
            if is_machine_prompt(value):
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
            self._log.prompts.setdefault(parent, []).append(uuid)
        return drafts

    def _note_said(self, blocks: list[Block]) -> None:
        text = words_of(blocks)
        if text:
            self._log.said.append((self._place, text))

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
        self, thread: Thread, message: JsonObject, draft: Draft | None, request_id: str | None, model: str | None
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
            blocks = parse_blocks(error_text(value.get("error")), record)
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
            text = words_of(blocks)
            first = self._waiting[0]
            taken = next((queued for queued in self._waiting if queued.text == text), first) if text else first
            taken.kept = True
            self._waiting.remove(taken)

    def _enqueue(self, record: Record, blocks: list[Block], is_attachment: bool = False) -> None:
        """Words from the queue, as messages where they stand in the file; `_settle_queue` may drop them."""
        text = words_of(blocks)
        thread = self._thread(record.value)
        drafts = self._say_queued(thread, record, blocks, text)
        queued = Queued(text, self._place, thread, drafts, is_attachment, is_attachment, not self._began)
        self._log.queued.append(queued)
        if not is_attachment:
            self._waiting.append(queued)

    def _say_queued(self, thread: Thread, record: Record, blocks: list[Block], text: str) -> list[Draft]:
        value = record.value
        uuid = text_of(value, "uuid")
        if is_slash_command(text):
            return [self._draft(thread, record, Role.SYSTEM, Origin.COMMAND, blocks, uuid)]
        attachment = value.get("attachment")
        origin = attachment.get("origin") if isinstance(attachment, dict) else None
        kept = self._log.said
        self._log.said = []  # what is queued is no echo of itself
        drafts = self._say(thread, record, blocks, uuid)
        self._log.said = kept
        if is_machine_prompt({"origin": origin}):
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
            self._log.spawns.setdefault(agent_id, call)

    def _summary(self, record: Record, value: JsonObject) -> None:
        self._ledger.skip("metadata")
        summary, leaf = text_of(value, "summary"), text_of(value, "leafUuid")
        if summary and leaf:
            self._log.summaries.append((leaf, summary))

    def _title(self, record: Record, value: JsonObject) -> None:
        self._ledger.skip("metadata")
        kind = value["type"]
        title = text_of(value, _TITLES[kind]) or text_of(value, "title")
        if title:
            self._log.titles[kind] = title
