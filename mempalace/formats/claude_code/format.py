"""Claude Code: `~/.claude/projects/<slug>/<session>.jsonl`, releases 1.0.24 to 2.1.

<slug>/<session>.jsonl                              a session
<slug>/<session>/subagents/agent-<id>.jsonl         a sub-agent's session (2.1), with agent-<id>.meta.json
<slug>/agent-<id>.jsonl                             the same, up to 2.0; before 2.0.28 inside the parent's file
<slug>/<session>/tool-results/*                     tool output that was too long for the log
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mempalace.formats.base import Format, SessionFile, begins_with, home_folder, is_same_folder, reopening
from mempalace.formats.claude_code.reader import Reader
from mempalace.head import Head
from mempalace.model import Session
from mempalace.records import Ledger
from mempalace.source import Source
from mempalace.values import uncollected

_CONVERSATION = frozenset({"user", "assistant", "system", "attachment", "progress"})

# Records that say by their keys alone that Claude Code wrote them.
_BOOKKEEPING: dict[str, tuple[str, type]] = {
    "summary": ("leafUuid", str),
    "file-history-snapshot": ("snapshot", dict),
    "queue-operation": ("operation", str),
    "permission-mode": ("permissionMode", str),
    "custom-title": ("customTitle", str),
    "ai-title": ("aiTitle", str),
    "agent-name": ("agentName", str),
    "last-prompt": ("lastPrompt", str),
    "pr-link": ("prUrl", str),
}

# Top-level keys that Claude Code never writes: Codex, Gemini CLI, Qwen Code.
_FOREIGN_KEYS = ("payload", "record_type", "projectHash", "$set", "$rewindTo", "systemPayload")

# iFlow writes the same records with ids of its own making (its release 1.0.0).
_IFLOW_SESSION = re.compile(r"session-[0-9a-f]{8}-[0-9a-f]{4}-")
_IFLOW_MESSAGE = re.compile(r"response-\d")
_FOREIGN_HOMES = frozenset({".iflow", ".qwen", ".gemini", ".codex"})

_SIDE_FOLDERS = frozenset({"tool-results", "todos", "shell-snapshots", "file-history", "plans"})
_SIDE_NAMES = frozenset({"journal.jsonl", "history.jsonl", "sessions-index.json", "stats-cache.json"})
_NOT_IN_SLUG = re.compile(r"[^A-Za-z0-9-]")


class ClaudeCode(Format):
    """Anthropic's command-line agent."""

    name = "claude-code"
    title = "Claude Code"

    def claims(self, head: Head) -> float:
        """1 for a file with messages, 0.9 for one with bookkeeping only, 0 if anything in it is another tool's.

        Looks at the first 50 records. Minimal records that `read` would take are not enough here.
        """
        if not _FOREIGN_HOMES.isdisjoint(head.source.path.parts):
            return 0.0
        messages = bookkeeping = others = 0
        for record in head.records:
            if _is_foreign(record):
                return 0.0
            if _is_message(record):
                messages += 1
            elif _is_bookkeeping(record):
                bookkeeping += 1
            elif not isinstance(record.get("sessionId"), str):
                others += 1  # with a session id it is of a kind that a later release added
        if messages + bookkeeping <= others:
            return 0.0
        return 1.0 if messages else 0.9

    def read(self, source: Source, ledger: Ledger) -> Iterator[Session]:
        """The session of a file, none for a file without a user's or assistant's record.

        Takes also records that have only `type` (`user` or `human`, `assistant`) and `message`.
        """
        with uncollected():
            session = Reader(source, ledger, self.name).session()
        if session is not None:
            yield session

    def roots(self) -> list[Path]:
        """`CLAUDE_SESSIONS_DIR` alone, else `projects` below `CLAUDE_CONFIG_DIR` (a comma list) or both homes."""
        sessions = os.environ.get("CLAUDE_SESSIONS_DIR")
        if sessions:
            return [Path(sessions).expanduser()]
        configured = [part.strip() for part in os.environ.get("CLAUDE_CONFIG_DIR", "").split(",")]
        homes = [Path(part).expanduser() for part in configured if part]
        if not homes:
            homes = [Path.home() / ".claude", home_folder("XDG_CONFIG_HOME", ".config") / "claude"]
        return [home / "projects" for home in homes]

    def sessions_dir(self, project: Path | None = None) -> Path | None:
        """The folder of a project: its absolute path, each sign but letters, digits and dashes as a dash."""
        return super().sessions_dir() if project is None else next(iter(self.project_dirs(project)), None)

    def project_dirs(self, project: Path) -> list[Path]:
        """The folders of a project in each root, that of the name with the leading dash first."""
        slug = _slug(os.path.abspath(project.expanduser()))
        folders = [root / name for root in self.roots() for name in dict.fromkeys((slug, slug.removeprefix("-")))]
        return [folder for folder in folders if os.path.isdir(folder)]

    def is_of_project(self, file: SessionFile, project: Path) -> bool:
        """Whether a file in the folder of a project is that project's: `/w/a.b` and `/w/a-b` share theirs.

        A log that names a folder of another slug was started here and went elsewhere.
        """
        slug = _slug(os.path.abspath(project.expanduser()))
        return file.project is None or _slug(file.project) != slug or is_same_folder(file.project, project)

    def list_sessions(self, project: Path | None = None) -> list[SessionFile]:
        """The session files of a project (or of all) on this machine, newest first. Never raises."""
        found = super().list_sessions(project)
        if project is None:
            return found
        return [file for file in map(self.peek_quietly, found) if self.is_of_project(file, project)]

    def is_side_file(self, path: Path) -> bool:
        """Whether it is tool output, a sidecar, a memory note or an index that lies beside sessions."""
        if path.name in _SIDE_NAMES or path.name.endswith(".meta.json"):
            return True
        folders = {path.parent.name, path.parent.parent.name}
        return not _SIDE_FOLDERS.isdisjoint(folders) or (path.suffix == ".md" and "memory" in folders)

    def is_subagent_file(self, path: Path) -> bool:
        """Whether it is an `agent-*.jsonl`, of either layout."""
        return path.name.startswith("agent-") and path.suffix == ".jsonl"

    def subagent_files(self, session: Session) -> Iterable[Path]:
        """Those in the session's own folder, of workflows too, and up to 2.0 those beside it that name its id."""
        path, own = session.path, session.metadata.session_id
        if session.is_subagent or own is None:
            return []
        folder = path.with_name(path.name.removesuffix(".zst").removesuffix(".jsonl")) / "subagents"
        nested = sorted(folder.rglob("agent-*.jsonl"))
        beside = sorted(path.parent.glob("agent-*.jsonl"))
        return [*nested, *(agent for agent in beside if agent != path and begins_with(agent, own))]

    def finds(self, path: Path, session_id: str) -> bool:
        """It goes by the file's name alone."""
        return path.name == f"{session_id}.jsonl"

    def resume_command(self, session: Session) -> str | None:
        """`claude --resume`, in the folder of the project: it finds sessions of the current folder only."""
        if session.is_subagent:
            return None
        return reopening(session.metadata.session_id, session.metadata.project, "claude", "--resume")


