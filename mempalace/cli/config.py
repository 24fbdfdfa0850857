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

import click

from mempalace.errors import UsageError, expanded

if TYPE_CHECKING:
    from mempalace.embedders import Spec


def path() -> Path:
    """MEMPALACE_CONFIG, else ~/.mempalace/config.toml."""
    named = os.environ.get("MEMPALACE_CONFIG")
    return expanded(named) if named else Path.home() / ".mempalace" / "config.toml"


def defaults(ctx: click.Context) -> dict[str, Any]:
    """Click's defaults for the command that was asked for. Raises UsageError for a file that cannot be meant so."""
    data = _data()
    return narrowed({name: value for name, value in data.items() if name != "embedding"}, ctx)


def narrowed(data: dict[str, Any], ctx: click.Context, above: str = "") -> dict[str, Any]:
    """Of a group's table (`above` is its name and a dot) what its command gets: values of the group go to them all."""
    group = ctx.command
    assert isinstance(group, click.Group)
    names = group.list_commands(ctx)
    for key, value in data.items():
        if key in names and not isinstance(value, dict):
            raise UsageError(
                f"`{key}` is a command, its options stand in a table: [{above}{key}]", hint=_hint(names), path=path()
            )
        if key not in names and isinstance(value, dict):
            raise UsageError(f"there is no command for the table [{above}{key}]", hint=_hint(names), path=path())
    name = ctx.invoked_subcommand or ""
    command = group.get_command(ctx, name)
    if command is None:
        return {}
    shared = {key: value for key, value in data.items() if not isinstance(value, dict)}
    own = data.get(name, {})
    if isinstance(command, click.Group):
        return {name: {**shared, **own}}
    known = _known(command)
    for key in own:
        if key not in known:
            spelled = sorted({max(option.opts, key=len).lstrip("-") for option in known.values()})
            raise UsageError(f"[{above}{name}] has no option `{key}`", hint=_hint(spelled), path=path())
    given = {**shared, **own}
    return {name: {str(known[key].name): _value(known[key], value) for key, value in given.items() if key in known}}


def _known(command: click.Command) -> dict[str, click.Parameter]:
    """The options of a command by the names that a file may give them: `json`, `as_json`, `max-size`, `max_size`."""
    known = {}
    for parameter in command.params:
        spelled = [option.lstrip("-") for option in parameter.opts if option.startswith("--")]
        for key in (parameter.name, *spelled, *(name.replace("-", "_") for name in spelled)):
            known[str(key)] = parameter
    return known


def _value(parameter: click.Parameter, value: Any) -> Any:
    several = parameter.multiple or parameter.nargs == -1
    return [value] if several and not isinstance(value, list) else value


def _hint(names: list[str]) -> str:
    return f"one of: {', '.join(names)}"


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

        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise UsageError(f"the config file cannot be read: {error}", path=file) from error
