"""A loaded script, of whatever language."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mempalace.errors import ScriptError


@dataclass
class Script:
    """`metric` and `combine` are None where the script defines no such function.

    `returned` is what a Lua script gave when it was loaded, `printed` what it prints, also later.
    """

    metric: Callable[..., Any] | None
    combine: Callable[..., Any] | None
    returned: Any = None
    printed: list[str] = field(default_factory=list)


def read(path: Path) -> str:
    """The text of a script. Raises ScriptError."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ScriptError(f"the script cannot be read: {error.strerror}", path=path) from error
    except UnicodeDecodeError as error:
        raise ScriptError("the script is not UTF-8 text", path=path) from error
