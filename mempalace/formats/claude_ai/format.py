"""Claude.ai: the privacy export, and single conversations that browser tools save.

A message holds content blocks (since 2024) or only `text` (before). What a person attached as a file stands,
as text, only in `attachments[].extracted_content`: it is theirs, so it is a Text block of its own. Exports
that name each message's parent hold edited and regenerated branches too; those follow the current one as
ABANDONED.

`projects.json` and `memories.json` hold documents, no conversations: `read` counts and names them, `documents`
gives them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mempalace.documents import Element, as_dict, as_list, as_string, elements, sample
from mempalace.formats.base import Format
from mempalace.formats.claude_ai.content import ROOT, read_message
from mempalace.head import Head
from mempalace.model import (
    Message,
    Origin,
    Role,
    Session,
    SessionMetadata,
    Text,
    group_turns,
)
from mempalace.model_data import format_time
from mempalace.records import Ledger
from mempalace.source import Source
from mempalace.values import parse_time

_KEYS = ("conversations",)
_MESSAGE_KEYS = ("sender", "text", "content", "created_at", "attachments")


class ClaudeAi(Format):
    """Conversations exported from Claude.ai."""

    name = "claude-ai"
    title = "Claude.ai"
    suffixes = (".json",)

    def claims(self, head: Head) -> float:
        return 1.0 if sample(head, _KEYS, _is_element) else 0.0

    def read(self, source: Source, ledger: Ledger) -> Iterator[Session]:
        named: list[str] = []
        for element in elements(source, ledger, _KEYS, _is_element):
            if _is_conversation(element.value):
                yield from self._conversation(source, element, ledger)
            elif _is_document(element.value):
                found = list(_documents(element.value))
                ledger.read += max(len(found), 1)
                ledger.skip("document", len(found))
                ledger.skip("empty", 0 if found else 1)
                named += [title for title, _ in found]
            else:
                _unknown(element, ledger)
        if named:
            shown = ", ".join(named[:5]) + (", ..." if len(named) > 5 else "")
            ledger.note("documents", f"{len(named)} documents left out ({shown}): mine with --include documents")

    def documents(self, source: Source, ledger: Ledger) -> Iterator[Session]:
        """Like `read`, but also what `read` only counts: each project's documents and the memories, as sessions."""
        for element in elements(source, ledger, _KEYS, _is_element):
            if _is_conversation(element.value):
                yield from self._conversation(source, element, ledger)
            elif _is_document(element.value):
                found = [message for _, message in _documents(element.value)]
                ledger.read += max(len(found), 1)
                ledger.skip("empty", 0 if found else 1)
                if found:
                    yield self._session(source, element, _document_metadata(element.value), found)
            else:
                _unknown(element, ledger)

    def _conversation(self, source: Source, element: Element, ledger: Ledger) -> Iterator[Session]:
        messages = list(_messages(element.value, ledger))
        if messages:
            yield self._session(source, element, _metadata(element.value), messages)

    def _session(self, source: Source, element: Element, metadata: SessionMetadata, messages: list[Message]) -> Session:
        return Session(
            path=source.path,
            format=self.name,
            metadata=metadata,
            turns=group_turns(messages),
            member=source.member,
            start=element.start,
            end=element.end,
        )


def _is_conversation(value: Any) -> bool:
    messages = value.get("chat_messages") if isinstance(value, dict) else None
    if not isinstance(messages, list):
        return False
    known = [message for message in messages if isinstance(message, dict)]
    return not messages or any(any(key in message for key in _MESSAGE_KEYS) for message in known)


def _is_document(value: Any) -> bool:
    """Whether it is a project (`docs` with a `prompt_template` or a `creator`) or the memories."""
    if not isinstance(value, dict):
        return False
    is_project = isinstance(value.get("docs"), list) and ("prompt_template" in value or "creator" in value)
    return is_project or ("conversations_memory" in value and "chat_messages" not in value)


def _is_element(value: Any) -> bool:
    return _is_conversation(value) or _is_document(value)


def _unknown(element: Element, ledger: Ledger) -> None:
    ledger.read += 1
    ledger.skip("unknown")
    ledger.note("unrecognised", "not a conversation", element.ordinal)


def _metadata(value: dict[str, Any]) -> SessionMetadata:
    project = as_dict(value.get("project"))
    extra = {"summary": as_string(value.get("summary")), "project_uuid": as_string(value.get("project_uuid"))}
    extra["update_time"] = format_time(parse_time(value.get("updated_at")))
    return SessionMetadata(
        session_id=as_string(value.get("uuid")),
        timestamp=parse_time(value.get("created_at")),
        provider="anthropic",
        model=as_string(value.get("model")),
        project=as_string(project.get("name")),
        title=as_string(value.get("name")),
        source="claude-ai",
        extra={key: text for key, text in extra.items() if text is not None},
    )


