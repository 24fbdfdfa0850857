"""Gemini CLI: four forms of one conversation, and nothing lost in any of them."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mempalace.errors import ParseError
from mempalace.formats.gemini import Gemini
from mempalace.head import Head
from mempalace.model import Image, Message, Origin, Role, Session, Text, Thinking, TokenUsage, ToolUse
from mempalace.records import Ledger
from mempalace.source import Source, read_span

FIXTURES = Path(__file__).parent.parent / "fixtures" / "gemini"
CASES = sorted(folder.name for folder in FIXTURES.iterdir() if folder.is_dir() and folder.name != "tree")
UNCLAIMED = {"no_header"}
GEMINI = Gemini()


def read(path: Path, data: bytes | None = None) -> tuple[Session | None, Ledger]:
    """The session of a file and its ledger, which must add up."""
    ledger = Ledger()
    sessions = list(GEMINI.read(Source(path, data), ledger))
    assert len(sessions) <= 1
    assert ledger.read == sum(message.records for session in sessions for message in session.messages) + ledger.unstored
    return (sessions[0] if sessions else None), ledger


def session_of(case: str) -> tuple[Session, Ledger]:
    session, ledger = read(input_of(case))
    assert session is not None
    return session, ledger


def input_of(case: str) -> Path:
    (path,) = (path for path in (FIXTURES / case).iterdir() if path.name != "expected.json")
    return path


def log(*records: Any) -> bytes:
    header = {"sessionId": "s1", "projectHash": "ab", "startTime": "2026-05-04T08:00:00Z"}
    return b"".join(orjson.dumps(record) + b"\n" for record in (header, *records))


def spoken(session: Session) -> list[tuple[str, str, str]]:
    return [(str(message.role), str(message.origin), message.text) for message in session.messages]


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str, golden: Callable[[Path, Any], None]) -> None:
    path = input_of(case)
    session, ledger = read(path)
    data = None if session is None else replace(session, path=Path(path.name)).to_dict()
    counts = {"read": ledger.read, "duplicate": ledger.duplicate, "damaged": ledger.damaged, **ledger.skipped}
    golden(FIXTURES / case / "expected.json", {"ledger": counts, "session": data})
    if session is not None:
        assert Session.from_dict(session.to_dict()) == session


@pytest.mark.parametrize("case", CASES)
def test_claims(case: str) -> None:
    assert (GEMINI.detect(input_of(case)) > 0) == (case not in UNCLAIMED)


def test_every_case_is_described() -> None:
    described = (FIXTURES / "README.md").read_text()
    assert all(f"- `{folder.name}`:" in described for folder in FIXTURES.iterdir() if folder.is_dir())


def test_three_forms_give_the_same_session() -> None:
    sessions = [session_of(case)[0] for case in ("log", "document", "one_line")]
    contents = [
        ([[replace(message, line=None) for message in turn.messages] for turn in session.turns], session.total_tokens)
        for session in sessions
    ]
    assert contents[0] == contents[1] == contents[2]
    assert {session.metadata.title for session in sessions} == {"Kiln overshoot: probe unit"}
    assert [session_of(case)[1].read for case in ("document", "one_line")] == [4, 4]


def test_metadata() -> None:
    metadata = session_of("log")[0].metadata
    assert metadata.session_id == "4f1c20aa-0000-4000-8000-000000000001"
    assert metadata.timestamp is not None
    assert metadata.timestamp.isoformat() == "2026-05-04T08:00:00+00:00"
    assert (metadata.provider, metadata.model, metadata.source) == ("google", "gemini-3-flash-preview", "gemini")
    assert metadata.project is None
    assert metadata.extra["projectHash"] == hashlib.sha256(b"/home/ada/src/kiln-ctl").hexdigest()


def test_usage_is_summed_per_turn_without_cached_input() -> None:
    session, _ = session_of("document")
    usages = [turn.token_usage for turn in session.turns]
    assert usages[0] == TokenUsage(100, 20, 20, model="gemini-3-flash-preview")
    assert usages[1] == TokenUsage(60, 11, 100, model="gemini-3-flash-preview")


def test_usage_of_several_answers_and_of_an_empty_one() -> None:
    session, ledger = read(
        Path("x.jsonl"),
        log(
            {"id": "u", "type": "user", "content": "go"},
            {
                "id": "a",
                "type": "gemini",
                "content": "one",
                "tokens": {"input": 5, "output": 2, "cached": 4, "tool": 3},
            },
            {"id": "b", "type": "gemini", "content": "", "tokens": {"input": 7, "output": 1}},
        ),
    )
    assert session is not None
    assert session.turns[0].token_usage == TokenUsage(11, 3, 4)
    assert ledger.skipped["empty"] == 1


# --- the sentinel form: what the older adapter did ---


def test_sentinel_form() -> None:
    session, ledger = session_of("sentinel")
    assert [text for _, _, text in spoken(session)] == [
        "list the glaze steps\nin order",
        "1. bisque\n2. glaze",
        "and then?",
        "3. fire",
    ]
    assert [len(turn.messages) for turn in session.turns] == [2, 2]
    assert ledger.skipped == {"before_header": 1, "metadata": 1, "control": 2, "empty": 1}
    assert ledger.damaged == 1
    assert [turn.token_usage for turn in session.turns] == [TokenUsage(6, 5, 4), TokenUsage(20, 3, 0)]


def test_without_any_header_nothing_is_yielded() -> None:
    session, ledger = read(input_of("no_header"))
    assert session is None
    assert ledger.skipped == {"before_header": 2}


@pytest.mark.parametrize(
    "records",
    [
        [{"type": "session_meta", "payload": {"id": "c"}}, {"type": "response_item", "payload": {"type": "message"}}],
        [
            {
                "type": "user",
                "uuid": "u",
                "parentUuid": None,
                "sessionId": "s",
                "message": {"role": "user", "content": "x"},
            }
        ],
        [
            {
                "type": "user",
                "uuid": "u",
                "sessionId": "s",
                "projectHash": "h",
                "message": {"role": "user", "parts": [{"text": "x"}]},
            }
        ],
        [{"type": "gemini", "content": "hello"}, {"type": "user", "content": "hello"}],
        [{"$set": {"a": 1}}, {"$set": {"b": 2}}],
        [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}],
        [{"sessionId": "s", "projectHash": "h", "messages": [{"type": "qwen", "id": "q", "content": "x"}]}],
        [{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}],
        [{"history": [{"role": "user", "parts": [{"text": "alone"}]}]}],
        [{"history": [{"role": "user", "parts": [{"kind": "x"}]}, {"role": "model", "parts": [{"kind": "y"}]}]}],
    ],
)
def test_other_tools_are_refused(records: list[dict[str, Any]]) -> None:
    data = b"".join(orjson.dumps(record) + b"\n" for record in records)
    assert GEMINI.claims(Head.of(Source(Path("x.jsonl"), data))) == 0
    assert read(Path("x.jsonl"), data)[0] is None


def test_damaged_header_does_not_lose_the_log() -> None:
    session, ledger = session_of("lost_header")
    assert GEMINI.detect(input_of("lost_header")) == 0.9
    assert [text for _, _, text in spoken(session)] == ["is the vent open", "It is."]
    assert ledger.damaged == 1


# --- replay ---


def test_rewound_messages_stay_as_abandoned() -> None:
    session, _ = session_of("rewind")
    assert [(message.id, message.origin) for message in session.messages] == [
        ("u1", Origin.PERSON),
        ("g1", Origin.ASSISTANT),
        ("u2", Origin.ABANDONED),
        ("g2", Origin.ABANDONED),
        ("u3", Origin.PERSON),
        ("g3", Origin.ASSISTANT),
    ]
    assert session.total_tokens.output == 6


def test_rewind_to_an_unknown_message_undoes_all() -> None:
    session, _ = session_of("rewind_unknown")
    assert [message.id for message in session.messages if message.origin != Origin.ABANDONED] == ["u2", "g2"]


def test_id_may_come_back_after_a_rewind() -> None:
    user = {"id": "u", "type": "user", "content": "again"}
    session, ledger = read(Path("x.jsonl"), log(user, {"$rewindTo": "u"}, user))
    assert session is not None
    assert [message.origin for message in session.messages] == [Origin.ABANDONED, Origin.PERSON]
    assert ledger.skipped["superseded"] == 0


def test_message_written_again_replaces_in_place() -> None:
    session, ledger = session_of("log")
    assert [message.id for message in session.messages] == ["u1", "g1", None, "u2", "g2"]
    assert ledger.skipped == {"metadata": 1, "control": 3, "superseded": 1}


def test_rebuild_keeps_what_it_drops() -> None:
    session, ledger = session_of("rebuild")
    assert [(message.id, message.text, message.origin) for message in session.messages] == [
        ("u1", "first question", Origin.PERSON),
        ("g1", "first answer", Origin.ABANDONED),
        ("n1", "inserted by the tool's history", Origin.PERSON),
        ("u2", "second question, edited", Origin.PERSON),
        ("g2", "second answer", Origin.ASSISTANT),
        ("u3", "third question", Origin.PERSON),
    ]
    assert (ledger.duplicate, ledger.skipped["superseded"]) == (2, 1)


def test_rebuild_may_reorder() -> None:
    a, b, c = ({"id": id, "type": "user", "content": id} for id in "abc")
    session, ledger = read(Path("x.jsonl"), log(a, b, c, {"$set": {"messages": [c, a, c]}}))
    assert session is not None
    assert [(message.id, message.origin) for message in session.messages] == [
        ("c", Origin.PERSON),
        ("a", Origin.PERSON),
        ("b", Origin.ABANDONED),
    ]
    assert ledger.duplicate == 3


def test_compaction_keeps_the_whole_result_and_the_dialogue() -> None:
    session, _ = session_of("compaction")
    (result,) = session.tool_results
    assert result.content.splitlines()[-1] == "line 8: glaze-op-08"
    origins = [message.origin for message in session.messages]
    assert Origin.ABANDONED not in origins
    assert origins.count(Origin.SUMMARY) == 1
    assert spoken(session)[0][2] == "read the glaze log"


# --- messages ---


def test_injected_text_is_told_from_what_was_typed() -> None:
    session, _ = session_of("injected")
    by_origin = Counter(message.origin for message in session.messages)
    typed = [message.text for message in session.messages if message.origin == Origin.PERSON]
    assert typed == [
        "tune the oven",
        "/etc/kiln is missing, why?",
        "summarise @notes.md",
        "what is left to do?",
    ]
    assert [message.text for message in session.messages if message.origin == Origin.COMMAND] == ["/memory show"]
    injected = [message for message in session.messages if message.origin == Origin.INJECTED]
    assert {message.role for message in injected} == {Role.SYSTEM}
    assert by_origin[Origin.INJECTED] == 7
    assert any("OVEN-NOTE" in message.text for message in injected)
    assert "<hook_context>night shift</hook_context>\n" in [message.text for message in injected]


def test_tool_calls_and_results() -> None:
    session, ledger = session_of("tools")
    call = session.messages_by_role(Role.ASSISTANT)[0]
    assert call.text == "Running \nthem."
    assert [block.text for block in call.content if isinstance(block, Thinking)] == [
        "Plan: lint, then test",
        "no subject",
        "no description",
        "I should lint first.",
    ]
    assert [block.id for block in call.content if isinstance(block, ToolUse)] == [f"c{n}" for n in range(1, 8)]
    results = {result.tool_use_id: (result.content, result.is_error) for result in session.tool_results}
    assert results == {
        "c1": ("All checks passed!", False),
        "c2": ("exit code 2", True),
        "c3": ('{"fileDiff":"-a\\n+b","fileName":"a.py"}', True),
        "c4": ("plain text result", False),
        "c6": ("Found 2 files", False),
        "c7": ('{"rows":[1,2]}', False),
        "c9": ("kept: no call holds it", None),
    }
    tools = session.messages_by_role(Role.TOOL)
    assert [(message.records, message.origin) for message in tools] == [
        (0, Origin.TOOL_RESULT),
        (1, Origin.TOOL_RESULT),
    ]
    assert ledger.skipped["echo"] == 1
    assert len(session.turns) == 1


@pytest.mark.parametrize("content", ["hello", {"text": "hello"}, ["hello"], [{"text": "hello"}], ["hello", " "]])
def test_content_shapes(content: Any) -> None:
    session, _ = read(Path("x.jsonl"), log({"id": "u", "type": "user", "content": content}))
    assert session is not None
    assert [message.content for message in session.messages] == [(Text("hello"),)]


def test_image_is_found_in_the_source() -> None:
    session, _ = session_of("images")
    image, file = (block for message in session.messages for block in message.content if isinstance(block, Image))
    assert image.offset is not None
    assert image.length is not None
    assert read_span(Source(input_of("images")), image.offset, image.length).startswith(b"iVBORw0KGgo")
    assert (image.media_type, image.size) == ("image/png", 68)
    assert (file.media_type, file.ref) == ("application/pdf", "gs://kiln/manual.pdf")


def test_checkpoint() -> None:
    session, ledger = session_of("checkpoint")
    assert (session.metadata.title, session.metadata.session_id) == ("cone chart", None)
    assert session.tool_uses[0].id == session.tool_results[0].tool_use_id == "read_file#1"
    assert [message.origin for message in session.messages] == [
        Origin.INJECTED,
        Origin.ASSISTANT,
        Origin.PERSON,
        Origin.ASSISTANT,
        Origin.TOOL_RESULT,
        Origin.ASSISTANT,
    ]
    assert ledger.read == 6
    assert GEMINI.detect(input_of("checkpoint")) == GEMINI.detect(input_of("checkpoint_history")) == 0.8


def test_unknown_types_and_broken_elements_are_counted() -> None:
    session, ledger = session_of("drift")
    assert [text for _, _, text in spoken(session)] == ["Step 1", "Ok"]
    assert session.metadata.model == "gemini-2.5-pro"
    assert (ledger.skipped, ledger.damaged, ledger.read) == ({"unknown": 1, "empty": 1}, 1, 5)


def test_large_documents_are_claimed_by_their_beginning() -> None:
    message = {"id": "1", "timestamp": "2026-05-04T08:00:00Z", "type": "gemini", "content": "word " * 9000}
    named = {"sessionId": "s", "projectHash": "h", "messages": [message] * 20}
    unnamed = {"messages": [message] * 20, "projectHash": "h", "sessionId": "s"}
    turns = [{"role": "user", "parts": [{"text": "x" * 90_000}]}, {"role": "model", "parts": [{"text": "y"}]}] * 9
    for value in (named, unnamed, turns):
        for data in (orjson.dumps(value), orjson.dumps(value, option=orjson.OPT_INDENT_2)):
            assert len(data) > 300_000
            assert GEMINI.claims(Head.of(Source(Path("x.json"), data))) > 0
            assert read(Path("x.json"), data)[0] is not None


def test_documents_with_other_line_breaks() -> None:
    message = b'{"id":"1","type":"user","timestamp":"2026-05-04T08:00:00Z","content":"hello"}'
    turns = b'{"role":"user","parts":[{"text":"hello"}]},\n{"role":"model","parts":[{"text":"hi"}]}'
    envelope = b'{"sessionId":"s","projectHash":"h","messages":['
    for data, read_ in (
        (envelope + b"\n" + message + b"]}", 1),
        (envelope + b"\n" + message + b",\n" + message.replace(b'"1"', b'"2"') + b"\n]}\n", 2),
        (b"[\n" + turns + b"\n]", 2),
        (b'{"history":[\n' + turns + b"\n]}\n", 2),
    ):
        assert GEMINI.claims(Head.of(Source(Path("x.json"), data))) > 0
        session, ledger = read(Path("x.json"), data)
        assert session is not None
        assert ledger.read == session.message_count == read_


def test_deeply_nested_arguments() -> None:
    nested = b"[" * 1000 + b"]" * 1000
    call = b'{"id":"c","name":"n","args":%b}' % nested
    message = b'{"id":"a","type":"gemini","content":[{"functionCall":%b}],"toolCalls":[%b]}' % (call, call)
    session, _ = read(Path("x.jsonl"), log() + message + b'\n{"$set":{"messages":[' + message + b"]}}\n")
    assert session is not None
    assert session.tool_uses[0].id == "c"


def test_damaged_document_is_an_error() -> None:
    data = orjson.dumps({"sessionId": "s", "projectHash": "h", "messages": []}, option=orjson.OPT_INDENT_2)
    with pytest.raises(ParseError):
        read(Path("x.json"), data[:-4])


def test_torn_tail_is_kept_for_later() -> None:
    data = log({"id": "u", "type": "user", "content": "hello"}) + b'{"id": "g", "type": "gem'
    session, ledger = read(Path("x.jsonl"), data)
    assert session is not None
    assert ledger.skipped["incomplete_tail"] == 1


@pytest.mark.parametrize("data", [b"", b"\n\n", log(), b"{}", b"[]", b"null", b"\x00\x00", b"{\n}", b"[\n1,\n{}\n]"])
def test_nothing_in_it(data: bytes) -> None:
    assert read(Path("x.jsonl"), data)[0] is None


# --- where files live ---


@pytest.fixture
def tree(home: Path) -> Path:
    """A home folder with two projects."""
    shutil.copytree(FIXTURES / "tree", home, dirs_exist_ok=True)
    return home / ".gemini" / "tmp"


def test_discovery(tree: Path) -> None:
    found = {str(file.path.relative_to(tree)): file.is_subagent for file in GEMINI.list_sessions()}
    assert found == {
        "bakery/chats/session-2026-01-02T10-00-aaaaaaaa.jsonl": False,
        "kiln-ctl/chats/session-2026-05-04T08-00-4f1c20aa.jsonl": False,
        "kiln-ctl/chats/4f1c20aa-0000-4000-8000-000000000011/inv-1.jsonl": True,
        "kiln-ctl/checkpoint-cones.json": False,
    }


def test_side_files(tree: Path) -> None:
    side = {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file() and GEMINI.is_side_file(path)}
    assert side == {
        "kiln-ctl/logs.json",
        "kiln-ctl/tool-outputs/c1.json",
        "bakery/chats/session-2026-01-02T10-00-aaaaaaaa.json",
        "bakery/chats/session-2026-01-02T10-00-bbbbbbbb.jsonl.unreadable-1",
    }
    assert not GEMINI.is_side_file(Path("/home/ada/src/memory/logs.json"))


def test_root_from_the_environment(tree: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GEMINI_CLI_HOME", str(tmp_path))
    assert GEMINI.roots()[0] == tmp_path / ".gemini" / "tmp"
    assert GEMINI.sessions_dir() is None
    assert GEMINI.list_sessions() == []
    monkeypatch.setattr("sys.platform", "darwin")
    assert GEMINI.roots()[-1] == tree.parent.parent / ".cache" / ".gemini" / "tmp"


def test_folder_of_a_project(tree: Path) -> None:
    assert GEMINI.sessions_dir() == tree
    assert GEMINI.sessions_dir(Path("/home/ada/src/kiln-ctl")) == tree / "kiln-ctl"  # by its marker
    assert GEMINI.sessions_dir(Path("/home/ada/src/bakery")) == tree / "bakery"  # by the registry
    hashed = tree / hashlib.sha256(b"/home/ada/src/old").hexdigest()
    assert GEMINI.sessions_dir(Path("/home/ada/src/old")) is None
    hashed.mkdir()
    assert GEMINI.sessions_dir(Path("/home/ada/src/old")) == hashed
    assert len(GEMINI.list_sessions(Path("/home/ada/src/kiln-ctl"))) == 3


def test_project_of_a_session(tree: Path) -> None:
    chats = tree / "kiln-ctl" / "chats"
    parent, _ = read(chats / "session-2026-05-04T08-00-4f1c20aa.jsonl")
    baker, _ = read(tree / "bakery" / "chats" / "session-2026-01-02T10-00-aaaaaaaa.jsonl")
    elsewhere, _ = read(input_of("log"))  # known by the hash of its path
    assert parent is not None
    assert baker is not None
    assert elsewhere is not None
    kiln = "/home/ada/src/kiln-ctl"
    assert [s.metadata.project for s in (parent, baker, elsewhere)] == [kiln, "/home/ada/src/bakery", kiln]
    assert GEMINI.resume_command(parent) == f"cd {kiln} && gemini --resume 4f1c20aa-0000-4000-8000-000000000011"


def test_project_from_history_and_from_the_header(home: Path) -> None:
    chats = home / ".gemini" / "tmp" / "old" / "chats"
    chats.mkdir(parents=True)
    path = chats / "session-1.jsonl"
    path.write_bytes(log({"$set": {"directories": ["/srv/it's here"]}}, {"id": "u", "type": "user", "content": "x"}))
    session, _ = read(path)
    assert session is not None
    assert session.metadata.project == "/srv/it's here"
    assert GEMINI.resume_command(session) == "cd '/srv/it'\"'\"'s here' && gemini --resume s1"
    for odd in ("--yolo", "s 1", "../s1"):
        named = replace(session, metadata=replace(session.metadata, session_id=odd))
        assert GEMINI.resume_command(named) is None
    marker = home / ".gemini" / "history" / "old" / ".project_root"
    marker.parent.mkdir(parents=True)
    marker.write_text("/srv/named\n")
    session, _ = read(path)
    assert session is not None
    assert session.metadata.project == "/srv/named"


def test_subagent(tree: Path) -> None:
    parent = "4f1c20aa-0000-4000-8000-000000000011"
    session, _ = read(tree / "kiln-ctl" / "chats" / parent / "inv-1.jsonl")
    assert session is not None
    assert (session.agent_id, session.parent_id, session.subagent_type) == ("inv-1", parent, "subagent")
    assert session.key == f"{parent}/inv-1"
    assert [message.origin for message in session.messages] == [Origin.SUBAGENT, Origin.ASSISTANT]
    assert len(session.turns) == 1
    assert GEMINI.resume_command(session) is None


def test_subagent_of_a_document_is_told_by_its_kind() -> None:
    data = orjson.dumps(
        {
            "sessionId": "a",
            "projectHash": "h",
            "kind": "subagent",
            "messages": [{"type": "user", "id": "1", "content": "x"}],
        }
    )
    session, _ = read(Path("session-1.json"), data)
    assert session is not None
    assert (session.agent_id, session.parent_id, session.is_subagent) == ("a", None, True)


def test_unreadable_places_do_not_raise(home: Path) -> None:
    (home / ".gemini").mkdir()
    (home / ".gemini" / "tmp").write_text("a file")
    (home / ".gemini" / "projects.json").write_text('{"projects": [1]}')
    assert GEMINI.list_sessions() == []
    assert GEMINI.sessions_dir(Path("/x")) is None
    assert GEMINI.detect(home / "missing.jsonl") == 0


# --- nothing raises ---

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
PART = JSON | st.fixed_dictionaries(
    {},
    optional={
        key: JSON
        | st.fixed_dictionaries({}, optional=dict.fromkeys(("id", "name", "args", "response", "parts", "data"), JSON))
        for key in ("text", "thought", "functionCall", "functionResponse", "inlineData", "fileData", "thoughtSignature")
    },
)
RECORD = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["a", "b", "c"]) | JSON,
        "type": st.sampled_from(["user", "gemini", "model", "info", "message_update", "session_metadata"]) | JSON,
        "timestamp": JSON,
        "content": JSON | st.lists(PART, max_size=3),
        "displayContent": JSON,
        "thoughts": JSON | st.lists(st.fixed_dictionaries({"subject": JSON, "description": JSON}), max_size=2),
        "tokens": JSON | st.fixed_dictionaries({}, optional=dict.fromkeys(("input", "output", "cached", "tool"), JSON)),
        "model": JSON,
        "toolCalls": JSON
        | st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "id": JSON,
                    "name": JSON,
                    "status": st.sampled_from(["error", "success"]) | JSON,
                    "result": JSON | st.lists(PART, max_size=2),
                    "resultDisplay": JSON,
                },
            ),
            max_size=2,
        ),
        "sessionId": JSON,
        "projectHash": JSON,
    },
)
PATCH = st.fixed_dictionaries({"$rewindTo": st.sampled_from(["a", "b", "z"])}) | st.fixed_dictionaries(
    {"$set": JSON | st.fixed_dictionaries({"messages": st.lists(RECORD | JSON, max_size=4)})}
)
HEADER = st.fixed_dictionaries(
    {"sessionId": st.just("s"), "projectHash": st.just("h")},
    optional={"messages": JSON | st.lists(RECORD | JSON, max_size=4), "startTime": JSON, "summary": JSON, "meta": JSON},
)


def encode(value: Any) -> bytes:
    return json.dumps(value).encode()


def check(data: bytes) -> None:
    path = Path("x.jsonl")
    assert 0 <= GEMINI.claims(Head.of(Source(path, data))) <= 1
    try:
        session, _ = read(path, data)
    except ParseError:
        return
    if session is not None:
        assert Session.from_dict(session.to_dict()) == session
        assert all(isinstance(message, Message) and message.content for message in session.messages)


@settings(deadline=None)
@given(st.lists(HEADER | RECORD | PATCH | JSON, max_size=8), st.booleans())
def test_no_log_raises(records: list[Any], started: bool) -> None:
    if started:
        records.insert(0, {"sessionId": "s", "projectHash": "h"})
    check(b"\n".join(map(encode, records)))


@settings(deadline=None)
@given(HEADER | JSON | st.fixed_dictionaries({"history": JSON | st.lists(RECORD)}), st.booleans())
def test_no_document_raises(value: Any, pretty: bool) -> None:
    check(json.dumps(value, indent=2).encode() if pretty else encode(value))


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    check(data)


@settings(deadline=None)
@given(st.lists(RECORD | PATCH, max_size=8))
def test_no_spoken_word_is_lost(records: list[Any]) -> None:
    """A message that no later record replaces is in the session, whatever else happens to it."""
    marked = [{"id": f"m{n}", "type": "user", "content": f"marker {n}"} for n in range(3)]
    mixed = [marked[0], *records[:3], marked[1], *records[3:], marked[2]]
    data = b"\n".join(map(encode, [{"sessionId": "s", "projectHash": "h"}, *mixed]))
    session, _ = read(Path("x.jsonl"), data)
    assert session is not None
    assert [m.text for m in session.messages if m.text.startswith("marker ")] == ["marker 0", "marker 1", "marker 2"]


def test_samples(corpus: Path) -> None:
    files = [path for path in sorted((corpus / "samples").rglob("*")) if path.is_file()]
    own = [path for path in files if "gemini-cli" in path.parts]
    assert own
    assert [path for path in files if GEMINI.detect(path) > 0] == own
    for path in own:
        session, ledger = read(path)
        assert session is not None
        assert ledger.damaged == 0
        assert Session.from_dict(session.to_dict()) == session
