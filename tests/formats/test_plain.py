"""Plain transcripts: read for what they say, claimed only for their shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mempalace.errors import ParseError
from mempalace.formats.plain import PlainTranscript
from mempalace.head import Head
from mempalace.model import Message, Origin, Role, Session, Text
from mempalace.records import Ledger
from mempalace.source import Source

FIXTURES = Path(__file__).parent.parent / "fixtures" / "plain"
CASES = sorted(folder.name for folder in FIXTURES.iterdir() if folder.is_dir() and folder.name != "refused")
REFUSED = sorted((FIXTURES / "refused").iterdir())
PLAIN = PlainTranscript()


def read(path: Path, data: bytes | None = None) -> tuple[Session | None, Ledger]:
    """The session of a file and its ledger, which must add up."""
    ledger = Ledger()
    sessions = list(PLAIN.read(Source(path, data), ledger))
    assert len(sessions) <= 1
    assert ledger.read == sum(message.records for session in sessions for message in session.messages) + ledger.unstored
    return (sessions[0] if sessions else None), ledger


def spoken(text: str) -> list[tuple[Role, str]]:
    session, _ = read(Path("x.txt"), text.encode())
    return [] if session is None else [(message.role, message.text) for message in session.messages]


def input_of(case: str) -> Path:
    (path,) = (path for path in (FIXTURES / case).iterdir() if path.name != "expected.json")
    return path


def claims(text: str, name: str = "x.md") -> float:
    return PLAIN.claims(Head.of(Source(Path(name), text.encode())))


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str, golden: Callable[[Path, Any], None]) -> None:
    path = input_of(case)
    session, _ = read(path)
    assert session is not None
    golden(FIXTURES / case / "expected.json", replace(session, path=Path(path.name)).to_dict())


def test_every_case_is_described() -> None:
    described = (FIXTURES / "README.md").read_text()
    assert all(f"- `{folder.name}`:" in described for folder in FIXTURES.iterdir() if folder.is_dir())


@pytest.mark.parametrize("case", CASES)
def test_claims(case: str) -> None:
    assert PLAIN.detect(input_of(case)) == (0 if case == "preamble" else 0.5)


@pytest.mark.parametrize("path", REFUSED, ids=lambda path: path.name)
def test_other_texts_are_refused(path: Path) -> None:
    assert PLAIN.detect(path) == 0


@pytest.mark.parametrize("name", ["x.py", "x.diff", "x.eml", "x.html", "x.json"])
def test_other_suffixes_are_refused(name: str) -> None:
    text = (FIXTURES / "dialogue" / "chat.md").read_text()
    assert claims(text) == claims(text, "chat") == claims(text, "CHAT.TXT") == 0.5
    assert claims(text, name) == 0


@pytest.mark.parametrize("data", [b"", b"\x00> a\n> b\nc\n> d\n", b'{"a": "> b"}\n', b"PK\x03\x04> a\n> b\nc\n> d\n"])
def test_what_is_no_text_is_refused(data: bytes) -> None:
    assert PLAIN.claims(Head.of(Source(Path("x.txt"), data))) == 0


def test_missing_file() -> None:
    assert PLAIN.detect(FIXTURES / "missing.md") == 0


def test_lines_and_turns() -> None:
    session, ledger = read(input_of("dialogue"))
    assert session is not None
    assert [(message.role, message.origin, message.line) for message in session.messages] == [
        (Role.USER, Origin.PERSON, 1),
        (Role.ASSISTANT, Origin.ASSISTANT, 4),
        (Role.USER, Origin.PERSON, 9),
        (Role.ASSISTANT, Origin.ASSISTANT, 13),
    ]
    assert [message.text for message in session.messages][:3] == [
        "why did we move to GraphQL?\nthe REST client was fine",
        "Because the mobile app made nine calls per screen.\n\n- one query now\n- fewer retries",
        "and the cache?\n\nit was per URL before",
    ]
    assert len(session.turns) == 2
    assert ledger.read == 4
    assert session.metadata.session_id is None
    assert session.metadata.timestamp is None


def test_quote_marks_in_fences_mark_no_person() -> None:
    session, _ = read(input_of("fences"))
    assert session is not None
    assert [message.text.split("\n")[0] for message in session.messages_by_role(Role.USER)] == [
        "how do I quote in Markdown?",
        "and in mail?",
        "thanks",
    ]
    assert "> a quote\n> of two lines" in session.messages_by_role(Role.ASSISTANT)[0].text
    assert "> too" in session.messages_by_role(Role.ASSISTANT)[0].text


def test_person_who_quotes_keeps_the_turn() -> None:
    assert spoken("> > is this quoted?\n> yes\nmine\n> >no\n") == [
        (Role.USER, "> is this quoted?\nyes"),
        (Role.ASSISTANT, "mine"),
        (Role.USER, ">no"),
    ]


def test_words_before_the_first_person_are_kept() -> None:
    session, _ = read(input_of("preamble"))
    assert session is not None
    assert [message.text for message in session.messages] == [
        "Notes of a call on Tuesday.",
        "are the vents shut?",
        "They are.",
    ]


def test_windows_line_ends() -> None:
    session, _ = read(input_of("crlf"))
    assert session is not None
    assert [message.text for message in session.messages] == [
        "first\r\nsecond",
        "answer one\r\n\r\nmore",
        "third",
        "answer two",
    ]


def test_empty_person_and_text_without_one() -> None:
    assert spoken("no marks here\n") == []
    session, ledger = read(Path("x.txt"), b">\n\nanswer\n")
    assert session is not None
    assert session.message_count == 1
    assert ledger.skipped == {"empty": 1}


def test_blank_line_parts_two_messages_of_a_person() -> None:
    assert spoken("> a\n\n> b\n") == [(Role.USER, "a"), (Role.USER, "b")]


def test_bytes_that_are_no_utf8() -> None:
    session, ledger = read(Path("x.txt"), b"> caf\xe9\nok\n")
    assert session is not None
    assert [problem.kind for problem in ledger.problems] == ["replaced"]


def test_many_unclosed_fences_take_no_time() -> None:
    text = "> a\n> b\n\n" + "```x\n" * 40_000 + "\n> c\n\nd\n"
    assert claims(text) == 0.5
    assert len(spoken(text)) == 4


LINE = st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=20)
SAID = st.lists(LINE, min_size=1, max_size=4).map("\n".join).filter(lambda text: text.strip())
ANSWER = SAID.filter(
    lambda text: (
        not any(line.startswith(">") or line.lstrip(" ").startswith(("```", "~~~")) for line in text.split("\n"))
        and all(text.split("\n")[i].strip() for i in (0, -1))
    )
)


@settings(deadline=None)
@given(st.lists(st.tuples(SAID, ANSWER), min_size=1, max_size=4))
def test_what_was_written_is_read_back(exchanges: list[tuple[str, str]]) -> None:
    text = "\n\n".join(
        part for said, answer in exchanges for part in ("\n".join(f"> {line}" for line in said.split("\n")), answer)
    )
    assert spoken(text) == [
        item for said, answer in exchanges for item in ((Role.USER, said), (Role.ASSISTANT, answer))
    ] or text.startswith("\ufeff")


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(["> a", ">", "b", "", "```", "~~~~", "# c", "> -- D", "\r", "x wrote:", ">> e"]), max_size=14
    )
)
def test_no_text_raises_or_loses_a_line(lines: list[str]) -> None:
    text = "\n".join(lines)
    assert claims(text) in (0, 0.5)
    session, _ = read(Path("x.txt"), text.encode())
    if session is not None:
        kept = "\n".join(message.text for message in session.messages)
        assert [word for line in lines for word in line.replace(">", " ").split()] == kept.replace(">", " ").split()


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    PLAIN.claims(Head.of(Source(Path("x.md"), data)))
    try:
        session, _ = read(Path("x.md"), data)
    except ParseError:  # a compressed file that was cut off
        return
    if session is not None:
        assert all(isinstance(block, Text) for message in session.messages for block in message.content)
        assert all(isinstance(message, Message) for message in session.messages)


def test_samples(corpus: Path) -> None:
    files = [path for path in sorted((corpus / "samples").rglob("*")) if path.is_file()]
    assert files
    assert [path for path in files if PLAIN.detect(path) > 0] == []
