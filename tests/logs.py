"""Small logs in the shape of the real ones, for tests that need a conversation more than a format."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import mempalace
from mempalace.search import SearchResults


def claude_lines(
    texts: Iterable[str], session: str = "s1", cwd: str = "/w/kiln-ctl", first: int = 0, **fields: Any
) -> list[str]:
    """Claude Code records: a person and the assistant in turn, one per text, a second apart."""
    lines = []
    for index, text in enumerate(texts, first):
        role = "assistant" if index % 2 else "user"
        content: Any = [{"type": "text", "text": text}] if role == "assistant" else text
        record = {
            "type": role,
            "uuid": f"{session}-{index}",
            "parentUuid": f"{session}-{index - 1}" if index else None,
            "sessionId": session,
            "cwd": cwd,
            "timestamp": f"2026-02-03T{9 + index // 3600:02}:{index // 60 % 60:02}:{index % 60:02}Z",
            "message": {"role": role, "content": content},
            **fields,
        }
        lines.append(json.dumps(record))
    return lines


def write_claude(path: Path, texts: Iterable[str], session: str = "s1", **fields: Any) -> Path:
    """A Claude Code log with these messages."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in claude_lines(texts, session, **fields)))
    return path


def find(palace: Path, query: str, limit: int = 10, **filters: Any) -> SearchResults:
    """Search a palace that is opened for this one question."""
    with mempalace.Palace(palace) as opened:
        return opened.search(query, limit, **filters)
