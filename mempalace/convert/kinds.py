"""The kinds of record that a source holds and a session does not: bookkeeping that no conversion carries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from mempalace.errors import MempalaceError
from mempalace.model import Session
from mempalace.values import loads

# Records that messages are made of, or that a conversion writes anew, by format.
_SPOKEN = {
    "claude-code": frozenset({"user", "human", "assistant", "summary", "custom-title", "ai-title"}),
    "codex": frozenset(
        {
            "session_meta",
            "turn_context",
            "message",
            "user_message",
            "agent_message",
            "reasoning",
            "agent_reasoning",
            "function_call",
            "function_call_output",
            "custom_tool_call",
            "custom_tool_call_output",
            "token_count",
            "compacted",
        }
    ),
}


def count_kinds(session: Session, found: Counter[str], raw: Iterable[bytes] | None = None) -> None:
    """Count `records: KIND` for the lines of a line-based log that are in no message; that it is gone, if it is.

    `raw` are the lines, by default those of the session's file.
    """
    spoken = _SPOKEN.get(session.format)
    if spoken is None:
        return
    told = {message.line for message in session.messages}
    for subagent in session.subagents:
        told |= {message.line for message in subagent.messages}
    try:
        for number, line in enumerate(session.raw if raw is None else raw, 1):
            kind = _kind(line)
            if kind is not None and kind not in spoken and number not in told:
                found[f"records: {kind}"] += 1
    except (MempalaceError, OSError):
        found["records: not counted, for the log is gone"] += 1


def _kind(line: bytes) -> str | None:
    """What a record calls itself; inside an envelope (`response_item`, `event_msg`) the payload's kind."""
    try:
        value: Any = loads(line)
    except ValueError:
        return "damaged" if line.strip() else None
    if not isinstance(value, dict):
        return "damaged"
    payload = value.get("payload")
    if value.get("type") in ("response_item", "event_msg") and isinstance(payload, dict):
        value = payload
    kind = value.get("type")
    return kind if isinstance(kind, str) else "without a type"
