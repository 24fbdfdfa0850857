"""What each kind of record says in a Codex session: texts, reasoning, summaries, tools -> drafts.

Every handler accounts for the one record it is given: a draft, an echo of one, or a reason for having none.
"""

from __future__ import annotations

from collections.abc import Callable

from mempalace.formats.codex.drafts import EVENT, ITEM, RESPONSE, Drafts, user_role
from mempalace.formats.codex.items import (
    Json,
    as_dict,
    as_list,
    as_str,
    as_text,
    harness_origin,
    read_content,
    read_image,
    read_texts,
    split_ide_context,
    texts_of,
)
from mempalace.formats.codex.tools import read_call, read_generated_image, read_output, read_tool_event
from mempalace.model import Block, Image, Origin, Role, Text, Thinking


def _item_completed(drafts: Drafts, payload: Json) -> None:
    """A completed item: since 0.148 ("paginated" history) every kind, before that plans only."""
    item = as_dict(payload.get("item"))
    kind = as_text(item.get("type"))
    id = as_str(item.get("id"))
    if kind == "UserMessage":
        _user(drafts, ITEM, _content(drafts, item, "content"), id)
    elif kind == "AgentMessage":
        blocks = _content(drafts, item, "content")
        drafts.tell("assistant", ITEM, blocks, Role.ASSISTANT, Origin.ASSISTANT, id)
    elif kind == "Reasoning":
        texts = read_texts(item.get("summary_text")) + read_texts(item.get("raw_content"))
        _think(drafts, ITEM, texts, id)
    elif kind == "Plan":
        _within(drafts, as_text(item.get("text")), Role.ASSISTANT, Origin.ASSISTANT, id)
    elif kind == "HookPrompt":
        texts = [as_text(as_dict(part).get("text")) for part in as_list(item.get("fragments"))]
        _within(drafts, "\n".join(texts), Role.SYSTEM, Origin.INJECTED, id)
    elif kind in ("ContextCompaction", "Sleep", "SubAgentActivity"):
        drafts.skips["control"] += 1
    else:
        tool_event(drafts, kind, item)


def _content(drafts: Drafts, payload: Json, name: str) -> list[Block]:
    return read_content(payload.get(name), drafts.record)


# --- texts --------------------------------------------------------------------------------------------------


def _message(drafts: Drafts, payload: Json) -> None:
    """A message as the model sees it."""
    blocks = _content(drafts, payload, "message" if payload.get("content") is None else "content")
    if drafts.stamp is None:
        drafts.stamp = payload.get("timestamp")
    role, id = payload.get("role"), as_str(payload.get("id"))
    if role == "user":
        _user(drafts, RESPONSE, blocks, id, _marked(payload))
    elif role == "assistant":
        drafts.tell("assistant", RESPONSE, blocks, Role.ASSISTANT, Origin.ASSISTANT, id)
    elif role == "tool":
        drafts.tell("", RESPONSE, blocks, Role.TOOL, Origin.TOOL_RESULT, id)
    else:
        drafts.tell("", RESPONSE, blocks, Role.SYSTEM, Origin.INJECTED, id)


def _user(drafts: Drafts, stream: int, blocks: list[Block], id: str | None, origin: Origin | None = None) -> None:
    """A message in the user's role, with what the harness put into it told apart."""
    lead: list[Block] = []
    if origin is None:
        origin, lead, blocks = _split_user(blocks, closed=stream != RESPONSE)
    draft = drafts.tell("user", stream, blocks, user_role(origin), origin, id)
    if draft is not None:
        draft.lead = draft.lead or lead or None
        if stream != RESPONSE:
            drafts.events_tell_users = True


def _marked(payload: Json) -> Origin | None:
    """A person, where our own conversion says that words are theirs which look like the harness's."""
    return Origin.PERSON if payload.get("said_by_person") is True else None


def _user_message(drafts: Drafts, payload: Json) -> None:
    blocks = _content(drafts, payload, "message")
    urls = (url for url in as_list(payload.get("images")) if isinstance(url, str) and url)
    blocks += [read_image(url, drafts.record) for url in urls]
    blocks += [Image(ref=path) for path in as_list(payload.get("local_images")) if isinstance(path, str) and path]
    # The releases of autumn 2025 said of an event what it injected; else `kind` is "plain" or absent.
    injected = payload.get("kind") in ("environment_context", "user_instructions")
    _user(drafts, EVENT, blocks, None, Origin.INJECTED if injected else _marked(payload))


