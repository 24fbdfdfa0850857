"""Exports as vendors hand them out, through a palace: found, complete, added to, and never in silence."""

from __future__ import annotations

import json
import os
import random
import shutil
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from logs import (
    anywhere,
    chatgpt,
    check_sums,
    claude_ai,
    claude_lines,
    first,
    holders,
    marker,
    mine,
    plant,
    rows,
    run,
    slack,
    slack_files,
    unpack,
    write_zip,
)

import mempalace
from mempalace import miner
from mempalace.formats import registry
from mempalace.formats.slack.messages import CONTROL
from mempalace.model import Session
from mempalace.palace import restore
from mempalace.palace.catalog import Catalog
from mempalace.summary import Event, Summary


def take(palace: Path, *paths: Path, **options: Any) -> Summary:
    """Mine after a dry run, which must have predicted the run."""
    dry = mine(palace, *paths, dry_run=True, **options)
    done = mine(palace, *paths, **options)
    assert outcome(dry) == outcome(done)
    return done


def outcome(summary: Summary) -> dict[str, Any]:
    data = summary.to_dict()
    for name in ("vectors", "seconds"):
        del data[name]
    return data


def read(palace: Path, *paths: Path, **options: Any) -> Summary:
    """The same without vectors."""
    return take(palace, *paths, embed=False, **options)


def states(summary: Summary) -> dict[str, int]:
    return {state: count for state, count in summary.states.items() if count}


def problems(summary: Summary) -> list[tuple[str, str]]:
    return [(problem.kind, f"{problem.path}: {problem.message}") for problem in summary.problems]


def titles(palace: Path) -> dict[str, str]:
    return dict(rows(palace, "SELECT key, title FROM sessions ORDER BY key"))


def texts(palace: Path, key: str) -> list[str]:
    return [message.text for message in restored(palace, key).messages]


def restored(palace: Path, key: str) -> Session:
    """A session out of the archive."""
    ((number,),) = rows(palace, "SELECT id FROM sessions WHERE key = ?", key)
    with Catalog.open(palace) as catalog:
        return restore.session(catalog, registry.default(), number)


def nothing_new(palace: Path, *paths: Path, **options: Any) -> Summary:
    """Mine what was mined before."""
    again = read(palace, *paths, **options)
    assert (again.read, again.stored, again.chunks_new) == (0, 0, 0)
    assert (again.sessions_new, again.sessions_updated) == (0, 0)
    return again


# --- the cases ----------------------------------------------------------------------------------------------


def test_c27_an_array_of_conversations(palace: Path, logs: Path) -> None:
    words = plant("C27", logs, "DOUGH-1", "DOUGH-2", "CLAY-1", "CLAY-2")
    summary = take(palace, logs)
    assert (summary.sessions_new, summary.stored) == (2, 4)
    assert titles(palace) == {"bread": "bread", "clay": "clay"}
    for old, role, title in (
        ("DOUGH-1", "user", "bread"),
        ("DOUGH-2", "assistant", "bread"),
        ("CLAY-1", "user", "clay"),
    ):
        hit = first(palace, words[old])
        assert (hit.role, hit.title, hit.format) == (role, title, "chatgpt")
    for envelope in ("mapping", "current_node", "content_type", "create_time", "children"):
        assert not anywhere(palace, envelope)
    file = logs / "conversations.json"
    third = chatgpt("wood", [f"walnut {marker()}", "oak"])
    file.write_text(json.dumps([*json.loads(file.read_text()), third]))
    later = take(palace, logs)
    assert (later.sessions_new, later.sessions_updated, later.stored) == (1, 0, 2)
    assert later.vectors_new == later.chunks_new > 0
    assert len(rows(palace, "SELECT 1 FROM chunks WHERE session = (SELECT id FROM sessions WHERE key = 'wood')")) == (
        later.chunks_new
    )
    nothing_new(palace, logs)


def test_c28_a_regenerated_answer(palace: Path, logs: Path) -> None:
    words = plant("C28", logs, "FORK-Q", "FORK-OLD", "FORK-NEW", "FORK-END")
    read(palace, logs)
    session = restored(palace, "regen")
    main = [message.text for message in session.messages if message.origin != "abandoned"]
    assert [text.split()[-1] for text in main] == [words["FORK-Q"], words["FORK-NEW"], words["FORK-END"]]
    old = words["FORK-OLD"]
    assert not holders(palace, old)
    (hit,) = holders(palace, old, include=("abandoned",))
    assert hit.origin == "abandoned"
    assert words["FORK-NEW"] not in hit.text
    assert first(palace, words["FORK-NEW"]).role == "assistant"


def test_c29_the_privacy_export(palace: Path, logs: Path) -> None:
    words = plant("C29", logs, "BASIL-1", "BASIL-2", "MINT-1", "MINT-2")
    summary = read(palace, logs)
    assert (summary.sessions_new, summary.stored) == (2, 4)
    assert titles(palace) == {"k1": "herbs", "k2": "mint"}
    roles = {old: first(palace, new).role for old, new in words.items()}
    assert roles == {"BASIL-1": "user", "BASIL-2": "assistant", "MINT-1": "user", "MINT-2": "assistant"}


PEOPLE = [{"id": f"U{name.upper()}", "name": name.lower(), "real_name": name} for name in ("Ana", "Bob", "Cai")]


