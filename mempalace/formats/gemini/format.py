"""Gemini CLI: `~/.gemini/tmp/<project>/chats/`.

Read in the tool's source (0.2 to 0.49) and in real files:

    <= 0.38   one object {sessionId, projectHash, messages: [...]}, rewritten whole, pretty-printed
    >= 0.39   a log: header {sessionId, projectHash}, messages, {"$set": ...}, {"$rewindTo": id}
    /chat     a checkpoint of the model's history: [{role, parts}] or {history: [...]}
    (none)    a log behind {"type": "session_metadata"}: proposed (issue 15292), in no release, kept for callers

The log is replayed as the tool's own loader does (`gemini_replay`), except that nothing it drops is dropped here.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mempalace.errors import ParseError
from mempalace.formats.base import Format, home_folder, reopening
from mempalace.formats.gemini.replay import FOREIGN_KEYS, Replay, is_header, is_patch, messages_of
from mempalace.head import Head
from mempalace.model import Session
from mempalace.records import Ledger, jsonl
from mempalace.source import Source
from mempalace.values import loads

_SIDE_FOLDERS = frozenset({"tool-outputs", "memory", "plans", "checkpoints", "logs"})
_LEFTOVER = re.compile(r"\.(unreadable|tmp)-\d+")


class Gemini(Format):
    """Gemini CLI sessions and /chat checkpoints."""

    name = "gemini"
    title = "Gemini CLI"
    suffixes = (".jsonl", ".json")

    def claims(self, head: Head) -> float:
        """1 for a session, 0.9 for a log whose header is gone, 0.8 for a checkpoint."""
        document = _document_of(head)
        if document is not None:
            return 1.0 if isinstance(document, dict) and "history" not in document else 0.8
        if head.kind != "jsonl":
            return 0.0
        records = head.records
        if any(key in record for record in records for key in FOREIGN_KEYS):
            return 0.0
        if any(map(is_header, records)):
            return 1.0
        if any(record.get("type") in ("user", "gemini") and "content" in record for record in records):
            if any(record.get("type") == "session_metadata" for record in records):
                return 1.0
            return 0.9 if any(map(is_patch, records)) else 0.0
        return 0.0

    def read(self, source: Source, ledger: Ledger) -> Iterator[Session]:
        """The one session of a file, if it has messages. Of a whole document each message is a record."""
        head = Head.of(source)
        if _document_of(head) is not None or (head.kind != "jsonl" and _first_line(head.data) in (b"{", b"[")):
            raw = source.read()
            try:
                document = loads(raw)
            except ValueError as error:
                raise ParseError(str(error), path=source.path) from error
            replay = Replay(ledger, started=False)
            replay.document(document, raw)
        else:
            replay = Replay(ledger, started=any(is_header(record) or is_patch(record) for record in head.records))
            for record in jsonl(source, ledger):
                replay.add(record)
        session = replay.session(source)
        if session is not None:
            project = _project(source, session.metadata.extra)
            yield replace(session, metadata=replace(session.metadata, project=project))

    def roots(self) -> list[Path]:
        """`tmp` in the tool's folder; on macOS its sandbox keeps another in the cache folder."""
        roots = [_home() / "tmp"]
        if sys.platform == "darwin":
            roots.append(Path.home() / ".cache" / ".gemini" / "tmp")
        return roots

    def session_files(self, root: Path) -> Iterator[Path]:
        """Files in a `chats` folder, those of sub-agents one level deeper, and checkpoints."""
        for path in super().session_files(root):
            if "chats" in (path.parent.name, path.parent.parent.name) or path.name.startswith("checkpoint"):
                yield path

    def is_side_file(self, path: Path) -> bool:
        """Prompt log, tool outputs, notes, plans, leftovers, and a `.json` that was resumed as `.jsonl`."""
        parts = path.parts
        below = [parts[i + 3 :] for i in range(len(parts) - 3) if parts[i : i + 2] == (".gemini", "tmp")]
        if below and (path.name == "logs.json" or below[-1][0] in _SIDE_FOLDERS):
            return True
        if "chats" not in parts[-3:-1]:
            return False
        return _LEFTOVER.search(path.name) is not None or _is_continued(path)

    def is_subagent_file(self, path: Path) -> bool:
        """Since 0.39 a sub-agent's file is `chats/<parent session>/<own session>.jsonl`."""
        return path.parent.parent.name == "chats"

    def sessions_dir(self, project: Path | None = None) -> Path | None:
        """The folder of a project: named by a slug since 0.29, by the hash of the path before."""
        return super().sessions_dir() if project is None else next(iter(self.project_dirs(project)), None)

    def project_dirs(self, project: Path) -> list[Path]:
        """The folders of a project: one that names it, else that of the registry, else that of its hash."""
        names = {str(project), os.path.abspath(project), os.path.realpath(project)}
        for root in self.roots():
            slugs = [slug for path, slug in _registry(root.parent).items() if path in names]
            marked = [folder for folder in _folders(root) if _read(folder / ".project_root") in names]
            hashed = [root / _hash(name) for name in sorted(names)]
            for folder in [*marked, *(root / slug for slug in slugs), *hashed]:
                if os.path.isdir(folder):
                    # 0.29 copied what lay in the folder of the hash to that of the slug: one of them is all.
                    return [folder]
        return []

    def subagent_files(self, session: Session) -> Iterable[Path]:
        """Those in the folder beside it that is called by its id."""
        own = session.metadata.session_id
        if session.is_subagent or own is None or "/" in own or "\0" in own:
            return []
        return [path for path in sorted((session.path.parent / own).glob("*.json*")) if not self.is_side_file(path)]

    def resume_command(self, session: Session) -> str | None:
        """`gemini --resume <id>`, in the project's folder, where the tool looks for it."""
        if session.is_subagent:
            return None
        return reopening(session.metadata.session_id, session.metadata.project, "gemini", "--resume")


