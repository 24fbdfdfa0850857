"""The fidelity table of docs/sessions.md says what the reports say."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from mempalace.convert import TARGETS, convert
from mempalace.convert.fidelity import RESIDUE
from mempalace.model import (
    Image,
    Message,
    Origin,
    Role,
    Session,
    SessionMetadata,
    Text,
    Thinking,
    TokenUsage,
    ToolResult,
    ToolUse,
    group_turns,
)

DOCS = Path(__file__).parent.parent / "docs" / "sessions.md"
START = datetime(2026, 3, 4, 9, 0, tzinfo=UTC)


def with_everything() -> Session:
    """A session of another tool that has one of each thing that a report can name."""

    def said(
        role: Role, origin: Origin, *blocks: Text | ToolUse | ToolResult | Thinking | Image, **more: str
    ) -> Message:
        return Message(role, blocks, START, f"m{len(messages)}", origin, **more)  # type: ignore[arg-type]

    messages: list[Message] = []
    messages.append(said(Role.SYSTEM, Origin.INJECTED, Text("injected")))
    messages.append(said(Role.USER, Origin.PERSON, Text("a"), Text("b"), Text(" "), name="Ana"))
    messages.append(said(Role.USER, Origin.PERSON, Image("image/png", 6, 10, 8)))
    messages.append(said(Role.USER, Origin.ABANDONED, Text("abandoned")))
    calls = (ToolUse("c1", "web.run", ["no object"]), ToolUse("c2", "Bash", {"command": "ls"}), ToolUse("c3", "x", {}))
    messages.append(said(Role.ASSISTANT, Origin.ASSISTANT, Thinking("t"), Text("x"), *calls, model="m1"))
    results = (ToolResult("c1", "no", True), ToolResult("c2", "yes", False), ToolResult("gone", "orphan"))
    messages.append(said(Role.TOOL, Origin.TOOL_RESULT, *results))
    messages.append(said(Role.USER, Origin.COMMAND, Text("command")))
    messages.append(Message(Role.ASSISTANT, (Text("without a time"),), origin=Origin.ASSISTANT, model="m2"))
    metadata = SessionMetadata(
        "s1", START, model="m1", project="/w", client_version="1", system_prompt="p", headers=({"payload": {}},)
    )
    agent = Session(Path("a"), "gemini", turns=group_turns(messages[1:2]), agent_id="a1")
    turns = group_turns(messages, {4: TokenUsage(1, 2)})
    return Session(Path("/nowhere/a.json"), "gemini", metadata, turns, subagents=(agent,))


def table() -> list[str]:
    """The rows that the reports give: for each thing whether it is kept as it is, or named."""
    residue = {target: convert(with_everything(), target).report.residue for target in TARGETS}
    assert {name for found in residue.values() for name in found} <= set(RESIDUE)
    rows = [f"| | {' | '.join(f'`{target}`' for target in TARGETS)} |", f"|---|{'---|' * len(TARGETS)}"]
    for name, meaning in RESIDUE.items():
        cells = ["named" if residue[target].get(name) else "kept" for target in TARGETS]
        assert "named" in cells, f"nothing ever names {name}"
        rows.append(f"| {name}: {meaning.replace('|', '/')} | {' | '.join(cells)} |")
    return rows


def test_the_fidelity_table_is_what_the_reports_say() -> None:
    text = DOCS.read_text()
    (found,) = re.findall(r"<!-- fidelity -->\n(.*?)\n<!-- /fidelity -->", text, re.DOTALL)
    assert found.split("\n") == table(), "\n" + "\n".join(table())


def test_every_target_is_described() -> None:
    text = DOCS.read_text()
    assert all(f"`{target}`" in text for target in (*TARGETS, "native", "original"))