# --- messages -----------------------------------------------------------------------------------------------


def _messages(conversation: dict[str, Any], ledger: Ledger) -> Iterator[Message]:
    """The messages of the current branch, then those of the others. Every record is counted."""
    values = conversation["chat_messages"]
    ledger.read += max(len(values), 1)
    ledger.skip("empty", 0 if values else 1)
    current = _current(conversation, values)
    order = [*current, *sorted(set(range(len(values))) - set(current))]
    kept = set(current)
    for at in order:
        value = values[at]
        if not isinstance(value, dict):
            ledger.damage("the message is not an object", at + 1)
            continue
        messages = read_message(value, at + 1, at in kept)
        if not messages:
            ledger.skip("empty")
        yield from messages


def _current(conversation: dict[str, Any], values: list[Any]) -> list[int]:
    """The places of the messages on the current branch, in order.

    The branch ends at `current_leaf_message_uuid` (browser tools give it), else at the leaf latest in time. A
    message whose parent is not there follows the one before it in the file.
    """
    places: dict[str, int] = {}
    for at, value in enumerate(values):
        identity = as_dict(value).get("uuid")
        if isinstance(identity, str):
            places.setdefault(identity, at)
    parents = [_parent(as_dict(value), at, places) for at, value in enumerate(values)]
    if not any(as_dict(value).get("parent_message_uuid") for value in values):
        return list(range(len(values)))
    leaf = places.get(str(conversation.get("current_leaf_message_uuid")))
    if leaf is None:
        leaf = _latest_leaf(values, parents)
    path: list[int] = []
    seen = set()
    while leaf is not None and leaf not in seen:
        seen.add(leaf)
        path.append(leaf)
        leaf = parents[leaf]
    return path[::-1]


def _parent(value: dict[str, Any], at: int, places: dict[str, int]) -> int | None:
    named = value.get("parent_message_uuid")
    if named == ROOT:
        return None
    found = places.get(named) if isinstance(named, str) else None
    if found is not None and found != at:
        return found
    return at - 1 if at else None


def _latest_leaf(values: list[Any], parents: list[int | None]) -> int | None:
    leaves = sorted(set(range(len(values))) - {at for at in parents if at is not None})
    times = [(parse_time(as_dict(values[at]).get("created_at")), at) for at in leaves]
    known = [(time, at) for time, at in times if time is not None]
    if known:
        return max(known)[1]
    return leaves[-1] if leaves else len(values) - 1


# --- documents ----------------------------------------------------------------------------------------------


def _documents(value: dict[str, Any]) -> Iterator[tuple[str, Message]]:
    """Title and message of each document of a project, or of each memory."""
    found = list(_memories(value)) if "conversations_memory" in value else list(_project_documents(value))
    for ordinal, (title, text, role, origin, time, identity) in enumerate(found, 1):
        yield (
            title,
            Message(
                role,
                (Text(text),),
                timestamp=parse_time(time),
                id=as_string(identity),
                origin=origin,
                line=ordinal,
            ),
        )


_Found = tuple[str, str, Role, Origin, Any, Any]


def _project_documents(value: dict[str, Any]) -> Iterator[_Found]:
    for doc in as_list(value.get("docs")):
        item = as_dict(doc)
        content, name = as_string(item.get("content")), as_string(item.get("filename")) or "document"
        if content is not None:
            text = f"[document: {name}]\n{content}"
            yield name, text, Role.USER, Origin.PERSON, item.get("created_at"), item.get("uuid")
    instructions = as_string(value.get("prompt_template"))
    if instructions is not None:
        title = f"instructions of {as_string(value.get('name')) or 'a project'}"
        yield title, instructions, Role.SYSTEM, Origin.INJECTED, value.get("created_at"), None


def _memories(value: dict[str, Any]) -> Iterator[_Found]:
    """What Claude remembers of the person, written by it: of all conversations, and by project."""
    text = as_string(value.get("conversations_memory"))
    if text is not None:
        yield "memory", text, Role.ASSISTANT, Origin.SUMMARY, value.get("updated_at"), None
    for project, memory in as_dict(value.get("project_memories")).items():
        if isinstance(memory, str) and memory:
            yield f"memory of project {project}", memory, Role.ASSISTANT, Origin.SUMMARY, None, project


def _document_metadata(value: dict[str, Any]) -> SessionMetadata:
    is_memory = "conversations_memory" in value
    name = as_string(value.get("name"))
    identity = as_string(value.get("account_uuid") if is_memory else value.get("uuid"))
    return SessionMetadata(
        session_id=f"{'memories' if is_memory else 'project'}/{identity}" if identity else None,
        timestamp=parse_time(value.get("created_at")),
        provider="anthropic",
        project=None if is_memory else name,
        title="Claude.ai memories" if is_memory else name,
        source="claude-ai",
    )
