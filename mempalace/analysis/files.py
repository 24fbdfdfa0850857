"""Tokens per file: how much of the context a file took through the tools' results."""

from __future__ import annotations

import re

from mempalace.analysis.calls import Paired
from mempalace.model import ToolUse

CHARS_PER_TOKEN = 4
_FILE_KEYS = ("file_path", "notebook_path", "absolute_path")
_FILE_TOOL = re.compile(r"read|write|edit|view|replace", re.IGNORECASE)


def file_of(use: ToolUse) -> str | None:
    """The one file that a call is about, as the call names it.

    It stands under `file_path`, `notebook_path` or `absolute_path`; under `path` only where the tool's name says
    that it reads or writes, for others search folders with it.
    """
    if not isinstance(use.input, dict):
        return None
    keys = (*_FILE_KEYS, "path") if _FILE_TOOL.search(use.name) else _FILE_KEYS
    return next((path for key in keys if isinstance(path := use.input.get(key), str) and path), None)


def file_tokens(paired: Paired) -> dict[str, int]:
    """Tokens of the results of the calls about each file: a quarter of their characters, rounded up per result.

    An estimate: logs do not tell the tokens of a result.
    """
    tokens: dict[str, int] = {}
    for call in paired.calls:
        path = file_of(call.use)
        if path is not None:
            spent = sum(-(-len(answer.result.content) // CHARS_PER_TOKEN) for answer in call.answers)
            tokens[path] = tokens.get(path, 0) + spent
    return tokens
