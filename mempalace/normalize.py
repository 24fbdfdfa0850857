"""File or text -> verbatim transcript: an ordered chain over the formats, no parser of its own.

`normalize(path)` gives the default view (dialogue with tool calls and results) of every conversation in a file.
The `_try_*` functions are called by name by programs written for MemPalace's normalizer: each takes text (of
line-based logs) or decoded JSON (of exports), and returns None for what is not its own or holds fewer than two
conversational messages. They never raise. The miner uses the same formats and keeps one-message sessions.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from mempalace import tree
from mempalace.errors import MempalaceError
from mempalace.formats import registry
from mempalace.formats.base import Format
from mempalace.head import Head
from mempalace.model import DIALOGUE, Session
from mempalace.records import Ledger
from mempalace.source import Source
from mempalace.transcript import MARK, Transcript, is_default, render_all
from mempalace.values import dumps, loads

MAX_BYTES = 500 * 1024 * 1024
_FEWEST_MESSAGES = 2
_FEWEST_MARKED_LINES = 3
_TEXT = Path("<text>")


def normalize(filepath: str | os.PathLike[str]) -> Transcript:
    """The transcript of all conversations in a file; a text that is no conversation comes back as it is.

    The result is a `str` that also carries `.sessions` and `.spans` (a slice or a sum of it is a plain `str`).
    Raises OSError if the file cannot be read or is larger than 500 MB (mining has no such limit).
    """
    try:
        size = os.path.getsize(filepath)
    except OSError as error:
        raise OSError(f"Could not read {filepath}: {error.strerror or error}") from error
    if size > MAX_BYTES:
        raise OSError(f"Could not read {filepath}: too large ({size} bytes, the limit is {MAX_BYTES})")
    path = Path(filepath)
    try:
        content = Source(path).read().decode("utf-8", errors="replace")
    except MempalaceError as error:
        raise OSError(f"Could not read {filepath}: {error.message}") from error
    if not content.strip():
        return Transcript(content)
    if path.suffix.lower() in (".json", ".jsonl", ".zst") or content.lstrip("\ufeff \t\r\n")[:1] in ("{", "["):
        found = _try_normalize_json(content)
        if found is not None:
            return found if isinstance(found, Transcript) else Transcript(found)
    if sum(line.lstrip().startswith(">") for line in content.split("\n")) >= _FEWEST_MARKED_LINES:
        return Transcript(content, _read(registry.default().get("transcript"), content))
    return Transcript(content)


def _try_normalize_json(content: str) -> str | None:
    """The transcript of a text in any known JSON form; None for JSON of another form, or no JSON at all."""
    for lines in (_try_claude_code_jsonl, _try_codex_jsonl, _try_gemini_jsonl, _try_normalize_agent_jsonl):
        found = lines(content)
        if found is not None:
            return found
    try:
        data = loads(content)
    except ValueError:
        pass
    else:
        for export in (_try_claude_ai_json, _try_chatgpt_json, _try_slack_json):
            found = export(data)
            if found is not None:
                return found
    return _try_other_formats(content)


def _try_claude_code_jsonl(content: str) -> str | None:
    """Claude Code; records with only `type` and `message` will do."""
    return _shown(_read(registry.default().get("claude-code"), content))


def _try_codex_jsonl(content: str) -> str | None:
    """Codex; a `session_meta` (also an empty one) or the header of older releases must be there."""
    sessions = _read(registry.default().get("codex"), content)
    if '"session_meta"' not in content and not any(session.key for session in sessions):
        return None
    return _shown(sessions)


def _try_gemini_jsonl(content: str) -> str | None:
    """Gemini CLI: behind a `session_metadata` record, or in either form that releases write."""
    return _shown(_read(registry.default().get("gemini"), content))


def _try_normalize_agent_jsonl(content: str) -> str | None:
    """The agent of normalize; an event with a field of its own must be there."""
    known = registry.default().get("normalize-agent")
    return _shown(_read(known, content)) if _claims(known, content) else None


def _try_claude_ai_json(data: Any) -> str | None:
    """A Claude.ai export; also flat [{role, content}] lists and {"messages": [...]}."""
    return _shown_data(data, "claude-ai", "chat")


def _try_chatgpt_json(data: Any) -> str | None:
    """A ChatGPT export, or one conversation of it."""
    return _shown_data(data, "chatgpt")


def _try_slack_json(data: Any) -> str | None:
    """Messages of a Slack channel; at least two people must speak."""
    names = registry.default().names()
    if "slack" not in names or not isinstance(data, list):
        return None
    sessions = _read(registry.default().get("slack"), dumps(data))
    speakers = {message.name for session in sessions for message in session.messages}
    return _shown(sessions) if len(speakers) >= _FEWEST_MESSAGES else None


def _try_other_formats(content: str) -> str | None:
    """What the remaining formats claim, in their order."""
    tried = {"claude-code", "codex", "gemini", "normalize-agent", "claude-ai", "chatgpt", "slack"}
    for format in registry.default():
        if format.name not in tried and _claims(format, content):
            found = _shown(_read(format, content))
            if found is not None:
                return found
    return None


def _claims(format: Format, content: str) -> bool:
    return format.claims(Head.of(_source(content))) > 0


def _source(content: str | bytes) -> Source:
    return Source(_TEXT, content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)


def _read(format: Format, content: str | bytes) -> list[Session]:
    try:
        return list(tree.flatten(format.read(_source(content), Ledger())))
    except MempalaceError:
        return []


def _shown_data(data: Any, *names: str) -> Transcript | None:
    """What the first of some formats makes of decoded JSON."""
    if not isinstance(data, list | dict):
        return None
    content = dumps(data)
    known = registry.default().names()
    for name in names:
        if name in known:
            found = _shown(_read(registry.default().get(name), content))
            if found is not None:
                return found
    return None


def _shown(sessions: Iterable[Session]) -> Transcript | None:
    """The default view, if at least two messages are dialogue."""
    kept = list(sessions)
    spoken = sum(message.origin in DIALOGUE for session in kept for message in session.messages)
    return render_all(kept, is_default) if spoken >= _FEWEST_MESSAGES else None


# --- noise --------------------------------------------------------------------------------------------------

_NOISE_TAGS = (
    "system-reminder",
    "command-message",
    "command-name",
    "task-notification",
    "user-prompt-submit-hook",
    "hook_output",
)
_NOISE_LINES = (
    "CURRENT TIME:",
    "VERIFIED FACTS (do not contradict)",
    "AGENT SPECIALIZATION:",
    "Checking verified facts...",
    "Injecting timestamp...",
    "Starting background pipeline...",
    "Checking emotional weights...",
    "Auto-save reminder...",
    "Checking pipeline...",
    "MemPalace auto-save checkpoint.",
)
_HOOKS = "Stop|PreCompact|PreToolUse|PostToolUse|UserPromptSubmit|Notification|SessionStart|SessionEnd"
_LINE_START = rf"^(?:{re.escape(MARK)})?"
_TAGGED = re.compile(
    rf"{_LINE_START}<({'|'.join(_NOISE_TAGS)})(?:\s[^>]*)?>(?:(?!\n\s*\n)[\s\S])*?</\1>[ \t]*\n?", re.MULTILINE
)
_NOISY_LINE = re.compile(
    rf"{_LINE_START}(?:{'|'.join(map(re.escape, _NOISE_LINES))}|Ran \d+ (?:{_HOOKS}) hooks?|…\s*\+\d+ lines).*\n?",
    re.MULTILINE,
)
_COLLAPSED = re.compile(r"\s*\[\d+\s+tokens?\]\s*\(ctrl\+o to expand\)")
_MANY_NEWLINES = re.compile(r"\n{4,}")


def strip_noise(text: str) -> str:
    """The text without tags and lines that Claude Code and hooks put in, for callers that want it so.

    Patterns begin at a line start and never cross a blank line. The pipeline does not call this: it tells
    noise apart by record type, and keeps what people wrote.
    """
    text = _NOISY_LINE.sub("", _TAGGED.sub("", text))
    return _MANY_NEWLINES.sub("\n\n\n", _COLLAPSED.sub("", text)).strip()


class _Callable(ModuleType):
    """The module is also the function: `mempalace.normalize(path)`."""

    def __call__(self, filepath: str | os.PathLike[str]) -> Transcript:
        """See `normalize`."""
        return normalize(filepath)


sys.modules[__name__].__class__ = _Callable
