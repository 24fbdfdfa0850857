"""`mempalace status`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mempalace import encoder
from mempalace.cli.output import json_option, number, one_line, palace_option, percent, print_json, size, table
from mempalace.palace import folder, indexing
from mempalace.search import Reader

_MOST_PROJECTS = 15


@click.command(epilog="Example:  mempalace status --json")
@palace_option
@json_option
def command(palace: Path, as_json: bool) -> None:
    """What the palace holds: sessions per tool and project, sizes, and how far the indexes are."""
    with Reader(palace) as reader:
        found = collect(reader)
    if as_json:
        print_json(found)
    else:
        click.echo(_render(found))


def collect(reader: Reader) -> dict[str, Any]:
    """The JSON contract of `status --json`, version 1."""
    catalog = reader.catalog
    vectors, queued = catalog.count("vectors"), catalog.count("embed_queue")
    indexed = reader.lexical.count() if reader.lexical is not None else 0
    parts = {
        "catalog": folder.CATALOG,
        "lexical": folder.LEXICAL,
        "vectors": folder.VECTORS,
    }
    return {
        "schema_version": 1,
        "palace": str(reader.palace),
        "generation": catalog.generation,
        "sessions": catalog.count("sessions"),
        "subagents": catalog.count("sessions", "kind = 'subagent'"),
        "messages": catalog.count("messages"),
        "chunks": catalog.count("chunks"),
        "indexed": indexed,
        "sources": dict(catalog.rows("SELECT state, COUNT(*) FROM sources GROUP BY state ORDER BY state")),
        "formats": _grouped(
            catalog.rows("SELECT format, COUNT(*), SUM(messages) FROM sessions GROUP BY format ORDER BY 2 DESC")
        ),
        "projects": _grouped(
            catalog.rows(
                "SELECT COALESCE(wing, project_name, '') AS name, COUNT(*), SUM(messages) FROM sessions"
                " GROUP BY name ORDER BY 2 DESC, 1"
            )
        ),
        "roles": dict(catalog.rows("SELECT role, COUNT(*) FROM messages GROUP BY role ORDER BY role")),
        "vectors": {
            "embedded": vectors,
            "queued": queued,
            "share": vectors / (vectors + queued) if vectors + queued else 1.0,
        },
        "refined": _refined(reader),
        "vector_store": catalog.get("vector_store"),
        "models": {"vectors": catalog.get("vector_model"), "rerank": encoder.model_id()},
        "bytes": {name: folder.size_of(reader.palace / part) for name, part in parts.items()},
        "archived_bytes": catalog.row("SELECT COALESCE(SUM(size), 0) FROM parts")[0],
    }


def _refined(reader: Reader) -> dict[str, float]:
    """How much of the dialogue the sentence encoder's vectors are kept of."""
    catalog = reader.catalog
    total = indexing.texts_to_embed(catalog)
    done = catalog.count("refined") if catalog.get("refine_model") == encoder.model_id() else 0
    return {"kept": done, "left": total - done, "share": done / total if total else 1.0}


def _grouped(rows: list[Any]) -> dict[str, dict[str, int]]:
    return {str(name): {"sessions": sessions, "messages": messages or 0} for name, sessions, messages in rows}


def _render(found: dict[str, Any]) -> str:
    lines = [
        f"Palace    {one_line(found['palace'])}",
        f"Sessions  {number(found['sessions'])}, of them {number(found['subagents'])} of sub-agents",
        f"Messages  {number(found['messages'])}"
        + "".join(f", {role} {number(count)}" for role, count in found["roles"].items()),
        f"Chunks    {number(found['chunks'])}, indexed {number(found['indexed'])}",
        f"Vectors   {number(found['vectors']['embedded'])}, {percent(found['vectors']['share'])} of the dialogue"
        + (f" ({found['models']['vectors']})" if found["models"]["vectors"] else ""),
        f"Refined   {number(int(found['refined']['kept']))}, {percent(found['refined']['share'])} of the dialogue"
        + (": mempalace refine makes searches faster" if found["refined"]["left"] else ""),
        "Disk      "
        + ", ".join(f"{name} {size(count)}" for name, count in found["bytes"].items())
        + f"; the logs it keeps are {size(found['archived_bytes'])}",
        "",
        table(
            [("tool", "sessions", "messages")]
            + [(name, number(of["sessions"]), number(of["messages"])) for name, of in found["formats"].items()],
            right=(1, 2),
        ),
        "",
    ]
    projects = list(found["projects"].items())
    rows = [
        (name or "(none)", number(of["sessions"]), number(of["messages"])) for name, of in projects[:_MOST_PROJECTS]
    ]
    lines.append(table([("project", "sessions", "messages"), *rows], right=(1, 2)))
    if len(projects) > _MOST_PROJECTS:
        lines.append(f"... and {len(projects) - _MOST_PROJECTS} more: --json lists them all")
    return "\n".join(lines)
