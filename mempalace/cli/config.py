"""The config file: TOML, one table per command, below flags and environment.

palace = "~/notes/palace"
[search]
limit = 5
[embedding]                          # what makes the vectors of new palaces; see mempalace/embedders.py
model = "ollama:nomic-embed-text"    # MEMPALACE_EMBEDDING_MODEL and MEMPALACE_EMBEDDING_URL go before it
url = "http://localhost:11434"
query_prefix = "search_query: "
text_prefix = "search_document: "
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mempalace.errors import UsageError, expanded

if TYPE_CHECKING:
    from mempalace.embedders import Spec


def path() -> Path:
    """MEMPALACE_CONFIG, else ~/.mempalace/config.toml."""
    named = os.environ.get("MEMPALACE_CONFIG")
    return expanded(named) if named else Path.home() / ".mempalace" / "config.toml"


def defaults() -> dict[str, Any]:
    """Defaults for click, by command; top-level values go to every command. Raises UsageError if it is no TOML."""
    data = _data()
    from mempalace.cli import _COMMANDS

    shared = {name: value for name, value in data.items() if not isinstance(value, dict)}
    return {name: {**shared, **data.get(name, {})} for name in _COMMANDS}


def embedding(model: str | None = None, url: str | None = None) -> Spec | None:
    """The embedder that the config file and the environment name; None if they name none. Raises UsageError."""
    from mempalace.embedders import Spec

    table = _data().get("embedding", {})
    if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
        raise UsageError("[embedding] holds texts: model, url, query_prefix, text_prefix", path=path())
    environment = {name: os.environ.get(f"MEMPALACE_EMBEDDING_{name.upper()}") for name in ("model", "url")}
    given = {"model": model, "url": url}
    if model is not None:
        table = {}  # its address and prefixes belong to another model
        environment = {}
    found = {**table, **{name: value for part in (environment, given) for name, value in part.items() if value}}
    if not found:
        return None
    try:
        return Spec(**found)
    except TypeError as error:
        raise UsageError(f"[embedding] holds what is not known: {error}", path=path()) from error


def _data() -> dict[str, Any]:
    file = path()
    try:
        if not file.exists():
            return {}
        import tomllib

        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"the config file cannot be read: {error}", path=file) from error
