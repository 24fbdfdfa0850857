"""The dispatch chain, and what programs written for MemPalace's normalizer expect of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mempalace
from mempalace import normalize
from mempalace.normalize import (
    _try_claude_ai_json,
    _try_claude_code_jsonl,
    _try_codex_jsonl,
    _try_gemini_jsonl,
    _try_normalize_json,
    strip_noise,
)
from mempalace.transcript import Transcript


def lines(*records: Any) -> str:
    return "\n".join(record if isinstance(record, str) else json.dumps(record) for record in records)


SENTINEL = {"type": "session_metadata", "sessionId": "g1"}


def gemini(kind: str, *texts: str) -> dict[str, Any]:
    return {"type": kind, "content": [{"text": text} for text in texts]}


# --- the Gemini adapter -------------------------------------------------------------------------------------


def test_gemini_valid_file() -> None:
    found = _try_gemini_jsonl(lines(SENTINEL, gemini("user", "hello"), gemini("gemini", "hi there")))
    assert found == "> hello\n\nhi there"


def test_gemini_several_turns() -> None:
    turns = [gemini("user", "one"), gemini("gemini", "two"), gemini("user", "three"), gemini("gemini", "four")]
    assert _try_gemini_jsonl(lines(SENTINEL, *turns)) == "> one\n\ntwo\n\n> three\n\nfour"


def test_gemini_without_sentinel_is_not_its_own() -> None:
    assert _try_gemini_jsonl(lines(gemini("user", "hello"), gemini("gemini", "hi"))) is None


def test_gemini_update_records_are_skipped() -> None:
    update = {"type": "message_update", "id": "1", "tokens": {"input": 3, "output": 4}}
    found = _try_gemini_jsonl(lines(SENTINEL, gemini("user", "a"), update, gemini("gemini", "b"), update))
    assert found == "> a\n\nb"


def test_gemini_too_few_messages() -> None:
    assert _try_gemini_jsonl(lines(SENTINEL, gemini("user", "alone"))) is None


def test_gemini_several_text_blocks() -> None:
    found = _try_gemini_jsonl(lines(SENTINEL, gemini("user", "first", "second"), gemini("gemini", "x", "y")))
    assert found == "> first\n> second\n\nx\ny"


def test_gemini_empty_content_is_skipped() -> None:
    found = _try_gemini_jsonl(lines(SENTINEL, gemini("user", "a"), gemini("gemini", "  "), gemini("gemini", "b")))
    assert found == "> a\n\nb"


def test_gemini_broken_lines_are_skipped() -> None:
    found = _try_gemini_jsonl(lines(SENTINEL, "{broken", gemini("user", "a"), "[1", gemini("gemini", "b")))
    assert found == "> a\n\nb"


def test_gemini_does_not_match_codex() -> None:
    assert _try_gemini_jsonl(CODEX) is None


def test_gemini_messages_before_the_sentinel_are_discarded() -> None:
    found = _try_gemini_jsonl(lines(gemini("user", "early"), SENTINEL, gemini("user", "a"), gemini("gemini", "b")))
    assert found == "> a\n\nb"


# --- the others ---------------------------------------------------------------------------------------------


def event(kind: str, message: Any) -> dict[str, Any]:
    return {"type": "event_msg", "payload": {"type": kind, "message": message}}


CODEX = lines({"type": "session_meta"}, event("user_message", "do it"), event("agent_message", "done"))


def test_claude_code_records_with_only_type_and_message() -> None:
    for kind in ("human", "user"):
        text = lines({"type": kind, "message": {"content": "q"}}, {"type": "assistant", "message": {"content": "r"}})
        assert _try_claude_code_jsonl(text) == "> q\n\nr"


def test_codex_with_an_empty_session_meta() -> None:
    assert _try_codex_jsonl(CODEX) == "> do it\n\ndone"


def test_codex_without_session_meta_is_not_its_own() -> None:
    assert _try_codex_jsonl(lines(event("user_message", "a"), event("agent_message", "b"))) is None


def test_codex_odd_payloads_are_skipped() -> None:
    odd = [event("user_message", 5), {"type": "event_msg", "payload": "x"}, event("agent_message", "  ")]
    text = lines({"type": "session_meta", "payload": {}}, *odd, event("user_message", "a"), event("agent_message", "b"))
    assert _try_codex_jsonl(text) == "> a\n\nb"


@pytest.mark.parametrize("function", [_try_claude_code_jsonl, _try_codex_jsonl, _try_gemini_jsonl])
@settings(max_examples=100, deadline=None)
@given(text=st.one_of(st.text(), st.recursive(st.none() | st.booleans() | st.text(), st.lists).map(json.dumps)))
def test_no_function_raises_or_claims_noise(function: Any, text: str) -> None:
    assert function(text) is None


def test_the_order_of_the_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    names = ["claude_code_jsonl", "codex_jsonl", "gemini_jsonl", "claude_ai_json", "chatgpt_json", "slack_json"]
    for name in names:
        monkeypatch.setattr(normalize, f"_try_{name}", lambda content, name=name: asked.append(name))
    assert _try_normalize_json("[1, 2]") is None
    assert asked == names


def test_unknown_json_and_no_json_give_none() -> None:
    assert _try_normalize_json('{"entries": [{"who": "x", "body": "y"}]}') is None
    assert _try_normalize_json("{broken") is None
    assert _try_claude_ai_json([1, 2]) is None
    assert _try_claude_ai_json(None) is None


# --- normalize ----------------------------------------------------------------------------------------------


def test_the_module_is_the_function(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(CODEX)
    found = mempalace.normalize(path)  # type: ignore[operator]
    assert found == "> do it\n\ndone"
    assert isinstance(found, Transcript)
    assert [session.format for session in found.sessions] == ["codex"]
    assert [found[span.start : span.end] for span in found.spans] == ["> do it", "done"]
    assert type(found[1:]) is str


def test_default_view_has_tools_but_no_thinking(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    blocks = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "running"},
        {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls -la", "timeout": 5}},
    ]
    result = [{"type": "tool_result", "tool_use_id": "t", "content": "a.txt\nb.txt"}]
    path.write_text(
        lines(
            {"type": "user", "message": {"content": "go"}},
            {"type": "assistant", "message": {"content": blocks}},
            {"type": "user", "message": {"content": result}},
        )
    )
    expected = "> go\n\nrunning\n\n[Bash] ls -la\ntimeout: 5\n\n→ a.txt\nb.txt"
    assert normalize.normalize(path) == expected


def test_other_text_comes_back_as_it_is(tmp_path: Path) -> None:
    for text in ("", "  \n", "plain words", '{"entries": []}', "> a\nb\n> c\nd\n> e\n"):
        path = tmp_path / "a.txt"
        path.write_text(text)
        assert normalize.normalize(path) == text


def test_quotes_inside_json_do_not_make_it_a_transcript(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    text = lines({"type": "user", "message": {"content": "> a\n> b\n> c"}}, *[">"] * 3)
    path.write_text(text + "\n" + lines({"type": "assistant", "message": {"content": "d"}}))
    assert normalize.normalize(path) == "> > a\n> > b\n> > c\n\nd"


def test_missing_and_too_large_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="Could not read"):
        normalize.normalize(tmp_path / "none")
    path = tmp_path / "big.jsonl"
    path.write_text("{}")
    monkeypatch.setattr(normalize.os.path, "getsize", lambda name: 501 * 1024 * 1024)
    assert normalize.os is os
    with pytest.raises(OSError, match="too large"):
        normalize.normalize(path)


# --- strip_noise --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("noisy", "clean"),
    [
        ("a\n<system-reminder>x\ny</system-reminder>\nb", "a\nb"),
        ("> <command-name>/x</command-name>\n> keep", "> keep"),
        ("CURRENT TIME: 12:00\nkeep", "keep"),
        ("Ran 2 Stop hooks (3s)\nkeep", "keep"),
        ("keep\n… +12 lines (ctrl+r)\nmore", "keep\nmore"),
        ("done [5 tokens] (ctrl+o to expand)", "done"),
        ("a\n\n\n\n\nb", "a\n\n\nb"),
        (
            "say <system-reminder>inline</system-reminder> as it is",
            "say <system-reminder>inline</system-reminder> as it is",
        ),
        (
            "<system-reminder>open\n\nnext message</system-reminder>",
            "<system-reminder>open\n\nnext message</system-reminder>",
        ),
        ("our CI has a stop hook, CURRENT TIME: never", "our CI has a stop hook, CURRENT TIME: never"),
    ],
)
def test_strip_noise(noisy: str, clean: str) -> None:
    assert strip_noise(noisy) == clean


@given(st.text(alphabet="ab c.\n\t-é日"))
def test_text_without_markers_is_only_trimmed(text: str) -> None:
    expected = text.strip()
    while "\n\n\n\n" in expected:
        expected = expected.replace("\n\n\n\n", "\n\n\n")
    assert strip_noise(text) == expected
