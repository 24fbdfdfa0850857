"""Claude Code: what is recognised, what becomes of every record, what a session then holds."""

from __future__ import annotations

import base64
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mempalace.formats.claude_code import ClaudeCode
from mempalace.formats.claude_code.blocks import split_prompt
from mempalace.head import Head
from mempalace.model import Image, Message, Origin, Role, Session, Text, Thinking, ToolUse
from mempalace.records import Ledger
from mempalace.source import Source, read_span
from mempalace.values import dumps

FIXTURES = Path(__file__).parent.parent / "fixtures" / "claude-code"
CASES = sorted(path.name for path in FIXTURES.iterdir() if path.is_dir())
SESSION_ID = "5b0c7a52-9d1e-4c33-8a41-2f6b1d0e9a10"
FORMAT = ClaudeCode()


def read(path: Path) -> tuple[list[Session], Ledger]:
    ledger = Ledger()
    sessions = list(FORMAT.read(Source(path), ledger))
    assert ledger.read == sum(map(kept, sessions)) + ledger.unstored, path
    return sessions, ledger


def read_records(*records: Any, name: str = "a.jsonl") -> tuple[list[Session], Ledger]:
    data = b"".join(dumps(record) + b"\n" for record in records)
    ledger = Ledger()
    sessions = list(FORMAT.read(Source(Path(name), data), ledger))
    assert ledger.read == len(records) == sum(map(kept, sessions)) + ledger.unstored
    return sessions, ledger


def kept(session: Session) -> int:
    return sum(message.records for message in session.messages) + sum(map(kept, session.subagents))


def load(case: str, name: str = f"{SESSION_ID}.jsonl") -> Session:
    (session,) = read(FIXTURES / case / name)[0]
    return session


def texts(session: Session, origin: Origin) -> list[str]:
    return [message.text for message in session.messages if message.origin is origin]


def said(session: Session) -> list[str]:
    return texts(session, Origin.PERSON)


# --- golden files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_case_reads_as_expected(case: str, golden: Callable[[Path, Any], None]) -> None:
    found: dict[str, Any] = {}
    for path in FORMAT.session_files(FIXTURES / case):
        sessions, ledger = read(path)
        name = path.relative_to(FIXTURES / case).as_posix()
        for session in sessions:
            assert Session.from_dict(session.to_dict()) == session
        found[name] = {
            "read": ledger.read,
            "duplicate": ledger.duplicate,
            "damaged": ledger.damaged,
            "skipped": dict(sorted(ledger.skipped.items())),
            "sessions": [with_path(session.to_dict(), name) for session in sessions],
        }
    golden(FIXTURES / case / "expected.json", found)


def with_path(data: dict[str, Any], name: str) -> dict[str, Any]:
    return {**data, "path": name, "subagents": [with_path(subagent, name) for subagent in data["subagents"]]}


def test_readme_names_every_case() -> None:
    lines = (FIXTURES / "README.md").read_text(encoding="utf-8").splitlines()
    assert sorted(line.split("`")[1] for line in lines if line.startswith("- `")) == CASES


# --- detection ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [case for case in CASES if case not in ("minimal", "no-messages", "odd-values")])
def test_sessions_are_claimed(case: str) -> None:
    for path in FORMAT.session_files(FIXTURES / case):
        assert FORMAT.detect(path) == 1.0


def test_bookkeeping_alone_is_claimed_but_gives_no_session() -> None:
    path = FIXTURES / "no-messages" / f"{SESSION_ID}.jsonl"
    assert FORMAT.detect(path) == 0.9
    assert read(path)[0] == []


