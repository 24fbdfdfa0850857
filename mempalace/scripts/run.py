"""Run a script over sessions: the same for every language."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mempalace.errors import ScriptError
from mempalace.model import Session
from mempalace.scripts.script import Script

Values = list[tuple[str, Any]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a script gave.

    `values` has the value of each session, by its id; `result` is what `combine` made of them (or what a Lua script
    returned itself), None without either; `printed` what the script printed.
    """

    values: Values
    result: Any = None
    is_combined: bool = False
    printed: str = ""


def run(path: Path, sessions: Iterable[Session]) -> Outcome:
    """Load a script and call its `metric` for each session, then its `combine` with the list of all values.

    A file that ends in `.lua` is Lua, all others are Python. Raises ScriptError, and what reading
    the sessions raises.
    """
    script = _load(path)
    if script.metric is None:
        return Outcome([], _data(script.returned, path, "what it returns"), True, "".join(script.printed))
    values: Values = []
    for session in sessions:
        name = session.key or str(session.path)
        values.append((name, _data(script.metric(session), path, f"metric() of session {name}")))
    if script.combine is None:
        return Outcome(values, printed="".join(script.printed))
    result = _data(script.combine([value for _, value in values]), path, "combine()")
    return Outcome(values, result, True, "".join(script.printed))


def _load(path: Path) -> Script:
    if path.suffix.lower() == ".lua":
        from mempalace.scripts import lua

        return lua.load(path)
    from mempalace.scripts import python

    return python.load(path)


def _data(value: Any, path: Path, what: str) -> Any:
    """A value as plain JSON data. Raises ScriptError for anything else."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except Exception as error:  # values of a script's own classes may raise anything
        hint = "give numbers, texts, true, false, nothing, lists, or tables with texts as keys"
        raise ScriptError(f"{what} gives no JSON data: {error}", path=path, hint=hint) from error
