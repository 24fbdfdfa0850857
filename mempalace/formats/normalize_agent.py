"""The agent of normalize (rhi-zone/normalize, `normalize @agent`): `<project>/.normalize/agent/logs/*.jsonl`.

    {"event": "session_start", "session_id", "timestamp", "moss_root"?}
    {"event": "task", "user_prompt", "provider", "model", "role", "max_turns"}           what a person asked for
    {"event": "turn_start", "turn", "state", "working_memory_count", "notes_count"}
    {"event": "llm_response", "turn", "response", "state", "retries"}                    what the model answered
    {"event": "command", "turn", "cmd", "success", "output_length"}                      a call; its output is not kept
    {"event": "max_turns_reached", "turn"}
    {"event": "session_end", "duration_seconds", "total_turns"}

As read in the tool's source of 2026-04. Only the start has a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from mempalace.formats.base import Format, SessionFile
from mempalace.head import Head
from mempalace.model import (
    Block,
    Message,
    Origin,
    Role,
    Session,
    SessionMetadata,
    Text,
    ToolResult,
    ToolUse,
    group_turns,
)
from mempalace.records import Ledger, Record, jsonl
from mempalace.source import Source
from mempalace.values import parse_time

_FOLDER = Path(".normalize", "agent", "logs")
_MARKS = {"session_start": "moss_root", "task": "user_prompt", "turn_start": "working_memory_count"}
_EVENTS = frozenset({*_MARKS, "llm_response", "command", "max_turns_reached", "session_end"})
_FOREIGN_KEYS = frozenset({"type", "payload", "uuid", "sessionId", "message", "messages"})
_NOTED = ("role", "max_turns", "duration_seconds", "total_turns")


class NormalizeAgent(Format):
    """Logs of the agent of normalize."""

    name = "normalize-agent"
    title = "Normalize Agent"

    def claims(self, head: Head) -> float:
        """1 for a log that holds an event with a field of this tool alone; 0 if anything in it is another's."""
        records = head.records
        if any(not _FOREIGN_KEYS.isdisjoint(record) for record in records):
            return 0.0
        events = [record for record in records if _event(record) in _EVENTS]
        marked = any(_MARKS.get(_event(record) or "") in record for record in events)
        return 1.0 if marked and 2 * len(events) > len(records) else 0.0

    def read(self, source: Source, ledger: Ledger) -> Iterator[Session]:
        """The session of a file; several, if it holds several starts."""
        run: _Run | None = None
        for record in jsonl(source, ledger):
            if _event(record.value) == "session_start" and run is not None and run.began:
                yield from run.session(source, end=record.offset)
                run = _Run(start=record.offset)
            run = run or _Run()
            run.add(record, ledger)
        if run is not None:
            yield from run.session(source)

    def roots(self) -> list[Path]:
        """The logs of the project in the current folder: the tool keeps them nowhere else."""
        try:
            return [Path.cwd() / _FOLDER]
        except FileNotFoundError:
            return []  # the folder is gone

    def sessions_dir(self, project: Path | None = None) -> Path | None:
        """The logs' folder inside a project."""
        if project is None:
            return super().sessions_dir()
        folder = project.expanduser().absolute() / _FOLDER
        return folder if os.path.isdir(folder) else None

    def list_sessions(self, project: Path | None = None) -> list[SessionFile]:
        """The logs of a project, by default of that in the current folder, newest first. Never raises."""
        if project is None:
            return super().list_sessions()
        return self.files_below(self.project_dirs(project))


def _event(record: dict[str, Any]) -> str | None:
    event = record.get("event")
    return event if isinstance(event, str) else None


@dataclass(slots=True)
class _Run:
    """One session while its events are read."""

    start: int = 0
    began: bool = False
    time: datetime | None = None
    facts: dict[str, str] = field(default_factory=dict)
    noted: dict[str, Any] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    calls: int = 0

    def add(self, record: Record, ledger: Ledger) -> None:
        """Take up an event, and count it."""
        value = record.value
        event = _event(value)
        self.began = True
        if event in ("task", "llm_response", "command"):
            taken = self._call(record) if event == "command" else self._say(record, is_task=event == "task")
            if not taken:
                ledger.skip("empty")
        elif event in ("session_start", "session_end", "max_turns_reached"):
            ledger.skip("metadata")
            self.time = self.time or parse_time(value.get("timestamp"))
            self._note(value, session_id="session_id", moss_root="project")
            if event == "max_turns_reached":
                self.noted[event] = True
        else:
            ledger.skip("control" if event == "turn_start" else "unknown")

    def _note(self, value: dict[str, Any], **names: str) -> None:
        for key, name in names.items():
            text = value.get(key)
            if isinstance(text, str) and text:
                self.facts.setdefault(name, text)
        for key in _NOTED:
            if isinstance(value.get(key), str | int | float):
                self.noted.setdefault(key, value[key])

    def _say(self, record: Record, *, is_task: bool) -> bool:
        text = record.value.get("user_prompt" if is_task else "response")
        if not isinstance(text, str) or not text:
            return False
        if is_task:
            self._note(record.value, provider="provider", model="model")
            self._append(record, Role.USER, Origin.PERSON, Text(text))
        else:
            self._append(record, Role.ASSISTANT, Origin.ASSISTANT, Text(text))
        return True

    def _call(self, record: Record) -> bool:
        """The call, named after its first word, and whether it went well: two messages of one record."""
        command, success = record.value.get("cmd"), record.value.get("success")
        if not isinstance(command, str) or not command.strip():
            return False
        self.calls += 1
        own = f"cmd-{self.calls}"
        self._append(record, Role.ASSISTANT, Origin.ASSISTANT, ToolUse(own, command.split()[0], {"command": command}))
        failed = not success if isinstance(success, bool) else None
        self._append(record, Role.TOOL, Origin.TOOL_RESULT, ToolResult(own, "", failed), records=0)
        return True

    def _append(self, record: Record, role: Role, origin: Origin, block: Block, records: int = 1) -> None:
        # Only the first event behind the start is as old as the start.
        model = self.facts.get("model") if role is Role.ASSISTANT else None
        self.messages.append(
            Message(
                role,
                (block,),
                timestamp=None if self.messages else self.time,
                origin=origin,
                model=model,
                line=record.line,
                records=records,
            )
        )

    def session(self, source: Source, end: int | None = None) -> Iterator[Session]:
        """The session, if anything was said in it."""
        if not self.messages:
            return
        yield Session(
            path=source.path,
            format=NormalizeAgent.name,
            metadata=SessionMetadata(
                session_id=self.facts.get("session_id"),
                timestamp=self.time,
                provider=self.facts.get("provider"),
                model=self.facts.get("model"),
                project=self.facts.get("project") or _project_of(source),
                source=NormalizeAgent.name,
                extra=dict(self.noted),
            ),
            turns=group_turns(self.messages),
            member=source.member,
            start=self.start,
            end=end,
        )


def _project_of(source: Source) -> str | None:
    """The project in whose folder a log lies."""
    folder = source.path.absolute().parent
    if source.member is None and folder.parts[-len(_FOLDER.parts) :] == _FOLDER.parts:
        return str(folder.parents[len(_FOLDER.parts) - 1])
    return None