FOREIGN = {
    "minimal": {"type": "user", "message": {"role": "user", "content": "hi"}},
    "iflow session": {
        "type": "user",
        "uuid": "u",
        "parentUuid": None,
        "sessionId": "session-5de701fc-7454-4858-a249-95cac4fd3b51",
        "message": {"role": "user", "content": "hi"},
    },
    "iflow message": {
        "type": "assistant",
        "uuid": "u",
        "parentUuid": None,
        "sessionId": "s",
        "message": {"id": "response-1768975012469-x", "role": "assistant", "content": []},
    },
    "qwen": {
        "type": "user",
        "uuid": "u",
        "parentUuid": None,
        "sessionId": "s",
        "message": {"role": "user", "parts": [{"text": "hi"}]},
    },
    "gemini": {"type": "user", "sessionId": "s", "projectHash": "h", "content": "hi"},
    "stream-json": {"type": "assistant", "session_id": "s", "uuid": "u", "message": {"role": "assistant"}},
    "codex": {"type": "response_item", "payload": {"type": "message"}},
    "chatgpt": {"mapping": {}, "title": "t"},
    "history": {"display": "hi", "pastedContents": {}, "timestamp": 1, "project": "/p", "sessionId": "s"},
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_records_of_other_tools_are_refused(kind: str) -> None:
    data = orjson.dumps(FOREIGN[kind]) + b"\n"
    assert FORMAT.claims(Head.of(Source(Path("a.jsonl"), data))) == 0.0
    if kind not in ("minimal", "chatgpt", "history"):  # what another tool wrote spoils the whole file
        ours = (FIXTURES / "plain" / f"{SESSION_ID}.jsonl").read_bytes()
        assert FORMAT.claims(Head.of(Source(Path("a.jsonl"), ours + data))) == 0.0


def test_folder_of_another_tool_is_refused() -> None:
    data = (FIXTURES / "plain" / f"{SESSION_ID}.jsonl").read_bytes()
    assert FORMAT.claims(Head.of(Source(Path("/home/mira/.iflow/projects/p/a.jsonl"), data))) == 0.0


def test_missing_and_empty_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    assert FORMAT.detect(tmp_path / "a.jsonl") == 0.0
    assert FORMAT.detect(tmp_path / "b.jsonl") == 0.0
    assert read(tmp_path / "a.jsonl") == ([], Ledger())


# --- messages -----------------------------------------------------------------------------------------------


def test_lines_of_one_api_message_merge_around_the_results_between_them() -> None:
    session = load("merged-lines")
    first = next(message for message in session.messages if message.id == "msg_A")
    assert [type(block) for block in first.content] == [Thinking, Text, ToolUse, ToolUse]
    assert (first.records, first.line) == (4, 2)
    assert [str(message.role) for message in session.messages] == ["user", "assistant", "tool", "tool", "assistant"]
    (turn,) = session.turns
    assert turn.token_usage is not None
    assert (turn.token_usage.input, turn.token_usage.output) == (20, 62)
    assert (turn.token_usage.cache_read, turn.token_usage.cache_create) == (2000, 200)


def test_usage_without_message_ids_counts_once_per_request() -> None:
    def line(request: str, output: int) -> dict[str, Any]:
        usage = {"input_tokens": 1, "output_tokens": output}
        return {"type": "assistant", "requestId": request, "message": {"content": f"part {output}", "usage": usage}}

    prompt = {"type": "user", "message": {"content": "go"}}
    (session,), _ = read_records(prompt, line("r1", 3), line("r1", 9), line("r1", 7), line("r2", 1))
    assert session.total_tokens.output == 10
    assert session.total_tokens.cache_read is None


def test_growing_snapshots_are_replaced() -> None:
    _, answer = load("snapshots").messages
    assert answer.content == (Text("One, two"), ToolUse("toolu_1", "Bash", {"command": "echo 3"}))


def test_tool_results_are_kept_whole() -> None:
    session = load("tool-results")
    assert [(result.content, result.is_error) for result in session.tool_results] == [
        ("     1→import os\n     2→", False),
        ("ld: undefined symbol\nexit 1", True),
        ("[tool_reference: Grep]\n[tool_reference: Glob]", None),
        ("a picture", None),
        ("", None),
        ("no match", None),
    ]
    assert all(message.role is Role.TOOL for message in session.messages if message.origin is Origin.TOOL_RESULT)


def test_words_typed_beside_a_tool_result_are_a_message_of_their_own() -> None:
    result, words = list(load("tool-results").messages)[-3:-1]
    assert (result.role, result.records) == (Role.TOOL, 1)
    assert (words.role, words.origin, words.records) == (Role.USER, Origin.PERSON, 0)
    assert words.text == "it's in worktree 2"
    assert words.id == f"{result.id}#text"


def test_wrappers_come_off_the_start_only() -> None:
    session = load("wrappers")
    assert said(session) == [
        "    indented words of mine",
        "what does this file do?",
        "three",
        "what does <system-reminder>x</system-reminder> in the middle mean?",
        "<system-reminder> is never closed here",
        "<div>not a tag of the client</div>",
    ]
    assert texts(session, Origin.SUBAGENT) == [
        '<teammate-message teammate_id="alice">branch is ready</teammate-message>'
    ]
    assert "continue" in texts(session, Origin.INJECTED)
    assert all(turn.messages[0].role is Role.USER for turn in session.turns)


@given(
    st.lists(st.sampled_from(["<system-reminder>", "</system-reminder>", "<bash-input>", "</bash-input>", "\n", "x"]))
)
def test_split_prompt_loses_nothing(parts: list[str]) -> None:
    text = "".join(parts)
    if text:
        assert "".join(piece for _, piece in split_prompt(text)) == text


def test_commands_are_not_what_a_person_said() -> None:
    session = load("commands")
    assert said(session) == ["actual question SIGNAL-1"]
    assert Counter(message.origin for message in session.messages) == {
        Origin.COMMAND: 8,
        Origin.INJECTED: 2,
        Origin.PERSON: 1,
        Origin.ASSISTANT: 1,
    }
    assert "<bash-stdout>a </bash-stdout> inside</bash-stdout><bash-stderr></bash-stderr>" in texts(
        session, Origin.COMMAND
    )


def test_compaction_summaries_have_the_role_system() -> None:
    session = load("compaction")
    assert said(session) == ["we pick postgres", "next thing", "and on"]
    summaries = [message for message in session.messages if message.origin is Origin.SUMMARY]
    assert [message.role for message in summaries] == [Role.SYSTEM, Role.SYSTEM]


def test_what_the_client_wrote_as_assistant_counts_for_nothing() -> None:
    session = load("system-records")
    synthetic = next(message for message in session.messages if message.text.startswith("API Error"))
    assert (synthetic.origin, synthetic.model) == (Origin.INJECTED, None)
    assert session.metadata.model == "claude-opus-4-5-20251101"
    assert session.total_tokens.output == 5
    assert "NOISE" not in "".join(message.text for message in session.messages)


def test_queued_words_stand_once() -> None:
    session = load("queue")
    assert said(session) == [
        "start the build",
        "does it fail locally?",
        "and on CI?",
        "I think it is the lint command",
        "/etc/hosts is empty, see?",
        "last words",
    ]
    assert texts(session, Origin.COMMAND) == ["/model"]


def test_an_answer_is_no_echo_of_words_queued_after_it() -> None:
    user = {"type": "user", "message": {"content": "continue"}}
    queued = {"type": "queue-operation", "operation": "enqueue", "content": "continue"}
    (session,), ledger = read_records(user, queued)
    assert said(session) == ["continue", "continue"]
    assert not ledger.skipped
    (session,), ledger = read_records(user, queued, queued, user)
    assert said(session) == ["continue", "continue", "continue"]
    assert ledger.skipped == {"echo": 1}


def test_queued_attachment_alone_makes_a_session() -> None:
    attachment = {"type": "attachment", "uuid": "x", "attachment": {"type": "queued_command", "prompt": "only words"}}
    (session,), _ = read_records(attachment)
    assert said(session) == ["only words"]


def test_rewound_branch_is_labelled_and_kept() -> None:
    session = load("rewind")
    assert said(session) == ["write a poem", "make it shorter"]
    left = [message for message in session.messages if message.origin is Origin.ABANDONED]
    assert [message.role for message in left] == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.USER, Role.ASSISTANT]


