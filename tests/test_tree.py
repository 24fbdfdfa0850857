"""Readings of one session merge into one that holds every message of both once, in the order of the newer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from mempalace.model import Message, Origin, Role, Session, SessionMetadata, Text, TokenUsage, group_turns
from mempalace.tree import content_hash, digest, flatten, identities, merge, merge_all

START = datetime(2026, 2, 3, 9, tzinfo=UTC)


def said(text: str, name: str | None = None, minute: int | None = None, role: Role = Role.USER) -> Message:
    origin = Origin.PERSON if role == Role.USER else Origin.ASSISTANT
    moment = None if minute is None else START + timedelta(minutes=minute)
    return Message(role, (Text(text),), moment, name, origin)


def session(*messages: Message, spent: dict[int, TokenUsage] | None = None) -> Session:
    return Session(Path("a.jsonl"), "x", SessionMetadata("s"), group_turns(messages, spent))


def keys(reading: Session) -> list[bytes]:
    return [ident for ident, _ in identities(reading.messages)]


# Few words and few ids, so that messages repeat.
MESSAGES = st.builds(
    said,
    st.sampled_from("abc"),
    st.none() | st.sampled_from(["1", "2", "3", "4"]),
    st.none() | st.integers(0, 2),
    st.sampled_from([Role.USER, Role.ASSISTANT]),
)
READINGS = st.lists(MESSAGES, max_size=10).map(lambda messages: session(*messages))


@given(READINGS)
@settings(max_examples=100, deadline=None)
def test_merging_a_reading_with_itself_changes_nothing(reading: Session) -> None:
    assert merge(reading, reading) == reading


@given(st.lists(MESSAGES, max_size=10), st.integers(0, 10))
@settings(max_examples=100, deadline=None)
def test_merging_a_beginning_with_the_whole_gives_the_whole(messages: list[Message], cut: int) -> None:
    whole, beginning = session(*messages), session(*messages[:cut])
    assert merge(beginning, whole) == whole
    assert merge(whole, beginning) == whole


@given(READINGS, READINGS)
@settings(max_examples=150, deadline=None)
def test_a_merged_session_holds_every_message_of_both_once(older: Session, newer: Session) -> None:
    merged = keys(merge(older, newer))
    assert len(merged) == len(set(merged))
    assert set(merged) == set(keys(older)) | set(keys(newer))


@given(READINGS, READINGS)
@settings(max_examples=150, deadline=None)
def test_a_merged_session_keeps_the_order_and_the_words_of_the_newer(older: Session, newer: Session) -> None:
    merged = merge(older, newer)
    here = {id(message) for message in newer.messages}
    assert [message for message in merged.messages if id(message) in here] == list(newer.messages)
    assert (merged.path, merged.metadata) == (newer.path, newer.metadata)


def test_what_only_the_older_reading_has_stands_where_it_stood() -> None:
    one, two, three, four = (said(str(n), str(n)) for n in range(4))
    assert list(merge(session(one, two, three), session(one, three, four)).messages) == [one, two, three, four]
    assert list(merge(session(one, two), session(three)).messages) == [three, one, two]


def test_times_put_in_order_what_only_one_reading_has() -> None:
    first, last = said("first", "f", 0), said("last", "l", 9)
    one, two, three, four = (said(str(n), str(n), n) for n in range(1, 5))
    merged = merge(session(first, one, three, last), session(first, two, four, last))
    assert list(merged.messages) == [first, one, two, three, four, last]
    assert list(merge(session(one, two), session(three, four)).messages) == [one, two, three, four]
    assert list(merge(session(three), session(one, two, four)).messages) == [one, two, three, four]


@given(st.lists(READINGS, min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_many_readings_merge_into_all_their_messages(readings: list[Session]) -> None:
    merged = merge_all(readings)
    assert set(keys(merged)) == {key for reading in readings for key in keys(reading)}
    assert len(keys(merged)) == merged.message_count
    here = {id(message) for message in readings[-1].messages}
    assert [message for message in merged.messages if id(message) in here] == list(readings[-1].messages)


def test_what_the_newer_reading_does_not_say_of_the_session_the_older_does() -> None:
    def told(title: str | None, project: str | None, minute: int) -> Session:
        metadata = SessionMetadata("s", START + timedelta(minutes=minute), title=title, project=project)
        return Session(Path("a.jsonl"), "x", metadata, group_turns([said(str(minute), minute=minute)]))

    merged = merge(told("old", "/w/old", 1), told(None, "/w/new", 5)).metadata
    assert (merged.title, merged.project, merged.timestamp) == ("old", "/w/new", START + timedelta(minutes=1))


def test_the_newer_words_of_a_message_win() -> None:
    assert [one.text for one in merge(session(said("draft", "1")), session(said("final", "1"))).messages] == ["final"]


def test_tokens_stay_with_their_turns() -> None:
    ask, answer, again = said("q", "1"), said("a", "2", role=Role.ASSISTANT), said("q2", "3")
    older = session(ask, answer, spent={1: TokenUsage(1, 2)})
    newer = session(ask, again, spent={1: TokenUsage(3, 4)})
    merged = merge(older, newer)
    assert list(merged.messages) == [ask, again, answer] or list(merged.messages) == [ask, answer, again]
    assert merged.total_tokens.input >= 3


# --- identity -----------------------------------------------------------------------------------------------


def test_equal_messages_are_told_apart_by_their_count() -> None:
    found = identities([said("yes"), said("yes"), said("yes"), said("no")])
    assert len({ident for ident, _ in found}) == 4
    assert len({content for _, content in found}) == 2
    assert identities([said("yes"), said("yes")]) == found[:2]


def test_an_id_is_the_identity_whatever_is_said() -> None:
    ((one, first),), ((two, second),) = identities([said("draft", "1")]), identities([said("final", "1")])
    assert one == two
    assert first != second


def test_without_an_id_words_and_time_are_the_identity() -> None:
    readings = [said("a"), said("a", minute=1), said("a", minute=2), said("b", minute=1)]
    assert len({identities([one])[0][0] for one in readings}) == 4
    assert identities([said("a", minute=1)]) == identities([said("a", minute=1)])


def test_speaker_and_origin_belong_to_the_content() -> None:
    words = (Text("same"),)
    variants = [
        Message(Role.USER, words),
        Message(Role.ASSISTANT, words),
        Message(Role.USER, words, origin=Origin.INJECTED),
        Message(Role.USER, words, name="Ana"),
        Message(Role.USER, (Text("sa"), Text("me"))),
    ]
    assert len({content_hash(one) for one in variants}) == len(variants)


def test_a_lone_surrogate_has_a_hash() -> None:
    assert content_hash(said("\ud83c"))
    assert digest("\ud83c", 1)


def test_parents_come_before_their_subagents() -> None:
    def child(name: str, *inner: Session) -> Session:
        return Session(Path("a"), "x", SessionMetadata(name), subagents=inner)

    tree = [child("1", child("1.1", child("1.1.1")), child("1.2")), child("2")]
    assert [one.metadata.session_id for one in flatten(tree)] == ["1", "1.1", "1.1.1", "1.2", "2"]
