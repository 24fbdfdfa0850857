"""A local memory of every conversation with AI tools: kept word for word, found in milliseconds.

import mempalace

sessions = mempalace.parse("rollout.jsonl")       # typed sessions, no palace needed
text = mempalace.normalize("rollout.jsonl")       # a verbatim transcript
with mempalace.Palace() as palace:
    palace.mine()
    for hit in palace.search("why did we move to GraphQL"):
        print(hit.title, hit.text)
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "Palace": "library",
    "SessionAnalysis": "analysis",
    "aggregate": "analysis",
    "analyze": "analysis",
    "find_session": "library",
    "list_sessions": "library",
    "load": "library",
    "parse": "library",
    "parse_bytes": "library",
    "parse_str": "library",
    "from_openai": "library",
    "from_native": "convert.native",
    "to_native": "convert.native",
    "reconstruct_tree": "tree",
    "register": "formats.registry",
    "save": "convert",
    "to_jsonl": "convert",
    "FidelityReport": "convert",
    "SessionFile": "formats.base",
    "Session": "model",
    "SessionMetadata": "model",
    "Turn": "model",
    "Message": "model",
    "Role": "model",
    "Origin": "model",
    "Text": "model",
    "ToolUse": "model",
    "ToolResult": "model",
    "Thinking": "model",
    "Image": "model",
    "TokenUsage": "model",
    "MempalaceError": "errors",
    "Transcript": "transcript",
}
_CALLABLE_MODULES = ("formats", "normalize")

__all__ = [*_HOMES, *_CALLABLE_MODULES]


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: `import mempalace` itself costs nothing."""
    if name in _HOMES:
        return getattr(import_module(f"mempalace.{_HOMES[name]}"), name)
    if name in _CALLABLE_MODULES:
        return import_module(f"mempalace.{name}")
    raise AttributeError(f"module 'mempalace' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
