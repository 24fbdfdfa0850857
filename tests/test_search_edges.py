"""What hides a conversation, or shows a wrong one: copies, exclusions, borders of time, others who write meanwhile."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from logs import claude_lines, find, first, holders, mine, rows, write_claude
from test_exports import chatgpt

import mempalace
from mempalace import scoring, search
from mempalace.errors import NoPalace, PalaceDamaged, UsageError
from mempalace.palace.catalog import Catalog
from mempalace.palace.vectors import VectorTable
from mempalace.query import SearchResults

ROOT = Path(__file__).parents[1]
MINE = "import sys, mempalace; mempalace.Palace(sys.argv[1]).mine(sys.argv[2:])"


def sessions(results: SearchResults) -> list[str]:
    return [hit.session_id for hit in results.results]


def mine_elsewhere(palace: Path, *paths: Path) -> None:
    """Mine in another process."""
    subprocess.run([sys.executable, "-c", MINE, str(palace), *map(str, paths)], check=True, cwd=ROOT)


# --- exclusions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lexical_only", [False, True])
@pytest.mark.parametrize(
    ("query", "keeps"),
    [
        ("login form -user", True),  # the index has the speaker's name before what was said
        ("login form -assistant", True),
        ("login form -2026", True),  # and the date
        ("login form -flicker", True),  # another word than "flickers"
        ("login form -flickers", False),
        ("login form -FLICKERS", False),
        ("login form -resize", False),
        ('login form -"on resize"', False),
        ("login form -size", True),  # a part of a word
        ("login form -кот", True),
        ("login form -который", False),
        ("login form -数据", False),  # no spaces between words there
        ("login form -handler", False),
    ],
)
def test_an_excluded_word_is_one_that_was_said(
    palace: Path, logs: Path, query: str, keeps: bool, lexical_only: bool
) -> None:
    said = ["The login form flickers on resize, который 数据库", "Debounce the resize handler."]
    write_claude(logs / "a.jsonl", said, "forms")
    mine(palace, logs)
    assert sessions(find(palace, query, lexical_only=lexical_only)) == ["forms"] * keeps


def test_with_a_role_only_its_own_words_exclude(palace: Path, logs: Path) -> None:
    write_claude(logs / "a.jsonl", ["Open the quokka report", "Opened the quokka report in docker."], "q")
    mine(palace, logs)
    assert sessions(find(palace, "quokka -docker", role="user")) == ["q"]
    assert sessions(find(palace, "quokka -docker", role="assistant")) == []


def test_what_is_excluded_is_not_told_as_hidden(palace: Path, logs: Path) -> None:
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "make"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "quokka broke in the handler"}
    lines = claude_lines(["build it", "done"])
    for role, block in (("assistant", call), ("user", result)):
        record = json.loads(lines[0])
        record |= {"type": role, "uuid": role, "message": {"role": role, "content": [block]}}
        lines.append(json.dumps(record))
    (logs / "a.jsonl").write_text("\n".join(lines))
    mine(palace, logs)
    assert find(palace, "quokka").hidden == {"tool": 1}
    assert find(palace, '"quokka broke"').hidden == {"tool": 1}
    assert find(palace, "quokka -handler").hidden == {}
    assert find(palace, '"broke quokka"').hidden == {}


# --- literal ------------------------------------------------------------------------------------------------


def test_marks_at_line_starts_are_left_out_of_a_persons_words_only(palace: Path, logs: Path) -> None:
    write_claude(logs / "a.jsonl", ["build it", "> shop build\n> vite build now"], "theirs")
    write_claude(logs / "b.jsonl", ["wombat one\nwombat two", "ok"], "own")
    mine(palace, logs)
    assert [hit.session_id for hit in holders(palace, "> vite build")] == ["theirs"]
    assert [hit.session_id for hit in holders(palace, "build > vite")] == ["theirs"]
    assert holders(palace, "build vite build") == []
    assert [hit.session_id for hit in holders(palace, "wombat one wombat two")] == ["own"]


@pytest.mark.parametrize("query", ["caf\u00e9 wildebeest", "cafe\u0301 wildebeest"])
@pytest.mark.parametrize("said", ["caf\u00e9 wildebeest", "cafe\u0301 wildebeest"])
def test_accents_are_the_same_however_they_are_composed(palace: Path, logs: Path, said: str, query: str) -> None:
    write_claude(logs / "a.jsonl", [f"at the {said} again", "ok"], "zoo")
    mine(palace, logs)
    assert [hit.session_id for hit in holders(palace, query)] == ["zoo"]


@pytest.mark.parametrize("query", ['"->"', '"  "', '"…" "!"'])
def test_a_phrase_of_signs_alone_is_refused(palace: Path, logs: Path, query: str) -> None:
    write_claude(logs / "a.jsonl", ["a -> b", "ok"])
    mine(palace, logs)
    with pytest.raises(UsageError, match="letter or a digit"):
        find(palace, query)
    assert len(find(palace, f"{query} b").results) == (query != '"…" "!"')


# --- copies -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A palace of 1,500 conversations of the same words, and twelve that have these words among others."""
    folder = tmp_path_factory.mktemp("copies")
    talks = [chatgpt(f"copy-{number:04}", ["deploy failed again"]) for number in range(1_500)]
    talks += [
        chatgpt(f"own-{number:02}", [f"I saw: the deploy failed again for reason {number}"]) for number in range(12)
    ]
    (folder / "conversations.json").write_text(json.dumps(talks))
    mine(folder / "palace", folder / "conversations.json")
    return folder / "palace"


