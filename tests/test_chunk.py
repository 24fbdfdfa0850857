"""Chunks are lossless, of one kind, within the encoder's window, and never cut a grapheme."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from mempalace import models, wordpiece
from mempalace.chunk import DIALOGUE_CHARS, OTHER_CHARS, WINDOW_TOKENS, Kind, chunks, index_text
from mempalace.model import (
    Block,
    Message,
    Origin,
    Role,
    Session,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    Turn,
)
from mempalace.transcript import GAP, Transcript, render

WORDS = st.text(
    st.one_of(st.characters(codec="utf-8"), st.sampled_from("ab \n>`👩🏽\u200d🇩🇪\u0301\u094dक日本한ᄀ…")),
    max_size=400,
)
LONG = st.builds(lambda text, times: text * times, WORDS, st.integers(1, 40))
BLOCKS = st.one_of(
    LONG.map(Text),
    WORDS.map(Thinking),
    st.builds(ToolUse, st.just("t"), st.sampled_from(["Bash", "Read", "x"]), st.dictionaries(WORDS, WORDS, max_size=3)),
    st.builds(ToolResult, st.just("t"), LONG, st.sampled_from([None, True, False])),
)
MESSAGES = st.builds(
    Message,
    role=st.sampled_from(Role),
    content=st.lists(BLOCKS, max_size=4).map(tuple),
    origin=st.sampled_from([Origin.PERSON, Origin.ASSISTANT, Origin.INJECTED, Origin.SUMMARY, Origin.ABANDONED]),
    name=st.sampled_from([None, "Ana", "x" * 100]),
)


REFERENCE = Tokenizer.from_str(models.read(models.STATIC_TOKENIZER).decode())
ENCODER = Tokenizer.from_str(models.read(models.ENCODER_TOKENIZER).decode())
ENCODER.no_truncation()
ENCODER.no_padding()


def session_of(*messages: Message) -> Session:
    return Session(Path("x"), "test", turns=(Turn(messages),))


def said(text: str, role: Role = Role.USER, *blocks: Block) -> Message:
    origin = Origin.PERSON if role == Role.USER else Origin.ASSISTANT
    return Message(role, (Text(text), *blocks), origin=origin)


@settings(max_examples=150, deadline=None)
@given(st.lists(MESSAGES, max_size=6))
def test_joined_chunks_are_the_transcript(messages: list[Message]) -> None:
    transcript = render(session_of(*messages))
    found = chunks(transcript)
    assert "".join(transcript[chunk.start : chunk.end] for chunk in found) == transcript
    covered = [index for chunk in found for span in chunk.spans for index in range(span.start, span.end)]
    assert covered == [index for span in transcript.spans for index in range(span.start, span.end)]
    for chunk in found:
        dialogue = {span.origin in (Origin.PERSON, Origin.ASSISTANT, Origin.SUBAGENT) for span in chunk.spans}
        assert dialogue == {chunk.kind == Kind.DIALOGUE}


@settings(max_examples=150, deadline=None)
@given(LONG)
def test_no_grapheme_is_cut(text: str) -> None:
    transcript = render(session_of(said(text, Role.ASSISTANT)))
    starts = {match.start() for match in regex.finditer(r"\X", transcript)}
    for chunk in chunks(transcript)[1:]:
        # One endless grapheme must be cut somewhere: only then.
        longest = max(len(match.group()) for match in regex.finditer(r"\X", transcript))
        assert chunk.start in starts or longest > 60


@settings(max_examples=60, deadline=None)
@given(st.lists(MESSAGES, max_size=4))
def test_dialogue_fits_the_window_of_the_encoder(messages: list[Message]) -> None:
    check_window(session_of(*messages))


def check_window(session: Session) -> Transcript:
    transcript = render(session)
    names = {index: message.name for index, message in enumerate(session.messages) if message.name}
    for chunk in chunks(transcript):
        size = sum(span.end - span.start for span in chunk.spans)
        if chunk.kind != Kind.DIALOGUE:
            assert size <= OTHER_CHARS
            continue
        assert size <= DIALOGUE_CHARS
        seen = index_text(transcript, 0, chunk, datetime(2026, 2, 3, tzinfo=UTC), names)
        assert len(ENCODER.encode(seen).ids) <= WINDOW_TOKENS
    return transcript


def test_one_line_of_75_kb_is_cut_at_words() -> None:
    transcript = check_window(session_of(said("wool " * 15_000 + "TAIL-ZEBRA-9"), said("short", Role.ASSISTANT)))
    found = chunks(transcript)
    assert all(transcript[chunk.end - 1].isspace() for chunk in found[:-1])


def test_chinese_without_spaces_fits_the_window() -> None:
    check_window(session_of(said("记忆宫殿是一种古老的方法" * 400)))


def test_messages_are_kept_whole_where_they_fit() -> None:
    messages = [said(f"question {n} " + "word " * 40) for n in range(20)]
    transcript = render(session_of(*messages))
    for chunk in chunks(transcript):
        for span in chunk.spans:
            assert span in transcript.spans


def test_a_long_message_is_cut_at_paragraphs_first() -> None:
    paragraph = "A sentence of some length stands here. " * 12
    transcript = render(session_of(said(GAP.join([paragraph] * 5), Role.ASSISTANT)))
    found = chunks(transcript)
    assert len(found) == 5
    assert all(transcript[: chunk.start].endswith("\n\n") for chunk in found[1:])


def test_the_same_beginning_gives_the_same_chunks() -> None:
    messages = [said(f"message {n} " + "word " * (n * 7 % 50), Role.ASSISTANT) for n in range(60)]
    short = render(session_of(*messages[:40]))
    long = render(session_of(*messages))
    before = [short[chunk.start : chunk.end].rstrip("\n") for chunk in chunks(short)]
    after = [long[chunk.start : chunk.end].rstrip("\n") for chunk in chunks(long)]
    assert before[:-1] == after[: len(before) - 1]


def test_a_growing_session_keeps_its_closed_chunks() -> None:
    messages = [said("word " * 30 + str(n), Role.ASSISTANT) for n in range(30)]
    for size, _ in pairwise(range(10, 30)):
        short = chunks(render(session_of(*messages[:size])))
        assert short[:-1] == chunks(render(session_of(*messages)))[: len(short) - 1]


def test_index_text_has_date_and_speakers_and_no_marks() -> None:
    transcript = render(session_of(said("> quoted\nmine"), said("answer", Role.ASSISTANT)))
    (chunk,) = chunks(transcript)
    seen = index_text(transcript, 0, chunk, datetime(2026, 2, 3, tzinfo=UTC), {})
    assert seen == "[2026-02-03] User: > quoted\nmine Assistant: answer"


def test_the_cached_tokenizer_agrees_with_the_library() -> None:
    texts = [
        "def f(x_y): return x_y['k'] != 3.14  # naïve → done",
        "日本語のテスト Привет мир! हिन्दी में खोज สวัสดี Über\u200bß ﬁ “quote”—dash…",
        "\x1b[1mbold\x1b[0m\ttab\x00nul " + "x" * 150,
    ]
    for text in texts:
        assert wordpiece.shared().ids(text) == REFERENCE.encode(text, add_special_tokens=False).ids


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs"))))
def test_the_cached_tokenizer_counts_no_less_than_the_library(text: str) -> None:
    """Editions of Unicode differ between the two (in marks and format characters most): the window must hold."""
    assert wordpiece.shared().count(text) >= len(REFERENCE.encode(text, add_special_tokens=False).ids)
