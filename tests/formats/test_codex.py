"""Codex rollouts: what is read, what is only counted, and that nothing falls between the two."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from mempalace.formats.codex import Codex
from mempalace.head import Head
from mempalace.model import Image, Message, Origin, Role, Session, Thinking, ToolResult, ToolUse
from mempalace.records import Ledger
from mempalace.source import Source, read_span

FIXTURES = Path(__file__).parents[1] / "fixtures" / "codex"
CASES = sorted(path.name for path in FIXTURES.iterdir() if path.is_dir())
CODEX = Codex()


def rollout(case: str) -> Path:
    """The log of a case."""
    (path,) = (path for path in (FIXTURES / case).iterdir() if path.name.startswith("rollout-"))
    return path


def read(source: Path | Source) -> tuple[Session, Ledger]:
    """The one session of a log, and the account of its records, which must add up."""
    ledger = Ledger()
    sessions = list(CODEX.read(source if isinstance(source, Source) else Source(source), ledger))
    assert_accounted(sessions, ledger)
    assert len(sessions) == 1
    return sessions[0], ledger


def assert_accounted(sessions: list[Session], ledger: Ledger) -> None:
    stored = sum(message.records for session in sessions for message in session.messages)
    assert ledger.read == stored + ledger.unstored


def source_of(*records: Any) -> Source:
    return Source(Path("rollout-x.jsonl"), b"".join(orjson.dumps(record) + b"\n" for record in records))


def said(session: Session, *origins: Origin) -> list[str]:
    return [message.text for message in session.messages if message.origin in origins]


def person(session: Session) -> list[str]:
    return said(session, Origin.PERSON)


def assistant(session: Session) -> list[str]:
    return [text for text in said(session, Origin.ASSISTANT) if text]


def origin_of(session: Session, word: str) -> Origin:
    (origin,) = {message.origin for message in session.messages if word in message.text}
    return origin


def results(session: Session) -> dict[str, ToolResult]:
    return {result.tool_use_id: result for result in session.tool_results}


def uses(session: Session) -> dict[str, ToolUse]:
    return {use.id: use for use in session.tool_uses}


# --- every case ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str, golden: Callable[[Path, Any], None]) -> None:
    session, ledger = read(rollout(case))
    data = session.to_dict()
    assert Session.from_dict(data) == session
    data["path"] = rollout(case).name
    account = {"read": ledger.read, "damaged": ledger.damaged, "skipped": dict(sorted(ledger.skipped.items()))}
    golden(FIXTURES / case / "expected.json", {"session": data, "ledger": account})


@pytest.mark.parametrize("case", CASES)
def test_claimed(case: str) -> None:
    assert CODEX.detect(rollout(case)) > 0.5


@pytest.mark.parametrize("case", CASES)
def test_encrypted_reasoning_and_base64_never_become_text(case: str) -> None:
    data = orjson.dumps(read(rollout(case))[0].to_dict()["turns"])
    assert b"SECRET" not in data
    assert b"iVBORw0KGgo" not in data


def test_cases_are_listed_in_their_readme() -> None:
    listed = [
        line.split("`")[1] for line in (FIXTURES / "README.md").read_text().splitlines() if line.startswith("- `")
    ]
    assert sorted(listed) == CASES


# --- streams ------------------------------------------------------------------------------------------------


def test_what_two_streams_tell_is_one_message() -> None:
    session, ledger = read(rollout("paired-streams"))
    assert person(session) == ["dye the warp INDIGO-1", "again", "again"]
    assert assistant(session) == ["done INDIGO-2", "ok", "ok"]
    assert ledger.skipped["echo"] == 6
    assert len(session.turns) == 3
    assert [message.id for message in session.messages if message.text == "ok"] == ["msg_1", None]


def test_response_items_alone_are_read() -> None:
    session, _ = read(rollout("response-items-only"))
    assert person(session) == ["only items MADDER-1"]
    assert assistant(session) == ["yes MADDER-2"]
    developer = next(message for message in session.messages if "DEV-NOISE" in message.text)
    assert (developer.role, developer.origin) == (Role.SYSTEM, Origin.INJECTED)


def test_a_stream_that_stops_half_way_loses_nothing() -> None:
    session, _ = read(rollout("one-stream-half-way"))
    assert person(session) == ["told by an event WOAD-1", "told by a response item WOAD-3"]
    assert assistant(session) == ["answer WOAD-2", "answer WOAD-4", "said in an event only WOAD-5"]


def test_what_is_told_far_apart_is_told_twice() -> None:
    item = {"type": "response_item", "payload": {"type": "message", "role": "assistant", "content": "ok"}}
    event = {"type": "event_msg", "payload": {"type": "agent_message", "message": "ok"}}
    between = [{"type": "event_msg", "payload": {"type": "task_started"}}] * 40
    assert assistant(read(source_of(item, *between, event))[0]) == ["ok", "ok"]
    assert assistant(read(source_of(item, *between[:9], event))[0]) == ["ok"]


def test_events_that_tell_the_parts_of_one_message_are_its_echo() -> None:
    message = {"type": "message", "role": "assistant", "content": [{"text": "one"}, {"text": "two"}]}
    item = {"type": "response_item", "payload": message}
    events = [{"type": "event_msg", "payload": {"type": "agent_message", "message": text}} for text in ("one", "two")]
    for records in ((item, *events), (*events, item), (events[0], item, events[1])):
        session, ledger = read(source_of(*records))
        assert assistant(session) == ["one\ntwo"]
        assert ledger.skipped["echo"] == 2


def test_a_person_is_quoted_from_the_event_with_the_images_of_the_item() -> None:
    session, _ = read(rollout("images"))
    first = next(session.messages)
    assert first.text == "what is this? SATIN-1"
    pixel, link = (block for block in first.content if isinstance(block, Image))
    assert link.ref == "https://example.invalid/b.jpg" or pixel.ref == "https://example.invalid/b.jpg"
    assert len(session.turns) == 2


def test_images_stay_in_the_source() -> None:
    path = rollout("images")
    session, _ = read(path)
    shown = results(session)["c1"]
    assert shown.content == "shown"
    (image,) = shown.images
    assert image.media_type == "image/jpeg"
    assert image.offset is not None
    assert image.length is not None
    assert read_span(Source(path), image.offset, image.length).startswith(b"iVBORw0KGgo")


# --- who speaks ---------------------------------------------------------------------------------------------


def test_injected_context_is_labelled_and_no_turn() -> None:
    session, _ = read(rollout("injected-context"))
    assert person(session) == [
        "<environment_context> in a log line, what is it? WELD-1",
        "quoting <environment_context> in the middle WELD-3",
    ]
    for word in ("AGENTS-NOISE", "FUTURE-NOISE", "interrupted"):
        assert origin_of(session, word) is Origin.INJECTED
    assert origin_of(session, "README.md") is Origin.COMMAND
    assert session.tool_uses == []  # the event of the `!ls` is its echo
    assert [message.text for message in session.messages_by_role("user")] == [
        *person(session)[:1],
        *said(session, Origin.COMMAND),
        *person(session)[1:],
    ]


def test_an_event_that_names_what_it_injects() -> None:
    session, _ = read(rollout("kinds-of-2025"))
    assert person(session) == ["plain LINEN-1"]
    assert origin_of(session, "be brief") is Origin.INJECTED


def test_the_editors_context_is_parted_from_the_request() -> None:
    session, _ = read(rollout("editor-prefix"))
    before, request = list(session.messages)[:2]
    assert (before.origin, before.records) == (Origin.INJECTED, 0)
    assert request.text == "list files FLAX-1\n"
    assert before.text + request.text == (
        "# Context from my IDE setup:\n\n## Active file: index.ts\n\n## My request for Codex:\nlist files FLAX-1\n"
    )


def test_a_request_marker_further_on_is_the_persons_own() -> None:
    text = "what does this do?\n## My request for Codex:\nnothing"
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    assert person(read(source_of(item))[0]) == [text]


def test_reasoning_in_clear_is_thinking() -> None:
    session, ledger = read(rollout("reasoning"))
    thoughts = [block.text for message in session.messages for block in message.content if isinstance(block, Thinking)]
    assert thoughts == ["**First** step", "**Second** step", "raw thought", "only in an event"]
    assert ledger.skipped == {"metadata": 1, "echo": 3, "empty": 1}


def test_summaries_are_labelled_and_replaced_history_is_no_turn() -> None:
    session, _ = read(rollout("compaction"))
    assert person(session) == ["before TWEED-1", "after TWEED-3"]
    summaries = [message for message in session.messages if message.origin is Origin.SUMMARY]
    assert [
        word in message.text for word, message in zip(("SUMMARY-1", "SUMMARY-2", "SUMMARY-3"), summaries, strict=True)
    ]
    assert {message.role for message in summaries} == {Role.SYSTEM}


def test_rewound_turns_are_abandoned() -> None:
    session, _ = read(rollout("rollback"))
    assert person(session) == ["kept FELT-1", "instead FELT-7"]
    abandoned = [message for message in session.messages if message.origin is Origin.ABANDONED]
    assert [message.line for message in abandoned] == [5, 6, 7, 8, 9, 10]
    assert len(session.turns) == 4


def test_reviews_goals_titles_and_errors() -> None:
    session, ledger = read(rollout("reviews-goals-errors"))
    assert said(session, Origin.COMMAND) == ["look at the seams REVIEW-1", "mend all GOAL-1"]
    assert assistant(session) == ["All fine REVIEW-2", "said nowhere else LAST-1"]
    assert origin_of(session, "ERR-1") is Origin.INJECTED
    assert session.metadata.title == "Seams"
    assert ledger.skipped["unknown"] == 1


# --- tools --------------------------------------------------------------------------------------------------


def test_calls_and_their_results() -> None:
    session, _ = read(rollout("tools"))
    calls = uses(session)
    assert (calls["c1"].name, calls["c1"].input) == ("exec_command", {"cmd": "ls", "workdir": "/w/loom"})
    assert calls["c2"].input == {"raw": '{"command": [oops'}
    assert calls["c3"].input["raw"].startswith("*** Begin Patch\n")
    assert calls["c4"].input["command"] == ["pwd"]
    assert calls["ws_1"].input["query"] == "warp weft"
    assert calls["c6"].name == "mcp__files__list"
    told = results(session)
    assert told["c2"].content == "sh: oops: not found\n"
    assert "create_event" in told["c5"].content
    outcomes = {call_id: result.is_error for call_id, result in told.items()}
    unknown = dict.fromkeys(("c5", "c6", "c7"))
    assert outcomes == {"c1": False, "c2": True, "c3": False, "c4": True, "ig_1": False, **unknown}
    tool_messages = [message for message in session.messages if message.role is Role.TOOL]
    assert {message.origin for message in tool_messages} == {Origin.TOOL_RESULT}
    assert len(session.turns) == 1


def test_a_generated_image_is_the_result_of_its_call() -> None:
    session, _ = read(rollout("tools"))
    assert uses(session)["ig_1"].input == {"prompt": "a loom"}
    assert results(session)["ig_1"].images[0].length == 92


def test_events_tell_outcomes_and_what_no_item_has() -> None:
    session, _ = read(rollout("tool-events"))
    told = results(session)
    assert (told["c1"].content, told["c1"].is_error) == ("no header here", True)
    assert (told["c2"].content, told["c2"].is_error) == ("output lost elsewhere OUT-2", False)
    assert (told["c3"].content, told["c3"].is_error) == ("no such file MCP-3", True)
    assert (told["c4"].content, told["c4"].is_error) == ("text of b MCP-4", False)
    assert (told["c5"].content, told["c5"].is_error) == ("hunk failed PATCH-5", True)
    assert "SEARCH-6" in told["ws_1"].content
    assert told["c8"].content == "found DYN-8"
    names = [use.name for use in session.tool_uses]
    assert names == [
        "shell",
        "shell",
        "mcp__files__read",
        "mcp__files__read",
        "apply_patch",
        "web_search",
        "view_image",
        "lookup",
        "spawn_agent",
    ]


def test_completed_items_are_read() -> None:
    session, _ = read(rollout("completed-items"))
    assert person(session) == ["paged MOHAIR-1"]
    image = next(block for block in next(session.messages).content if isinstance(block, Image))
    assert image.ref == "/w/loom/a.png"
    assert image.offset is not None
    assert assistant(session) == ["Here it is:\n<proposed_plan>\n1. Warp\n2. Weft\n</proposed_plan>", "paged MOHAIR-2"]
    assert [use.id for use in session.tool_uses] == ["c1", "c2", "c3", "c4"]
    assert {key: result.is_error for key, result in results(session).items()} == {
        "c1": False,
        "c2": False,
        "c3": True,
        "c4": False,
    }


@pytest.mark.parametrize(
    ("output", "is_error"),
    [
        ("Exit code: 0\nWall time: 1 seconds\nOutput:\nok", False),
        ("Exit code: 2\nWall time: 1 seconds\nOutput:\nno", True),
        ("Process exited with code 1\nOutput:\n", True),
        ("Process running with session ID 7\nOutput:\nExit code: 1", None),
        ("Exit code: 1", None),
        ("the script printed\nExit code: 1\nand so on", None),
        ("failed in sandbox: denied", True),
        ("execution error: Io", True),
        ("aborted by user after 3.1s", True),
        ("failedness is a word", None),
        ("Script completed\nWall time 0.1 seconds\nOutput:\nx", False),
        ({"content": "x", "success": True}, False),
        ({"output": "x", "metadata": {"exit_code": 3}}, True),
        ({"odd": 1}, None),
        (None, None),
        (7, None),
    ],
)
def test_outcome_of_an_output(output: Any, is_error: bool | None) -> None:
    item = {"type": "function_call_output", "call_id": "c", "output": output}
    session, _ = read(source_of({"type": "response_item", "payload": item}))
    assert results(session)["c"].is_error is is_error


# --- metadata -----------------------------------------------------------------------------------------------


def test_metadata_of_a_session() -> None:
    session, _ = read(rollout("paired-streams"))
    metadata = session.metadata
    assert session.key == metadata.session_id == "019cb800-0000-7000-8000-00000000000a"
    assert (metadata.provider, metadata.model, metadata.project) == ("openai", "gpt-5.5", "/w/loom")
    assert (metadata.git_branch, metadata.client_version, metadata.interactive) == ("main", "0.128.0", True)
    assert metadata.system_prompt == "You are Codex."
    assert metadata.timestamp is not None
    assert metadata.timestamp.isoformat() == "2026-03-04T09:00:00+00:00"
    lines = [orjson.loads(line) for line in rollout("paired-streams").read_bytes().splitlines()]
    assert list(metadata.headers) == lines[:2]


def test_tokens_are_those_of_each_turn_and_counted_once() -> None:
    session, _ = read(rollout("tokens"))
    first, second = (turn.token_usage for turn in session.turns)
    assert first is not None
    assert second is not None
    assert (first.input, first.cache_read, first.output, first.model) == (110, 190, 30, "gpt-5.5")
    assert (second.input, second.cache_read, second.output, second.model) == (50, 0, 5, "gpt-5.5-mini")
    assert session.metadata.project == "/w/loom/sub"


def test_a_subagent_is_linked_to_its_parent() -> None:
    session, _ = read(rollout("subagent"))
    assert session.key == "019cb800-0000-7000-8000-00000000000b/019cb810-0000-7000-8000-0000000000c1"
    assert session.subagent_type == "explorer"
    assert session.metadata.lineage["root_session_id"] == "019cb800-0000-7000-8000-00000000000a"
    assert session.metadata.interactive is False
    assert said(session, Origin.SUBAGENT) == ["Explore the loom AGT-2", "also the shed"]
    assert person(session) == []
    assert CODEX.resume_command(session) is None


@pytest.mark.parametrize(
    ("meta", "parent", "kind"),
    [
        ({"thread_source": "subagent", "parent_thread_id": "r1"}, "r1", "subagent"),
        ({"source": {"subagent": "review"}, "session_id": "r2"}, "r2", "review"),
        ({"source": {"subagent": {"other": "guardian"}}, "parent_thread_id": "r3"}, "r3", "guardian"),
        ({"source": {"subagent": {"thread_spawn": {"parent_thread_id": "r4"}}}}, "r4", "subagent"),
        ({"parent_thread_id": "r5"}, "r5", "subagent"),
        ({"parent_thread_id": "r6", "forked_from_id": "f6"}, "r6", None),
        ({"source": "cli"}, None, None),
    ],
)
def test_who_spawned_a_session(meta: dict[str, Any], parent: str | None, kind: str | None) -> None:
    session, _ = read(source_of({"type": "session_meta", "payload": {"id": "own", **meta}}))
    assert (session.parent_id, session.subagent_type) == (parent, kind)
    assert session.agent_id == ("own" if kind else None)


def test_a_headless_run_is_not_interactive() -> None:
    session, _ = read(rollout("headless"))
    assert session.metadata.interactive is False
    assert person(session) == ["run AGT-3"]
    assert not session.is_subagent


def test_the_first_header_wins() -> None:
    session, ledger = read(rollout("repeated-header"))
    assert session.metadata.project == "/w/loom"
    assert len(session.metadata.headers) == 2
    assert person(session) == ["first day RAMIE-1", "second day RAMIE-2"]
    assert ledger.skipped["metadata"] == 2


def test_copied_history_of_a_fork_is_dropped_by_turn_ids() -> None:
    session, ledger = read(rollout("fork"))
    assert session.metadata.session_id == "019cb836-ee80-7000-8000-0000000000f0"
    assert dict(session.metadata.lineage) == {"forked_from": "019cb800-0000-7000-8000-00000000000a"}
    assert person(session) == ["new LACE-3"]
    assert assistant(session) == ["new LACE-4"]
    assert ledger.skipped["replayed"] == 6
    assert session.metadata.model == "gpt-5.5"
    assert len(session.metadata.headers) == 2
    assert session.total_tokens.input == 0
    assert not session.is_subagent


def test_copied_history_of_a_fork_is_dropped_by_its_pause() -> None:
    session, ledger = read(rollout("fork-by-pause"))
    assert person(session) == ["new SILK-3"]
    assert ledger.skipped["replayed"] == 3


def test_a_fork_without_evidence_of_a_copy_is_kept_whole() -> None:
    session, _ = read(rollout("fork-unsure"))
    assert person(session) == ["unsure, kept HEMP-1"]


def test_a_fork_that_was_never_continued_holds_nothing_new() -> None:
    lines = [orjson.loads(line) for line in rollout("fork").read_bytes().splitlines()[:7]]
    session, ledger = read(source_of(*lines))
    assert session.message_count == 0
    assert ledger.skipped["replayed"] == 6


# --- other generations --------------------------------------------------------------------------------------


def test_bare_items_below_a_header_line() -> None:
    session, ledger = read(rollout("bare"))
    assert session.metadata.session_id == "5973b6c0-94b8-487b-a530-2aeb6098ae0e"
    assert session.metadata.system_prompt == "be kind"
    assert session.metadata.git_branch == "dev"
    assert person(session) == ["bare JUTE-1"]
    assert results(session)["c1"] == ToolResult("c1", "a\n", False)
    assert ledger.skipped == {"metadata": 1, "control": 2}


def test_the_document_of_the_predecessor() -> None:
    session, _ = read(rollout("old-document"))
    assert session.metadata.session_id == "7b9b7c9a-1111-4222-8333-444455556666"
    assert (person(session), assistant(session)) == (["old COTTON-1"], ["old COTTON-2"])
    assert results(session)["c1"].is_error is True


def test_the_document_in_one_line_is_the_same() -> None:
    data = orjson.dumps(orjson.loads(rollout("old-document").read_bytes()))
    source = Source(rollout("old-document"), data)
    assert read(source)[0] == read(rollout("old-document"))[0]
    assert CODEX.claims(Head.of(source)) > 0.5


def test_a_header_without_payload() -> None:
    session, _ = read(rollout("header-without-payload"))
    assert (person(session), assistant(session)) == (["NYLON-1"], ["NYLON-2"])


def test_the_file_name_gives_the_id_of_a_file_without_header() -> None:
    session, _ = read(rollout("no-header"))
    assert session.metadata.session_id == "019cb800-0000-7000-8000-00000000000d"
    assert session.metadata.timestamp is not None
    assert session.metadata.provider == "openai"


def test_damage_is_counted_and_the_rest_is_read() -> None:
    session, ledger = read(rollout("damage"))
    assert person(session) == ["before CANVAS-1", "half \ufffd CANVAS-3"]
    assert assistant(session) == ["after CANVAS-2"]
    assert [problem.line for problem in ledger.problems] == [3, 5]


@pytest.mark.parametrize("case", CASES)
def test_compressed_and_differently_saved_files_are_the_same_session(case: str, tmp_path: Path) -> None:
    path = rollout(case)
    session, _ = read(path)
    data = path.read_bytes()
    crlf = data.replace(b"\n", b"\r\n") + b"\r\n\r\n"
    for changed in (zstandard.compress(data), b"\xef\xbb\xbf" + data, data.decode().encode("utf-16")):
        assert read(Source(path, changed))[0] == session
        assert CODEX.claims(Head.of(Source(path, changed))) > 0.5
    assert list(map(_shape, read(Source(path, crlf))[0].messages)) == list(map(_shape, session.messages))


def _shape(message: Message) -> tuple[Role, Origin, str]:
    return message.role, message.origin, message.text


def test_a_damaged_compressed_file_is_reported() -> None:
    path = rollout("paired-streams")
    packed = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(path.read_bytes()))
    packed[-1] ^= 1
    ledger = Ledger()
    sessions = list(CODEX.read(Source(path, bytes(packed)), ledger))
    assert_accounted(sessions, ledger)
    assert ledger.damaged == 1


@pytest.mark.parametrize("data", [b"", b"\n\n", b"[]", b"{}\n", b'{"a": 1}\n{"b": 2}\n', b"words", b"\x28\xb5\x2f\xfd"])
def test_what_is_no_rollout_gives_nothing(data: bytes) -> None:
    ledger = Ledger()
    assert list(CODEX.read(Source(Path("x.jsonl"), data), ledger)) == []
    assert_accounted([], ledger)
    assert CODEX.claims(Head.of(Source(Path("x.jsonl"), data))) == 0


# --- discovery ----------------------------------------------------------------------------------------------


@pytest.fixture
def codex_home(home: Path) -> Path:
    """A Codex home with a session in the dated tree, a flat one, an archived one, and side files."""
    root = home / ".codex"
    (root / "sessions/2026/03/04").mkdir(parents=True)
    (root / "archived_sessions").mkdir()
    (root / "log").mkdir()
    (root / "sessions/2026/03/04/rollout-a.jsonl.zst").write_bytes(zstandard.compress(rollout("headless").read_bytes()))
    shutil.copy(rollout("bare"), root / "sessions/rollout-b.jsonl")
    shutil.copy(rollout("tokens"), root / "archived_sessions/rollout-c.jsonl")
    (root / "archived_sessions/rollout-c.jsonl.zst").write_bytes(b"older")
    (root / "sessions/notes.jsonl").write_text("{}\n")
    (root / "history.jsonl").write_text('{"session_id":"x","ts":1,"text":"y"}\n')
    return root


def names(files: list[Any]) -> set[str]:
    return {file.path.name for file in files}


def test_sessions_are_found_wherever_codex_keeps_them(codex_home: Path) -> None:
    assert names(CODEX.list_sessions()) == {"rollout-a.jsonl.zst", "rollout-b.jsonl", "rollout-c.jsonl"}


def test_sessions_of_a_project_are_those_that_name_its_folder(codex_home: Path) -> None:
    assert names(CODEX.list_sessions(Path("/w/loom"))) == {"rollout-a.jsonl.zst", "rollout-c.jsonl"}
    assert CODEX.list_sessions(Path("/w")) == []


def test_codex_home_moves_everything(codex_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    assert CODEX.list_sessions() == []
    assert CODEX.sessions_dir() is None
    os.rename(codex_home / "sessions", tmp_path / "sessions")
    assert CODEX.sessions_dir() == tmp_path / "sessions"
    assert len(CODEX.list_sessions()) == 2


def test_no_home_is_no_error() -> None:
    assert CODEX.list_sessions() == []
    assert CODEX.detect("/nowhere/rollout-x.jsonl") == 0


@pytest.mark.parametrize("name", ["history.jsonl", "session_index.jsonl", "state_5.sqlite", "log/codex-tui.log"])
def test_side_files(name: str) -> None:
    assert CODEX.is_side_file(Path("/h/.codex") / name)
    assert not CODEX.is_side_file(Path("/h/.codex/sessions/rollout-a.jsonl"))


def test_resume_command_is_quoted() -> None:
    meta = {"id": "a-b", "cwd": "/w/my loom"}
    session, _ = read(source_of({"type": "session_meta", "payload": meta}))
    assert CODEX.resume_command(session) == "cd '/w/my loom' && codex resume a-b"
    for odd in ("a b", "--yolo", "x/../y", "a\n"):
        session, _ = read(source_of({"type": "session_meta", "payload": {**meta, "id": odd}}))
        assert CODEX.resume_command(session) is None


# --- any input ----------------------------------------------------------------------------------------------

_WORDS = st.sampled_from(
    [
        "session_meta turn_context response_item event_msg compacted world_state inter_agent_communication",
        "message reasoning function_call function_call_output custom_tool_call local_shell_call tool_search_output",
        "web_search_call image_generation_call user_message agent_message agent_reasoning token_count item_completed",
        "exec_command_end mcp_tool_call_end patch_apply_end web_search_end dynamic_tool_call_response task_complete",
        "thread_rolled_back UserMessage AgentMessage Reasoning CommandExecution McpToolCall Plan HookPrompt Extension",
        "user assistant developer input_text input_image exited_review_mode thread_goal_updated task_started c1 c2",
    ]
).flatmap(lambda words: st.sampled_from(words.split()))
_TEXTS = st.one_of(
    _WORDS,
    st.sampled_from(
        [
            "ok",
            " ok\n",
            "<environment_context>",
            "<a>b</a>",
            "# Context from my IDE setup:\n## My request for Codex:\nx",
        ]
    ),
    st.sampled_from(
        ['{"output":"x","metadata":{"exit_code":1}}', "Exit code: 1\nOutput:\n", "data:image/png;base64,AAAA"]
    ),
    st.sampled_from(
        ["2026-03-04T09:00:00Z", "019cb836-ee80-7000-8000-0000000000f0", "019cb837-ee80-7000-8000-0000000000f0"]
    ),
    st.text(max_size=8),
)
_KEY_NAMES = """
    type payload id session_id role content text message item call_id arguments name output images image_url summary
    timestamp turn_id forked_from_id parent_thread_id source subagent info last_token_usage input_tokens num_turns
    replacement_history result Ok Err invocation action query results success metadata exit_code changes cwd model
    git last_agent_message error review_output findings goal objective fragments base_instructions namespace
    record_type command aggregated_output tool server status local_images thread_source author