def _agent_message(drafts: Drafts, payload: Json) -> None:
    """What the assistant says, as an event; as a response item, what one agent tells another."""
    if "author" in payload or "recipient" in payload:
        agents(drafts, payload)
        return
    blocks = _content(drafts, payload, "message" if "message" in payload else "content")
    drafts.tell("assistant", EVENT, blocks, Role.ASSISTANT, Origin.ASSISTANT)


def agents(drafts: Drafts, payload: Json) -> None:
    """What one agent tells another; what is encrypted of it is left out."""
    blocks = _content(drafts, payload, "content") or _content(drafts, payload, "text")
    kind = drafts.record.value.get("type")
    stream = RESPONSE if kind == "response_item" else EVENT
    id = as_str(payload.get("id"))
    draft = drafts.tell("agent", stream, blocks, Role.USER, Origin.SUBAGENT, id)
    if draft is not None:
        draft.name = draft.name or as_str(payload.get("author"))


def _reasoning(drafts: Drafts, payload: Json) -> None:
    """Reasoning as the log has it in clear: summaries and raw texts, never the encrypted form."""
    texts = read_texts(payload.get("summary")) + read_texts(payload.get("content"))
    _think(drafts, RESPONSE, texts, as_str(payload.get("id")))


def _agent_reasoning(drafts: Drafts, payload: Json) -> None:
    _think(drafts, EVENT, read_texts(payload.get("text")), None)


def _think(drafts: Drafts, stream: int, texts: list[str], id: str | None) -> None:
    blocks: list[Block] = [Thinking(text) for text in texts]
    drafts.tell("thinking", stream, blocks, Role.ASSISTANT, Origin.ASSISTANT, id)


def compacted(drafts: Drafts, payload: Json) -> None:
    """A summary. `replacement_history` repeats turns that stand above: at most a summary is taken of it.

    Releases of 2026 may leave `message` empty and hold the summary as a message of the history.
    """
    blocks = _content(drafts, payload, "message")
    for item in reversed(as_list(payload.get("replacement_history")) if not texts_of(blocks) else []):
        found = read_content(as_dict(item).get("content"), drafts.record)
        if any(harness_origin(text, closed=False) is Origin.SUMMARY for text in texts_of(found)):
            blocks = [block for block in found if isinstance(block, Text)]
            break
    # As "user", so that the same summary in the user's role beside it is an echo.
    drafts.tell("user", ITEM, blocks, Role.SYSTEM, Origin.SUMMARY)


def _notice(drafts: Drafts, payload: Json) -> None:
    """An error or a warning that the client showed."""
    drafts.tell("notice", EVENT, _content(drafts, payload, "message"), Role.SYSTEM, Origin.INJECTED)


def _task_complete(drafts: Drafts, payload: Json) -> None:
    """The end of a turn. It repeats the last answer and the error: kept only if nothing else told them."""
    before = len(drafts.all)
    answer, error = payload.get("last_agent_message"), as_dict(payload.get("error")).get("message")
    if isinstance(answer, str) and answer.strip() and not drafts.told("assistant", answer):
        drafts.tell("assistant", EVENT, [Text(answer)], Role.ASSISTANT, Origin.ASSISTANT)
    if isinstance(error, str) and error.strip() and not drafts.told("notice", error):
        drafts.tell("notice", EVENT, [Text(error)], Role.SYSTEM, Origin.INJECTED)
    made = drafts.all[before:]
    if not made:
        drafts.skips["control"] += 1
    for draft in made[1:]:
        draft.records = 0


def _entered_review(drafts: Drafts, payload: Json) -> None:
    """The `/review` that a person asked for, in their own words where there are any."""
    target = as_dict(payload.get("target"))
    words = as_str(target.get("instructions")) or as_str(payload.get("prompt"))
    words = words or as_str(payload.get("user_facing_hint"))
    blocks: list[Block] = [Text(words)] if words else []
    drafts.tell("review", EVENT, blocks, Role.USER, Origin.COMMAND)


def _exited_review(drafts: Drafts, payload: Json) -> None:
    """What the reviewer found; an echo where a message beside it says the same."""
    review = as_dict(payload.get("review_output"))
    findings = [as_dict(finding) for finding in as_list(review.get("findings"))]
    texts = ["\n".join(as_text(finding.get(name)) for name in ("title", "body")) for finding in findings]
    texts.append(as_text(review.get("overall_explanation")))
    text = "\n\n".join(text for text in texts if text.strip())
    _within(drafts, text, Role.ASSISTANT, Origin.ASSISTANT, as_str(payload.get("item_id")))


def _within(drafts: Drafts, text: str, role: Role, origin: Origin, id: str | None) -> None:
    """A text that may stand inside a message beside it; whether it does is seen at the end."""
    draft = drafts.tell("within", ITEM, [Text(text)], role, origin, id)
    if draft is not None:
        draft.within = True