@pytest.mark.parametrize("named", [True, False])
def test_c30_a_channel_with_three_people_and_a_thread(palace: Path, logs: Path, named: bool) -> None:
    words = plant("C30", logs, "SLK-1", "SLK-2", "SLK-3")
    if named:
        (logs / "users.json").write_text(json.dumps(PEOPLE))
    summary = read(palace, logs)
    assert (summary.stored, summary.sessions_new) == (3, 2)
    spoken = dict(rows(palace, "SELECT m.role, COUNT(*) FROM messages m GROUP BY m.role"))
    assert spoken == {"user": 3}
    session = mempalace.parse(logs / "2026-01-09.json")
    speakers = {message.name for one in session for message in one.messages}
    assert speakers == ({"Ana", "Bob", "Cai"} if named else {"UANA", "UBOB", "UCAI"})
    question, reply = first(palace, words["SLK-1"]), first(palace, words["SLK-3"])
    assert question.session_id == reply.session_id != first(palace, words["SLK-2"]).session_id
    assert ("@Bob" if named else "@UBOB") in reply.text


@pytest.mark.parametrize("form", ["plain", "zip"])
def test_c31_an_oversized_export_is_never_silent(palace: Path, logs: Path, form: str) -> None:
    word = marker()
    data = json.dumps([chatgpt("big", [f"{word} {random.Random(1).randbytes(4000).hex()}", "yes"])])
    file = logs / "conversations.json"
    if form == "zip":
        file = write_zip(logs / "export.zip", {"conversations.json": data})
    else:
        file.write_text(data)
    done = run("mine", file, "--max-size", 1000, "--palace", palace, "--json", "--no-vectors")
    assert done.returncode == 8
    told = json.loads(done.stdout)
    check_sums(told)
    assert told["sources"]["excluded"] == 1
    (problem,) = told["problems"]
    assert problem["path"] == str(file)
    assert str(file.stat().st_size) in problem["message"]
    assert "1000" in problem["message"]
    assert not anywhere(palace, word)
    assert read(palace, file).stored == 2
    assert first(palace, word).title == "big"


def test_c31_an_oversized_member_is_excluded_by_name(palace: Path, logs: Path) -> None:
    big = json.dumps([chatgpt("big", ["x" * 20_000, "yes"])])
    small = json.dumps([chatgpt("small", ["a", "b"])])
    file = write_zip(logs / "export.zip", {"big.json": big, "small.json": small})
    assert file.stat().st_size < 5_000
    summary = mine(palace, file, embed=False, max_size=5_000)
    assert states(summary) == {"new": 1, "excluded": 1}
    assert "big.json" in problems(summary)[0][1]


def test_c31_an_oversized_day_file_is_excluded_by_name(palace: Path, logs: Path) -> None:
    unpack(logs, slack_files(d09=[slack("UANA", "x" * 9_000, "1767900000.000100")]))
    summary = mine(palace, logs, embed=False, max_size=5_000)
    assert summary.states["excluded"] == 1


def test_c42_another_name_a_later_export_a_single_conversation(palace: Path, logs: Path) -> None:
    plant("C27", logs)
    early = (logs / "conversations.json").rename(logs / "2026-06-29.json")
    assert read(palace, logs).stored == 4
    bread, clay = json.loads(early.read_text())
    for index, (key, role) in enumerate((("c", "user"), ("d", "assistant"))):
        above = "bc"[index]
        message = {"id": key, "author": {"role": role}, "create_time": 1767225700.0 + index}
        message["content"] = {"content_type": "text", "parts": [f"more {key}"]}
        bread["mapping"][above]["children"].append(key)
        bread["mapping"][key] = {"id": key, "message": message, "parent": above, "children": []}
    bread["current_node"] = "d"
    bread["update_time"] += 1000
    (logs / "2026-08-01.json").write_text(json.dumps([bread, clay, chatgpt("wood", ["new", "also new"])]))
    later = read(palace, logs)
    assert (later.stored, later.duplicate) == (4, 4)
    assert (later.sessions_new, later.sessions_updated) == (1, 1)
    (logs / "single.json").write_text(json.dumps(json.loads(early.read_text())[0]))
    alone = read(palace, logs)
    assert (alone.stored, alone.duplicate, alone.sessions_new, alone.sessions_updated) == (0, 2, 0, 0)
    assert sorted(titles(palace)) == ["bread", "clay", "wood"]
    assert texts(palace, "bread") == ["sourdough DOUGH-1", "DOUGH-2", "more c", "more d"]


# --- one export in several forms ----------------------------------------------------------------------------


def conversations() -> list[dict[str, Any]]:
    return [chatgpt(f"c{n}", [f"question {n}", f"answer {n}"], f"Talk {n}") for n in range(4)]


def as_form(folder: Path, form: str) -> Path:
    """The same export plain, zipped, in shards, and unpacked."""
    whole, side = json.dumps(conversations()), {"user.json": "{}", "chat.html": "<html></html>"}
    shards = {f"conversations-{n:03}.json": json.dumps(conversations()[n * 2 : n * 2 + 2]) for n in range(2)}
    if form == "plain":
        return unpack(folder, {"conversations.json": whole}) / "conversations.json"
    if form == "zip":
        return write_zip(folder / "export.zip", {"conversations.json": whole, **side})
    if form == "shards":
        return write_zip(folder / "shards.zip", {**shards, **side})
    return unpack(folder / "unpacked", {"conversations.json": whole, **side})


