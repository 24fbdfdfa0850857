"""A session goes to another tool and comes back: what people, assistants and tools said stays, the rest is named."""

from __future__ import annotations

import shutil
import tarfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from convert_helpers import FIXTURES, converted, picture, said, sessions, sources
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mempalace
from mempalace.convert import TARGETS, convert
from mempalace.model import (
    Block,
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

AGENTS_AND_CHAT = ("claude-code", "codex", "openai")
PAIRS = [(a, b) for a in AGENTS_AND_CHAT for b in AGENTS_AND_CHAT if a != b]
START = datetime(2026, 3, 4, 9, 0, tzinfo=UTC)


def assert_round_trips(session: Session, folder: Path) -> None:
    """Session -> A, and A -> B -> A for every pair: what was said is equal at each step."""
    for first in AGENTS_AND_CHAT:
        there = converted(session, first, folder / first)
        assert list(said(there, first)) == list(said(session, first)), first
        for second in AGENTS_AND_CHAT:
            if second != first:
                between = converted(there, second, folder / first / second)
                back = converted(between, first, folder / first / second / "back")
                assert list(said(back, first, second)) == list(said(there, first, second)), (first, second)


def assert_told(session: Session) -> None:
    """What a target leaves out is in its report, with the count that the session itself gives."""
    kept = [message for message in session.messages if message.origin is not Origin.ABANDONED]
    thoughts = [block for message in kept for block in message.content if isinstance(block, Thinking)]
    outcomes = [result for result in session.tool_results if result.is_error is not None]
    for target in AGENTS_AND_CHAT:
        residue = convert(session, target).report.residue
        assert residue.get("abandoned messages", 0) == session.message_count - len(kept)
        assert residue.get("sub-agents", 0) == len(session.subagents)
        if target != session.format and not any(message.origin is Origin.INJECTED for message in kept):
            assert residue.get("thinking", 0) == len(thoughts)
        if target == "openai" and not residue.get("abandoned messages") and not residue.get("orphan results"):
            assert residue.get("outcomes", 0) == len(outcomes)


@pytest.mark.parametrize("folder", sorted(path.name for path in FIXTURES.iterdir()))
def test_every_fixture_goes_to_every_tool_and_back(folder: str, tmp_path: Path) -> None:
    found = 0
    for path in sources(FIXTURES / folder):
        for number, session in enumerate(sessions(path)):
            found += 1
            assert_round_trips(session, tmp_path / str(found) / str(number))
            assert_told(session)
    assert found


# In this sample every text is the same placeholder: a summary cannot be told from what a person said beside it.
_PLACEHOLDERS = "new-drift-all-records.jsonl"


@pytest.mark.parametrize("tool", ["claude-code", "codex", "gemini-cli", "chatgpt", "claude-ai", "slack"])
def test_every_sample_goes_to_every_tool_and_back(corpus: Path, tool: str, tmp_path: Path) -> None:
    found = 0
    for path in sources(corpus / "samples" / tool):
        for session in sessions(path):
            if path.name != _PLACEHOLDERS:
                found += 1
                assert_round_trips(session, tmp_path / str(found))
                assert_told(session)
    assert found


@pytest.mark.slow
def test_every_real_log_goes_to_every_tool_and_back(corpus: Path, tmp_path: Path) -> None:
    with tarfile.open(corpus / "data" / "real-logs.tar.xz") as archive:
        archive.extractall(tmp_path / "logs", filter="data")
    found = 0
    for path in sources(tmp_path / "logs"):
        for session in sessions(path):
            found += 1
            assert_round_trips(session, tmp_path / "out")
            shutil.rmtree(tmp_path / "out")
    assert found >= 66


# --- made-up sessions ---------------------------------------------------------------------------------------

WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30).filter(
    # What begins like a harness's tag is that harness's own to every reader; nothing can be said of blank texts.
    lambda text: text.strip() and text.lstrip()[:1] not in "<[#/" and not text.lower().lstrip().startswith("another l")
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(["Bash", "Read", "apply_patch", "mcp__a__b", "web.run", ""])
INPUTS = st.dictionaries(st.text(max_size=5), JSON, max_size=3) | JSON | WORDS.map(lambda text: {"raw": text})
OUTPUTS = st.text(max_size=20) | st.sampled_from(
    ["failed to run", "Exit code: 1\nOutput:\nx", '{"output": "x", "metadata": {"exit_code": 3}}', "{", "[error] x"]
)


@st.composite
def made_up(draw: st.DrawFn) -> Session:
    """A session of some turns, with calls whose ids repeat or are missing, results without a call, all outcomes."""
    messages: list[Message] = []
    for number in range(draw(st.integers(1, 4))):
        asked = tuple(Text(text) for text in draw(st.lists(WORDS, min_size=1, max_size=2)))
        messages.append(_message(Role.USER, asked, f"u{number}", Origin.PERSON))
        for step in range(draw(st.integers(0, 3))):
            blocks: list[Block] = []
            for _ in range(draw(st.integers(1, 3))):
                kind = draw(st.sampled_from(["text", "call", "thought"]))
                if kind == "text":
                    blocks.append(Text(draw(WORDS)))
                elif kind == "thought":
                    blocks.append(Thinking(draw(WORDS), draw(st.sampled_from([None, "sig"]))))
                else:
                    blocks.append(
                        ToolUse(draw(st.sampled_from(["", "c1", "c 2", "x" * 80])), draw(NAMES), draw(INPUTS))
                    )
            messages.append(_message(Role.ASSISTANT, tuple(blocks), f"a{number}-{step}", Origin.ASSISTANT))
            results = [
                ToolResult(call, draw(OUTPUTS), draw(st.sampled_from([None, True, False])))
                for call in draw(st.lists(st.sampled_from(["", "c1", "c 2", "gone"]), max_size=2))
            ]
            if results:
                messages.append(_message(Role.TOOL, tuple(results), f"r{number}-{step}", Origin.TOOL_RESULT))
    usage = {0: TokenUsage(1, 2, 3, None)} if draw(st.booleans()) else None
    metadata = SessionMetadata(
        session_id=draw(st.sampled_from([None, "s1", "0b5e6a52-7d0e-4c55-9a35-6d1d3a6a7c01"])),
        timestamp=draw(st.sampled_from([None, START])),
        project=draw(st.sampled_from([None, "/home/ana/shop", "general"])),
        title=draw(st.none() | WORDS),
        model="claude-opus-4-5",
    )
    name = draw(st.sampled_from(["claude-code", "codex", "gemini", "chatgpt"]))
    return Session(Path("/nowhere/a.jsonl"), name, metadata, group_turns(messages, usage))


def _message(role: Role, blocks: tuple[Block, ...], id: str, origin: Origin) -> Message:
    moment = START + timedelta(seconds=len(id)) if id != "u0" else None
    return Message(role, blocks, moment, id, origin)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(session=made_up())
def test_made_up_sessions_go_to_every_tool_and_back(session: Session, tmp_path: Path) -> None:
    assert_round_trips(session, tmp_path)


@settings(deadline=None, max_examples=100)
@given(made_up(), st.sampled_from(TARGETS))
def test_the_same_session_always_gives_the_same_file(session: Session, target: str) -> None:
    again = Session.from_dict(session.to_dict())
    assert convert(session, target) == convert(again, target)


MARKS = [
    *[
        "## User",
        "\\## User",
        "\\\\## Assistant (x)",
        "## Tool (2026-01-01 00:00:00Z)",
        "```",
        "**You:** x",
        "Human: y",
    ],
    *["<think>", "</think>", '<tool-use data-tool-name="x">', "</tool-use>", "</details>", "", "  ", "---", "\r"],
]
MARKDOWN_WORDS = st.lists(
    st.sampled_from(MARKS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    min_size=1,
    max_size=6,
).map("\n".join)


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(MARKDOWN_WORDS.filter(str.strip), min_size=1, max_size=4), output=MARKDOWN_WORDS)
def test_markdown_gives_every_text_back_as_it_was(texts: list[str], output: str, tmp_path: Path) -> None:
    messages = []
    for text in texts:
        messages.append(_message(Role.USER, (Text(text),), "u1", Origin.PERSON))
        call = ToolUse("c1", "Bash", {"command": text})
        messages.append(_message(Role.ASSISTANT, (Text(text), call, Text(text)), "a1", Origin.ASSISTANT))
        messages.append(_message(Role.TOOL, (ToolResult("c1", output, True),), "r1", Origin.TOOL_RESULT))
    session = Session(Path("/nowhere/a.jsonl"), "claude-code", SessionMetadata("s1"), group_turns(messages))
    back = converted(session, "markdown", tmp_path)
    assert [[b.text for b in m.content if isinstance(b, Text)] for m in back.messages if m.role is not Role.TOOL] == [
        [block.text for block in message.content if isinstance(block, Text)]
        for message in messages
        if message.role is not Role.TOOL
    ]
    assert [(result.content, result.is_error) for result in back.tool_results] == [(output, True)] * len(texts)


@pytest.mark.parametrize("folder", sorted(path.name for path in FIXTURES.iterdir()))
def test_markdown_of_every_fixture_is_read_back(folder: str, tmp_path: Path) -> None:
    def dialogue(session: Session) -> list[Any]:
        return [atom[:2] for atom in said(session, "openai") if atom[0] in ("user", "assistant") and atom[1]]

    for number, path in enumerate(sources(FIXTURES / folder)):
        for session in sessions(path):
            back = converted(session, "markdown", tmp_path / str(number))
            assert dialogue(back) == dialogue(session)
            assert back.metadata.title == (session.metadata.title and " ".join(session.metadata.title.split()))


# --- one thing each -----------------------------------------------------------------------------------------


def chat(*messages: dict[str, Any]) -> Session:
    return mempalace.from_openai(list(messages))  # type: ignore[no-any-return]


def test_a_session_comes_from_chat_messages_and_gives_them_back() -> None:
    messages = [
        {"role": "user", "content": "list it"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "Bash", "arguments": '{"a":1}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": ""},
        {"role": "assistant", "content": "nothing there"},
    ]
    assert chat(*messages).to_openai() == messages
    assert mempalace.from_openai({"model": "m", "messages": messages}).metadata.model == "m"


def test_every_session_has_the_shape_of_a_chat() -> None:
    for path in sources(FIXTURES):
        for session in sessions(path):
            for message in session.to_openai():
                assert set(message) <= {"role", "content", "tool_calls", "tool_call_id", "name"}
                assert message["role"] in ("user", "assistant", "system", "tool")
                assert isinstance(message["content"], str | list) or (
                    message["content"] is None and message["tool_calls"]
                )
                assert ("tool_call_id" in message) == (message["role"] == "tool")


def test_images_in_a_chat_are_parts_with_data_urls() -> None:
    log = next(iter(sources(FIXTURES / "claude-code" / "images")))
    session = mempalace.load(log)
    lists = [message["content"] for message in session.to_openai(images=True) if isinstance(message["content"], list)]
    urls = [part["image_url"]["url"] for parts in lists for part in parts if part["type"] == "image_url"]
    assert any(url.startswith("data:image/png;base64,") for url in urls)
    assert any(part["type"] == "text" for parts in lists for part in parts)


def test_what_a_session_says_of_itself() -> None:
    rollout = mempalace.load(FIXTURES / "codex" / "tools" / "rollout-tools.jsonl").metadata
    lines = (FIXTURES / "codex" / "tools" / "rollout-tools.jsonl").read_bytes().splitlines()
    own = [orjson.loads(line) for line in lines if b'"session_meta"' in line or b'"turn_context"' in line]
    assert rollout.headers == tuple(own)
    assert (rollout.source, rollout.session_id) == ("codex", own[0]["payload"]["id"])
    assert rollout.model == own[-1]["payload"]["model"]
    assert rollout.project == own[0]["payload"]["cwd"]
    fork = mempalace.load(FIXTURES / "codex" / "fork" / "rollout-fork.jsonl").metadata
    assert fork.lineage["forked_from"]


@pytest.mark.parametrize("messages", [[], [{"content": "x"}], {"messages": []}, {"x": 1}])
def test_what_is_no_chat_is_an_error(messages: Any) -> None:
    with pytest.raises(mempalace.MempalaceError):
        mempalace.from_openai(messages)


def test_provenance_stays_apart_from_the_format(tmp_path: Path) -> None:
    session = mempalace.load(FIXTURES / "codex" / "tools" / "rollout-tools.jsonl")
    claude = converted(session, "claude-code", tmp_path / "1")
    assert (claude.format, claude.metadata.source) == ("claude-code", "codex")
    assert claude.metadata.lineage["converted_from"] == session.metadata.session_id
    chat_body = converted(claude, "openai", tmp_path / "2")
    assert (chat_body.format, chat_body.metadata.source) == ("chat", "codex")
    rollout = converted(claude, "codex", tmp_path / "3")
    assert rollout.metadata.source == "codex"


def test_thinking_goes_to_its_own_vendor_only_and_stays_in_raw(tmp_path: Path) -> None:
    path = FIXTURES / "claude-code" / "merged-lines"
    (log,) = sources(path)
    session = mempalace.load(log)
    thoughts = [block for message in session.messages for block in message.content if isinstance(block, Thinking)]
    assert thoughts
    for target in ("codex", "openai"):
        made = convert(session, target)
        assert made.report.residue["thinking"] == len(thoughts)
        assert all(thought.text.encode() not in made.data for thought in thoughts if thought.text)
    own = converted(session, "claude-code", tmp_path)
    signed = [thought for thought in thoughts if thought.signature]
    assert [b for m in own.messages for b in m.content if isinstance(b, Thinking)] == signed
    raw = b"".join(session.raw)
    assert raw == log.read_bytes()
    assert all(thought.text.encode() in raw for thought in thoughts)


def test_images_go_along_or_leave_a_note(tmp_path: Path) -> None:
    log = next(iter(sources(FIXTURES / "claude-code" / "images")))
    session = mempalace.load(log)
    shown = [b for m in session.messages for b in m.content if isinstance(b, Image) and picture(session, b)]
    assert shown
    for target in AGENTS_AND_CHAT:
        back = converted(session, target, tmp_path)
        found = [picture(back, b) for m in back.messages for b in m.content if isinstance(b, Image)]
        assert [image for image in found if image] == [picture(session, image) for image in shown]
    gone = Session.from_dict({**session.to_dict(), "path": str(tmp_path / "gone.jsonl")})
    for target in (*AGENTS_AND_CHAT, "markdown", "html"):
        made = convert(gone, target)
        assert made.report.residue["images"] >= len(shown)
        assert b"[image image/png" in made.data


def test_the_report_names_kinds_of_record_that_hold_no_message() -> None:
    (log,) = sources(FIXTURES / "claude-code" / "system-records")
    kinds = [name for name in convert(mempalace.load(log), "codex").report.residue if name.startswith("records: ")]
    assert "records: file-history-snapshot" in kinds
    assert not [name for name in kinds if name in ("records: user", "records: assistant")]


def test_json_gives_back_an_equal_session() -> None:
    for path in sources(FIXTURES):
        for session in mempalace.parse(path):
            made = convert(session, "json")
            assert Session.from_dict(orjson.loads(made.data)) == session
            assert made.report.level == "value-lossless"


# --- what cannot be -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [target for target in TARGETS if target != "json"])
def test_a_session_in_which_nobody_speaks_is_an_error(target: str, tmp_path: Path) -> None:
    for messages in ([], [_message(Role.SYSTEM, (Text("x"),), "s", Origin.INJECTED)]):
        session = Session(Path("a.jsonl"), "claude-code", turns=group_turns(messages))
        with pytest.raises(mempalace.MempalaceError, match="nothing to write as"):
            mempalace.save(session, tmp_path / "out", target)
    assert not list(tmp_path.iterdir())


def test_an_unknown_target_is_an_error(tmp_path: Path) -> None:
    session = chat({"role": "user", "content": "a"}, {"role": "assistant", "content": "b"})
    for call in (
        lambda: mempalace.to_jsonl(session, "html"),
        lambda: mempalace.to_jsonl(session, "nix"),
        lambda: mempalace.save(session, tmp_path / "x", "nix"),
    ):
        with pytest.raises(mempalace.MempalaceError) as told:
            call()
        assert told.value.kind == "unknown_format"
        assert "claude-code" in (told.value.hint or "")
    assert not list(tmp_path.iterdir())


def test_save_is_whole_or_not_at_all(tmp_path: Path) -> None:
    session = chat({"role": "user", "content": "a"}, {"role": "assistant", "content": "b"})
    path = tmp_path / "new" / "a.jsonl"
    report = mempalace.save(session, path, "codex")
    assert report.target == "codex"
    assert path.read_text() == mempalace.to_jsonl(session, "codex")
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("mine")
    with pytest.raises(mempalace.MempalaceError, match="the file exists"):
        mempalace.save(session, path, "codex")
    assert path.read_text() == "mine"
    mempalace.save(session, path, "codex", overwrite=True)
    assert path.read_text() == mempalace.to_jsonl(session, "codex")
    with pytest.raises(mempalace.MempalaceError, match="cannot be written"):
        mempalace.save(session, path / "below a file", "codex")
    with pytest.raises(mempalace.MempalaceError, match="cannot be written"):
        mempalace.save(session, tmp_path, "codex", overwrite=True)
    assert [found.name for found in tmp_path.rglob("*")] == ["new", "a.jsonl"]


@pytest.mark.parametrize("target", ["claude-code", "codex"])
@pytest.mark.parametrize(
    "text",
    [
        "[Request interrupted by user]",
        "<system-reminder>stay calm</system-reminder>",
        "<system-reminder>stay calm</system-reminder>\nwhat does this mean?",
        "  <command-name>/clear</command-name>",
        "<bash-input>ls</bash-input>",
        "<teammate-message>hello</teammate-message>",
        "This session is being continued from a previous conversation that ran out of context.",
        "<environment_context>\n<cwd>/w</cwd>\n</environment_context>",
        "<user_instructions>be brief</user_instructions>",
        "<user_shell_command>ls</user_shell_command>",
        "<skill>x</skill>",
        "<turn_aborted>y</turn_aborted>",
        "<anything>at all</anything>",
        "# AGENTS.md instructions for /w\n<INSTRUCTIONS>x</INSTRUCTIONS>",
        "# Context from my IDE setup:\n## My request for Codex:\nfix it",
        "Another language model started to solve this problem and produced a summary",
    ],
)
def test_what_a_person_pasted_stays_theirs(target: str, text: str, tmp_path: Path) -> None:
    asked = Message(Role.USER, (Text(text),), START, "1", Origin.PERSON)
    more = Message(Role.USER, (Text("and this:"), Text(text)), START + timedelta(seconds=2), "3", Origin.PERSON)
    answer = Message(Role.ASSISTANT, (Text("done"),), START + timedelta(seconds=1), "2", Origin.ASSISTANT)
    turns = group_turns([asked, answer, more])
    session = Session(Path("/nowhere/a.json"), "chatgpt", SessionMetadata("s1", START), turns)
    back = converted(session, target, tmp_path)
    told = [(message.role, message.origin, message.text) for message in back.messages]
    assert told == [(message.role, message.origin, message.text) for message in session.messages]
    assert "origins" not in convert(session, target).report.residue
    again = converted(back, target, tmp_path / "again")
    assert [(message.role, message.origin, message.text) for message in again.messages] == told