def _document_of(head: Head) -> Any:
    """The value of a file that is one document of ours, on many lines or on one; None for a log and all else."""
    if head.kind == "jsonl":
        # A log's first line is a whole object; so is a document on one line, but then it is the only one.
        is_log = _first_line(head.data).endswith(b"}") and not (head.whole and len(head.records) == 1)
        if is_log or not {"messages", "history"} & _keys(head.document):
            return None
    elif head.kind != "json":
        return None
    return head.document if messages_of(head.document, head.whole) is not None else None


def _keys(document: Any) -> set[str]:
    """The keys of an object; a list stands for a history."""
    return set(document) if isinstance(document, dict) else {"history"} if isinstance(document, list) else set()


def _is_continued(path: Path) -> bool:
    """Whether a session of the old form was resumed: that copies it to a log of the same name."""
    try:
        return path.suffix == ".json" and path.with_suffix(".jsonl").stat().st_size > 0
    except OSError:
        return False


def _first_line(data: bytes) -> bytes:
    return data.lstrip().split(b"\n", 1)[0].strip()


# --- which project ------------------------------------------------------------------------------------------


def _home() -> Path:
    return home_folder("GEMINI_CLI_HOME", "") / ".gemini"


def _project(source: Source, header: Mapping[str, Any]) -> str | None:
    """The project's folder, which the session itself names by a hash only.

    The tool writes it beside the sessions (`.project_root`) and into a registry; sub-agents and added
    folders have `directories`.
    """
    folder = None if source.member else _project_folder(source.path)
    if folder is not None and (root := _read(folder / ".project_root")):
        return root
    hashed = header.get("projectHash")
    for home in [folder.parent.parent, _home()] if folder is not None else [_home()]:
        for path, slug in _registry(home).items():
            if _hash(path) == hashed or (folder is not None and slug == folder.name and folder.parent.parent == home):
                return path
    if folder is not None and (root := _read(folder.parent.parent / "history" / folder.name / ".project_root")):
        return root
    directories = header.get("directories")
    first = directories[0] if isinstance(directories, list) and directories else None
    return first if isinstance(first, str) and first else None


def _project_folder(path: Path) -> Path | None:
    """`tmp/<project>` for the path of a session or checkpoint in it."""
    for chats in (path.parent, path.parent.parent):
        if chats.name == "chats":
            return chats.parent
    return path.parent if path.name.startswith("checkpoint-") and path.parent.parent.name == "tmp" else None


def _registry(home: Path) -> dict[str, str]:
    """Project folder -> its name below `tmp`, from `projects.json` (since 0.29)."""
    try:
        projects = loads(_read(home / "projects.json"))["projects"]
        return {path: slug for path, slug in projects.items() if isinstance(slug, str)}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _folders(root: Path) -> list[Path]:
    try:
        return sorted(root.iterdir())
    except OSError:
        return []


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def _hash(path: str) -> str:
    return hashlib.sha256(path.encode("utf-8", "surrogatepass")).hexdigest()