"""
_KEYS = st.sampled_from(_KEY_NAMES.split())
_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 2**70), st.floats(), _TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_KEYS, inner, max_size=5)),
    max_leaves=12,
)
_PAYLOADS = st.fixed_dictionaries(
    {"type": st.one_of(_WORDS, _VALUES)},
    optional={
        name: st.one_of(_TEXTS, _VALUES)
        for name in (
            "role",
            "content",
            "message",
            "text",
            "item",
            "call_id",
            "output",
            "id",
            "turn_id",
            "summary",
            "num_turns",
        )
    },
)
_RECORDS = st.one_of(
    st.fixed_dictionaries(
        {"type": st.one_of(_WORDS, _VALUES), "payload": st.one_of(_PAYLOADS, _PAYLOADS, _VALUES)},
        optional={"timestamp": st.one_of(_TEXTS, _VALUES)},
    ),
    _PAYLOADS,
    st.dictionaries(_KEYS, _VALUES, max_size=6),
    _VALUES,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(_RECORDS, max_size=12))
def test_any_json_is_read_without_error_and_accounted_for(records: list[Any]) -> None:
    source = Source(Path("rollout-x.jsonl"), "".join(json.dumps(record) + "\n" for record in records).encode())
    ledger = Ledger()
    sessions = list(CODEX.read(source, ledger))
    assert_accounted(sessions, ledger)
    assert ledger.read == len(records)
    for session in sessions:
        assert Session.from_dict(session.to_dict()) == session
    assert 0 <= CODEX.claims(Head.of(source)) <= 1


_SAY = st.tuples(
    st.sampled_from(["user", "assistant"]), st.sampled_from(["item", "event", "both"]), st.sampled_from("abc")
)


@settings(max_examples=200, deadline=None)
@given(st.lists(_SAY, max_size=12))
def test_no_text_is_lost_whichever_stream_tells_it(spoken: list[tuple[str, str, str]]) -> None:
    records: list[Any] = []
    for who, streams, text in spoken:
        if streams != "event":
            records.append({"type": "response_item", "payload": {"type": "message", "role": who, "content": text}})
        if streams != "item":
            kind = "user_message" if who == "user" else "agent_message"
            records.append({"type": "event_msg", "payload": {"type": kind, "message": text}})
    ledger = Ledger()
    sessions = list(CODEX.read(source_of(*records), ledger))
    assert_accounted(sessions, ledger)
    told = {(str(message.role), message.text) for session in sessions for message in session.messages}
    assert told == {(who, text) for who, _, text in spoken}


# --- real files ---------------------------------------------------------------------------------------------

# Counted by hand in the files: every user text, answer, call, output and summary once.
_COUNTED = {
    "agentsview-standard_session.jsonl": 2,
    "agentsview-function_calls.jsonl": 3,
    "fixture-codex-edges.jsonl": 13,
    "minimal-meta-without-id.jsonl": 6,
    "polylogue-interleaved.jsonl": 9,
    "schema_drift.jsonl": 4,
    "traex-subagent-redacted-real.jsonl": 9,
}


def test_corpus_is_claimed_and_accounted_for(corpus: Path) -> None:
    folder = corpus / "samples" / "codex"
    for path in sorted(folder.iterdir()):
        assert CODEX.detect(path) > 0.5, path.name
        session, ledger = read(path)
        assert ledger.skipped["unknown"] == 0, path.name
        if path.name in _COUNTED:
            assert sum(message.records for message in session.messages) == _COUNTED[path.name], path.name


def test_no_other_tools_file_is_claimed(corpus: Path) -> None:
    for folder in ("claude-code", "gemini-cli", "other", "chatgpt", "claude-ai", "slack"):
        for path in (corpus / "samples" / folder).rglob("*"):
            assert not path.is_file() or CODEX.detect(path) == 0, path