@pytest.mark.parametrize("query", ["deploy failed again", '"deploy failed again"', "why does deployment fail"])
@pytest.mark.parametrize("filters", [{}, {"lexical_only": True}, {"tool": "chatgpt"}])
def test_any_number_of_copies_hides_nothing(
    copies: Path, query: str, filters: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_MOST_CANDIDATES", 300)  # far fewer than there are copies
    told = find(copies, query, 20, **filters)
    assert len(set(told.indexes)) == len(told.indexes)
    found = told.results
    assert {hit.session_id for hit in found} >= {f"own-{number:02}" for number in range(12)}
    assert [len(hit.copies) for hit in found if hit.copies] == [1_499]
    assert len(found) == 13


def test_a_limit_beyond_all_candidates_gives_all(copies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_MOST_CANDIDATES", 5)
    assert len(find(copies, "deploy failed again", 2_000, per_session=None).results) == 13


# --- time and other filters -----------------------------------------------------------------------------------


def at(lines: list[str], *days: int) -> str:
    """Lines of a log, each on a day of March."""
    dated = [
        json.loads(line) | {"timestamp": f"2026-03-{day:02}T10:00:00Z"} for line, day in zip(lines, days, strict=True)
    ]
    return "".join(f"{json.dumps(record)}\n" for record in dated)


def day(number: int) -> datetime:
    return datetime(2026, 3, 1, tzinfo=UTC) + timedelta(days=number - 1)


def test_only_what_was_said_in_the_span_of_time_is_found(palace: Path, logs: Path) -> None:
    said = ["the login form flickers", "Debounce the handler.", "zebra migration is next", "It waits."]
    (logs / "a.jsonl").write_text(at(claude_lines(said), 1, 1, 9, 9))
    mine(palace, logs)
    assert rows(palace, "SELECT COUNT(*) FROM chunks") == [(1,)], "all of it is one chunk"
    for lexical_only in (False, True):
        options: dict[str, Any] = {"lexical_only": lexical_only}
        assert find(palace, '"login form"', since=day(5), **options).results == []
        assert find(palace, '"zebra migration"', until=day(5), **options).results == []
        assert first(palace, "zebra migration", since=day(5), **options).timestamp == "2026-03-09T10:00:00Z"
        assert first(palace, "login form", until=day(5), **options).timestamp == "2026-03-01T10:00:00Z"
        assert first(palace, "login form", since=day(1), until=day(10), **options).line == 1
        assert find(palace, "login form", since=day(2), until=day(9), **options).results == []


def test_a_project_may_end_with_a_slash(palace: Path, logs: Path) -> None:
    write_claude(logs / "a.jsonl", ["zebra", "ok"], cwd="/home/ana/shop")
    mine(palace, logs)
    for name in ("/home/ana/shop", "/home/ana/shop/", "shop", "shop/"):
        assert len(find(palace, "zebra", project=name).results) == 1


def test_include_all_is_to_include_each(palace: Path, logs: Path) -> None:
    every = ["tool", "thinking", "injected", "abandoned", "subagent", "headless"]
    mine(palace, ROOT / "tests" / "fixtures")
    for query in ("npm install dependencies", "the test failed"):
        one, other = find(palace, query, include=["all"]), find(palace, query, include=every)
        assert [(hit.chunk_id, hit.score) for hit in one.results] == [
            (hit.chunk_id, hit.score) for hit in other.results
        ]


@pytest.mark.parametrize(
    "options", [{"role": "bot"}, {"role": "User"}, {"since": "2026-01-01"}, {"until": 5}, {"include": "nothing"}]
)
def test_a_filter_of_the_wrong_kind_is_told(palace: Path, logs: Path, options: dict[str, Any]) -> None:
    write_claude(logs / "a.jsonl", ["zebra", "ok"])
    mine(palace, logs)
    with pytest.raises(UsageError):
        find(palace, "zebra", **options)


def test_filters_that_are_no_text_and_limits_of_any_size(palace: Path, logs: Path) -> None:
    write_claude(logs / "a.jsonl", ["zebra", "ok"])
    mine(palace, logs)
    assert find(palace, "zebra", project="caf\udce9", wing="\udce9").results == []
    assert len(find(palace, "zebra", sys.maxsize, include="tool").results) == 1


# --- while others write -------------------------------------------------------------------------------------


def test_a_palace_that_was_replaced_or_removed_is_not_answered_from(palace: Path, logs: Path) -> None:
    write_claude(logs / "a.jsonl", ["the quokka", "ok"], "old")
    write_claude(logs / "b.jsonl", ["the wombat", "ok"], "new")
    mine(palace, logs / "a.jsonl")
    with mempalace.Palace(palace) as opened:
        assert sessions(opened.search("quokka")) == ["old"]
        shutil.rmtree(palace)
        with pytest.raises(NoPalace):
            opened.search("quokka")
        mine_elsewhere(palace, logs / "b.jsonl")
        assert sessions(opened.search("wombat")) == ["new"]
        assert opened.search('"quokka"').results == []


@pytest.mark.parametrize("moment", ["_add_cosines", "_add_late", "_rerank"])
def test_a_mine_in_the_middle_of_a_search_changes_nothing_of_it(
    palace: Path, logs: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    log = write_claude(logs / "a.jsonl", ["the quokka sleeps", "so it does"], "q")
    mine(palace, log)
    whole = getattr(scoring.Scorer, moment)
    grown: list[bool] = []

    def meanwhile(*arguments: Any) -> Any:
        if not grown:
            grown.append(True)
            write_claude(log, ["the quokka sleeps", "so it does", "the quokka wakes", "indeed"], "q")
            mine_elsewhere(palace, log)
        return whole(*arguments)

    monkeypatch.setattr(scoring.Scorer, moment, meanwhile)
    with mempalace.Palace(palace) as opened:
        assert "wakes" not in opened.search("where does the quokka sleep").results[0].text
        assert "wakes" in opened.search("where does the quokka sleep").results[0].text
    assert grown


def test_threads_get_their_own_answers(palace: Path, logs: Path) -> None:
    words = ["kiln", "loom", "glaze", "quokka", "wombat", "zebra"]
    for word in words:
        write_claude(logs / f"{word}.jsonl", [f"how is the {word} today", f"the {word} is well"], word)
    mine(palace, logs)
    wrong: list[str] = []
    with mempalace.Palace(palace) as opened:
        expected = {word: opened.search(f"how is the {word}").to_dict() for word in words}

        def ask(word: str) -> None:
            for _ in range(15):
                if opened.search(f"how is the {word}").to_dict() != expected[word]:
                    wrong.append(word)

        threads = [threading.Thread(target=ask, args=(word,)) for word in words]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_scores_of_two_threads_are_not_mixed() -> None:
    chance = np.random.default_rng(1)
    table = VectorTable(
        np.arange(50), np.ones(50, dtype=np.float32), chance.integers(-127, 127, (50, 8)).astype(np.int8)
    )
    queries = [chance.normal(size=8).astype(np.float32) for _ in range(2)]
    expected = [table.scores(query).copy() for query in queries]
    wrong: list[int] = []

    def ask(number: int) -> None:
        for _ in range(3_000):
            if not np.allclose(table.scores(queries[number]), expected[number], atol=1e-5):
                wrong.append(number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_mine_leaves_nothing_in_the_log_of_the_catalog_beside_an_idle_reader(palace: Path, logs: Path) -> None:
    write_claude(logs / "a.jsonl", ["the quokka", "ok"], "old")
    mine(palace, logs)
    with mempalace.Palace(palace) as opened:
        assert opened.search("quokka").results
        write_claude(logs / "b.jsonl", ["the wombat", "ok"], "new")
        mine_elsewhere(palace, logs)
        log = palace / "catalog.sqlite3-wal"
        assert not log.exists() or log.stat().st_size == 0
        assert sessions(opened.search('"wombat"')) == ["new"]


@contextmanager
def as_read_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """SQLite as on a disk that cannot be written: it cannot make what it needs to read a log."""
    import sqlite3

    connect = sqlite3.connect

    def refusing(place: str, **options: Any) -> Any:
        if place.endswith("catalog.sqlite3?mode=ro"):
            raise sqlite3.OperationalError("unable to open database file")
        return connect(place, **options)

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", refusing)
        yield


def test_on_a_read_only_disk_what_still_stands_in_the_log_is_read(
    palace: Path, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_claude(logs / "a.jsonl", ["the quokka", "ok"], "old")
    mine(palace, logs)
    with Catalog.open_for_writing(palace) as writing:
        with writing.transaction():
            writing.set("generation", 1_000)
        shutil.copytree(palace, tmp_path / "copy")
    assert (tmp_path / "copy" / "catalog.sqlite3-wal").stat().st_size > 0
    with as_read_only(monkeypatch):
        for copied in (palace, tmp_path / "copy"):
            with Catalog.open(copied) as catalog:
                assert catalog.generation == 1_000
        assert sessions(find(tmp_path / "copy", "quokka")) == ["old"]


# --- damage -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".term", ".idx", ".pos", ".fast"])
def test_a_damaged_part_of_the_lexical_index_is_named(palace: Path, logs: Path, suffix: str) -> None:
    write_claude(logs / "a.jsonl", [f"quokka number {n} sleeps" for n in range(40)])
    mine(palace, logs)
    for part in (palace / "lexical").glob(f"*{suffix}"):
        data = bytearray(part.read_bytes())
        middle = len(data) - 200 if len(data) > 400 else len(data) // 3
        data[: max(middle, 1)] = bytes((7 * n + 3) % 251 for n in range(max(middle, 1)))
        part.write_bytes(data)
    with pytest.raises(PalaceDamaged) as caught:
        find(palace, "quokka sleeps")
    assert "rebuild" in (caught.value.hint or "")