def test_going_on_with_the_earlier_branch_leaves_the_later_one() -> None:
    def line(kind: str, uuid: str, parent: str | None) -> dict[str, Any]:
        return {"type": kind, "uuid": uuid, "parentUuid": parent, "message": {"content": uuid}}

    (session,), _ = read_records(
        line("user", "u1", None),
        line("assistant", "a1", "u1"),
        line("user", "u2", "a1"),
        line("assistant", "a2", "u2"),
        line("user", "u3", "a1"),
        line("user", "u4", "a2"),
    )
    assert texts(session, Origin.ABANDONED) == ["u3"]


@pytest.mark.parametrize("case", ["merged-lines", "missing-parents", "compaction", "inline-sidechain"])
def test_other_forks_are_no_branches(case: str) -> None:
    assert texts(load(case), Origin.ABANDONED) == []


def test_branching_writes_each_record_twice_and_is_read_once() -> None:
    (session,), ledger = read(FIXTURES / "forked" / f"{SESSION_ID}.jsonl")
    assert said(session) == ["branch once", "further"]
    assert ledger.duplicate == 2
    assert session.metadata.lineage == {"forked_from": "0aaf8f0e-1111-4a4a-9d9d-000000000000"}


def test_images_are_located_not_copied() -> None:
    path = FIXTURES / "images" / f"{SESSION_ID}.jsonl"
    prompt = next(load("images").messages)
    images = [block for block in prompt.content if isinstance(block, Image)]
    assert [(image.media_type, image.size, image.ref) for image in images] == [
        ("image/png", 68, None),
        (None, None, "https://example.org/a.png"),
        ("application/pdf", 9, None),
    ]
    assert prompt.text == "what is in these?\nwords of a document"
    assert images[0].offset is not None
    assert images[0].length is not None
    data = base64.b64decode(read_span(Source(path), images[0].offset, images[0].length))
    assert data.startswith(b"\x89PNG")
    assert len(data) == images[0].size