FORMS = ["plain", "zip", "shards", "unpacked"]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_sessions_and_the_next_adds_nothing(palace: Path, logs: Path, form: str) -> None:
    summary = read(palace, as_form(logs / "a", form))
    assert (summary.sessions_new, summary.stored) == (4, 8)
    assert titles(palace) == {f"c{n}": f"Talk {n}" for n in range(4)}
    for other in FORMS:
        again = read(palace, as_form(logs / "b", other))
        assert (again.stored, again.duplicate, again.sessions_new, again.chunks_new) == (0, 8, 0, 0), other


def test_a_later_export_adds_the_new_and_the_edited_conversation_only(palace: Path, logs: Path) -> None:
    before = [chatgpt(f"c{n}", [f"question {n} " * 30, f"answer {n} " * 30]) for n in range(6)]
    write_zip(logs / "one.zip", {"conversations.json": json.dumps(before)})
    take(palace, logs / "one.zip")
    edited = chatgpt("c2", ["question 2 " * 30, "answer 2 " * 30, "one more thing", "yes"])
    after = [chatgpt("c9", ["new", "talk"]), *before[:2], edited, *before[3:]]
    write_zip(logs / "two.zip", {"conversations.json": json.dumps(after)})
    later = take(palace, logs / "two.zip")
    assert (later.stored, later.duplicate) == (4, 12)
    assert (later.sessions_new, later.sessions_updated) == (1, 1)
    assert later.vectors_new <= later.chunks_new <= 4
    nothing_new(palace, logs)


QUESTION, REPLY, LATE = (f"176790{n}000.000100" for n in range(3))
DAYS = {
    "d09": [slack("UANA", "ship <@UBOB>?", QUESTION), slack("UBOB", "lunch", "1767900050.000100")],
    "d10": [slack("UCAI", "no, monday", REPLY, QUESTION)],
}


@pytest.mark.parametrize("form", ["folder", "zip"])
def test_a_workspace_and_a_reply_of_a_later_day(palace: Path, logs: Path, form: str) -> None:
    def put(**days: Any) -> Path:
        files = slack_files(**days)
        return write_zip(logs / "slack.zip", files) if form == "zip" else unpack(logs / "slack", files)

    summary = read(palace, put(**DAYS))
    assert (summary.stored, summary.sessions_new) == (3, 2)
    thread = f"C1/{QUESTION}"
    assert texts(palace, thread) == ["ship @Bob?", "no, monday"]
    later = read(palace, put(**DAYS, d11=[slack("UBOB", "agreed then", LATE, QUESTION)]))
    assert (later.stored, later.sessions_new, later.sessions_updated) == (1, 0, 1)
    assert texts(palace, thread) == ["ship @Bob?", "no, monday", "agreed then"]
    assert [message.name for message in restored(palace, thread).messages] == ["Ana", "Cai", "Bob"]
    nothing_new(palace, logs)


def test_a_workspace_as_folder_and_zip_holds_the_same_sessions(palace: Path, logs: Path) -> None:
    read(palace, unpack(logs / "slack", slack_files(**DAYS)))
    before = titles(palace)
    again = read(palace, write_zip(logs / "slack.zip", slack_files(**DAYS)))
    assert (again.stored, again.duplicate, again.chunks_new, again.sessions_new) == (0, 3, 0, 0)
    assert titles(palace) == before


