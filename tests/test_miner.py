"""The pipeline: the ledger adds up, a second run does nothing, and nothing that a file ever said is lost."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import FIXTURES
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import (
    as_nobody,
    check_sums,
    claude_lines,
    find,
    first,
    mine,
    rows,
    stored_text,
    with_script,
    write_claude,
    write_script,
    write_zip,
)

from mempalace import miner
from mempalace.errors import ForeignFolder, PalaceLocked
from mempalace.formats import registry
from mempalace.miner import Event, Options, Summary
from mempalace.palace import lock, restore
from mempalace.palace.catalog import Catalog


@pytest.fixture(autouse=True)
def _script_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_default", with_script())


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def uids(palace: Path) -> list[str]:
    return [uid for (uid,) in rows(palace, "SELECT uid FROM chunks ORDER BY session, seq")]


def texts(palace: Path) -> list[str]:
    return [text for (text,) in rows(palace, "SELECT t.body FROM chunks c JOIN texts t ON t.id = c.text ORDER BY c.id")]


def restored(palace: Path, key: str = "s1") -> list[str]:
    """The texts of a session's messages, read again from the archive."""
    ((number,),) = rows(palace, "SELECT id FROM sessions WHERE key = ?", key)
    with Catalog.open(palace) as catalog:
        return [message.text for message in restore.session(catalog, registry.default(), number).messages]


def check_rows(palace: Path) -> None:
    """In the ledger of every source, the records add up and nothing is negative."""
    ledger = rows(
        palace,
        "SELECT path, records_read, records_stored, records_duplicate, records_damaged,"
        " (SELECT COALESCE(SUM(value), 0) FROM json_each(records_skipped)) FROM sources",
    )
    for path, read, stored, duplicate, damaged, skipped in ledger:
        assert min(stored, duplicate, damaged, skipped) >= 0, (path, stored, duplicate, damaged, skipped)
        assert read == stored + duplicate + damaged + skipped, path


def states(summary: Summary) -> dict[str, int]:
    return {state: count for state, count in summary.states.items() if count}


def talk(count: int, start: int = 0) -> list[str]:
    """Messages that are long enough for a chunk or two each."""
    return [f"G-{n:02} " + f"word{n} " * 70 for n in range(start, start + count)]


# --- the ledger ---------------------------------------------------------------------------------------------