def test_records_of_type_and_message_only_are_read() -> None:
    session = load("minimal")
    assert [(str(message.role), message.text) for message in session.messages] == [
        ("user", "first question"),
        ("assistant", "first answer"),
        ("user", "second question"),
        ("assistant", "second answer"),
    ]
    assert len(session.turns) == 2


# --- sub-agents ---------------------------------------------------------------------------------------------


def test_sidechains_inside_a_file_become_subagents() -> None:
    session = load("inline-sidechain")
    assert said(session) == ["explore twice"]
    looms, kilns = session.subagents
    assert [message.text for message in looms.messages] == ["Find the looms.", "Looms in src/loom.", "Two of them."]
    assert next(looms.messages).origin is Origin.SUBAGENT
    assert (looms.subagent_type, looms.metadata.parent_tool_use_id) == ("Explore", "toolu_1")
    assert (kilns.agent_id, kilns.subagent_type) == ("a1b2c3d4", "Plan")
    assert kilns.metadata.parent_tool_use_id == session.metadata.extra["spawns"]["a1b2c3d4"] == "toolu_2"
    assert kilns.key == f"{SESSION_ID}/a1b2c3d4"
    assert kilns.metadata.model == "claude-haiku-4-5"


def test_subagent_files_share_the_parents_session_id() -> None:
    session = load("subagent-files")
    assert session.metadata.extra["spawns"] == {"a1": "toolu_1", "a2": "toolu_2"}
    first = load("subagent-files", f"{SESSION_ID}/subagents/agent-a1.jsonl")
    second = load("subagent-files", f"{SESSION_ID}/subagents/agent-a2.jsonl")
    assert (first.parent_id, first.agent_id, first.subagent_type) == (SESSION_ID, "a1", "Explore")
    assert (second.parent_id, second.agent_id, second.subagent_type) == (SESSION_ID, "a2", "subagent")
    assert len({session.key, first.key, second.key}) == 3
    assert next(first.messages).origin is Origin.SUBAGENT
    assert FORMAT.resume_command(first) is None


# --- metadata -----------------------------------------------------------------------------------------------


def test_titles() -> None:
    assert load("titles").metadata.title == "Greeting the loom"
    assert load("custom-title").metadata.title == "loom work"
    assert load("plain").metadata.title is None


def test_two_session_ids_in_a_file(tmp_path: Path) -> None:
    metadata = load("resumed-1x").metadata
    assert metadata.session_id == SESSION_ID
    assert metadata.lineage == {"forked_from": "0aaf8f0e-1111-4a4a-9d9d-000000000000"}
    original = FIXTURES / "resumed-1x" / f"{SESSION_ID}.jsonl"
    shutil.copy(original, tmp_path / "full.jsonl")
    assert read(tmp_path / "full.jsonl")[0][0].metadata.session_id == SESSION_ID  # that of the last message
    shutil.copy(original, tmp_path / "0aaf8f0e-1111-4a4a-9d9d-000000000000.jsonl")
    named = read(tmp_path / "0aaf8f0e-1111-4a4a-9d9d-000000000000.jsonl")[0][0].metadata
    assert named.session_id == "0aaf8f0e-1111-4a4a-9d9d-000000000000"


def test_headless_runs() -> None:
    session = load("headless")
    assert session.metadata.interactive is False
    assert said(session) == ["summarise the repo"]
    assert load("plain").metadata.interactive is None


