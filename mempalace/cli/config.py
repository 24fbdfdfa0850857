"""The config file: TOML, one table per command, below flags and environment.

palace = "~/notes/palace"
[search]
limit = 5
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from mempalace.errors import UsageError


def path() -> Path:
    """MEMPALACE_CONFIG, else ~/.mempalace/config.toml."""
    named = os.environ.get("MEMPALACE_CONFIG")
    return Path(named).expanduser() if named else Path.home() / ".mempalace" / "config.toml"


def defaults() -> dict[str, Any]:
    """Defaults for click, by command; top-level values go to every command. Raises UsageError if it is no TOML."""
    file = path()
    if not file.exists():
        return {}
    import tomllib

    from mempalace.cli import _COMMANDS

    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"the config file cannot be read: {error}", path=file) from error
    shared = {name: value for name, value in data.items() if not isinstance(value, dict)}
    return {name: {**shared, **data.get(name, {})} for name in _COMMANDS}