CASES = sorted(path for path in FIXTURES.glob("*/*") if path.is_dir())


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}/{case.name}")
def test_the_ledger_adds_up_for_every_fixture_and_a_second_run_adds_nothing(case: Path, tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    once = mine(palace, case, embed=False)
    check_rows(palace)
    before = uids(palace)
    again = mine(palace, case, embed=False)
    assert (again.read, again.chunks_new, again.sessions_new, again.sessions_updated) == (0, 0, 0, 0)
    assert again.states["unchanged"] + again.states["failed"] == once.found
    assert uids(palace) == before


def test_the_end_table_is_the_sum_of_the_ledger_and_a_dry_run_predicts_it(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    dry = mine(palace, FIXTURES, dry_run=True)
    total = mine(palace, FIXTURES, embed=False)
    assert predicted(dry) == predicted(total)
    check_rows(palace)
    (sums,) = rows(
        palace,
        "SELECT SUM(records_read), SUM(records_stored), SUM(records_duplicate), SUM(records_damaged) FROM sources",
    )
    assert sums == (total.read, total.stored, total.duplicate, total.damaged)
    assert total.states["failed"] == 0


LINES = st.lists(
    st.sampled_from(
        [
            b'{"type":"user","uuid":"u1","sessionId":"s1","timestamp":"2026-02-03T09:00:00Z","cwd":"/w/a",'
            b'"message":{"role":"user","content":"one"}}',
            b'{"type":"assistant","uuid":"a1","parentUuid":"u1","sessionId":"s1","timestamp":"2026-02-03T09:00:01Z",'
            b'"message":{"id":"m","role":"assistant","content":[{"type":"text","text":"two"}]}}',
            b'{"type":"assistant","uuid":"a2","parentUuid":"a1","sessionId":"s1","timestamp":"2026-02-03T09:00:02Z",'
            b'"message":{"id":"m","role":"assistant","content":[{"type":"tool_use","id":"t","name":"Bash","input":{}}]}}',
            b'{"type":"user","uuid":"u2","parentUuid":"a2","sessionId":"s1","timestamp":"2026-02-03T09:00:03Z",'
            b'"message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"ok"}]}}',
            b'{"type":"user","uuid":"x","isSidechain":true,"sessionId":"s1","agentId":"9",'
            b'"message":{"role":"user","content":"go"}}',
            b'{"type":"file-history-snapshot","messageId":"m0","snapshot":{}}',
            b'{"type":"summary","summary":"t","leafUuid":"a1"}',
            b'{"type":"user","mess',
            b"\x00\x00\x00",
            b"[]",
            b"",
        ]
    ),
    max_size=12,
)


@given(LINES, st.booleans())
@settings(max_examples=40, deadline=None)
def test_the_ledger_adds_up_for_any_log(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], torn: bool
) -> None:
    folder = tmp_path_factory.mktemp("any")
    head = "\n".join(claude_lines(["hello", "there"])).encode()
    log = folder / "a.jsonl"
    log.write_bytes(head + b"\n" + b"\n".join(lines) + (b"" if torn else b"\n"))
    summary = miner.mine(folder / "palace", [log], Options(dry_run=True))
    check_sums(summary.to_dict())
    assert summary.states["failed"] == 0
    assert not (folder / "palace").exists()


def test_every_kind_of_file_has_its_place(tmp_path: Path) -> None:
    source = tmp_path / "in"
    write_claude(source / "good.jsonl", ["one", "two"])
    (source / "empty.jsonl").touch()
    (source / "blank.jsonl").write_text("\n \n")
    (source / "mystery.json").write_text('{"entries": [{"who": "x"}]}')
    (source / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00")
    write_script(source / "faulty.json", {"id": "f", "messages": [["user", "BOOM"]]})
    (source / "link.jsonl").symlink_to(source / "good.jsonl")
    (source / "loop").symlink_to(source)
    write_claude(source / "node_modules" / "x.jsonl", ["no", "no"])
    missing = tmp_path / "missing.jsonl"
    summary = mine(tmp_path / "palace", source, missing)
    assert states(summary) == {"new": 1, "empty": 2, "unrecognised": 2, "failed": 2, "ignored": 2}
    assert summary.is_partial
    told = {Path(problem.path).name: problem.kind for problem in summary.problems}
    assert told["missing.jsonl"] == told["faulty.json"] == "failed"
    assert told["mystery.json"] == "unrecognised"
    assert not find(tmp_path / "palace", '"entries"', include=("all",)).results


def test_a_file_is_mined_once_however_often_it_is_named(tmp_path: Path) -> None:
    log = write_claude(tmp_path / "in" / "a.jsonl", ["one", "two"])
    assert states(mine(tmp_path / "palace", tmp_path / "in", log, log)) == {"new": 1}


def test_the_palace_itself_is_not_mined(tmp_path: Path) -> None:
    write_claude(tmp_path / "a.jsonl", ["one", "two"])
    palace = tmp_path / "palace"
    assert states(mine(palace, tmp_path)) == {"new": 1}
    assert states(mine(palace, tmp_path)) == {"unchanged": 1}


def test_events_tell_what_was_found_and_done(tmp_path: Path) -> None:
    write_claude(tmp_path / "in" / "a.jsonl", ["one", "two"])
    (tmp_path / "in" / "b.json").write_text('{"x": 1}')
    events: list[Event] = []
    miner.mine(tmp_path / "palace", [tmp_path / "in"], on_event=events.append)
    kinds = Counter(event.kind for event in events)
    assert (kinds["found"], kinds["file"], kinds["problem"]) == (1, 2, 1)
    assert next(event for event in events if event.kind == "found").count == 2
    assert sum(event.count for event in events if event.kind == "embedded") == 1


def test_a_file_name_that_is_not_utf8_concerns_that_file_only(tmp_path: Path) -> None:
    write_claude(tmp_path / "in" / "z.jsonl", ["last", "words"])
    shutil.copy(tmp_path / "in" / "z.jsonl", os.fsencode(tmp_path / "in") + b"/\xff.jsonl")
    assert mine(tmp_path / "palace", tmp_path / "in").found == 2
    assert first(tmp_path / "palace", "last").session_id == "s1"


WALK = """
import sys
from pathlib import Path
from mempalace import discover
from mempalace.formats.registry import default
for found in discover.files([Path(path) for path in sys.argv[1:]], default()):
    print(found.path.name, found.error or "")
"""


@pytest.fixture
def walked(tmp_path: Path) -> Any:
    """What another user, for whom modes count, finds below some paths."""
    return lambda *paths: as_nobody(tmp_path, WALK, *map(str, paths))


def test_a_folder_that_cannot_be_read_is_told(tmp_path: Path, walked: Any) -> None:
    write_claude(tmp_path / "in" / "a.jsonl", ["one", "two"])
    write_claude(tmp_path / "in" / "closed" / "b.jsonl", ["one", "two"])
    (tmp_path / "in" / "closed").chmod(0)
    found = walked(tmp_path / "in")
    assert "closed cannot be read: Permission denied" in found
    assert "cannot be read" in walked(tmp_path / "in" / "closed")


def test_a_path_behind_a_closed_folder_is_told(tmp_path: Path, walked: Any) -> None:
    log = write_claude(tmp_path / "closed" / "b.jsonl", ["one", "two"])
    log.parent.chmod(0)
    assert "b.jsonl cannot be read" in walked(log)


# --- a second run -------------------------------------------------------------------------------------------

_opened: list[str] = []
_watched: list[str] = []


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _watched and str(arguments[0]).startswith(_watched[0]):
        _opened.append(str(arguments[0]))


def test_a_second_run_reads_no_file(tmp_path: Path) -> None:
    source = tmp_path / "in"
    write_claude(source / "a.jsonl", ["one", "two"])
    (source / "empty.jsonl").touch()
    (source / "note.json").write_text('{"entries": "x"}')
    sys.addaudithook(_watch)  # can never be taken off again: it looks only while something is watched
    _watched.append(str(source))
    try:
        mine(tmp_path / "palace", source)
        assert str(source / "a.jsonl") in _opened
        _opened.clear()
        before = contents(tmp_path / "palace")
        again = mine(tmp_path / "palace", source)
    finally:
        _watched.clear()
    assert _opened == []
    assert states(again) == {"unchanged": 3}
    assert (again.stored, again.chunks_new, again.vectors_new, again.is_partial) == (0, 0, 0, False)
    after = contents(tmp_path / "palace")
    assert {name for name in after if after[name] != before.get(name)} <= {"lock"}


def test_a_file_that_was_only_touched_is_unchanged(tmp_path: Path) -> None:
    log = write_claude(tmp_path / "in" / "a.jsonl", ["one", "two"])
    mine(tmp_path / "palace", log)
    os.utime(log, (1, 1))
    again = mine(tmp_path / "palace", log)
    assert (states(again), again.read) == ({"unchanged": 1}, 0)
    check_rows(tmp_path / "palace")


@pytest.mark.parametrize("same_time", [False, True], ids=["touched", "with its old time"])
def test_a_grown_file_adds_only_what_is_new(tmp_path: Path, same_time: bool) -> None:
    palace, log = tmp_path / "palace", tmp_path / "in" / "a.jsonl"
    write_claude(log, talk(10))
    mine(palace, log)
    times, before = log.stat(), uids(palace)
    write_claude(log, talk(13))
    if same_time:
        os.utime(log, ns=(times.st_atime_ns, times.st_mtime_ns))
    summary = mine(palace, log)
    assert states(summary) == {"grown": 1}
    assert (summary.read, summary.stored, summary.duplicate) == (13, 3, 10)
    assert (summary.sessions_new, summary.sessions_updated) == (0, 1)
    assert uids(palace)[: len(before) - 1] == before[:-1]
    assert summary.chunks_new <= len(uids(palace)) - len(before) + 1
    assert summary.vectors_new == summary.chunks_new
    assert restored(palace) == talk(13)
    for n in range(13):
        assert f"G-{n:02}" in first(palace, f"G-{n:02}").text
    check_rows(palace)


def test_a_torn_tail_is_taken_up_when_it_is_complete(tmp_path: Path) -> None:
    palace, log = tmp_path / "palace", tmp_path / "a.jsonl"
    one, two = (f"{line}\n".encode() for line in claude_lines(["KILN-1", "KILN-2"]))
    log.write_bytes(one + two[:60])
    torn = mine(palace, log)
    assert (torn.stored, dict(torn.skipped), torn.is_partial) == (1, {"incomplete_tail": 1}, False)
    log.write_bytes(one + two)
    whole = mine(palace, log)
    assert (whole.stored, whole.duplicate, dict(whole.skipped)) == (1, 1, {})
    assert restored(palace) == ["KILN-1", "KILN-2"]
    check_rows(palace)


def test_the_ledger_adds_up_when_the_last_message_grows(tmp_path: Path) -> None:
    palace, log = tmp_path / "palace", tmp_path / "a.jsonl"
    lines = (FIXTURES / "claude-code" / "merged-lines").glob("*.jsonl").__next__().read_bytes().splitlines(True)
    for count in range(2, len(lines) + 1):
        log.write_bytes(b"".join(lines[:count]))
        mine(palace, log, embed=False)
        check_rows(palace)


# --- copies, snapshots, rewrites ----------------------------------------------------------------------------


def test_a_renamed_copy_adds_nothing(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    log = write_claude(tmp_path / "in" / "a.jsonl", talk(4))
    mine(palace, tmp_path / "in")
    shutil.copy(log, log.with_name("b.jsonl"))
    copied = mine(palace, tmp_path / "in")
    assert (copied.stored, copied.duplicate, copied.chunks_new, copied.sessions_new) == (0, 4, 0, 0)
    assert rows(palace, "SELECT COUNT(*) FROM parts") == [(1,)]
    check_rows(palace)


def test_a_hit_names_the_file_that_is_there(tmp_path: Path) -> None:
    log = write_claude(tmp_path / "in" / "a.jsonl", ["renamed session", "yes"])
    mine(tmp_path / "palace", tmp_path / "in")
    log.rename(log.with_name("b.jsonl"))
    mine(tmp_path / "palace", tmp_path / "in")
    hit = first(tmp_path / "palace", "renamed session")
    assert (Path(hit.path).name, hit.source_gone) == ("b.jsonl", False)


@pytest.mark.parametrize("order", [(4, 7), (7, 4), (7, 4, 9, 2)], ids=["later", "earlier", "mixed"])
def test_snapshots_of_one_session_in_other_files_are_one_session(tmp_path: Path, order: tuple[int, ...]) -> None:
    palace = tmp_path / "palace"
    stored = []
    for place, count in enumerate(order):
        stored.append(mine(palace, write_claude(tmp_path / "in" / f"{place}.jsonl", talk(count))).stored)
    most = max(order)
    assert sum(stored) == most
    assert rows(palace, "SELECT key, messages FROM sessions") == [("s1", most)]
    assert restored(palace) == talk(most)
    assert len(rows(palace, "SELECT * FROM messages")) == most
    check_rows(palace)


def test_an_older_snapshot_that_lacks_nothing_changes_nothing(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    mine(palace, write_claude(tmp_path / "new.jsonl", talk(6)))
    before = (uids(palace), rows(palace, "SELECT title, messages, freshness FROM sessions"))
    summary = mine(palace, write_claude(tmp_path / "old.jsonl", talk(3)))
    assert (summary.stored, summary.duplicate, summary.sessions_updated) == (0, 3, 0)
    assert (uids(palace), rows(palace, "SELECT title, messages, freshness FROM sessions")) == before


def test_an_older_snapshot_adds_what_only_it_has(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    lines = claude_lines(["one", "two", "three ONLY-OLD", "four", "five", "six"])
    new, old = tmp_path / "new.jsonl", tmp_path / "old.jsonl"
    new.write_text("\n".join(lines[:2] + lines[4:]) + "\n")
    old.write_text("\n".join(lines[:4]) + "\n")
    mine(palace, new)
    summary = mine(palace, old)
    assert (summary.stored, summary.duplicate) == (2, 2)
    assert sorted(restored(palace)) == sorted(["one", "two", "three ONLY-OLD", "four", "five", "six"])
    assert "ONLY-OLD" in first(palace, "ONLY-OLD").text


def test_a_file_rewritten_with_fewer_messages_loses_nothing(tmp_path: Path) -> None:
    palace, log = tmp_path / "palace", tmp_path / "a.jsonl"
    write_claude(log, talk(8))
    mine(palace, log)
    lines = claude_lines(talk(8))
    log.write_text("\n".join([*lines[:2], *lines[6:]]) + "\n")
    summary = mine(palace, log)
    assert summary.stored == 0
    assert restored(palace) == talk(8)
    assert "G-04" in first(palace, "G-04").text
    assert rows(palace, "SELECT messages FROM sessions") == [(8,)]
    check_rows(palace)


def test_an_emptied_file_loses_nothing(tmp_path: Path) -> None:
    palace, log = tmp_path / "palace", write_claude(tmp_path / "a.jsonl", talk(3))
    mine(palace, log)
    log.write_bytes(b"")
    assert states(mine(palace, log)) == {"empty": 1}
    assert restored(palace) == talk(3)
    write_claude(log, talk(5))
    mine(palace, log)
    assert restored(palace) == talk(5)


def test_a_fork_with_copied_ids_adds_only_its_own(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    words = [f"F-{n:02} " + f"word{n} " * 110 for n in range(1, 13)]
    parent = claude_lines(words[:10], "s0")
    fork = [line.replace('"sessionId": "s0"', '"sessionId": "s1"') for line in claude_lines(words, "s0")]
    mine(palace, write_lines(tmp_path / "in" / "s0.jsonl", parent))
    summary = mine(palace, write_lines(tmp_path / "in" / "s1.jsonl", fork))
    assert (summary.stored, summary.duplicate, summary.sessions_new) == (2, 10, 1)
    assert summary.vectors_new <= 3
    assert restored(palace, "s1") == words
    hits = find(palace, "F-03").results
    assert [hit for hit in hits if "F-03" in hit.text] == hits[:1]
    assert {hits[0].session_id, *hits[0].copies} == {"s0", "s1"}


def write_lines(path: Path, lines: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_a_file_replaced_by_another_session_keeps_both(tmp_path: Path) -> None:
    palace, log = tmp_path / "palace", tmp_path / "a.jsonl"
    mine(palace, write_claude(log, ["first session", "one"], "s1"))
    summary = mine(palace, write_claude(log, ["second session", "two"], "s2"))
    assert (summary.stored, summary.sessions_new) == (2, 1)
    assert (restored(palace, "s1"), restored(palace, "s2")) == (["first session", "one"], ["second session", "two"])
    assert {hit.session_id for hit in find(palace, "session").results} == {"s1", "s2"}


def test_identical_beginnings_are_two_sessions(tmp_path: Path) -> None:
    palace, template = tmp_path / "palace", "follow these rules. " * 250
    for name in "AB":
        write_claude(tmp_path / "in" / f"{name}.jsonl", [f"{template} decision: KEEP-{name}", "ok"], name)
    mine(palace, tmp_path / "in")
    for name in "AB":
        assert first(palace, f"KEEP-{name}").session_id == name


def test_a_deleted_source_is_still_found_and_shown(tmp_path: Path) -> None:
    palace, log = tmp_path / "palace", write_claude(tmp_path / "in" / "a.jsonl", ["why KILN-OVERHEAT", "probe_f2c"])
    mine(palace, log.parent)
    assert first(palace, "KILN-OVERHEAT").source_gone is False
    log.unlink()
    assert mine(palace, log.parent).found == 0
    assert first(palace, "KILN-OVERHEAT").source_gone is True
    assert restored(palace) == ["why KILN-OVERHEAT", "probe_f2c"]
    assert states(mine(palace, log)) == {"failed": 1}
    assert restored(palace) == ["why KILN-OVERHEAT", "probe_f2c"]


VERSIONS = st.lists(
    st.lists(st.integers(0, 6), unique=True, min_size=1, max_size=7).map(sorted), min_size=2, max_size=4
)


@given(VERSIONS, st.booleans())
@settings(max_examples=12, deadline=None)
def test_nothing_is_lost_over_any_versions(
    tmp_path_factory: pytest.TempPathFactory, versions: list[list[int]], one_file: bool
) -> None:
    """Versions of one session (the numbers of its messages), in one file that is rewritten or in several."""
    folder = tmp_path_factory.mktemp("versions")
    stored = 0
    for place, numbers in enumerate(versions):
        messages = [["user", f"text {n}", f"m{n}", f"2026-02-03T09:00:{n:02}Z"] for n in numbers]
        log = write_script(folder / f"{0 if one_file else place}.json", {"id": "s1", "messages": messages})
        stored += mine(folder / "palace", log, embed=False).stored
    said = {f"text {n}" for numbers in versions for n in numbers}
    assert stored == len(said)
    assert sorted(restored(folder / "palace")) == sorted(said)
    joined = "".join(texts(folder / "palace"))
    assert all(joined.count(words) == 1 for words in said)
    assert rows(folder / "palace", "SELECT messages FROM sessions") == [(len(said),)]


# --- versions of the readers --------------------------------------------------------------------------------


def test_a_newer_reader_reads_again_and_stores_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    palace, log = tmp_path / "palace", write_claude(tmp_path / "a.jsonl", talk(4))
    (tmp_path / "x.json").write_text('{"x": 1}')
    mine(palace, log, tmp_path / "x.json")
    before = uids(palace)
    monkeypatch.setattr(miner, "READER_VERSION", miner.READER_VERSION + 1)
    again = mine(palace, log, tmp_path / "x.json")
    assert (again.read, again.stored, again.duplicate, again.chunks_new, again.vectors_new) == (4, 0, 4, 0, 0)
    assert again.states["unrecognised"] == 1
    assert uids(palace) == before
    check_rows(palace)
    assert states(mine(palace, log)) == {"unchanged": 1}


def test_a_new_format_is_tried_on_what_nobody_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    palace = tmp_path / "palace"
    log = write_script(tmp_path / "a.json", {"id": "x", "messages": [["user", "claimed at last"]]})
    monkeypatch.setattr(registry, "_default", None)
    assert states(mine(palace, log)) == {"unrecognised": 1}
    monkeypatch.setattr(registry, "_default", with_script())
    assert states(mine(palace, log)) == {"new": 1}


def test_a_message_that_moved_has_its_new_line(tmp_path: Path) -> None:
    palace, log = tmp_path / "palace", tmp_path / "a.jsonl"
    lines = claude_lines(["hello deep world", "yes"])
    mine(palace, write_lines(log, lines))
    mine(palace, write_lines(log, ['{"type": "summary", "summary": "t", "leafUuid": "s1-1"}', *lines]))
    assert first(palace, "hello deep world").line == 2


# --- options ------------------------------------------------------------------------------------------------


def test_a_wing_labels_the_sessions(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    mine(palace, write_claude(tmp_path / "a.jsonl", ["glaze recipe", "cobalt"], "s1"), wing="pottery")
    mine(palace, write_claude(tmp_path / "b.jsonl", ["glaze window", "pane"], "s2"))
    assert {hit.session_id for hit in find(palace, "glaze", wing="pottery").results} == {"s1"}
    assert {hit.session_id for hit in find(palace, "glaze", wing="kiln-ctl").results} == {"s2"}
    assert rows(palace, "SELECT COALESCE(wing, project_name) FROM sessions ORDER BY key") == [
        ("pottery",),
        ("kiln-ctl",),
    ]


def test_a_wing_stays_when_the_session_grows(tmp_path: Path) -> None:
    palace, log = tmp_path / "palace", tmp_path / "a.jsonl"
    mine(palace, write_claude(log, talk(2)), wing="pottery")
    mine(palace, write_claude(log, talk(4)))
    assert rows(palace, "SELECT wing FROM sessions") == [("pottery",)]
    assert find(palace, "G-00", wing="pottery").results


def test_a_new_wing_holds_for_the_whole_session(tmp_path: Path) -> None:
    palace, log = tmp_path / "palace", tmp_path / "a.jsonl"
    mine(palace, write_claude(log, talk(4)))
    mine(palace, write_claude(log, talk(6)), wing="pottery")
    assert "G-00" in first(palace, "G-00", wing="pottery", lexical_only=True).text


def test_a_file_beyond_the_limit_is_excluded_and_told(tmp_path: Path) -> None:
    palace, log = tmp_path / "palace", write_claude(tmp_path / "a.jsonl", talk(4))
    summary = mine(palace, log, max_size=100)
    assert (states(summary), summary.is_partial) == ({"excluded": 1}, True)
    (problem,) = summary.problems
    assert problem.path == str(log)
    assert str(log.stat().st_size) in problem.message
    assert "100" in problem.message
    assert states(mine(palace, log, max_size=100)) == {"excluded": 1}


@pytest.mark.parametrize("grown", [False, True], ids=["new", "grown"])
def test_a_file_is_mined_once_the_limit_is_lifted(tmp_path: Path, grown: bool) -> None:
    palace, log = tmp_path / "palace", tmp_path / "a.jsonl"
    if grown:
        mine(palace, write_claude(log, ["one", "two"]))
    mine(palace, write_claude(log, ["one", "two", *talk(4, 2)]), max_size=1000)
    mine(palace, log)
    assert rows(palace, "SELECT messages FROM sessions") == [(6,)]


def test_without_vectors_words_are_found_and_the_queue_is_kept(tmp_path: Path) -> None:
    palace, log = tmp_path / "palace", write_claude(tmp_path / "a.jsonl", talk(2))
    summary = mine(palace, log, embed=False)
    assert (summary.vectors_new, summary.vectors_queued) == (0, summary.chunks_new)
    assert find(palace, "G-01").indexes == ["lexical"]
    later = mine(palace, log)
    assert (later.vectors_new, later.vectors_queued) == (summary.chunks_new, 0)


def test_a_foreign_folder_is_left_as_it_was(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    palace.mkdir()
    (palace / "thesis.docx").write_bytes(b"mine")
    log = write_claude(tmp_path / "a.jsonl", ["one", "two"])
    for dry_run in (True, False):
        with pytest.raises(ForeignFolder):
            mine(palace, log, dry_run=dry_run)
    assert contents(palace) == {"thesis.docx": b"mine"}


def test_a_second_writer_is_refused_before_it_reads(tmp_path: Path) -> None:
    palace, log = tmp_path / "palace", write_claude(tmp_path / "a.jsonl", ["one", "two"])
    mine(palace, log)
    write_claude(log, ["one", "two", "three"])
    with lock.writing(palace), pytest.raises(PalaceLocked, match=str(os.getpid())):
        mine(palace, log)
    assert rows(palace, "SELECT messages FROM sessions") == [(2,)]
    assert mine(palace, log, dry_run=True).stored == 1


# --- dry run ------------------------------------------------------------------------------------------------


def predicted(summary: Summary) -> dict[str, Any]:
    """What a dry run must know in advance."""
    data = summary.to_dict()
    del data["seconds"], data["vectors"]
    return data


def _first_logs(source: Path) -> None:
    write_claude(source / "grows.jsonl", talk(4), "grows")
    write_claude(source / "same.jsonl", ["nothing", "changes"], "same")
    write_claude(source / "rewritten.jsonl", talk(5), "rewritten")
    write_claude(source / "swapped.jsonl", ["out", "going"], "out")
    (source / "unknown.json").write_text('{"x": 1}')


def _later_logs(source: Path) -> None:
    write_claude(source / "grows.jsonl", talk(6), "grows")
    lines = claude_lines(talk(7), "rewritten")
    write_lines(source / "rewritten.jsonl", lines[:1] + lines[3:])
    write_claude(source / "swapped.jsonl", ["in", "coming"], "in")
    write_claude(source / "copy.jsonl", talk(6), "grows")
    write_claude(source / "older.jsonl", talk(2), "same")
    (source / "torn.jsonl").write_text(claude_lines(["torn", "tail"], "torn")[0] + '\n{"type": "assi')
    write_script(source / "faulty.json", {"id": "f", "messages": [["user", "hi"], ["user", "BOOM"]]})
    (source / "empty.jsonl").touch()


def test_a_dry_run_predicts_the_run_and_makes_no_folder(tmp_path: Path) -> None:
    palace, source = tmp_path / "no" / "palace", tmp_path / "in"
    _first_logs(source)
    dry = mine(palace, source, dry_run=True)
    assert not (tmp_path / "no").exists()
    assert predicted(dry) == predicted(mine(palace, source))


def test_a_dry_run_predicts_a_later_run_and_writes_nothing(tmp_path: Path) -> None:
    palace, source = tmp_path / "palace", tmp_path / "in"
    _first_logs(source)
    mine(palace, source)
    _later_logs(source)
    before = contents(palace)
    dry = mine(palace, source, dry_run=True)
    after = contents(palace)
    # SQLite makes these two for any reader of a catalog that others may write to; they hold nothing.
    assert {name for name in after.keys() - before.keys() if not name.endswith(("-shm", "-wal"))} == set()
    assert not after.get("catalog.sqlite3-wal")
    assert {name: after[name] for name in before} == before
    assert predicted(dry) == predicted(mine(palace, source))


def test_a_dry_run_predicts_the_merging_of_two_new_snapshots(tmp_path: Path) -> None:
    palace, source = tmp_path / "palace", tmp_path / "in"
    mine(palace, write_claude(tmp_path / "other.jsonl", ["some", "other"], "s0"))
    lines = claude_lines(talk(4))
    write_lines(source / "a.jsonl", lines[:3])
    write_lines(source / "b.jsonl", [lines[0], lines[3]])
    dry = mine(palace, source, dry_run=True)
    assert predicted(dry) == predicted(mine(palace, source))


def test_a_dry_run_predicts_a_run_into_an_empty_folder(tmp_path: Path) -> None:
    palace, log = tmp_path / "palace", write_claude(tmp_path / "a.jsonl", ["one", "two"])
    palace.mkdir()
    dry = mine(palace, log, dry_run=True)
    assert list(palace.iterdir()) == []
    assert predicted(dry) == predicted(mine(palace, log))


# --- faulty readers, odd sessions ---------------------------------------------------------------------------


def test_a_reader_that_fails_half_way_leaves_nothing_half_filed(tmp_path: Path) -> None:
    palace, source = tmp_path / "palace", tmp_path / "in"
    write_claude(source / "a.jsonl", ["before it", "ok"], "a")
    faulty = [{"id": "f1", "messages": [["user", "half filed"]]}, {"id": "f2", "messages": [["user", "BOOM"]]}]
    write_script(source / "b.json", *faulty)
    write_claude(source / "c.jsonl", ["behind it", "ok"], "c")
    summary = mine(palace, source)
    assert states(summary) == {"new": 2, "failed": 1}
    assert (summary.read, summary.sessions_new) == (4, 2)
    (problem,) = summary.problems
    assert (Path(problem.path).name, problem.kind) == ("b.json", "failed")
    assert "RuntimeError: boom" in problem.message
    assert rows(palace, "SELECT key FROM sessions ORDER BY key") == [("a",), ("c",)]
    assert rows(palace, "SELECT COUNT(*) FROM session_sources") == rows(palace, "SELECT COUNT(*) FROM parts") == [(2,)]
    assert {hit.session_id for hit in find(palace, "it").results} == {"a", "c"}
    assert states(mine(palace, source)) == {"unchanged": 2, "failed": 1}
    write_script(source / "b.json", faulty[0])
    assert states(mine(palace, source)) == {"unchanged": 2, "new": 1}


def test_a_reader_that_fails_on_a_known_file_harms_nothing_stored(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    log = write_script(tmp_path / "a.json", {"id": "s1", "messages": [["user", "kept"]]})
    mine(palace, log)
    write_script(log, {"id": "s1", "messages": [["user", "kept"], ["user", "BOOM"]]})
    assert states(mine(palace, log)) == {"failed": 1}
    assert restored(palace) == ["kept"]
    write_script(log, {"id": "s1", "messages": [["user", "kept"], ["user", "mended"]]})
    mine(palace, log)
    assert restored(palace) == ["kept", "mended"]


def test_sessions_of_one_message_are_kept(tmp_path: Path) -> None:
    summary = mine(tmp_path / "palace", write_claude(tmp_path / "a.jsonl", ["lonely question"]))
    assert (summary.sessions_new, summary.stored) == (1, 1)
    assert first(tmp_path / "palace", "lonely question").session_id == "s1"


def test_a_file_without_messages_is_empty(tmp_path: Path) -> None:
    log = write_script(tmp_path / "a.json", {"id": "s1", "messages": []})
    assert states(mine(tmp_path / "palace", log)) == {"empty": 1}
    assert states(mine(tmp_path / "palace", log)) == {"unchanged": 1}


def test_two_sessions_in_one_file_are_two(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    one = {"id": "s1", "messages": [["user", "apples", "a1"], ["assistant", "red", "a2"]]}
    two = {"id": "s2", "messages": [["user", "pears", "b1"], ["assistant", "green", "b2"]]}
    log = write_script(tmp_path / "a.json", one, two)
    summary = mine(palace, log)
    assert (summary.sessions_new, summary.stored) == (2, 4)
    assert (restored(palace, "s1"), restored(palace, "s2")) == (["apples", "red"], ["pears", "green"])
    two["messages"].append(["user", "plums", "b3"])
    grown = mine(palace, write_script(log, one, two))
    assert (grown.stored, grown.sessions_new, grown.sessions_updated) == (1, 0, 1)
    assert restored(palace, "s2") == ["pears", "green", "plums"]


def test_one_session_in_two_parts_of_a_file_is_whole(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    one = {"id": "s1", "messages": [["user", "apples", "a1"], ["assistant", "red", "a2"]]}
    two = {"id": "s1", "messages": [["user", "pears", "b1"], ["assistant", "green", "b2"]]}
    mine(palace, write_script(tmp_path / "a.json", one, two))
    assert sorted(restored(palace)) == ["apples", "green", "pears", "red"]
    assert find(palace, "apples").results


def test_a_session_without_an_id_is_known_by_its_content(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    said = [["user", "nameless talk"], ["assistant", "yes"]]
    log = write_script(tmp_path / "a.json", {"messages": said})
    mine(palace, log)
    copy = mine(palace, write_script(tmp_path / "b.json", {"messages": said}))
    assert (copy.stored, copy.duplicate, copy.sessions_new) == (0, 2, 0)
    grown = mine(palace, write_script(log, {"messages": [*said, ["user", "more of it"]]}))
    assert (grown.stored, grown.sessions_new, grown.sessions_updated) == (1, 0, 1)
    assert rows(palace, "SELECT messages FROM sessions") == [(3,)]


ALIKE = [
    {"messages": [["user", "hi"], ["assistant", "first ALPHA"]]},
    {"messages": [["user", "hi"], ["assistant", "second BETA"]]},
]


def test_nameless_sessions_of_one_file_that_begin_alike_are_two(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    assert mine(palace, write_script(tmp_path / "a.json", *ALIKE)).sessions_new == 2
    assert "ALPHA" in first(palace, "ALPHA").text
    assert "BETA" in first(palace, "BETA").text


def test_nameless_sessions_of_one_file_are_restored_each(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    said = [{"messages": [["user", f"talk {n}"], ["assistant", f"answer {n}"]]} for n in range(3)]
    mine(palace, write_script(tmp_path / "a.json", *said))
    keys = [key for (key,) in rows(palace, "SELECT key FROM sessions ORDER BY id")]
    assert [restored(palace, key) for key in keys] == [[f"talk {n}", f"answer {n}"] for n in range(3)]


def test_messages_numbered_in_each_session_are_no_duplicates(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    for name, fruit in (("x", "apples"), ("y", "pears")):
        write_script(tmp_path / "in" / f"{name}.json", {"id": name, "messages": [["user", fruit, "1"]]})
    summary = mine(palace, tmp_path / "in")
    assert (summary.stored, summary.duplicate) == (2, 0)


def test_subagents_are_sessions_of_their_own_below_their_parent(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    write_claude(tmp_path / "in" / "p.jsonl", ["PARENT-1", "ok"], "p")
    for n in (1, 2):
        lines = claude_lines([f"CHILD-{n}", "done"], f"c{n}", isSidechain=True, agentId=str(n))
        own = [line.replace(f'"sessionId": "c{n}"', '"sessionId": "p"') for line in lines]
        write_lines(tmp_path / "in" / "p" / "subagents" / f"agent-{n}.jsonl", own)
    mine(palace, tmp_path / "in")
    assert rows(palace, "SELECT key, parent_key, kind FROM sessions ORDER BY key") == [
        ("p", None, "main"),
        ("p/1", "p", "subagent"),
        ("p/2", "p", "subagent"),
    ]
    assert not [hit for hit in find(palace, "CHILD-1").results if "CHILD-1" in hit.text]
    assert first(palace, "CHILD-1", include=("subagent",)).session_id == "p/1"


def test_many_snapshots_of_a_session_with_a_reader_that_fails_between(tmp_path: Path) -> None:
    palace, logs, every = tmp_path / "palace", tmp_path / "in", []
    for n in range(8):
        own = [["user", f"own {n} {k}", f"m{n}-{k}", f"2026-01-05T08:{n:02}:{k:02}Z"] for k in range(3)]
        messages: list[list[str]] = [["user", "common", "m", "2026-01-05T07:00:00Z"], *own]
        broken = {"id": "s2", "messages": [["user", "BOOM"]]}
        write_script(logs / f"{n}.json", {"id": "s1", "messages": messages}, *([broken] if n == 4 else []))
        every += [] if n == 4 else [text for _, text, *_ in own]
    options = miner.Options(embed=False)
    summary = miner.mine(palace, [logs], options, registry=with_script())
    assert (states(summary), summary.stored) == ({"new": 7, "failed": 1}, 22)
    with Catalog.open(palace) as catalog:
        whole = restore.session(catalog, with_script(), 1)
    assert [message.text for message in whole.messages] == ["common", *every]
    assert stored_text(palace, "s1") == "\n\n".join(f"> {text}" for text in ["common", *every])


def test_a_file_that_became_another_sessions_takes_nothing_from_the_first(tmp_path: Path) -> None:
    """A log whose name is no session's id is the last record's: the first session is read by its messages."""
    palace, log = tmp_path / "palace", tmp_path / "backup.jsonl"
    first_six, more = claude_lines(talk(6), "b"), claude_lines(["A-1 hello", "A-2 yes"], "a", first=6)
    mine(palace, write_lines(log, first_six))
    mine(palace, write_lines(log, [*first_six, *more]))
    assert restored(palace, "b") == talk(6)
    assert restored(palace, "a") == [*talk(6), "A-1 hello", "A-2 yes"]
    later = claude_lines(talk(9), "b")
    mine(palace, write_lines(tmp_path / "other.jsonl", later[4:]))
    assert restored(palace, "b") == talk(9)
    assert rows(palace, "SELECT messages FROM sessions WHERE key = 'b'") == [(9,)]
    check_rows(palace)


def test_a_session_whose_archive_is_gone_is_not_cut_down_in_silence(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    mine(palace, write_claude(tmp_path / "a.jsonl", talk(6)))
    with sqlite3.connect(palace / "catalog.sqlite3") as catalog:
        catalog.execute("DELETE FROM source_parts")
    catalog.close()
    summary = mine(palace, write_lines(tmp_path / "b.jsonl", claude_lines(talk(9))[4:]))
    assert states(summary) == {"failed": 1}
    assert "no reading of session s1" in summary.problems[0].message
    assert rows(palace, "SELECT messages FROM sessions") == [(6,)]


def test_a_source_that_was_excluded_or_failed_once_is_itself_again(tmp_path: Path) -> None:
    palace, log = tmp_path / "palace", write_claude(tmp_path / "a.jsonl", talk(4))
    with log.open("a") as stream:
        stream.write("{damaged\n")
    mine(palace, log)
    assert states(mine(palace, log, max_size=10)) == {"excluded": 1}
    again = mine(palace, log)
    assert (states(again), again.read, again.stored, again.duplicate) == ({"unchanged": 1}, 5, 0, 4)
    ((state, stored, problems),) = rows(palace, "SELECT state, records_stored, problems FROM sources")
    assert (state, stored) == ("read", 4)
    assert "damaged" in problems
    assert "excluded" not in problems
    last = mine(palace, log)
    assert (states(last), last.read) == ({"unchanged": 1}, 0)


def test_a_member_that_came_back_is_no_longer_gone(tmp_path: Path) -> None:
    palace, export = tmp_path / "palace", tmp_path / "x.zip"
    logs = {f"{name}.jsonl": "".join(f"{line}\n" for line in claude_lines(talk(2), name)) for name in ("s1", "s2")}
    for names in (["s1", "s2"], ["s1"], ["s1", "s2"]):
        mine(palace, write_zip(export, {f"{name}.jsonl": logs[f"{name}.jsonl"] for name in names}))
    assert rows(palace, "SELECT member, state FROM sources WHERE member <> '' ORDER BY member") == [
        ("s1.jsonl", "read"),
        ("s2.jsonl", "read"),
    ]


def test_a_log_that_got_shorter_has_not_grown(tmp_path: Path) -> None:
    palace, log = tmp_path / "palace", tmp_path / "a.jsonl"
    mine(palace, write_claude(log, talk(10)))
    summary = mine(palace, write_claude(log, talk(4)))
    assert (states(summary), summary.duplicate) == ({"unchanged": 1}, 4)
    assert states(mine(palace, write_claude(log, talk(12)))) == {"grown": 1}
    assert states(mine(palace, write_claude(tmp_path / "copy.jsonl", talk(4)))) == {"new": 1}
