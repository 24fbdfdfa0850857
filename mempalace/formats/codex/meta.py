"""What a Codex rollout says of itself: identity, ancestry, and which of its lines were copied from an ancestor."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

from mempalace.formats.codex.items import Json, as_dict, as_str
from mempalace.model import SessionMetadata
from mempalace.values import parse_time

ROLLOUT_NAME = re.compile(
    r"rollout-\d{4}-\d\d-\d\d(?:T\d\d-\d\d-\d\d)?-(?P<id>[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})\."
)


def thread_id(meta: Json) -> str | None:
    """The session's own id.

    Files until spring 2026 have `id` only. Since then `session_id` is there too: for a thread that a person
    opened it is the same, for a spawned one it is that of the root of the tree (codex pull request 29327).
    """
    return as_str(meta.get("id")) or as_str(meta.get("session_id"))


def id_in_name(name: str) -> str | None:
    """The id in a file name `rollout-<local time>-<uuid>.jsonl`."""
    found = ROLLOUT_NAME.match(name)
    return found.group("id") if found else None


def _subagent(meta: Json) -> Any:
    """`source.subagent`: "review", "compact", {"thread_spawn": {...}} or {"other": "..."}; None if absent."""
    source = meta.get("source")
    return source.get("subagent") if isinstance(source, dict) else None


def is_spawned(meta: Json) -> bool:
    """Whether another session spawned this one. A fork is no sub-agent, also if it was forked from one."""
    if _subagent(meta) is not None or meta.get("thread_source") == "subagent":
        return True
    return as_str(meta.get("parent_thread_id")) is not None and as_str(meta.get("forked_from_id")) is None


def parent_of(meta: Json) -> str | None:
    """The id of the session that spawned this one."""
    spawn = as_dict(as_dict(_subagent(meta)).get("thread_spawn"))
    parent = as_str(meta.get("parent_thread_id")) or as_str(spawn.get("parent_thread_id"))
    if parent is None and is_spawned(meta) and as_str(meta.get("session_id")) != thread_id(meta):
        return as_str(meta.get("session_id"))
    return parent


def subagent_type(meta: Json) -> str:
    """The role of a spawned session: `explorer`, `review`, ...; `subagent` where none is named."""
    kind = _subagent(meta)
    spawn = as_dict(as_dict(kind).get("thread_spawn"))
    roles = (meta.get("agent_role"), meta.get("agent_type"), spawn.get("agent_role"), kind, as_dict(kind).get("other"))
    return next((role for role in roles if isinstance(role, str) and role), "subagent")


def _is_interactive(meta: Json) -> bool | None:
    if is_spawned(meta) or meta.get("source") == "exec" or meta.get("originator") == "codex_exec":
        return False
    return True if meta.get("source") in ("cli", "vscode") else None


def read_metadata(meta: Json, own: str | None, context: Json) -> SessionMetadata:
    """The metadata of a session from its first header; `context` holds what later records said."""
    base = meta.get("base_instructions")
    prompt = base.get("text") if isinstance(base, dict) else base
    parent = parent_of(meta)
    root = as_str(meta.get("session_id"))
    origin = as_dict(meta.get("converted_from"))  # written by our own conversion
    lineage = {
        "forked_from": as_str(meta.get("forked_from_id")),
        "parent_session_id": parent,
        "root_session_id": None if root in (own, parent) else root,
        "converted_from": as_str(origin.get("session_id")),
    }
    extra = {name: as_str(meta.get(name)) for name in ("originator", "agent_nickname", "agent_path")}
    return SessionMetadata(
        session_id=own,
        timestamp=context["timestamp"],
        provider=as_str(meta.get("model_provider")) or "openai",
        model=context["model"] or as_str(meta.get("model")),
        project=context["cwd"] or as_str(meta.get("cwd")),
        title=context["title"],
        source=as_str(origin.get("tool")) or "codex",
        git_branch=as_str(as_dict(meta.get("git")).get("branch")),
        client_version=as_str(meta.get("cli_version")),
        interactive=_is_interactive(meta),
        system_prompt=as_str(prompt) or as_str(meta.get("instructions")),
        headers=tuple(context["headers"]),
        lineage={name: value for name, value in lineage.items() if value},
        extra={name: value for name, value in extra.items() if value},
    )


# --- copied history -----------------------------------------------------------------------------------------

_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\Z", re.IGNORECASE)
_PAUSE = timedelta(seconds=1)


def minted(value: Any) -> datetime | None:
    """When a UUIDv7 was made; None for any other value."""
    if not isinstance(value, str) or not _UUID7.match(value):
        return None
    return parse_time(int(value[:8] + value[9:13], 16))


class CopiedPrefix:
    """Finds where the copied history at the start of a forked (or spawned) session ends.

    The copy holds the ancestor's session_meta, or turns whose ids were minted before this session was made;
    all its lines are stamped with the instant of the fork. It ends at the first turn minted afterwards, or at
    the first pause of a second. Without either kind of evidence nothing counts as copied. The parent's file is
    not looked at: what a file holds must not depend on whether another one is still there.
    """

    def __init__(self, meta: Json, created: datetime | None) -> None:
        self.active = True
        self._own = thread_id(meta)
        self._created = minted(self._own) or created
        self._copied = False
        self._old_turns = False
        self._last: datetime | None = None

    def ends_before(self, kind: str, payload: Json, moment: datetime | None) -> bool:
        """Whether all records before this one turned out to be copied; asked for each, own header excepted."""
        if kind == "session_meta":
            self._copied = self._copied or thread_id(payload) not in (None, self._own)
        elif kind == "turn_context" or payload.get("type") in ("task_started", "turn_started"):
            made = minted(payload.get("turn_id"))
            if made is not None and self._created is not None:
                if made >= self._created:
                    self.active = False
                    return self._copied
                self._copied = self._old_turns = True
        if moment is not None:
            if self._last is not None and moment - self._last >= _PAUSE:
                self.active = False
                return self._copied
            self._last = moment
        return False

    def holds_all(self) -> bool:
        """Whether the file ended within the copy: a fork that was never continued."""
        return self.active and self._old_turns
