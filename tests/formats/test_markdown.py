"""Markdown with speakers: ways of marking, fences, SpecStory, and texts that are no conversation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import FIXTURES, account, cases, read, stable

from mempalace.formats.markdown import Markdown
from mempalace.head import Head
from mempalace.model import Origin, Session, Thinking
from mempalace.source import Source

FOLDER = FIXTURES / "markdown"
MARKDOWN = Markdown()


def read_text(text: str) -> list[Session]:
    return read(MARKDOWN, Source(Path("a.md"), text.encode()))[0]


def claim(text: str) -> float:
    return MARKDOWN.claims(Head.of(Source(Path("a.md"), text.encode())))


def path_of(case: str) -> Path:
    (path,) = (path for path in (FOLDER / case).iterdir() if path.name != "expected.json")
    return path


@pytest.mark.parametrize("case", cases("markdown"))
def test_golden(case: str, golden: Callable[[Path, Any], None]) -> None:
    path = path_of(case)
    sessions, ledger = read(MARKDOWN, path)
    golden(
        path.parent / "expected.json", {"sessions": [stable(s, FOLDER) for s in sessions], "ledger": account(ledger)}
    )
    assert MARKDOWN.detect(path) > 0


@pytest.mark.parametrize(
    ("user", "assistant"),
    [
        ("## User", "## Assistant"),
        ("### You:", "### ChatGPT:"),
        ("#### You said:", "#### ChatGPT said:"),
        ("# **Human**", "# **Claude**"),
        ("**You:**", "**Claude:**"),
        ("**User**", "**Assistant**"),
        ("__You:__", "__Gemini:__"),
        ("Human:", "Assistant:"),
        ("User:", "AI:"),
        ("_**User (2026-05-01 10:00:00Z)**_", "_**Agent (gpt-5 2026-05-01 10:00:05Z)**_"),
        ("## 🧑 User", "## 🤖 Assistant"),
    ],
)
def test_ways_of_marking(user: str, assistant: str) -> None:
    text = f"{user}\n\nwhy?\n\n- a list\n\n{assistant}\n\nBecause.\n\n  indented\n\n{user}\n\nthanks\n"
    assert claim(text) > 0
    (session,) = read_text(text)
    assert [(str(m.role), m.text) for m in session.messages] == [
        ("user", "why?\n\n- a list"),
        ("assistant", "Because.\n\n  indented"),
        ("user", "thanks"),
    ]
    assert [m.text for m in read_text(text.replace("\n", "\r\n"))[0].messages_by_role("user")][-1] == "thanks"


def test_words_on_the_line_of_the_speaker() -> None:
    (session,) = read_text("Human: hello\nthere\nAssistant: good morning\n")
    assert [m.text for m in session.messages] == ["hello\nthere", "good morning"]


def test_nothing_before_the_first_speaker_is_lost() -> None:
    (session,) = read(MARKDOWN, path_of("bold"))[0]
    assert next((str(m.origin), m.text) for m in session.messages) == ("injected", "An export of May.")


def test_specstory() -> None:
    (session,) = read(MARKDOWN, path_of("specstory"))[0]
    assert session.key == "5c7d5c23-0691-4467-b98e-0fb865b4a639"
    assert session.metadata.source == "claude-code"
    assert str(session.metadata.timestamp) == "2026-07-13 13:40:49+00:00"
    assert session.metadata.model == "claude-haiku-4-5"
    assert session.tool_uses[0].name == "Bash"
    assert "1 failed" in session.tool_uses[0].input["raw"]
    user, agent, sidechain, last = session.messages
    assert user.text == "fix the flaky test in app.py"
    assert agent.content[0] == Thinking("Look at the clock first.")
    assert sidechain.origin is Origin.SUBAGENT
    assert last.text == "good"
    assert MARKDOWN.detect(path_of("specstory")) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# Notes\n\nUser: root\nHost: example\n",
        "## User\n\nonly one speaker\n\n## User\n\nagain\n",
        "# Model card\n\n## Prompt\n\nx\n\n## Model\n\ny\n",
        "```\n## User\n## Assistant\n```\n",
        "# aider chat started at 2026-01-01 10:00:00\n\n#### fix it\n\n**You:** x\n\n**ChatGPT:** y\n",
        "> what now\n\nAssistant: this\nUser: that\n",
        '{"role": "user"}\n',
    ],
)
def test_other_texts_are_not_claimed(text: str) -> None:
    assert claim(text) == 0


PIECES = ["## User", "## Assistant", "```", "> x", "---", "word", "", "<think>", "</think>", "**You:** a", "Human: b"]


@settings(deadline=None)
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=10), max_size=20).map("\n".join))
def test_no_text_raises_and_every_word_stays(text: str) -> None:
    claim(text)
    for session in read_text(text):
        kept = str(session.to_dict())
        assert all(word not in text or word in kept for word in ("word",))


def test_a_long_file_is_read_in_linear_time() -> None:
    text = "## User\n\n" + "<think> " * 2_000 + "\n\n## Assistant\n\n" + "a: b\n" * 20_000
    assert len(read_text("x: y\n" * 5_000 + text)) == 1