def test_metadata_comes_from_the_first_record_that_has_it() -> None:
    metadata = load("titles").metadata
    assert (metadata.session_id, metadata.project, metadata.provider) == (SESSION_ID, "/home/mira/loom", "anthropic")
    assert metadata.timestamp is not None
    assert (metadata.git_branch, metadata.client_version, metadata.source) == ("main", "2.1.31", "claude-code")


# --- places -------------------------------------------------------------------------------------------------


def test_roots(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    assert FORMAT.roots() == [home / ".claude" / "projects", home / ".config" / "claude" / "projects"]
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "/alt, ~/second")
    assert FORMAT.roots() == [Path("/alt/projects"), home / "second" / "projects"]
    monkeypatch.setenv("CLAUDE_SESSIONS_DIR", "/only")
    assert FORMAT.roots() == [Path("/only")]


@pytest.mark.parametrize(
    ("project", "slug"),
    [
        ("/w/my-app_v2.1", "-w-my-app-v2-1"),
        ("/w/проект", "-w-------"),
        ("/w/plain", "w-plain"),
    ],
)
def test_folder_of_a_project(home: Path, project: str, slug: str) -> None:
    folder = home / ".claude" / "projects" / slug
    assert FORMAT.sessions_dir(Path(project)) is None
    assert FORMAT.list_sessions(Path(project)) == []
    folder.mkdir(parents=True)
    assert FORMAT.sessions_dir(Path(project)) == folder


def test_side_files_are_not_listed(home: Path) -> None:
    shutil.copytree(FIXTURES / "subagent-files", home / ".claude" / "projects" / "-w-loom")
    (home / ".claude" / "projects" / "-w-loom" / "journal.jsonl").touch()
    found = FORMAT.list_sessions()
    assert sorted((file.path.name, file.is_subagent) for file in found) == [
        (f"{SESSION_ID}.jsonl", False),
        ("agent-a1.jsonl", True),
        ("agent-a2.jsonl", True),
    ]
    folder = FIXTURES / "subagent-files"
    sides = sorted(path.name for path in folder.rglob("*") if path.is_file() and FORMAT.is_side_file(path))
    assert sides == ["agent-a1.meta.json", "notes.md", "toolu_1.txt"]


def test_resume_command() -> None:
    assert FORMAT.resume_command(load("plain")) == f"cd /home/mira/loom && claude --resume {SESSION_ID}"
    odd = {"type": "user", "sessionId": "a-b", "cwd": "/w/it's", "message": {"content": "hi"}}
    (session,), _ = read_records(odd)
    assert FORMAT.resume_command(session) == """cd '/w/it'"'"'s' && claude --resume a-b"""
    (session,), _ = read_records({**odd, "cwd": "-P"})
    assert FORMAT.resume_command(session) == "cd -- -P && claude --resume a-b"
    for words in ("--dangerously-skip-permissions", "a b", "a/../b", "a;b"):
        (session,), _ = read_records({**odd, "sessionId": words})
        assert FORMAT.resume_command(session) is None
    assert FORMAT.resume_command(load("minimal")) is None


# --- whatever a file holds ----------------------------------------------------------------------------------

ids = st.sampled_from(["u1", "u2", "u3", "msg_1", "agent-1", ""])
words = st.sampled_from(
    ["hi", "", " ", "/model", "<system-reminder>x</system-reminder> y", "<bash-input>ls</bash-input>", "<tick>"]
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words | ids,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | ids, inner, max_size=3),
    max_leaves=5,
)
block_types = st.sampled_from(
    ["text", "thinking", "tool_use", "tool_result", "image", "document", "redacted_thinking", "mcp_tool_result", "x"]
)