def _slug(folder: str) -> str:
    return _NOT_IN_SLUG.sub("-", folder)


def _is_foreign(record: dict[str, Any]) -> bool:
    if any(key in record for key in _FOREIGN_KEYS):
        return True
    session_id = record.get("sessionId")
    if "session_id" in record and session_id is None:
        return True  # Claude's own stream-json, which is not a session file
    if isinstance(session_id, str) and _IFLOW_SESSION.match(session_id):
        return True
    message = record.get("message")
    if not isinstance(message, dict):
        return False
    if "parts" in message or message.get("role") == "model":
        return True
    message_id = message.get("id")
    return isinstance(message_id, str) and bool(_IFLOW_MESSAGE.match(message_id))


def _is_message(record: dict[str, Any]) -> bool:
    kind = record.get("type")
    if not isinstance(kind, str) or kind not in _CONVERSATION:
        return False
    if not isinstance(record.get("sessionId"), str) or "uuid" not in record or "parentUuid" not in record:
        return False
    return kind not in ("user", "assistant") or isinstance(record.get("message"), dict)


def _is_bookkeeping(record: dict[str, Any]) -> bool:
    kind = record.get("type")
    mark = _BOOKKEEPING.get(kind) if isinstance(kind, str) else None
    return mark is not None and isinstance(record.get(mark[0]), mark[1])