SOURCES: dict[str, dict[str, str | bytes]] = {
    "chatgpt.zip": {"conversations.json": json.dumps(conversations())},
    "claude-ai.zip": {"conversations.json": json.dumps([claude_ai("k1", ["ask", "say"], "herbs")])},
    "claude-ai": {"conversations.json": json.dumps([claude_ai("k1", ["ask", "say"], "herbs")])},
    "slack.zip": slack_files(**DAYS),
    "slack": slack_files(**DAYS),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_session_is_whole_after_its_source_is_gone(palace: Path, logs: Path, name: str) -> None:
    path = (write_zip if name.endswith(".zip") else unpack)(logs / name, SOURCES[name])
    read(palace, logs)
    before = {key: restored(palace, key).to_dict() for key in titles(palace)}
    told = json.loads(run("show", next(iter(before)), "--palace", palace, "--json").stdout)
    assert told.pop("schema_version") == 1
    assert told == json.loads(json.dumps(next(iter(before.values()))))
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert {key: restored(palace, key).to_dict() for key in before} == before
    if name.startswith("slack"):
        names = {message["name"] for one in before.values() for turn in one["turns"] for message in turn["messages"]}
        assert names == {"Ana", "Bob", "Cai"}


def test_documents_are_left_out_by_name_and_read_on_request(palace: Path, logs: Path) -> None:
    word, memory = marker(), marker()
    project = {"uuid": "p1", "name": "kiln", "prompt_template": "", "creator": {}, "created_at": "2026-01-05T08:00:00Z"}
    project["docs"] = [{"uuid": "d1", "filename": "glaze.md", "content": f"celadon {word}"}]
    files: dict[str, str | bytes] = {
        "conversations.json": json.dumps([claude_ai("k1", ["ask", "say"])]),
        "projects.json": json.dumps([project]),
        "memories.json": json.dumps([{"conversations_memory": f"likes {memory}", "account_uuid": "a1"}]),
        "users.json": "[]",
    }
    file = write_zip(logs / "data.zip", files)
    summary = read(palace, file)
    assert summary.skipped["document"] == 2
    assert any("glaze.md" in message for _, message in problems(summary))
    assert not anywhere(palace, word)
    done = run("mine", file, "--palace", palace, "--include", "documents", "--json", "--no-vectors")
    assert done.returncode == 0
    told = json.loads(done.stdout)
    check_sums(told)
    assert (told["records"]["stored"], told["sessions"]["new"]) == (2, 2)
    assert anywhere(palace, word)[0].project == "kiln"
    assert anywhere(palace, memory)
    nothing_new(palace, file, documents=True)


# --- bad archives -------------------------------------------------------------------------------------------

GOOD = json.dumps(conversations())


def damage(path: Path, name: str, *, member: str = "crc") -> None:
    """Put a wrong checksum to a member, or break its bytes in the middle, or say that it is encrypted."""
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(name)
        start = archive.start_dir
    raw = bytearray(path.read_bytes())
    entry = raw.index(name.encode(), start) - 46
    if member == "crc":
        raw[entry + 16] ^= 0xFF
        raw[info.header_offset + 14] ^= 0xFF
    elif member == "bytes":
        middle = info.header_offset + 30 + len(name) + info.compress_size // 2
        raw[middle : middle + 20] = b"\xff" * 20
    else:
        raw[entry + 8] |= 1
    path.write_bytes(raw)


def test_a_truncated_archive_fails_by_name_and_the_rest_is_mined(palace: Path, logs: Path) -> None:
    file = write_zip(logs / "cut.zip", {"conversations.json": GOOD})
    file.write_bytes(file.read_bytes()[:-40])
    write_zip(logs / "good.zip", {"conversations.json": GOOD})
    summary = read(palace, logs)
    assert (states(summary), summary.stored) == ({"failed": 1, "new": 1}, 8)
    assert [(kind, "cut.zip" in message) for kind, message in problems(summary)] == [("failed", True)]
    assert summary.is_partial
    assert run("mine", file, "--palace", palace, "--no-vectors").returncode == 8


def test_an_encrypted_a_bomb_like_and_a_leading_out_member_are_excluded_by_name(palace: Path, logs: Path) -> None:
    files: dict[str, str | bytes] = {"../up.json": GOOD, "bomb.json": b" " * 3_000_000, "secret.json": GOOD}
    file = write_zip(logs / "bad.zip", {**files, "conversations.json": GOOD})
    damage(file, "secret.json", member="encrypted")
    summary = read(palace, file)
    assert (states(summary), summary.stored) == ({"excluded": 3, "new": 1}, 8)
    assert [kind for kind, _ in problems(summary)] == ["excluded"] * 3
    for name in files:
        assert any(name in message for _, message in problems(summary)), name
    other = palace.with_name("other")
    assert run("mine", file, "--palace", other, "--no-vectors").returncode == 8
    nothing_new(palace, file)


@pytest.mark.parametrize("kind", ["crc", "bytes"])
def test_a_damaged_member_is_told_by_name_and_the_rest_is_mined(palace: Path, logs: Path, kind: str) -> None:
    long = json.dumps([chatgpt(f"l{n}", [random.Random(n).randbytes(2_000).hex(), "yes"]) for n in range(100)])
    file = write_zip(logs / "a.zip", {"conversations-0.json": long, "conversations-1.json": GOOD})
    damage(file, "conversations-0.json", member=kind)
    summary = read(palace, file)
    assert summary.is_partial
    assert any("conversations-0.json" in message for _, message in problems(summary))
    assert {f"c{n}" for n in range(4)} <= titles(palace).keys()
    assert summary.found == 2


@pytest.mark.parametrize("kind", ["crc", "bytes"])
def test_what_stands_before_the_damage_of_a_member_is_kept(palace: Path, logs: Path, kind: str) -> None:
    long = json.dumps([chatgpt(f"l{n}", [random.Random(n).randbytes(2_000).hex(), "yes"]) for n in range(100)])
    file = write_zip(logs / "a.zip", {"conversations.json": long})
    damage(file, "conversations.json", member=kind)
    mine(palace, file, embed=False)
    assert "l0" in titles(palace)


def test_a_damaged_day_file_does_not_hide_the_workspace(palace: Path, logs: Path) -> None:
    file = write_zip(logs / "slack.zip", slack_files(**DAYS))
    damage(file, "kiln/2026-01-10.json")
    summary = mine(palace, file, embed=False)
    assert summary.found == 4
    assert f"C1/{QUESTION}" in titles(palace)


def test_an_empty_archive(palace: Path, logs: Path) -> None:
    write_zip(logs / "empty.zip", {})
    write_zip(logs / "good.zip", {"conversations.json": GOOD})
    assert read(palace, logs).stored == 8
    assert run("mine", logs / "empty.zip", "--palace", palace, "--no-vectors").returncode == 0


def test_an_archive_with_the_folder_of_another_tool(palace: Path, logs: Path) -> None:
    lines = "\n".join(claude_lines(["ask", "answer"], "s7")) + "\n"
    file = write_zip(logs / "home.zip", {".claude/projects/-w-kiln/s7.jsonl": lines, "notes/mystery.json": '{"a": 1}'})
    summary = read(palace, file)
    assert (states(summary), summary.stored) == ({"new": 1, "unrecognised": 1}, 2)
    assert any("mystery.json" in message for _, message in problems(summary))
    assert texts(palace, "s7") == ["ask", "answer"]
    assert run("mine", file, "--palace", palace.with_name("other"), "--no-vectors").returncode == 0
    nothing_new(palace, file)


def test_an_archive_in_an_archive_is_named(palace: Path, logs: Path) -> None:
    inner = write_zip(logs / "inner.zip", {"conversations.json": GOOD})
    outer = write_zip(logs / "in" / "outer.zip", {"inner.zip": inner.read_bytes()})
    summary = mine(palace, outer, embed=False)
    assert summary.stored == 8 or any("inner.zip" in message for _, message in problems(summary))


# --- odd conversations --------------------------------------------------------------------------------------


def test_odd_conversations_are_counted_and_the_rest_is_mined(palace: Path, logs: Path) -> None:
    cycle = chatgpt("cycle", ["round", "and round"])
    cycle["mapping"]["cycle-0"]["parent"] = "cycle-1"
    cycle["mapping"]["cycle-1"]["children"] = ["cycle-0"]
    orphan = chatgpt("orphan", ["lost", "found"])
    orphan["mapping"]["orphan-1"]["parent"] = "nobody"
    orphan["mapping"]["orphan-0"]["children"] = ["nobody"]
    nulls = dict.fromkeys(chatgpt("nulls", [])) | {"mapping": {"a": None, "b": {"message": None, "parent": None}}}
    late = chatgpt("strings", ["when", "then"], create_time="2026-01-05T08:00:00Z", update_time="1767229200")
    late["mapping"]["strings-0"]["message"]["create_time"] = "1767225601.5"
    nothing = chatgpt("nothing", [])
    nothing["mapping"] = {}
    odd = [cycle, nulls, orphan, nothing, late, None, 7, "x", *conversations()]
    (logs / "conversations.json").write_text(json.dumps(odd))
    summary = read(palace, logs)
    assert summary.states["failed"] == 0
    assert {"cycle", "orphan", "strings", "c0", "c1", "c2", "c3"} == set(titles(palace))
    assert sorted(texts(palace, "cycle")) == ["and round", "round"]
    assert sorted(texts(palace, "orphan")) == ["found", "lost"]
    moments = [message.timestamp for message in restored(palace, "strings").messages]
    assert all(moment is not None and moment.year == 2026 for moment in moments)
    nothing_new(palace, logs)


@pytest.mark.parametrize("size", [3_000_000, pytest.param(300_000_000, marks=pytest.mark.slow)])
def test_one_line_of_a_great_length(palace: Path, logs: Path, size: int) -> None:
    word = marker()
    talk = chatgpt("long", ["ask", f"{'kiln glaze ' * (size // 11)}{word}"])
    (logs / "conversations.json").write_text(json.dumps([talk, *conversations()]))
    summary = mine(palace, logs, embed=False)
    assert (summary.stored, summary.damaged) == (10, 0)
    assert first(palace, word, lexical_only=True).session_id == "long"


# --- faults -------------------------------------------------------------------------------------------------


def test_a_day_file_that_vanishes_does_not_stop_the_run(palace: Path, logs: Path) -> None:
    unpack(logs / "slack", slack_files(**DAYS))
    write_zip(logs / "zz.zip", {"conversations.json": GOOD})

    def vanish(event: Event) -> None:
        if event.kind == "found":
            (logs / "slack" / "kiln" / "2026-01-10.json").unlink()

    miner.mine(palace, [logs], miner.Options(embed=False), vanish)
    assert "c0" in titles(palace)


def test_a_message_that_a_later_export_left_out_is_kept(palace: Path, logs: Path) -> None:
    word = marker()
    gone = slack("UBOB", f"gone {word}", "1767900050.000100")
    kept, new = slack("UANA", "kept", "1767900000.000100"), slack("UCAI", "new", "1767900090.000100")
    for messages in ([kept, gone], [kept], [kept, new]):
        mine(palace, unpack(logs, slack_files(d09=messages)), embed=False)
    assert texts(palace, "C1/2026-01-09") == ["kept", f"gone {word}", "new"]
    assert holders(palace, word)


@pytest.mark.parametrize("below", ["kiln", "kiln/2026-01-09.json"])
def test_a_single_channel_is_restored_with_its_names(palace: Path, logs: Path, below: str) -> None:
    unpack(logs, slack_files(**DAYS))
    mine(palace, logs / below, embed=False)
    names = {message.name for key in titles(palace) for message in restored(palace, key).messages}
    assert names <= {"Ana", "Bob", "Cai"}


@pytest.mark.parametrize("roots", [["", "slack"], ["slack", ""], ["slack/kiln", "slack"], ["slack", "slack/kiln"]])
def test_a_workspace_below_different_roots(palace: Path, logs: Path, roots: list[str]) -> None:
    unpack(logs / "slack", slack_files(**DAYS))
    mine(palace, logs / roots[0], embed=False)
    again = mine(palace, logs / roots[1], embed=False)
    assert (again.stored, again.sessions_new) == (0, 0)
    assert sorted(titles(palace)) == sorted(["C1/2026-01-09", f"C1/{QUESTION}"])
    assert texts(palace, f"C1/{QUESTION}") == ["ship @Bob?", "no, monday"]


def test_the_ledger_of_a_repeated_workspace_says_duplicate(palace: Path, logs: Path) -> None:
    mine(palace, unpack(logs / "slack", slack_files(**DAYS)), embed=False)
    mine(palace, write_zip(logs / "slack.zip", slack_files(**DAYS)), embed=False)
    assert rows(palace, "SELECT SUM(records_stored), SUM(records_duplicate) FROM sources") == [(3, 3)]


def test_what_an_archive_could_not_give_is_told_again(palace: Path, logs: Path) -> None:
    file = write_zip(logs / "a.zip", {"conversations-0.json": GOOD, "conversations-1.json": GOOD})
    damage(file, "conversations-0.json", member="bytes")
    once = mine(palace, file, embed=False)
    again = mine(palace, file, embed=False)
    assert once.states["failed"] == again.states["failed"] == 1


def test_members_that_are_gone_are_not_counted(palace: Path, logs: Path) -> None:
    file = write_zip(logs / "a.zip", {"old.json": GOOD, "older.json": GOOD})
    mine(palace, file, embed=False)
    write_zip(file, {"new.json": json.dumps(conversations()[:1])})
    os.utime(file, (1, 1))
    mine(palace, file, embed=False)
    assert states(mine(palace, file, embed=False)) == {"unchanged": 1}


def test_a_problem_of_a_day_file_is_told_with_its_path(palace: Path, logs: Path) -> None:
    file = logs / "kiln" / "2026-01-10.json"
    unpack(logs, slack_files(**DAYS))
    file.write_text('[{"type": "message", "ts"')
    summary = mine(palace, logs, embed=False)
    assert {problem.path for problem in summary.problems} == {str(file)}


def test_only_the_day_file_that_is_new_is_told_as_new(palace: Path, logs: Path) -> None:
    mine(palace, unpack(logs, slack_files(**DAYS)), embed=False)
    later = mine(palace, unpack(logs, slack_files(d11=[slack("UBOB", "agreed", LATE, QUESTION)])), embed=False)
    assert later.states["new"] == 1
    assert later.states["grown"] == 0


def test_a_kept_export_is_not_read_again_for_each_conversation(
    palace: Path, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = 0
    original = restore.archive.read

    def counted(*arguments: Any) -> Any:
        nonlocal given
        for data in original(*arguments):
            given += len(data)
            yield data

    monkeypatch.setattr(restore.archive, "PART_BYTES", 512)
    monkeypatch.setattr(restore.archive, "read", counted)
    for name in ("new", "old"):
        talks = [chatgpt(f"c{n}", [f"{name} question {n}", "answer"]) for n in range(40)]
        for talk in talks:
            talk["mapping"] = {f"{name}{key}": value for key, value in talk["mapping"].items()}
            for node in talk["mapping"].values():
                if node["message"]:
                    node["message"]["id"] = f"{name}{node['message']['id']}"
                node["parent"] = node["parent"] and f"{name}{node['parent']}"
                node["children"] = [f"{name}{child}" for child in node["children"]]
            talk["current_node"] = f"{name}{talk['current_node']}"
        (logs / f"{name}.json").write_text(json.dumps(talks))
        mine(palace, logs / f"{name}.json", embed=False)
    size = sum(path.stat().st_size for path in logs.iterdir())
    assert 0 < given < 3 * size  # a conversation's own parts, not the whole export for each


def test_days_that_a_later_archive_of_the_same_name_lacks_are_kept(palace: Path, logs: Path) -> None:
    mine(palace, write_zip(logs / "slack.zip", slack_files(**DAYS)), embed=False)
    days = {"d10": DAYS["d10"], "d11": [slack("UBOB", "agreed then", LATE, QUESTION)]}
    later = read(palace, write_zip(logs / "slack.zip", slack_files(**days)))
    assert (later.stored, later.sessions_new) == (1, 0)
    assert texts(palace, f"C1/{QUESTION}") == ["ship @Bob?", "no, monday", "agreed then"]
    assert texts(palace, "C1/2026-01-09") == ["lunch"]
    assert holders(palace, "ship @Bob?")


def test_a_message_that_a_later_export_left_out_is_still_found(palace: Path, logs: Path) -> None:
    word = marker()
    gone = slack("UBOB", f"gone {word}", "1767900050.000100")
    kept, new = slack("UANA", "kept", "1767900000.000100"), slack("UCAI", "new", "1767900090.000100")
    for messages in ([kept, gone], [kept], [kept, new]):
        mine(palace, unpack(logs, slack_files(d09=messages)), embed=False)
    assert holders(palace, word)


def test_an_archive_is_read_once_there_is_space(palace: Path, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_zip(logs / "a.zip", {"conversations.json": GOOD})
    with monkeypatch.context() as patch:
        patch.setattr(miner.shutil, "disk_usage", lambda path: SimpleNamespace(free=1_000))
        assert mine(palace, file, embed=False).states["excluded"] == 1
    assert mine(palace, file, embed=False).stored == 8


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_two_members_of_one_name(palace: Path, logs: Path) -> None:
    with zipfile.ZipFile(logs / "a.zip", "w") as archive:
        for name in ("first", "second"):
            archive.writestr("conversations.json", json.dumps([chatgpt(name, ["ask", "answer"])]))
    summary = mine(palace, logs, embed=False)
    assert set(titles(palace)) == {"first", "second"} or problems(summary)


def test_side_files_are_ignored_in_every_form(palace: Path, logs: Path) -> None:
    summary = mine(palace, as_form(logs, "unpacked"), embed=False)
    assert states(summary) == {"new": 1, "ignored": 2}


def test_the_real_workspace_has_no_assistant(palace: Path, corpus: Path) -> None:
    export = corpus / "samples" / "slack" / "export"
    records = [record for file in export.glob("*/*.json") for record in json.loads(file.read_text())]
    summary = read(palace, export)
    assert summary.read == len(records)
    assert (summary.damaged, summary.states["failed"]) == (0, 0)
    kept = [
        one
        for one in records
        if one.get("subtype") not in CONTROL and any(map(one.get, ("text", "file", "attachments")))
    ]
    assert summary.stored == len(kept)
    assert not rows(palace, "SELECT 1 FROM messages WHERE role = 'assistant'")
    nothing_new(palace, export)


def test_images_do_not_make_an_archive_too_large(palace: Path, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_zip(logs / "a.zip", {"conversations.json": GOOD, "file-1.png": random.Random(1).randbytes(900_000)})
    monkeypatch.setattr(miner.shutil, "disk_usage", lambda path: SimpleNamespace(free=1_000_000))
    assert mine(palace, file, embed=False).stored == 8


@pytest.mark.parametrize("form", ["folder", "zip"])
def test_a_day_without_a_list_of_channels_is_restored_with_its_names(palace: Path, logs: Path, form: str) -> None:
    files: dict[str, str | bytes] = {"2026-01-09.json": json.dumps(DAYS["d09"]), "users.json": json.dumps(PEOPLE)}
    path = unpack(logs / "a", files) if form == "folder" else write_zip(logs / "a.zip", files)
    mine(palace, path, embed=False)
    assert anywhere(palace, "ship @Bob?")
    names = {message.name for key in titles(palace) for message in restored(palace, key).messages}
    assert names == {"Ana", "Bob"}


def test_a_day_that_was_mined_alone_is_part_of_the_thread(palace: Path, logs: Path) -> None:
    mine(palace, unpack(logs, slack_files(**DAYS)), embed=False)
    file = logs / "kiln" / "2026-01-11.json"
    file.write_text(json.dumps([slack("UBOB", "agreed then", LATE, QUESTION)]))
    mine(palace, file, embed=False)
    mine(palace, logs, embed=False)
    assert texts(palace, f"C1/{QUESTION}") == ["ship @Bob?", "no, monday", "agreed then"]


def test_a_thread_keeps_its_title_when_only_a_later_day_is_read(palace: Path, logs: Path) -> None:
    mine(palace, unpack(logs, slack_files(**DAYS)), embed=False)
    days = unpack(logs, slack_files(d10=[*DAYS["d10"], slack("UBOB", "agreed then", LATE, QUESTION)]))
    mine(palace, days / "kiln" / "2026-01-10.json", embed=False)
    assert titles(palace)[f"C1/{QUESTION}"] == "ship @Bob?"


def test_a_reply_that_a_later_export_left_out_is_kept(palace: Path, logs: Path) -> None:
    mine(palace, unpack(logs, slack_files(**DAYS)), embed=False)
    mine(palace, unpack(logs, slack_files(d10=[slack("UBOB", "only this", "1767950000.000100")])), embed=False)
    assert holders(palace, "no, monday")
    assert texts(palace, f"C1/{QUESTION}") == ["ship @Bob?", "no, monday"]


def test_every_state_of_an_export_is_kept(palace: Path, logs: Path) -> None:
    # The question is told as a thread's by the second reading only: before it had no reply, after it is gone.
    first_day, ghost = DAYS["d09"], slack("UCAI", "ghost", "1767950000.000100")
    for d09, d10 in ((first_day, [ghost]), (first_day, [*DAYS["d10"], ghost]), (first_day[1:], [*DAYS["d10"], ghost])):
        mine(palace, unpack(logs, slack_files(d09=d09, d10=d10)), embed=False)
    assert texts(palace, f"C1/{QUESTION}") == ["ship @Bob?", "no, monday"]
    assert texts(palace, "C1/2026-01-09") == ["ship @Bob?", "lunch"]


@pytest.mark.parametrize("form", ["folder", "zip"])
def test_channels_with_a_list_of_people_only(palace: Path, logs: Path, form: str) -> None:
    files: dict[str, str | bytes] = {"users.json": json.dumps(PEOPLE)}
    files |= {f"kiln/2026-01-{day[1:]}.json": json.dumps(messages) for day, messages in DAYS.items()}
    path = unpack(logs / "a", files) if form == "folder" else write_zip(logs / "a.zip", files)
    summary = read(palace, path)
    assert states(summary) == {"new": 2, "ignored": 1}
    before = {key: restored(palace, key).to_dict() for key in titles(palace)}
    nothing_new(palace, path)
    assert {key: restored(palace, key).to_dict() for key in titles(palace)} == before
    names = {message.name for key in before for message in restored(palace, key).messages}
    assert names == {"Ana", "Bob", "Cai"}


def test_a_list_that_is_damaged_leaves_ids(palace: Path, logs: Path) -> None:
    files: dict[str, str | bytes] = {"2026-01-09.json": json.dumps(DAYS["d09"]), "users.json": b'[{"id": "UANA", "na'}
    summary = mine(palace, unpack(logs / "a", files) / "2026-01-09.json", embed=False)
    assert (states(summary), summary.stored) == ({"new": 1}, 2)
    assert {message.name for key in titles(palace) for message in restored(palace, key).messages} == {"UANA", "UBOB"}


def test_people_who_are_renamed_later(palace: Path, logs: Path) -> None:
    path = unpack(logs / "a", {"2026-01-09.json": json.dumps(DAYS["d09"]), "users.json": json.dumps(PEOPLE)})
    mine(palace, path, embed=False)
    (path / "users.json").write_text(json.dumps([{**one, "real_name": f"{one['real_name']} II"} for one in PEOPLE]))
    (path / "2026-01-09.json").write_text(json.dumps([*DAYS["d09"], slack("UCAI", "late", LATE)]))
    mine(palace, path, embed=False)
    named = {message.text: message.name for key in titles(palace) for message in restored(palace, key).messages}
    assert named == {"ship @Bob II?": "Ana II", "lunch": "Bob II", "late": "Cai II"}


def test_side_files_outside_of_an_export_are_unrecognised(palace: Path, logs: Path) -> None:
    unpack(logs, {"a/user.json": '{"id": 1}', "b/conversations.json": GOOD, "c/chat.html": "<html></html>"})
    assert states(mine(palace, logs, embed=False)) == {"new": 1, "unrecognised": 2}


@pytest.mark.parametrize("told", ["people", "messages", "nowhere"])
def test_channels_of_one_name_in_two_workspaces_stay_apart(palace: Path, logs: Path, told: str) -> None:
    def put(team: str, second: int) -> Path:
        message = slack(f"U{team}", f"hello {team}", f"17679000{second:02}.000100")
        people = [{"id": f"U{team}", "name": team}, {"id": "USLACKBOT", "name": "slackbot"}]
        if told == "people":
            people[0]["team_id"] = team
        if told == "messages":
            message["team"] = team
        files = {"users.json": json.dumps(people), "channels.json": json.dumps([{"name": "kiln"}])}
        return unpack(logs / team, {**files, "kiln/2026-01-09.json": json.dumps([message])})

    for team, second in (("T1", 1), ("T2", 2)):
        assert read(palace, put(team, second)).sessions_new == 1
        shutil.copytree(logs / team, logs / f"{team} again")
        again = read(palace, logs / f"{team} again")
        assert (again.stored, again.sessions_new, again.duplicate) == (0, 0, 1)
    assert sorted(texts(palace, key) for key in titles(palace)) == [["hello T1"], ["hello T2"]]
    nothing_new(palace, logs / "T1" / "kiln" / "2026-01-09.json")


def test_an_older_export_that_is_mined_later_takes_nothing_back(palace: Path, logs: Path) -> None:
    for name, title, updated in (("new", "Renamed", 1_767_300_000), ("old", "First name", 1_767_230_000)):
        talk = chatgpt("c1", ["question", "answer"], title, update_time=updated)
        chat = claude_ai("k1", ["question", "answer"], title)
        chat["updated_at"] = f"2026-01-0{5 + (name == 'new')}T09:00:00Z"
        for kind, value in (("gpt", talk), ("claude", chat)):
            read(palace, write_zip(logs / f"{name}-{kind}.zip", {"conversations.json": json.dumps([value])}))
    assert titles(palace) == {"c1": "Renamed", "k1": "Renamed"}
    assert {restored(palace, key).metadata.title for key in ("c1", "k1")} == {"Renamed"}


def test_lists_without_anything_are_empty(palace: Path, logs: Path) -> None:
    names = ("projects.json", "conversations.json", "general/canvas_in_the_conversation.json")
    files: dict[str, str | bytes] = dict.fromkeys(names, "[]\n")
    assert states(read(palace, write_zip(logs / "a.zip", files))) == {"empty": 3}
    assert states(read(palace, unpack(logs / "a", files))) == {"empty": 3}


@pytest.mark.parametrize("missing", ["users.json", "channels.json"])
def test_a_workspace_that_lacks_a_list(palace: Path, logs: Path, missing: str) -> None:
    files = slack_files(**DAYS)
    del files[missing]
    file = write_zip(logs / "slack.zip", {**files, "dms.json": "[]"})
    summary = read(palace, file)
    assert (summary.stored, summary.damaged) == (3, 0)
    named = {"Ana", "Bob", "Cai"} if missing == "channels.json" else {"UANA", "UBOB", "UCAI"}
    file.unlink()
    sessions = [restored(palace, key) for key in titles(palace)]
    assert {message.name for session in sessions for message in session.messages} == named
    assert {session.metadata.project for session in sessions} == {"#kiln"}
    thread = next(session for session in sessions if session.key and session.key.endswith(QUESTION))
    assert [message.text.split()[-1] for message in thread.messages][1] == "monday"


def test_an_older_copy_in_the_same_file_is_a_duplicate(palace: Path, logs: Path) -> None:
    old = chatgpt("c1", ["question", "draft"], "Old", update_time=1_767_230_000)
    new = chatgpt("c1", ["question", "final"], "New", update_time=1_767_240_000)
    (logs / "conversations.json").write_text(json.dumps([new, old]))
    summary = read(palace, logs)
    assert (summary.stored, summary.duplicate) == (2, 2)
    assert titles(palace) == {"c1": "New"}
    assert texts(palace, "c1") == ["question", "final"]
