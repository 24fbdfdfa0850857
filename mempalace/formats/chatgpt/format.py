"""ChatGPT: the vendor's export (a list of conversations, whole or in shards), and single conversations.

A conversation is a tree of nodes (`mapping`) with the leaf that the person last saw (`current_node`). The
path from the root to that leaf is the conversation; what was regenerated or edited away follows at its end,
branch by branch, as ABANDONED. Nodes that the client hides are INJECTED.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from mempalace import values
from mempalace.documents import as_dict, as_list, as_string, elements, sample
from mempalace.formats.base import Format
from mempalace.formats.chatgpt.content import KNOWN_TYPES, read_message
from mempalace.head import Head
from mempalace.model import (
    Message,
    Session,
    SessionMetadata,
    ToolUse,
    group_turns,
)
from mempalace.model_data import format_time
from mempalace.records import Ledger
from mempalace.source import Source

_KEYS = ("conversations", "items")
_NODE_KEYS = ("message", "parent", "children")
_REMEMBERED_CALLS = 8
_EXTRA = ("gizmo_id", "gizmo_type", "conversation_origin", "is_archived", "is_starred", "memory_scope", "voice")
_LINEAGE = {"forked_from": "branching_from_conversation_id", "parent_message_id": "branching_from_message_id"}


class ChatGPT(Format):
    """Conversations exported from ChatGPT."""

    name = "chatgpt"
    title = "ChatGPT"
    suffixes = (".json",)

    def claims(self, head: Head) -> float:
        return 1.0 if sample(head, _KEYS, _is_conversation) else 0.0

    def read(self, source: Source, ledger: Ledger) -> Iterator[Session]:
        for element in elements(source, ledger, _KEYS, _is_conversation):
            if not _is_conversation(element.value):
                ledger.read += 1
                ledger.skip("unknown")
                ledger.note("unrecognised", "not a conversation", element.ordinal)
                continue
            conversation = _Conversation(element.value, ledger)
            messages = conversation.messages()
            if messages:
                yield Session(
                    path=source.path,
                    format=self.name,
                    metadata=_metadata(element.value, messages),
                    turns=group_turns(messages),
                    member=source.member,
                    start=element.start,
                    end=element.end,
                )


def _is_conversation(value: Any) -> bool:
    """Whether it has a `mapping` of nodes. (An empty one belongs to a conversation that was never started.)"""
    mapping = value.get("mapping") if isinstance(value, dict) else None
    if not isinstance(mapping, dict):
        return False
    nodes = [node for node in mapping.values() if isinstance(node, dict)]
    if not nodes:
        return "current_node" in value or "create_time" in value
    return any(sum(key in node for key in _NODE_KEYS) >= 2 for node in nodes[:20])


def _metadata(conversation: dict[str, Any], messages: list[Message]) -> SessionMetadata:
    extra = {key: conversation[key] for key in _EXTRA if conversation.get(key) not in (None, "", False)}
    updated = format_time(values.parse_time(conversation.get("update_time")))
    if updated is not None:
        extra["update_time"] = updated
    models = [message.model for message in messages if message.model is not None]
    return SessionMetadata(
        session_id=as_string(conversation.get("conversation_id")) or as_string(conversation.get("id")),
        timestamp=values.parse_time(conversation.get("create_time")),
        provider="openai",
        model=as_string(conversation.get("default_model_slug")) or (models[-1] if models else None),
        title=as_string(conversation.get("title")),
        source="chatgpt",
        lineage={name: str(conversation[key]) for name, key in _LINEAGE.items() if conversation.get(key)},
        extra=extra,
    )


class _Conversation:
    """One tree of nodes on its way to a list of messages. Every node is counted in the ledger."""

    def __init__(self, value: dict[str, Any], ledger: Ledger) -> None:
        self.value = value
        self.nodes: dict[str, Any] = value["mapping"]
        self.ledger = ledger
        self.ordinals = {key: ordinal for ordinal, key in enumerate(self.nodes, 1)}
        self.parents = {key: self._named_parent(key, node) for key, node in self.nodes.items()}
        self.children = self._children()
        self.times: dict[str, datetime | None] = {}
        self.calls: dict[str, tuple[ToolUse, ...]] = {}

    def messages(self) -> list[Message]:
        """The messages of the current branch, then those of the others."""
        self.ledger.read += len(self.nodes)
        if not self.nodes:
            self.ledger.read += 1
            self.ledger.skip("empty")
        current = self._path()
        taken = set(current)
        found = [self._message(key, True) for key in current]
        if len(taken) < len(self.nodes):
            found += [self._message(key, False) for key in self._all() if key not in taken]
        return [message for message in found if message is not None]

    def _named_parent(self, key: str, node: Any) -> str | None:
        above = node.get("parent") if isinstance(node, dict) else None
        return above if isinstance(above, str) and above in self.nodes and above != key else None

    def _children(self) -> dict[str, list[str]]:
        """Each node's children, in the order that it lists them, then in that of the file.

        A node that names no parent gets the one that lists it.
        """
        children: dict[str, list[str]] = {key: [] for key in self.nodes}
        listed = set()
        for key, node in self.nodes.items():
            for child in as_list(as_dict(node).get("children")):
                if isinstance(child, str) and child in children and child not in listed and child != key:
                    children[key].append(child)
                    listed.add(child)
                    self.parents[child] = self.parents[child] or key
        for key, above in self.parents.items():
            if above is not None and key not in listed:
                children[above].append(key)
        return children

    def _path(self) -> list[str]:
        """The keys from the root to the current node. Without one: to the newest leaf, or the deepest last."""
        leaf = self.value.get("current_node")
        if not isinstance(leaf, str) or leaf not in self.nodes:
            leaf = self._newest_leaf()
        path: list[str] = []
        seen = set()
        while leaf is not None and leaf not in seen:
            seen.add(leaf)
            path.append(leaf)
            leaf = self.parents[leaf]
        return path[::-1]

    def _newest_leaf(self) -> str | None:
        leaves = [key for key in self.nodes if not self.children[key]] or list(self.nodes)
        times = [(self._time(key), at, key) for at, key in enumerate(leaves)]
        known = [(time, at, key) for time, at, key in times if time is not None]
        if known:
            return max(known, key=lambda item: (item[0], item[1]))[2]
        return leaves[-1] if leaves else None

    def _time(self, key: str) -> datetime | None:
        node = self.nodes[key]
        message = node.get("message") if isinstance(node, dict) else None
        return values.parse_time(message.get("create_time")) if isinstance(message, dict) else None

    def _all(self) -> Iterator[str]:
        """Every key once, parents before children; what hangs in a cycle comes last."""
        seen: set[str] = set()
        roots = [key for key in self.nodes if self.parents[key] is None]
        for start in [*roots, *self.nodes]:
            stack = [start]
            while stack:
                key = stack.pop()
                if key not in seen:
                    seen.add(key)
                    yield key
                    stack.extend(reversed(self.children[key]))

    def _message(self, key: str, is_current: bool) -> Message | None:
        """A node's message, or None after counting why there is none."""
        node = self.nodes[key]
        value = node.get("message") if isinstance(node, dict) else None
        above = self.parents[key]
        # Many nodes have no time of their own; the parent's is the nearest.
        inherited = values.parse_time(self.value.get("create_time")) if above is None else self.times.get(above)
        calls = self.calls.get(above, ()) if above is not None else ()
        if not isinstance(value, dict):
            message = None
            self._skip_structure(key, node)
        else:
            inherited = values.parse_time(value.get("create_time")) or inherited
            message = read_message(value, key, calls, inherited, self.ordinals[key], is_current)
            if message is None:
                self._skip_empty(key, value)
            elif isinstance(message.content[0], ToolUse):
                calls = (*calls, message.content[0])[-_REMEMBERED_CALLS:]
        self.times[key] = inherited
        if calls:
            self.calls[key] = calls
        return message

    def _skip_structure(self, key: str, node: Any) -> None:
        if node is not None and not isinstance(node, dict):
            self.ledger.damage(f"node {key}: not an object", self.ordinals[key])
        elif isinstance(node, dict) and node.get("message") is not None:
            self.ledger.damage(f"node {key}: the message is not an object", self.ordinals[key])
        else:
            self.ledger.skip("control")  # roots and placeholders

    def _skip_empty(self, key: str, value: dict[str, Any]) -> None:
        kind = as_dict(value.get("content")).get("content_type")
        if kind is None or str(kind) in KNOWN_TYPES:
            self.ledger.skip("empty")
        else:
            self.ledger.skip("unknown")
            self.ledger.note("unrecognised", f"nothing to read in content of type {kind!r}", self.ordinals[key])
