"""The parts of one Claude Code file -> its Session: what can be told only when every record is known."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from mempalace.errors import SourceError
from mempalace.formats.claude_code.log import Draft, Log, Queued, Thread, text_of, words_of
from mempalace.model import Message, Origin, Role, Session, SessionMetadata, TokenUsage, ToolUse, add_usage, group_turns
from mempalace.records import Ledger
from mempalace.source import Source
from mempalace.values import loads, parse_time

_AGENT_TOOLS = ("Task", "Agent")
_BRANCHED = frozenset({Origin.PERSON, Origin.ASSISTANT, Origin.TOOL_RESULT})

# The person's own title, then the client's two.
TITLES = ("custom-title", "ai-title", "agent-name")


def settle_queue(log: Log, ledger: Ledger) -> None:
    """Drop queued words that stand elsewhere, went back or never counted; see the reader."""
    if not log.queued:
        return
    records: dict[str, deque[int]] = {}
    later: dict[str, deque[int]] = {}
    for place, text in log.said:
        records.setdefault(text, deque()).append(place)
        later.setdefault(text, deque()).append(place)
    for queued in log.queued:
        if queued.is_attachment:
            later.setdefault(queued.text, deque()).append(queued.place)
    for places in later.values():
        if len(places) > 1:
            ordered = sorted(places)
            places.clear()
            places.extend(ordered)
    for queued in log.queued:
        if _take_later(records if queued.is_attachment else later, queued):
            reason = "echo"
        elif queued.kept is None:
            reason = "superseded"
        elif queued.early and not queued.kept:
            reason = "control"
        else:
            queued.thread.has_messages = True
            continue
        ledger.skip(reason)
        for draft in queued.drafts:
            draft.dropped = True


def _take_later(places: dict[str, deque[int]], queued: Queued) -> bool:
    """Whether the queued words stand again later in the file; each place answers for one of them."""
    waiting = places.get(queued.text)
    while waiting and waiting[0] <= queued.place:
        waiting.popleft()
    if not waiting:
        return False
    waiting.popleft()
    return True


class Assembly:
    """Puts a read log together. Takes the log over: drafts that turn out to be on a left branch are labelled."""

    def __init__(self, log: Log, source: Source, format: str) -> None:
        self._log = log
        self._source = source
        self._format = format

    def session(self) -> Session:
        """The session with its sub-agents."""
        self._mark_abandoned()
        agent = None if self._log.main.has_messages else self._lone_agent()
        session_id = self._best_session_id()
        if agent is not None:
            return self._build(agent, session_id, agent_type=self._sidecar_type())
        calls = self._agent_calls() if self._log.sidechains else {}
        subagents = []
        for thread in self._log.sidechains.values():
            if not thread.live():
                continue
            call = calls.get(self._log.spawns.get(thread.agent_id or "", "")) or calls.get(_first_words(thread))
            agent_type = call.input.get("subagent_type") if call and isinstance(call.input, dict) else None
            agent_type = agent_type if isinstance(agent_type, str) else None
            subagents.append(self._build(thread, session_id, agent_type=agent_type, call=call))
        return self._build(self._log.main, session_id, subagents=subagents)

    def _best_session_id(self) -> str | None:
        stem = self._source.name.removesuffix(".zst").removesuffix(".jsonl")
        if stem in self._log.session_ids:
            return stem
        return self._log.session_id or self._log.facts.get("sessionId")

    def _lone_agent(self) -> Thread | None:
        """The one thread of a sub-agent's own file, where every message is a sidechain's."""
        stem = self._source.name.partition(".")[0]
        named = stem.removeprefix("agent-") if stem.startswith("agent-") else None
        if named is None and len(self._log.sidechains) != 1:
            return None
        whole = Thread(self._log.facts.get("agentId") or named or next(iter(self._log.sidechains)), has_messages=True)
        threads = [self._log.main, *self._log.sidechains.values()]
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
        for draft in self._log.main.drafts:
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
        groups = [uuids for uuids in self._log.prompts.values() if len(uuids) > 1]
        if not groups:
            return
        active: set[str] = set()
        uuid = self._log.last_uuid
        while uuid is not None and uuid not in active:
            active.add(uuid)
            uuid = self._log.parents.get(uuid)
        children: dict[str, list[str]] = {}
        for child, parent in self._log.parents.items():
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
        for draft in self._log.main.drafts:
            if draft.uuid in left and draft.origin in _BRANCHED:
                draft.origin = Origin.ABANDONED

    def _build(
        self,
        thread: Thread,
        session_id: str | None,
        agent_type: str | None = None,
        call: ToolUse | None = None,
        subagents: Iterable[Session] = (),
    ) -> Session:
        drafts = thread.live()
        is_agent = thread.agent_id is not None
        facts = self._log.facts
        lineage = self._lineage(session_id)
        spawns = None if is_agent and call is not None else self._log.spawns
        metadata = SessionMetadata(
            session_id=session_id,
            timestamp=(None if is_agent else parse_time(facts.get("timestamp"))) or thread.time,
            provider="anthropic",
            model=thread.model,
            project=facts.get("cwd"),
            title=None if is_agent else self._best_title(),
            source=text_of(self._log.converted_from, "tool") or self._format,
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
        forked_from = self._log.forked_from or next((i for i in self._log.session_ids if i != session_id), None)
        known = {"forked_from": forked_from, "converted_from": text_of(self._log.converted_from, "sessionId")}
        return {name: value for name, value in known.items() if value and value != session_id}

    def _best_title(self) -> str | None:
        """The person's own title, else the client's, else the last summary of a message in this very file."""
        for kind in TITLES:
            if kind in self._log.titles:
                return self._log.titles[kind]
        return next((title for leaf, title in reversed(self._log.summaries) if leaf in self._log.parents), None)


def _first_words(thread: Thread) -> str:
    return next((words_of(draft.blocks) for draft in thread.drafts if draft.role is Role.USER), "")


def _is_interactive(entrypoint: str | None) -> bool | None:
    """False for the SDK and `claude -p` (`sdk-cli`, `sdk-ts`, ...); older logs do not tell."""
    return None if entrypoint is None else not entrypoint.startswith("sdk")


def _message(draft: Draft) -> Message:
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


def _usage_by_index(thread: Thread, drafts: list[Draft]) -> dict[int, TokenUsage]:
    spent: dict[Draft, list[TokenUsage]] = {}
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