def loosely(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with some of the fields, and now and then a value of another type."""
    return st.fixed_dictionaries({}, optional={key: value | anything for key, value in fields.items()})


sources = loosely({"type": words, "media_type": words, "data": words, "url": words})
blocks = loosely(
    {
        "type": block_types,
        "text": words,
        "thinking": words,
        "signature": words,
        "id": ids,
        "name": words,
        "input": anything,
        "tool_use_id": ids,
        "content": words | st.lists(loosely({"type": block_types, "text": words, "source": sources}), max_size=2),
        "is_error": st.booleans(),
        "source": sources,
    }
)
contents = words | st.lists(blocks, max_size=3)
usages = loosely({"input_tokens": st.integers(), "output_tokens": st.integers(0, 9)})
records = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            ["user", "human", "assistant", "system", "attachment", "queue-operation", "summary", "ai-title", "progress"]
        )
        | anything
    },
    optional={
        "uuid": ids | anything,
        "parentUuid": ids | anything,
        "logicalParentUuid": ids | anything,
        "sessionId": ids | anything,
        "agentId": ids | anything,
        "requestId": ids | anything,
        "timestamp": st.just("2026-02-03T09:00:00Z") | anything,
        "isSidechain": st.booleans() | anything,
        "isMeta": st.booleans() | anything,
        "isCompactSummary": st.booleans() | anything,
        "isApiErrorMessage": st.booleans() | anything,
        "cwd": words | anything,
        "message": loosely({"id": ids, "model": words, "role": words, "content": contents, "usage": usages}),
        "content": contents | anything,
        "operation": st.sampled_from(["enqueue", "dequeue", "remove", "popAll"]) | anything,
        "attachment": loosely({"type": st.just("queued_command"), "prompt": contents, "origin": anything}),
        "toolUseResult": loosely({"agentId": ids}),
        "data": loosely({"type": st.just("agent_progress"), "agentId": ids}),
        "parentToolUseID": ids | anything,
        "subtype": st.sampled_from(["api_error", "local_command", "turn_duration"]) | anything,
        "error": anything,
        "summary": words | anything,
        "leafUuid": ids | anything,
        "aiTitle": words | anything,
        "forkedFrom": loosely({"sessionId": ids}),
        "origin": loosely({"kind": words}),
    },
)


@settings(max_examples=60, deadline=None)
@given(st.lists(records, max_size=12), st.sampled_from(["a.jsonl", "agent-7.jsonl"]))
def test_any_records_are_read_and_counted(values: list[Any], name: str) -> None:
    sessions, _ = read_records(*values, name=name)
    for session in sessions:
        assert Session.from_dict(session.to_dict()) == session
        assert all(message.content for message in session.messages)
    data = b"".join(dumps(value) + b"\n" for value in values)
    assert 0.0 <= FORMAT.claims(Head.of(Source(Path(name), data))) <= 1.0


# --- real files ---------------------------------------------------------------------------------------------

# What a plain count over the JSON gives: distinct message ids of assistants, records with a tool result.
COUNTED = {
    "v1.0.24-15-summaries.jsonl": (34, 32),
    "v2.0.76-compact.jsonl": (12, 10),
    "v2.1.31-interleaved.jsonl": (10, 6),
}


def test_real_files_are_claimed_and_every_record_counted(corpus: Path) -> None:
    folder = corpus / "samples" / "claude-code"
    paths = list(FORMAT.session_files(folder))
    assert len(paths) >= 20
    for path in paths:
        if path.stat().st_size:
            assert FORMAT.detect(path) >= 0.9, path
        read(path)
    for name, counts in COUNTED.items():
        (session,), _ = read(folder / name)
        kinds = Counter(message.origin for message in session.messages)
        assert (kinds[Origin.ASSISTANT], kinds[Origin.TOOL_RESULT]) == counts == count_plainly(folder / name)


def count_plainly(path: Path) -> tuple[int, int]:
    answers, results = set(), 0
    for line in path.read_bytes().splitlines():
        record = orjson.loads(line)
        if record["type"] == "assistant" and record["message"]["model"] != "<synthetic>":
            answers.add(record["message"]["id"])
        elif record["type"] == "user" and isinstance(record["message"]["content"], list):
            results += any(block["type"] == "tool_result" for block in record["message"]["content"])
    return len(answers), results


def test_real_files_of_other_tools_are_refused(corpus: Path) -> None:
    folder = corpus / "samples"
    others = [path for path in folder.rglob("*") if path.is_file() and "claude-code" not in path.parts]
    assert [path for path in others if FORMAT.detect(path)] == []


def test_real_rewind_is_found_and_nothing_else_is_taken_for_one(corpus: Path) -> None:
    folder = corpus / "samples" / "claude-code"
    left: dict[str, list[Message]] = {}
    for path in FORMAT.session_files(folder):
        for session in FORMAT.sessions(path):
            messages = [message for message in session.messages if message.origin is Origin.ABANDONED]
            if messages:
                left[path.name] = messages
    assert list(left) == ["v2.1.42-ideas.jsonl"]
    assert [message.line for message in left["v2.1.42-ideas.jsonl"]] == [18, 20, 25, 27, 32, 33]
