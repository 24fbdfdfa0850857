"""What each target asks for: the structure of the logs that are written, and the page that nothing can harm."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from convert_helpers import FIXTURES, converted, sessions, sources

import mempalace
from mempalace.convert import convert
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

START = datetime(2026, 3, 4, 9, 0, tzinfo=UTC)
ALL = [session for path in sources(FIXTURES) for session in sessions(path)]
NAMES = [f"{session.path.parent.name}-{number}" for number, session in enumerate(ALL)]
# Bytes of a file of one red pixel.
PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC")


def message(role: Role, origin: Origin, *blocks: Block, **fields: Any) -> Message:
    return Message(role, blocks, START, origin=origin, **fields)


def session_of(messages: Iterable[Message], format: str = "gemini", **fields: Any) -> Session:
    given = {"session_id": "s1", "timestamp": START, "project": "/home/ana/my.shop", "source": format, **fields}
    return Session(Path("/nowhere/a.jsonl"), format, SessionMetadata(**given), group_turns(messages, {1: SPENT}))


SPENT = TokenUsage(10, 4, 3, None, "gpt-5.5")
TALK = (
    message(Role.USER, Origin.PERSON, Text("list it")),
    message(Role.ASSISTANT, Origin.ASSISTANT, Text("so"), ToolUse("c1", "Bash", {"command": "ls"}), model="gpt-5.5"),
    message(Role.TOOL, Origin.TOOL_RESULT, ToolResult("c1", "a.txt", False)),
    message(Role.ASSISTANT, Origin.ASSISTANT, Text("one file"), model="gpt-5.5"),
)


def lines(session: Session, target: str, **options: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in convert(session, target, **options).data.splitlines()]


# --- Claude Code --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("session", ALL, ids=NAMES)
def test_every_claude_log_is_one_chain_of_one_session(session: Session) -> None:
    made = convert(session, "claude-code")
    records = [json.loads(line) for line in made.data.splitlines()]
    chain = [record for record in records if record["type"] != "summary"]
    assert chain[0]["parentUuid"] is None
    assert [record["parentUuid"] for record in chain[1:]] == [record["uuid"] for record in chain[:-1]]
    assert len({record["uuid"] for record in chain}) == len(chain)
    folder, name = made.name.split("/")
    assert {record["sessionId"] for record in chain} == {name.removesuffix(".jsonl")}
    assert {re.sub(r"[^A-Za-z0-9-]", "-", record["cwd"]) for record in chain} == {folder}
    for record in chain:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", record["timestamp"])
        assert re.fullmatch(r"\d+\.\d+\.\d+", record["version"])
        assert isinstance(record["gitBranch"], str)
        assert record["isSidechain"] is False
    assert_messages([record["message"] for record in chain if record["type"] != "system"])


def assert_answered(messages: list[dict[str, Any]]) -> None:
    """As the API asks for it: neighbours of one role are one message, and calls are answered in the next one."""
    waiting: set[str] = set()
    role = ""
    for message in messages:
        if message["role"] == "assistant" and role == "user":
            assert not waiting
        role = message["role"]
        for block in message["content"] if isinstance(message["content"], list) else []:
            if block["type"] == "tool_use":
                waiting.add(block["id"])
            elif block["type"] == "tool_result":
                waiting.remove(block["tool_use_id"])
    assert not waiting


def assert_messages(messages: list[dict[str, Any]]) -> None:
    calls: set[str] = set()
    ids = [message["id"] for message in messages if message["role"] == "assistant"]
    assert len(set(ids)) == len(ids)
    for message in messages:
        assert message["role"] in ("user", "assistant")
        blocks = message["content"] if isinstance(message["content"], list) else []
        assert message["content"]
        if message["role"] == "assistant":
            has_calls = any(block["type"] == "tool_use" for block in blocks)
            assert message["stop_reason"] == ("tool_use" if has_calls else "end_turn")
        for block in blocks:
            if block["type"] == "tool_use":
                assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", block["id"])
                assert re.fullmatch(r"[A-Za-z0-9_-]+", block["name"])
                assert isinstance(block["input"], dict)
                assert block["id"] not in calls
                calls.add(block["id"])
            elif block["type"] == "tool_result":
                assert message["role"] == "user"
                assert block["tool_use_id"] in calls
                calls.remove(block["tool_use_id"])
                calls.add(f"{block['tool_use_id']} answered")
                assert isinstance(block["content"], str) or all(
                    part["type"] in ("text", "image") for part in block["content"]
                )


def test_every_call_is_answered_where_the_api_looks_for_it(tmp_path: Path) -> None:
    def call(*names: str) -> Message:
        return message(Role.ASSISTANT, Origin.ASSISTANT, *(ToolUse(name, "Bash", {}) for name in names))

    def result(name: str) -> Message:
        return message(Role.TOOL, Origin.TOOL_RESULT, ToolResult(name, "ok", False))

    person = message(Role.USER, Origin.PERSON, Text("go"))
    words = message(Role.ASSISTANT, Origin.ASSISTANT, Text("so"))
    for messages in (
        [person, call("a")],
        [person, call("a"), words, call("b"), result("b"), words],
        [person, call("a"), call("b"), call("c"), result("a"), result("c"), person],
        [person, call("a", "b"), result("b"), person, call("c"), person],
    ):
        session = session_of(messages)
        records = lines(session, "claude-code")
        assert_answered([record["message"] for record in records])
        made = [block for record in records if "addedByConversion" in record for block in record["message"]["content"]]
        assert convert(session, "claude-code").report.residue["unanswered calls"] == len(made) > 0
        assert converted(session, "claude-code", tmp_path).tool_results == session.tool_results


def test_a_claude_log_in_full() -> None:
    made = convert(session_of(TALK, title="The list", git_branch="main"), "claude-code")
    summary, asked, answered, result, last = (json.loads(line) for line in made.data.splitlines())
    assert made.name == f"-home-ana-my-shop/{asked['sessionId']}.jsonl"
    assert uuid.UUID(asked["sessionId"])
    assert summary == {"type": "summary", "summary": "The list", "leafUuid": last["uuid"]}
    assert asked["message"] == {"role": "user", "content": "list it"}
    assert (asked["cwd"], asked["gitBranch"]) == ("/home/ana/my.shop", "main")
    assert asked["convertedFrom"] == {"tool": "gemini", "sessionId": "s1"}
    assert answered["message"]["content"] == [
        {"type": "text", "text": "so"},
        {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "ls"}},
    ]
    assert (answered["message"]["model"], answered["message"]["stop_reason"]) == ("gpt-5.5", "tool_use")
    assert result["message"]["content"] == [
        {"type": "tool_result", "tool_use_id": "c1", "content": "a.txt", "is_error": False}
    ]
    assert last["message"]["usage"] == {"input_tokens": 10, "cache_read_input_tokens": 3, "output_tokens": 4}


@pytest.mark.parametrize("session", ALL, ids=NAMES)
def test_a_leading_summary_names_a_message_of_the_file(session: Session) -> None:
    records = lines(session, "claude-code")
    messages = {record["uuid"] for record in records if record["type"] in ("user", "assistant")}
    leaves = [record["leafUuid"] for record in records if record["type"] == "summary"]
    assert len(leaves) == bool(session.metadata.title)
    assert set(leaves) <= messages


def test_results_without_a_call_become_context_and_are_named(tmp_path: Path) -> None:
    orphan = message(Role.TOOL, Origin.TOOL_RESULT, ToolResult("gone", "ORPHAN-1", True))
    session = session_of([*TALK, orphan])
    for target in ("claude-code", "codex", "openai"):
        made = convert(session, target)
        assert made.report.residue["orphan results"] == 1
        back = converted(session, target, tmp_path)
        assert [result.content for result in back.tool_results] == ["a.txt"]
        (kept,) = [found for found in back.messages if "ORPHAN-1" in found.text]
        assert kept.origin is Origin.INJECTED


def test_compaction_stays_compaction(tmp_path: Path) -> None:
    summary = message(Role.SYSTEM, Origin.SUMMARY, Text("This session is being continued from before: x"))
    session = session_of([*TALK, summary, message(Role.USER, Origin.PERSON, Text("go on"))])
    kinds = [record.get("subtype") or record["type"] for record in lines(session, "claude-code")]
    assert kinds[-3:] == ["compact_boundary", "user", "user"]
    assert [record["type"] for record in lines(session, "codex")].count("compacted") == 1
    for target in ("claude-code", "codex"):
        back = converted(session, target, tmp_path)
        assert [found.text for found in back.messages if found.origin is Origin.SUMMARY] == [summary.text]


def test_a_claude_session_keeps_its_own_id_and_message_ids(tmp_path: Path) -> None:
    (log,) = sources(FIXTURES / "claude-code" / "merged-lines")
    session = mempalace.load(log)
    back = converted(session, "claude-code", tmp_path)
    assert back.key == session.key
    assert {found.id for found in session.messages if found.origin is Origin.ASSISTANT} <= {
        found.id for found in back.messages
    }


# --- Codex --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("session", [one for one in ALL if one.format != "codex"])
def test_every_rollout_has_its_header_and_both_streams(session: Session) -> None:
    made = convert(session, "codex")
    records = [json.loads(line) for line in made.data.splitlines()]
    assert all(set(record) == {"timestamp", "type", "payload"} for record in records)
    meta = records[0]["payload"]
    assert records[0]["type"] == "session_meta"
    known = {"id", "timestamp", "cwd", "originator", "cli_version", "source", "model_provider", "base_instructions"}
    assert known <= set(meta) <= known | {"git", "converted_from"}
    assert (meta["source"], meta["model_provider"], meta["base_instructions"]) == ("cli", "openai", None)
    found = re.fullmatch(r"(\d{4})/(\d\d)/(\d\d)/rollout-(\1-\2-\3T\d\d-\d\d-\d\d)-([0-9a-f-]{36})\.jsonl", made.name)
    assert found
    assert found[5] == meta["id"]
    assert_uuid7(meta["id"], meta["timestamp"])
    assert found[4] == meta["timestamp"][:19].replace(":", "-")
    kinds = [record["payload"].get("type") or record["type"] for record in records]
    roles = [record["payload"].get("role") if record["type"] == "response_item" else None for record in records]
    first = next((at for at, role in enumerate(roles) if role == "assistant"), len(roles))
    calls = [at for at, kind in enumerate(kinds) if kind in ("function_call", "custom_tool_call")]
    assert "turn_context" in kinds[: min([first, *calls])]
    spoken = {("user", "user_message"): 0, ("assistant", "agent_message"): 0}
    for at, (role, record) in enumerate(zip(roles, records, strict=True)):
        for speaker, event in spoken:
            if role == speaker and kinds[at + 1 : at + 2] == [event]:
                spoken[speaker, event] += 1
                texts = [part["text"] for part in record["payload"]["content"] if "text" in part]
                assert records[at + 1]["payload"]["message"] == "".join(texts)
    assert sum(spoken.values()) == kinds.count("user_message") + kinds.count("agent_message") > 0


def assert_uuid7(text: str, timestamp: str) -> None:
    made = uuid.UUID(text)
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    moment = datetime.fromtimestamp((made.int >> 80) / 1000, UTC)
    assert abs(moment - datetime.fromisoformat(timestamp)) < timedelta(milliseconds=2)


def test_a_rollout_in_full() -> None:
    found = lines(session_of(TALK, git_branch="main", title="The list"), "codex")
    kinds = [record["payload"].get("type") or record["type"] for record in found]
    assert kinds == [
        "session_meta",
        "thread_name_updated",
        "turn_context",
        "message",
        "user_message",
        "message",
        "agent_message",
        "function_call",
        "function_call_output",
        "message",
        "agent_message",
        "token_count",
    ]
    payloads = [record["payload"] for record in found]
    assert payloads[0]["git"] == {"branch": "main"}
    assert payloads[0]["converted_from"] == {"tool": "gemini", "session_id": "s1"}
    assert (payloads[2]["model"], payloads[2]["cwd"]) == ("gpt-5.5", "/home/ana/my.shop")
    assert payloads[7] == {"type": "function_call", "name": "Bash", "arguments": '{"command":"ls"}', "call_id": "c1"}
    assert json.loads(payloads[8]["output"]) == {"output": "a.txt", "metadata": {"exit_code": 0}}
    usage = payloads[-1]["info"]["last_token_usage"]
    assert (usage["input_tokens"], usage["cached_input_tokens"], usage["output_tokens"]) == (13, 3, 4)


@pytest.mark.parametrize("session", [one for one in ALL if one.format == "codex"], ids=lambda one: one.path.parent.name)
def test_headers_of_a_rollout_are_replayed_as_they_were(session: Session, tmp_path: Path) -> None:
    records = lines(session, "codex")
    back = converted(session, "codex", tmp_path)
    assert back.key == session.key or session.key is None or session.is_subagent
    assert not back.is_subagent
    assert records[0]["type"] == "session_meta"
    assert records[0]["payload"]["id"] == back.key
    if session.is_subagent or not session.metadata.headers:
        return
    if not all("payload" in header for header in session.metadata.headers):
        return  # a bare header, of which no later release takes notice: an envelope was made for it
    headers = [record for record in records if record in session.metadata.headers]
    assert tuple(headers) == session.metadata.headers
    made = [header for header in back.metadata.headers if header not in headers]
    assert tuple(header for header in back.metadata.headers if header in headers) == session.metadata.headers
    if any(header.get("type") == "turn_context" for header in headers):
        assert not made
    assert {header["type"] for header in made} <= {"turn_context"}  # Codex wants one before the assistant
    assert back.metadata.model == session.metadata.model


def test_outcomes_stay_told_denied_or_not_mentioned(tmp_path: Path) -> None:
    outputs = [
        "failed to run",
        "Exit code: 1\nOutput:\nx",
        '{"output": "x", "metadata": {"exit_code": 3}}',
        "{",
        "ok",
        "",
    ]
    messages = [TALK[0]]
    for number, (output, outcome) in enumerate((a, b) for a in outputs for b in (None, True, False)):
        messages.append(message(Role.ASSISTANT, Origin.ASSISTANT, ToolUse(f"c{number}", "Bash", {})))
        messages.append(message(Role.TOOL, Origin.TOOL_RESULT, ToolResult(f"c{number}", output, outcome)))
    session = session_of(messages)
    for target in ("claude-code", "codex"):
        back = converted(session, target, tmp_path)
        assert back.tool_results == session.tool_results


def test_the_peer_of_old_reads_both_logs() -> None:
    from mempalace import normalize

    session = session_of(TALK)
    shown = normalize._try_codex_jsonl(mempalace.to_jsonl(session, "codex"))  # type: ignore[attr-defined]
    assert "> list it" in shown
    assert "one file" in shown
    shown = normalize._try_claude_code_jsonl(mempalace.to_jsonl(session, "claude-code"))  # type: ignore[attr-defined]
    assert "> list it" in shown
    assert "one file" in shown


def test_a_folder_that_is_none_is_not_written_as_one() -> None:
    session = session_of(TALK, project="general")
    assert lines(session, "claude-code")[0]["cwd"] == "/"
    assert lines(session, "codex", cwd="/home/ben")[0]["payload"]["cwd"] == "/home/ben"


# --- chat ---------------------------------------------------------------------------------------------------


def test_a_chat_body_is_what_the_api_takes() -> None:
    for session in ALL:
        body = json.loads(convert(session, "openai").data)
        assert set(body) <= {"model", "messages", "metadata"}
        assert all(isinstance(value, str) for value in body["metadata"].values())
        calls: set[str] = set()
        for found in body["messages"]:
            assert set(found) <= {"role", "content", "tool_calls", "tool_call_id", "name"}
            calls |= {call["id"] for call in found.get("tool_calls", ())}
            if found["role"] == "tool":
                assert found["tool_call_id"] in calls
            elif found["content"] is None:
                assert found["tool_calls"]


# --- HTML ---------------------------------------------------------------------------------------------------

HOSTILE = (
    "<script>alert(1)</script>",
    "</title></style><script src=//x.invalid></script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "javascript:alert(1) &lt;b&gt; &#x3c;",
    "\u202egnp.exe\u2066\u200b\x1b[31m\x00\x9b",
    "<!-- --><![CDATA[",
    "</details></pre></main><form action=//x.invalid>",
    "<meta http-equiv=refresh content=0>",
)
ALLOWED = {
    "html": {"lang"},
    "meta": {"charset", "http-equiv", "content", "name"},
    "h1": {"dir"},
    "div": {"class", "dir"},
    "pre": {"dir"},
    "p": {"class"},
    "article": {"class"},
    "span": {"class"},
    "img": {"alt", "src"},
    **dict.fromkeys(
        ("head", "title", "style", "body", "main", "header", "details", "summary", "section", "b"), frozenset[str]()
    ),
}


class Page(HTMLParser):
    """What stands in a page: elements with attributes, balanced, and the texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError("a comment")


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_text_of_a_log_does_anything_to_the_page(hostile: str) -> None:
    agent = Session(Path("a"), "gemini", turns=group_turns(TALK), agent_id=hostile, subagent_type=hostile)
    session = session_of(
        [
            message(Role.USER, Origin.PERSON, Text(hostile), Image(media_type=hostile, ref=hostile), name=hostile),
            message(Role.ASSISTANT, Origin.ASSISTANT, Thinking(hostile), Text(hostile), model=hostile),
            message(
                Role.ASSISTANT, Origin.ASSISTANT, ToolUse(hostile, hostile, {"command": hostile, hostile: hostile})
            ),
            message(Role.TOOL, Origin.TOOL_RESULT, ToolResult(hostile, hostile, True)),
            message(Role.SYSTEM, Origin.INJECTED, Text(hostile)),
        ],
        **dict.fromkeys(("session_id", "project", "title", "model", "source"), hostile),
    )
    text = convert(Session.from_dict({**session.to_dict(), "subagents": [agent.to_dict()]}), "html").data.decode()
    page = Page(text)
    for tag, attributes in page.found:
        assert set(attributes) <= ALLOWED[tag], (tag, attributes)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b]", text)
    style = next(part for part in page.texts if "color-scheme" in part)
    policy = next(a["content"] for tag, a in page.found if a.get("http-equiv") == "Content-Security-Policy") or ""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'")
    shown = "".join(page.texts)
    if hostile.isprintable():
        assert shown.count(hostile) >= 12  # nothing is left out either
    else:
        assert "U+202E" in shown
        assert "U+001B" in shown


def test_a_page_shows_dialogue_open_and_the_rest_folded(tmp_path: Path) -> None:
    log = next(iter(sources(FIXTURES / "claude-code" / "images")))
    text = convert(mempalace.load(log), "html").data.decode()
    assert 'src="data:image/png;base64,' in text
    text = convert(session_of([*TALK, message(Role.SYSTEM, Origin.INJECTED, Text("REMINDER"))]), "html").data.decode()
    folded = "".join(re.findall(r"<details>.*?</details>", text, re.DOTALL))
    assert all(word in folded for word in ("[Bash] ls", "a.txt", "REMINDER"))
    assert not any(word in folded for word in ("list it", "one file"))
    assert "prefers-color-scheme:dark" in text


def test_pages_of_every_fixture_hold_every_word() -> None:
    for session in ALL:
        page = "".join(Page(convert(session, "html").data.decode()).texts)
        for found in session.messages:
            for text in found.text.split("\n"):
                if text.isprintable():
                    assert text in page