def _goal_updated(drafts: Drafts, payload: Json) -> None:
    """A goal that the person set; each update of its counters repeats it."""
    goal = as_str(as_dict(payload.get("goal")).get("objective"))
    if goal is None or drafts.told("goal", goal):
        drafts.skips["control"] += 1
    else:
        drafts.tell("goal", EVENT, [Text(goal)], Role.USER, Origin.COMMAND)


# --- tools --------------------------------------------------------------------------------------------------


def call(drafts: Drafts, kind: str, payload: Json) -> None:
    """A tool call; that of the image generator holds its result too."""
    use = read_call(kind, payload)
    draft = drafts.new([use], Role.ASSISTANT, Origin.ASSISTANT)
    draft.id = as_str(payload.get("id"))
    if use.id:
        drafts.calls.setdefault(use.id, draft)
    if kind != "image_generation_call":
        return
    result = read_generated_image(use.id, payload, drafts.record)[1]
    if result is not None:
        shown = drafts.new([result], Role.TOOL, Origin.TOOL_RESULT)
        shown.records = 0
        if use.id:
            drafts.outputs.setdefault(use.id, shown)


def output(drafts: Drafts, kind: str, payload: Json) -> None:
    """What a tool returned."""
    result = read_output(kind, payload, drafts.record)
    draft = drafts.new([result], Role.TOOL, Origin.TOOL_RESULT)
    draft.id = as_str(payload.get("id"))
    if result.tool_use_id:
        drafts.outputs.setdefault(result.tool_use_id, draft)


def tool_event(drafts: Drafts, kind: str, payload: Json) -> None:
    """What an event or a completed item tells of a tool; at the end it is seen what of it is news."""
    told = read_tool_event(kind, payload, drafts.record)
    if told is None:
        drafts.skips["unknown"] += 1
        return
    draft = drafts.new([], Role.ASSISTANT, Origin.ASSISTANT)
    draft.tool = told
    draft.kind = "user_shell" if payload.get("source") in ("user_shell", "userShell") else ""


def _split_user(blocks: list[Block], *, closed: bool) -> tuple[Origin, list[Block], list[Block]]:
    """Who speaks in a message of the user's role, what the harness put before it, and the message itself."""
    lead: list[Block] = []
    rest: list[Block] = []
    origins: list[Origin] = []
    for block in blocks:
        if not isinstance(block, Text):
            rest.append(block)
        elif (origin := harness_origin(block.text, closed=closed)) is not None:
            origins.append(origin)
            lead.append(block)
        else:
            before, words = split_ide_context(block.text)
            lead += [Text(before)] if before else []
            rest += [Text(words)] if words else []
    if texts_of(rest) or any(isinstance(block, Image) for block in rest):
        return Origin.PERSON, lead, rest
    return (origins[0] if origins else Origin.INJECTED), [], blocks


# --- who handles what ---------------------------------------------------------------------------------------


def control(drafts: Drafts, payload: Json) -> None:
    """Bookkeeping of the tool."""
    drafts.skips["control"] += 1


def _empty(drafts: Drafts, payload: Json) -> None:
    drafts.skips["empty"] += 1


Handler = Callable[[Drafts, Json], None]

RESPONSES: dict[str, Handler] = {
    "message": _message,
    "reasoning": _reasoning,
    # Compacted context is encrypted; the summary in clear, if there is one, is in the `compacted` record.
    "compaction": _empty,
    "compaction_summary": _empty,
    "context_compaction": _empty,
    "compaction_trigger": control,
    "ghost_snapshot": control,
    "additional_tools": control,
}

_CONTROL_EVENTS = (
    "task_started",
    "turn_started",
    "turn_aborted",
    "context_compacted",
    "undo_completed",
    "thread_settings_applied",
    "sub_agent_activity",
    "guardian_assessment",
    "item_started",
    "plan_update",
    "turn_diff",
    "session_configured",
    "shutdown_complete",
    "background_event",
    "mcp_startup_complete",
)
EVENTS: dict[str, Handler] = {
    **dict.fromkeys(_CONTROL_EVENTS, control),
    "user_message": _user_message,
    "agent_message": _agent_message,
    "agent_reasoning": _agent_reasoning,
    "agent_reasoning_raw_content": _agent_reasoning,
    "item_completed": _item_completed,
    "thread_goal_updated": _goal_updated,
    "task_complete": _task_complete,
    "turn_complete": _task_complete,
    "entered_review_mode": _entered_review,
    "exited_review_mode": _exited_review,
    "error": _notice,
    "stream_error": _notice,
    "warning": _notice,
}
