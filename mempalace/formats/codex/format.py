"""Codex CLI: rollouts, one file per session, as JSON lines; cold ones compressed with zstd since 2026.

    $CODEX_HOME/sessions/YYYY/MM/DD/rollout-<local time>-<uuid>.jsonl[.zst]   (before 2025-07: flat)
    $CODEX_HOME/archived_sessions/rollout-*.jsonl[.zst]

Three generations of content: records in an envelope `{timestamp, type, payload}` (since September 2025), bare
response items below a header line `{id, timestamp, instructions}` (since June 2025), and before that one JSON
document `{"session": {...}, "items": [...]}`, written by the TypeScript predecessor. Codex forks such as
TraeX write the first under a home of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import date, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from mempalace.errors import ParseError
from mempalace.formats.base import Format, begins_with, home_folder, reopening
from mempalace.formats.codex.items import as_dict, as_str
from mempalace.formats.codex.session import RECORD_KINDS, Builder
from mempalace.formats.codex.tools import CALLS, OUTPUTS
from mempalace.head import Head
from mempalace.model import Session
from mempalace.records import Ledger, Record, document, jsonl
from mempalace.source import Source, lines
from mempalace.values import uncollected

_BARE_ITEMS = CALLS | OUTPUTS | {"message", "reasoning", "ghost_snapshot", "compaction"}
_FOREIGN_KEYS = ("uuid", "parentUuid", "sessionId", "projectHash", "$set", "$rewindTo")
_DOCUMENT_START = re.compile(rb'\s*\{\s*"(?:session|items)"\s*:')


class Codex(Format):
    """Codex CLI rollouts."""

    name: ClassVar[str] = "codex"
    title: ClassVar[str] = "Codex CLI"
    suffixes: ClassVar[tuple[str, ...]] = (".jsonl", ".jsonl.zst")

    def claims(self, head: Head) -> float:
        """1 for rollouts with their header, less for a few enveloped records among others, 0 for all else."""
        records = head.records
        if not records:
            return 0.9 if _is_old_document(head.document) else 0.0
        if any(key in record for record in records for key in _FOREIGN_KEYS):
            return 0.0
        enveloped = sum(_is_enveloped(record) for record in records)
        if enveloped:
            return 1.0 if 2 * enveloped >= len(records) else 0.8
        if _is_bare_header(records[0]) and all(_is_bare_item(record) for record in records[1:]):
            return 1.0 if len(records) > 1 else 0.7
        return 0.9 if len(records) == 1 and _is_old_document(records[0]) else 0.0

    def read(self, source: Source, ledger: Ledger) -> Iterator[Session]:
        """The one session of a rollout."""
        builder = Builder()
        records = _document_records(source, ledger) if _starts_as_document(source) else jsonl(source, ledger)
        with uncollected():
            for record in records:
                builder.add(record)
            session = builder.finish(source, ledger)
        if session is not None:
            yield session

    def roots(self) -> list[Path]:
        """`sessions` and `archived_sessions` below $CODEX_HOME, by default ~/.codex."""
        home = home_folder("CODEX_HOME", ".codex")
        return [home / "sessions", home / "archived_sessions"]

    def session_files(self, root: Path) -> Iterator[Path]:
        """The rollouts below a root. Of one that is there plain and compressed only the plain file is taken:
        Codex compresses in the background, and goes on in the plain file after a resume."""
        for path in super().session_files(root):
            plain = path.name.removesuffix(".zst")
            if path.name.startswith("rollout-") and (plain == path.name or not path.with_name(plain).exists()):
                yield path

    def is_side_file(self, path: Path) -> bool:
        """Prompts of all sessions, titles, databases and logs."""
        return (
            path.name in ("history.jsonl", "session_index.jsonl")
            or path.suffix in (".sqlite", ".log")
            or path.parent.name == "log"
        )

    def first_project(self, session: Session) -> str | None:
        """The folder of the first header: that of the last turn is the session's project."""
        for header in session.metadata.headers:
            if cwd := as_str(as_dict(as_dict(header).get("payload")).get("cwd")) or as_str(as_dict(header).get("cwd")):
                return cwd
        return session.metadata.project

    def subagent_files(self, session: Session) -> Iterable[Path]:
        """Rollouts that name it in their header, in its folder and in those of the days on which it was written."""
        own = session.metadata.session_id
        if own is None:
            return []
        days = _days(session.path)
        rollouts = (path for day in days for path in self.session_files(day) if path.parent == day)
        return [path for path in rollouts if path != session.path and begins_with(path, own)]

    def resume_command(self, session: Session) -> str | None:
        """`codex resume <id>` in the session's folder; None for a sub-agent, which cannot be resumed alone."""
        if session.is_subagent:
            return None
        return reopening(session.metadata.session_id, session.metadata.project, "codex", "resume")


def _days(path: Path) -> list[Path]:
    """The folder of a rollout and, where folders are days, those of all days up to the last on which it grew."""
    day = path.parent
    try:
        first = date(*map(int, day.parts[-3:]))
        last = date.fromtimestamp(path.stat().st_mtime) + timedelta(days=1)  # a day more: zones differ
    except (ValueError, TypeError, OSError, OverflowError):
        return [day]
    root = day.parents[2]
    known = sorted(root.glob("[0-9]*/[0-9]*/[0-9]*"))
    start, end = (moment.strftime("%Y/%m/%d") for moment in (first, max(first, last)))
    return [folder for folder in known if start <= folder.relative_to(root).as_posix() <= end]


def _is_enveloped(record: dict[str, Any]) -> bool:
    kind = record.get("type")
    return isinstance(kind, str) and kind in RECORD_KINDS and isinstance(record.get("payload"), dict)


def _is_bare_header(record: dict[str, Any]) -> bool:
    if record.get("type") == "session_meta":
        return "payload" not in record or record["payload"] is None
    if "type" in record or not as_str(record.get("id")) or not as_str(record.get("timestamp")):
        return False
    return "instructions" in record or "git" in record


def _is_bare_item(record: dict[str, Any]) -> bool:
    kind = record.get("type")
    return "record_type" in record or (isinstance(kind, str) and (kind in _BARE_ITEMS or kind in RECORD_KINDS))


def _is_old_document(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("session"), dict):
        return False
    known = as_str(value["session"].get("id")) and "timestamp" in value["session"]
    items = value.get("items", [])
    if not known or not isinstance(items, list):
        return False
    return all(isinstance(item, dict) and ("role" in item or _is_bare_item(item)) for item in items[:20])


def _starts_as_document(source: Source) -> bool:
    try:
        with closing(lines(source)) as found:  # type: ignore[type-var]
            return _DOCUMENT_START.match(b"".join(islice(found, 2))) is not None
    except ParseError:
        return False  # a damaged archive: counted when its records are read


def _document_records(source: Source, ledger: Ledger) -> Iterator[Record]:
    """Header and items of the one JSON document that the predecessor wrote, as if they were lines.

    `line` is the ordinal. Every record has the whole file as `raw`, so that images are found in it.
    """
    value = as_dict(document(source))
    if not isinstance(value.get("session"), dict) or not isinstance(value.get("items", []), list):
        raise ParseError("neither a rollout nor the document of Codex before June 2025", path=source.path)
    raw = source.read()
    header = {"type": "session_meta", "payload": value["session"]}
    for line, item in enumerate([header, *value.get("items", [])], 1):
        ledger.read += 1
        if isinstance(item, dict):
            yield Record(item, line, 0, raw)
        else:
            ledger.damage("not a JSON object", line)
