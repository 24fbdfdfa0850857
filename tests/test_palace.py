"""The palace: what is archived comes back byte for byte, both indexes can be made again, one writer at a time."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import stat
import string
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import find, mine, rows, with_script, write_claude, write_script

from mempalace import embedding, library
from mempalace.embedding import pack, unpack
from mempalace.errors import ForeignFolder, NoPalace, PalaceDamaged, PalaceLocked, StoreError
from mempalace.formats import registry
from mempalace.model import Session
from mempalace.palace import archive, folder, indexing, lock, restore, vectors
from mempalace.palace.catalog import Catalog, SourceRow
from mempalace.palace.lexical import Entry, LexicalIndex, Restriction, Wanted
from mempalace.palace.vectors import ChromaIndex, VectorTable

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _script_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_default", with_script())


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with Catalog.open_for_writing(tmp_path) as opened:
        yield opened


# --- catalog ------------------------------------------------------------------------------------------------


def test_a_transaction_holds_whole_or_not_at_all(catalog: Catalog) -> None:
    with catalog.transaction():
        catalog.set("kept", 1)

    def fail(error: type[BaseException]) -> None:
        with catalog.transaction():
            catalog.set("lost", 1)
            catalog.save_source(SourceRow("/a"))
            raise error

    for error in (RuntimeError, KeyboardInterrupt):
        with pytest.raises(error):
            fail(error)
    assert (catalog.get("kept"), catalog.get("lost"), catalog.count("sources")) == ("1", None, 0)


def test_a_full_disk_is_a_store_error_and_leaves_what_was_there(catalog: Catalog) -> None:
    with catalog.transaction():
        catalog.set("kept", 1)
    ((pages,),) = catalog.rows("PRAGMA page_count")
    catalog.db.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StoreError, match="full") as caught, catalog.transaction():
        catalog.set("large", "x" * 100_000)
    assert caught.value.path == catalog.path
    assert (catalog.get("kept"), catalog.get("large")) == ("1", None)
    catalog.db.execute("PRAGMA max_page_count = 1000000")
    with catalog.transaction():
        catalog.set("large", "x" * 100_000)


def test_the_generation_grows(catalog: Catalog) -> None:
    before = catalog.generation
    with catalog.transaction():
        catalog.next_generation()
        catalog.next_generation()
    assert catalog.generation == before + 2


def test_a_source_comes_back_as_it_was_saved(catalog: Catalog) -> None:
    row = SourceRow(
        "/w/проект/a.zip", "b/c.json", format="x", size=5, inode=2**62, mtime_ns=2**61, skipped={"control": 3}
    )
    row.problems = [("damaged", "not JSON", 7)]
    catalog.save_source(row)
    assert row.id > 0
    found = catalog.sources()[row.path, row.member]
    assert found.problems == [["damaged", "not JSON", 7]]
    found.problems = row.problems
    assert found == row
    row.size = 9
    catalog.save_source(row)
    assert (catalog.count("sources"), catalog.sources()[row.path, row.member].size) == (1, 9)


def test_any_number_of_keys_can_be_asked_for(catalog: Catalog) -> None:
    with catalog.transaction():
        catalog.add_many("INSERT INTO embed_queue VALUES (?, 0)", [(n,) for n in range(5_000)])
    found = catalog.rows_in("SELECT text FROM embed_queue WHERE text IN (?)", range(-5, 40_000))
    assert sorted(text for (text,) in found) == list(range(5_000))
    assert list(catalog.rows_in("SELECT text FROM embed_queue WHERE text IN (?)", [])) == []


def test_a_catalog_opened_for_reading_cannot_be_written(catalog: Catalog, tmp_path: Path) -> None:
    with Catalog.open(tmp_path) as reader:
        with pytest.raises(StoreError), reader.transaction():
            reader.set("x", 1)
        with catalog.transaction():
            catalog.set("x", 2)
        assert reader.get("x") == "2"


def test_a_damaged_catalog_says_so(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    mine(palace, write_claude(tmp_path / "a.jsonl", ["one", "two"]))
    (palace / "catalog.sqlite3").write_bytes(b"not a database at all" * 500)
    for call in (lambda: find(palace, "one"), lambda: mine(palace, tmp_path / "a.jsonl")):
        with pytest.raises(PalaceDamaged) as caught:
            call()
        assert caught.value.path == palace / "catalog.sqlite3"


def test_a_lost_catalog_says_so(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    mine(palace, write_claude(tmp_path / "a.jsonl", ["one", "two"]))
    (palace / "catalog.sqlite3").unlink()
    with pytest.raises(PalaceDamaged, match="lost its catalog"):
        find(palace, "one")


def test_no_palace_says_so(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(NoPalace):
            find(path, "one")


def test_a_palace_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ForeignFolder):
        mine(tmp_path / "file", write_claude(tmp_path / "a.jsonl", ["one"]))
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("marker", ["[]", "{}", '{"mempalace": "palace"}'])
def test_a_folder_with_another_marker_is_foreign(tmp_path: Path, marker: str) -> None:
    (tmp_path / folder.MARKER).write_text(marker)
    with pytest.raises(ForeignFolder):
        folder.create(tmp_path)
    assert (tmp_path / folder.MARKER).read_text() == marker


def test_a_palace_of_another_layout_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / folder.MARKER).write_text('{"mempalace": "conversations", "layout": 99}')
    with pytest.raises(PalaceDamaged, match="layout 99"):
        folder.require(tmp_path)


def test_the_default_palace_is_in_the_home_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert folder.default_path() == home / ".mempalace" / "conversations"
    assert library.Palace().path == folder.default_path()
    monkeypatch.setenv("MEMPALACE_PALACE_PATH", "~/elsewhere")
    assert folder.default_path() == home / "elsewhere"


# --- archive ------------------------------------------------------------------------------------------------


def keep(catalog: Catalog, data: bytes, revision: int = 0, source: int = 1) -> archive.Kept:
    with catalog.transaction():
        return archive.keep(catalog, source, revision, BytesIO(data))


def kept(catalog: Catalog, revision: int, source: int = 1) -> bytes:
    return b"".join(archive.read(catalog, source, revision))


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "PART_BYTES", 4)


@pytest.mark.usefixtures("small_parts")
def test_what_only_grew_stays_one_revision(catalog: Catalog) -> None:
    assert keep(catalog, b"abcde") == (False, False, 0)
    assert keep(catalog, b"abcde") == (True, False, 0)
    assert keep(catalog, b"abcdefghijk") == (False, True, 0)
    assert kept(catalog, 0) == b"abcdefghijk"
    assert catalog.count("parts") == 3  # "e" alone is kept no longer


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("data", [b"Xbcdefgh", b"abcd", b"abcdefgX", b"abcdefg", b"abXdefghij", b"efgh"])
def test_what_was_rewritten_is_another_revision(catalog: Catalog, data: bytes) -> None:
    keep(catalog, b"abcdefgh")
    assert keep(catalog, data) == (False, False, 1)
    assert (kept(catalog, 0), kept(catalog, 1)) == (b"abcdefgh", data)


@pytest.mark.usefixtures("small_parts")
def test_equal_parts_of_different_sources_are_kept_once(catalog: Catalog) -> None:
    keep(catalog, b"abcdefghij", source=1)
    keep(catalog, b"abcdefghXY", source=2)
    assert catalog.count("parts") == 4
    keep(catalog, b"abcdefghijkl", source=1)
    assert kept(catalog, 0, source=2) == b"abcdefghXY"
    assert kept(catalog, 0, source=1) == b"abcdefghijkl"


CONTENTS = st.lists(st.text("ab", min_size=1, max_size=14).map(str.encode), min_size=1, max_size=7)


@given(st.lists(CONTENTS, min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_every_revision_is_readable_byte_for_byte(tmp_path_factory: pytest.TempPathFactory, sources: Any) -> None:
    """Several sources, each with its versions: a version is the revision that it made, or a beginning of it."""
    with (
        pytest.MonkeyPatch.context() as patch,
        Catalog.open_for_writing(tmp_path_factory.mktemp("archive")) as catalog,
    ):
        patch.setattr(archive, "PART_BYTES", 4)
        expected: dict[tuple[int, int], bytes] = {}
        for source, versions in enumerate(sources, 1):
            revision, before = 0, b""
            for data in versions:
                found = keep(catalog, data, revision, source)
                assert found.unchanged == (data == before)
                assert found.grown == (bool(before) and data != before and data.startswith(before))
                assert found.revision == revision + (not data.startswith(before))
                revision, before = found.revision, data
                expected[source, revision] = data
        for (source, revision), data in expected.items():
            assert kept(catalog, revision, source) == data
        used = catalog.rows("SELECT COUNT(DISTINCT part) FROM source_parts")
        assert used == [(catalog.count("parts"),)]


def test_parts_are_compressed(catalog: Catalog) -> None:
    keep(catalog, b"the same words " * 200_000)
    assert catalog.row("SELECT SUM(size) FROM parts")[0] == 3_000_000
    assert catalog.row("SELECT SUM(LENGTH(data)) FROM parts")[0] < 100_000


def test_a_document_that_grows_does_not_fill_the_disk(tmp_path: Path) -> None:
    noise, palace, messages = random.Random(3), tmp_path / "palace", []
    for n in range(16):
        messages.append(["user", noise.randbytes(2_000).hex(), f"m{n}"])
        log = write_script(tmp_path / "a.json", {"id": "s1", "messages": messages})
        mine(palace, log, embed=False)
    ((size,),) = rows(palace, "SELECT SUM(LENGTH(data)) FROM parts")
    assert size < 3 * log.stat().st_size


def test_a_change_at_the_front_leaves_the_other_parts(catalog: Catalog) -> None:
    data = random.Random(5).randbytes(3_000_000)
    versions = [data, b"moved " + data, b"and again " + data, data[:1_500_000] + b"?" + data[1_500_000:]]
    sizes, revision = [], 0
    for version in versions:
        revision = keep(catalog, version, revision).revision
        sizes.append(catalog.row("SELECT SUM(LENGTH(data)) FROM parts")[0])
    assert sizes[2] - sizes[1] < 200_000  # the first rewriting parts it anew, later ones share that
    assert sizes[3] - sizes[2] < 200_000
    for number, version in enumerate(versions):
        assert kept(catalog, number) == version
        for start in (0, 1, 999_999, 1 << 20, 2_900_000):
            assert archive.read_slice(catalog, 1, number, start, start + 77_777) == version[start : start + 77_777]


# --- restore ------------------------------------------------------------------------------------------------


def test_a_restored_session_is_the_parse_of_the_file_that_is_gone(tmp_path: Path) -> None:
    log = write_claude(tmp_path / "in" / "a.jsonl", ["one", "two", "  three\n\tkept  ", "four"])
    (parsed,) = library.parse(log)
    palace = tmp_path / "palace"
    mine(palace, log)
    log.unlink()
    with Catalog.open(palace) as catalog:
        session = restore.session(catalog, registry.default(), 1)
        assert restore.transcript(catalog, 1) == "> one\n\ntwo\n\n>   three\n> \tkept  \n\nfour"
        assert restore.transcript(catalog, 1, ["tool"]) == ""
    assert session == parsed


def test_a_project_that_stands_beside_the_log_is_restored_with_it(tmp_path: Path) -> None:
    home, palace = tmp_path / "in" / ".gemini" / "tmp" / "kiln", tmp_path / "palace"
    (home / "chats").mkdir(parents=True)
    (home / ".project_root").write_text("/w/kiln-ctl")
    document: dict[str, Any] = {"sessionId": "g1", "projectHash": "0" * 64, "messages": []}
    for number, kind in enumerate(("user", "gemini"), 1):
        document["messages"].append({"id": f"m{number}", "type": kind, "content": f"words {number}"})
    log = home / "chats" / "session-1.json"
    log.write_text(json.dumps(document))
    mine(palace, log, embed=False)
    (parsed,) = library.parse(log)
    assert parsed.metadata.project == "/w/kiln-ctl"

    def restored() -> Session:
        with Catalog.open(palace) as catalog:
            return restore.session(catalog, registry.default(), 1)

    shutil.rmtree(home.parent)
    assert restored() == parsed
    document["messages"].append({"id": "m3", "type": "user", "content": "later"})
    (tmp_path / "copy.json").write_text(json.dumps(document))
    mine(palace, tmp_path / "copy.json", embed=False)
    assert restored().message_count == 3
    assert restored().metadata.project == "/w/kiln-ctl"
    assert rows(palace, "SELECT project_name FROM sessions") == [("kiln-ctl",)]


def test_a_session_of_a_format_that_is_gone_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    palace = tmp_path / "palace"
    mine(palace, write_script(tmp_path / "a.json", {"id": "s1", "messages": [["user", "kept talk"]]}))
    monkeypatch.setattr(registry, "_default", None)
    with Catalog.open(palace) as catalog, pytest.raises(PalaceDamaged, match="script"):
        restore.session(catalog, registry.default(), 1)


# --- lexical ------------------------------------------------------------------------------------------------


def entry(chunk: int, text: str, **fields: Any) -> Entry:
    known = {
        "kind": "dialogue",
        "scope": "main",
        "format": "claude-code",
        "projects": ("kiln",),
        "wing": "kiln",
        "roles": ("user",),
        "session": chunk,
        "time": 1_000 + chunk,
    }
    return Entry(chunk, text, **{**known, **fields})


def lexical(path: Path, *texts: str) -> LexicalIndex:
    index = LexicalIndex.create(path / "lexical")
    index.write([entry(n, text) for n, text in enumerate(texts, 1)])
    return index


def hits(
    index: LexicalIndex, words: str = "", phrases: Sequence[str] = (), excluded: Sequence[str] = (), **allowed: Any
) -> list[int]:
    wanted = Wanted(words, tuple(phrases), tuple(excluded))
    return list(index.search(wanted, Restriction(**allowed), 100))


def test_an_interrupted_write_can_be_repeated(tmp_path: Path) -> None:
    index = lexical(tmp_path, "alpha one", "alpha two")
    more = [entry(n, f"alpha {n}") for n in (3, 4)]
    index.write(more, removed=[1], after=2)
    del index  # the catalog never heard of it: the same write comes again
    index = LexicalIndex.open(tmp_path / "lexical")
    assert index.write(more, removed=[1], after=2) == 2
    assert index.count() == 3
    assert sorted(hits(index, "alpha")) == [2, 3, 4]


def test_a_write_that_fails_half_way_shows_nothing(tmp_path: Path) -> None:
    index = lexical(tmp_path, "alpha one")

    def failing() -> Iterator[Entry]:
        yield entry(2, "alpha two")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index.write(failing(), removed=[1], after=1)
    again = LexicalIndex.open(tmp_path / "lexical")
    assert hits(again, "alpha") == [1]
    again.write([entry(2, "alpha two")], removed=[1], after=1)
    assert hits(again, "alpha") == [2]


def test_removed_chunks_are_gone(tmp_path: Path) -> None:
    index = lexical(tmp_path, "alpha", "alpha", "alpha")
    index.write([], removed=[2, 99], after=3)
    assert (sorted(hits(index, "alpha")), index.count()) == ([1, 3], 2)


@pytest.mark.parametrize(
    ("allowed", "found"),
    [
        ({}, [1, 2, 3]),
        ({"kinds": ("tool",)}, [2]),
        ({"kinds": ("tool", "dialogue")}, [1, 2, 3]),
        ({"scopes": ("subagent",)}, [2]),
        ({"formats": ("codex",)}, [2]),
        ({"projects": ("/w/loom",)}, [2]),
        ({"projects": ("loom",)}, [2]),
        ({"projects": ("loo",)}, []),
        ({"projects": ("weaving",)}, []),
        ({"wings": ("weaving",)}, [2]),
        ({"wings": ("loom",)}, []),
        ({"roles": ("assistant",)}, [2, 3]),
        ({"sessions": (7,)}, [2]),
        ({"chunks": (1, 3)}, [1, 3]),
        ({"until": 1_500.0}, [1, 3]),
        ({"until": 1_003.0}, [1]),
        ({"since": 1_003.0, "until": 1_500.0}, [3]),
        ({"roles": ("assistant",), "projects": ("kiln",)}, [3]),
    ],
)
def test_each_filter_restricts(tmp_path: Path, allowed: dict[str, Any], found: list[int]) -> None:
    index = LexicalIndex.create(tmp_path / "lexical")
    other = entry(
        2,
        "alpha",
        kind="tool",
        scope="subagent",
        format="codex",
        projects=("/w/loom", "loom"),
        wing="weaving",
        roles=("user", "assistant"),
        session=7,
        time=2_000,
    )
    index.write([entry(1, "alpha"), other, entry(3, "alpha", roles=("assistant",))])
    assert sorted(hits(index, "alpha", **allowed)) == found


def test_a_time_without_an_end_restricts(tmp_path: Path) -> None:
    assert sorted(hits(lexical(tmp_path, "alpha", "alpha", "alpha"), "alpha", since=1_002.0)) == [2, 3]


IDENTIFIERS = [
    "RESTAURANT_SIGNALS",
    "bd-q3fy",
    "v2.4.7-hotfix",
    "src/a_b/c-d.py:118",
    "E0502",
    "2026-02-03T09:00:04Z",
    "foo@example.org",
    "C:\\temp\\x1.txt",
    "0123456789abcdef" * 4,
    "--dry-run",
    "std::vector<int>",
    "parse_query_lenient",
]


@pytest.mark.parametrize("identifier", IDENTIFIERS)
def test_an_identifier_leads_to_its_holder(tmp_path: Path, identifier: str) -> None:
    prose = [
        f"the restaurant has signals and a hot fix, version 2 of parse and query, run {n} dry src py" for n in range(30)
    ]
    index = lexical(tmp_path, *prose, f"see {identifier} for more", *prose)
    for query in (identifier, identifier.lower(), f"where is {identifier}"):
        assert hits(index, query)[0] == 31
    assert hits(index, "", phrases=[identifier])[:1] == [31]


@pytest.mark.parametrize("query", ["kiln", "Overheat", "probe", "kilnOverheatProbe", "KILNOVERHEATPROBE"])
def test_a_camel_case_name_is_found_whole_and_by_part(tmp_path: Path, query: str) -> None:
    assert hits(lexical(tmp_path, "nothing here", "call kilnOverheatProbe now"), query) == [2]


@pytest.mark.parametrize(
    ("text", "queries"),
    [
        ("昨天我们把数据库迁移到了新的服务器", ["数据库", "迁移到了", "库"]),
        ("データベースを新しいサーバーに移行した", ["サーバー", "移行", "データベース"]),
        ("เราย้ายฐานข้อมูลไปยังเซิร์ฟเวอร์ใหม่", ["ฐานข้อมูล", "เซิร์ฟเวอร์"]),
        ("мы перенесли базу данных на сервер", ["базу данных", "СЕРВЕР"]),
        ("한국어 데이터베이스 이전", ["데이터베이스"]),
        ("Die Größe der Übergänge", ["größe", "ubergange", "Übergänge"]),
        ("हमने डेटाबेस को नए सर्वर पर ले गए", ["डेटाबेस"]),
        ("混合 text with GraphQL 接口", ["接口", "graphql 接口"]),
    ],
)
def test_words_of_every_script_are_found(tmp_path: Path, text: str, queries: list[str]) -> None:
    index = lexical(tmp_path, "something else 其他 別の อื่น другое", text)
    for query in queries:
        assert hits(index, query)[0] == 2, query
        assert hits(index, phrases=[query])[0] == 2, query


def test_phrases_must_stand_as_they_are(tmp_path: Path) -> None:
    index = lexical(tmp_path, "red green blue", "green red blue", "red blue", "red\ngreen blue")
    assert sorted(hits(index, phrases=["red green"])) == [1, 4]
    assert sorted(hits(index, "blue", phrases=["red green"])) == [1, 4]
    assert hits(index, phrases=["red green", "nothing"]) == []


def test_what_is_excluded_is_not_counted(tmp_path: Path) -> None:
    index = lexical(tmp_path, "red green", "red blue", "red")
    places = {"all": Restriction()}
    assert index.counts(Wanted("red", excluded=("green",)), places) == {"all": 2}
    assert index.counts(Wanted("red", excluded=("green", "blue")), places) == {"all": 1}
    assert index.counts(Wanted("", phrases=("red green",)), places) == {"all": 1}
    assert index.counts(Wanted("", phrases=("green red",)), places) == {}


@pytest.mark.parametrize(
    "query", ["", " ", "!!!", "AND OR NOT", "a:b^2 +x", '"', "(((", "*", "[1 TO 2]", "\\", "\x00", "\u2028"]
)
def test_no_query_raises(tmp_path: Path, query: str) -> None:
    index = lexical(tmp_path, "alpha not b x 1 2")
    hits(index, query)
    hits(index, "alpha", phrases=[query], excluded=[query])
    index.counts(Wanted(query), {"all": Restriction()})


def test_a_query_with_half_a_character_is_answered(tmp_path: Path) -> None:
    assert hits(lexical(tmp_path, "alpha"), "alpha \ud83c") == [1]


def test_a_query_of_100_kb_is_answered(tmp_path: Path) -> None:
    index = lexical(tmp_path, *(f"common words {n}" for n in range(50)), "the rare needle xylograph")
    filler = " ".join(f"filler{n} common" for n in range(6_000))
    assert len(filler) > 90_000
    assert hits(index, f"{filler} xylograph", chunks=(51,)) == [51]
    assert hits(index, "x" * 100_000) == []


@given(st.text(max_size=60))
@settings(max_examples=20, deadline=None)
def test_any_words_can_be_searched(tmp_path_factory: pytest.TempPathFactory, words: str) -> None:
    index = lexical(tmp_path_factory.mktemp("any"), "alpha beta")
    hits(index, words)
    hits(index, "alpha", phrases=[words], excluded=[words])


def test_all_words_are_counted(tmp_path: Path) -> None:
    index = lexical(tmp_path, "red green", "red blue", "green 数据库", "the red")
    everywhere, here, none = Restriction(), Restriction(sessions=(1, 2)), Restriction(sessions=(9,))
    places = {"everywhere": everywhere, "here": here, "none": none}
    assert index.counts(Wanted("red"), places) == {"everywhere": 3, "here": 2}
    assert index.counts(Wanted("red green"), {"everywhere": everywhere}) == {"everywhere": 1}
    assert index.counts(Wanted("数据库"), {"everywhere": everywhere}) == {"everywhere": 1}
    assert index.counts(Wanted("!"), {"everywhere": everywhere}) == {}


def test_a_missing_lexical_index_is_damage_and_can_be_made_again(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    mine(palace, write_claude(tmp_path / "a.jsonl", ["one", "two"]))
    shutil.rmtree(palace / "lexical")
    with pytest.raises(PalaceDamaged) as caught:
        find(palace, "one")
    assert "rebuild" in (caught.value.hint or "")
    with Catalog.open_for_writing(palace) as catalog:
        assert indexing.rebuild_lexical(catalog, palace) == 1
    assert find(palace, "one").results


# --- vectors ------------------------------------------------------------------------------------------------


def units(count: int, seed: int = 1) -> Any:
    noise = np.random.default_rng(seed).standard_normal((count, 256)).astype(np.float32)
    return embedding.normalise(noise)


def test_exact_scores_are_those_of_floats_within_rounding(catalog: Catalog) -> None:
    matrix, query = units(20_000), units(1, 2)[0]
    with catalog.transaction():
        catalog.add_many("INSERT INTO vectors VALUES (?, ?)", list(enumerate(pack(matrix), 1)))
    table = VectorTable.load(catalog)
    assert len(table) == 20_000
    assert table.texts.tolist() == list(range(1, 20_001))
    assert np.abs(table.scores(query) - matrix @ query).max() < 0.005
    some = VectorTable.load(catalog, [7, 3, 99_999])
    assert some.texts.tolist() == [3, 7]
    assert np.allclose(some.scores(query), table.scores(query)[[2, 6]], atol=1e-6)


def test_no_vectors_have_no_scores(catalog: Catalog) -> None:
    table = VectorTable.load(catalog)
    assert (len(table), table.scores(units(1)[0]).tolist()) == (0, [])


@given(st.lists(st.lists(st.floats(-1, 1, width=32), min_size=4, max_size=4), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_packed_vectors_come_back_within_rounding(values: list[list[float]]) -> None:
    matrix = np.array(values, dtype=np.float32)
    packed = pack(matrix)
    assert {len(row) for row in packed} == {8}
    assert np.abs(unpack(packed, 4) - matrix).max() <= np.abs(matrix).max() / 250 + 1e-6


def test_chroma_gives_back_what_it_was_given_and_notices_what_is_missing(tmp_path: Path) -> None:
    index = ChromaIndex.open(tmp_path / "vectors", "model-a", create=True)
    matrix, texts = units(600), list(range(1, 601))
    index.upsert(texts, matrix)
    assert index.count() == 600
    assert index.nearest(matrix[41], 3)[0] == 42
    assert index.nearest(matrix[0], 0) == []
    assert index.misses(texts[:100], matrix[:100]) == 0
    assert vectors.is_healthy(index, 600, texts, matrix)
    index.delete([*range(1, 101), 5_000])
    assert index.count() == 500
    assert not vectors.is_healthy(index, 600, texts, matrix)
    assert index.misses(texts[:100], matrix[:100]) == 100
    index.upsert(range(1_001, 1_101), units(100, 3))  # as many as expected, but others
    assert index.count() == 600
    assert not vectors.is_healthy(index, 600, texts, matrix)
    del index
    with pytest.raises(StoreError, match="model-a"):
        ChromaIndex.open(tmp_path / "vectors", "model-b")


def test_a_store_that_is_missing_or_damaged_says_so(tmp_path: Path) -> None:
    with pytest.raises(PalaceDamaged, match="missing"):
        ChromaIndex.open(tmp_path / "none", "m")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "chroma.sqlite3").write_bytes(b"nonsense" * 1000)
    with pytest.raises(PalaceDamaged):
        ChromaIndex.open(tmp_path / "bad", "m")


def many(path: Path, sessions: int, each: int = 10) -> Path:
    """Logs of many sessions, every message a chunk of its own."""
    words = ["kiln", "glaze", "loom", "warp", "probe", "shelf", "cone", "cobalt", "ash", "wheel"]
    for n in range(sessions):
        noise = random.Random(n)
        texts = [f"session{n} message{k} " + " ".join(noise.choices(words, k=110)) for k in range(each)]
        write_claude(path / f"{n}.jsonl", texts, f"s{n:03}")
    return path


def answers(palace: Path) -> list[Any]:
    queries = ["glaze", "message3 cobalt", '"ash wheel"', "loom -session7", "session7", "ceramics"]
    return [[(hit.chunk_id, hit.score) for hit in find(palace, query, 20).results] for query in queries]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A palace of 600 dialogue texts with Chroma opened; do not write to it."""
    path = tmp_path_factory.mktemp("stored")
    before = os.umask(0o022)
    try:
        summary = mine(path / "deep" / "palace", many(path / "in", 60))
    finally:
        os.umask(before)
    assert summary.vectors_new == 600
    return path / "deep" / "palace"


@pytest.fixture
def copied(stored: Path, tmp_path: Path) -> Path:
    shutil.copytree(stored, tmp_path / "palace")
    return tmp_path / "palace"


def test_from_500_texts_on_chroma_has_them(stored: Path) -> None:
    assert rows(stored, "SELECT value FROM meta WHERE key = 'vector_store'") == [("ok",)]
    assert rows(stored, "SELECT COUNT(*) FROM store_queue") == [(0,)]
    ((model,),) = rows(stored, "SELECT value FROM meta WHERE key = 'vector_model'")
    assert ChromaIndex.open(stored / "vectors", model).count() == 600


def test_everything_is_for_its_owner_only(stored: Path) -> None:
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [stored, *stored.rglob("*")]}
    assert [path for path in modes if path.is_dir() and modes[path] != 0o700] == []
    files = {path.name: oct(modes[path]) for path in modes if path.is_file() and modes[path] != 0o600}
    assert files == {}


@pytest.mark.parametrize("rebuild", [indexing.rebuild_lexical, indexing.rebuild_vectors])
def test_an_index_made_again_gives_the_same_answers(copied: Path, rebuild: Any) -> None:
    before = answers(copied)
    assert all(before)
    with lock.writing(copied), Catalog.open_for_writing(copied) as catalog:
        generation = catalog.generation
        assert rebuild(catalog, copied) == 600
        assert catalog.generation > generation
        assert catalog.get("vector_store") == "ok"
    assert answers(copied) == before
    assert sorted(path.name for path in copied.iterdir() if path.is_dir()) == ["lexical", "vectors"]


def test_an_index_made_again_after_growth_gives_the_same_answers(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    for sessions in (4, 8, 12):
        mine(palace, many(tmp_path / "in", sessions))
    before = answers(palace)
    with lock.writing(palace), Catalog.open_for_writing(palace) as catalog:
        indexing.rebuild_lexical(catalog, palace)
    assert answers(palace) == before


def test_an_index_made_again_finds_the_same_among_equals(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    for run in range(7):
        said = [[["user", f"alpha number{(n * 7919 + run * 131) % 1000 + 1000}"]] for n in range(60)]
        sessions = [{"id": f"s{run}-{n}", "messages": messages} for n, messages in enumerate(said)]
        mine(palace, write_script(tmp_path / "in" / f"{run}.json", *sessions))
    before = [hit.chunk_id for hit in find(palace, "alpha", 50, lexical_only=True).results]
    with lock.writing(palace), Catalog.open_for_writing(palace) as catalog:
        indexing.rebuild_lexical(catalog, palace)
    assert [hit.chunk_id for hit in find(palace, "alpha", 50, lexical_only=True).results] == before


def test_the_disk_does_not_grow_with_runs_that_find_nothing_new(stored: Path, copied: Path) -> None:
    logs = stored.parents[1] / "in"
    mine(copied, logs)
    assert mine(copied, logs).states["unchanged"] == 60
    size = folder.size_of(copied)
    for _ in range(9):
        os.utime(logs / "1.jsonl")  # one of them is read again
        mine(copied, logs)
    assert folder.size_of(copied) <= size * 1.01
    assert len(list((copied / "vectors").glob("*-*-*"))) <= 1


def test_texts_that_are_gone_leave_every_store(tmp_path: Path) -> None:
    palace, log = tmp_path / "palace", tmp_path / "a.json"
    mine(palace, write_script(log, {"id": "s1", "messages": [["user", "draft", "m1"], ["assistant", "ok", "m2"]]}))
    mine(palace, write_script(log, {"id": "s1", "messages": [["user", "final", "m1"], ["assistant", "ok", "m2"]]}))
    assert rows(palace, "SELECT COUNT(*) FROM texts") == rows(palace, "SELECT COUNT(*) FROM vectors") == [(1,)]
    assert rows(palace, "SELECT COUNT(*) FROM chunks WHERE text NOT IN (SELECT id FROM texts)") == [(0,)]
    assert rows(palace, "SELECT COUNT(*) FROM lexical_stale") == [(0,)]
    assert LexicalIndex.open(palace / "lexical").count() == 1
    assert [hit.text for hit in find(palace, "draft final ok").results] == ["> final\n\nok"]
    with Catalog.open_for_writing(palace) as catalog:
        indexing.store_queued(catalog, palace, fewest=1)  # deletes one that the store never had
        assert (catalog.get("vector_store"), catalog.count("store_queue")) == ("ok", 0)


def test_embedding_can_be_stopped_and_taken_up_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "_EMBED_BATCH", 7)
    palace = tmp_path / "palace"
    mine(palace, many(tmp_path / "in", 2), embed=False)
    done: list[int] = []

    def stop(count: int) -> None:
        done.append(count)
        if len(done) == 2:
            raise KeyboardInterrupt

    with Catalog.open_for_writing(palace) as catalog:
        with pytest.raises(KeyboardInterrupt):
            indexing.embed_queued(catalog, None, stop)
        assert (catalog.count("vectors"), catalog.count("embed_queue")) == (14, 6)
        assert indexing.embed_queued(catalog) == 6
        assert catalog.count("vectors") == catalog.count("tokens") == 20


def test_vectors_of_two_models_are_never_mixed(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    mine(palace, write_claude(tmp_path / "a.jsonl", ["one", "two"]))
    with Catalog.open_for_writing(palace) as catalog, catalog.transaction():
        catalog.set("vector_model", "another")
    with pytest.raises(StoreError, match="another") as caught:
        mine(palace, write_claude(tmp_path / "b.jsonl", ["three", "four"], "s2"))
    assert "rebuild" in (caught.value.hint or "")
    assert find(palace, "three").indexes == ["lexical"]


# --- one writer ---------------------------------------------------------------------------------------------

HOLD = """
import sys, time
from pathlib import Path
from mempalace.palace import lock
with lock.writing(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock of a palace in `tmp_path`."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_process_is_refused_and_told_who_holds_it(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(PalaceLocked, match=f"pid {holder.pid}, since 20") as caught, lock.writing(tmp_path):
        pytest.fail("two writers")
    assert "--wait" in (caught.value.hint or "")


def test_the_lock_is_free_after_its_holder_was_killed(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with lock.writing(tmp_path):
        pass


def test_waiting_ends_when_the_lock_is_free(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    waits: list[str] = []
    threading.Timer(0.3, holder.kill).start()
    with lock.writing(tmp_path, wait=True, on_wait=waits.append):
        assert len(waits) == 1
        assert str(holder.pid) in waits[0]


def test_the_lock_is_free_after_an_error(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(RuntimeError), lock.writing(tmp_path):
            raise RuntimeError


def test_the_umask_is_given_back(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with lock.writing(tmp_path):
            assert os.umask(0o077) == 0o077
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


MINE = """
import sys
from pathlib import Path
from mempalace import miner
miner.mine(Path(sys.argv[1]), [Path(sys.argv[2])], miner.Options(wait=True))
"""


def test_a_run_that_was_killed_is_completed_by_the_next(tmp_path: Path) -> None:
    whole, palace, logs = tmp_path / "whole", tmp_path / "palace", many(tmp_path / "in", 30)
    mine(whole, logs)
    for delay in (0.25, 0.4, 0.6):
        with subprocess.Popen([sys.executable, "-c", MINE, str(palace), str(logs)], cwd=ROOT) as process:
            try:
                process.wait(delay)
            except subprocess.TimeoutExpired:
                process.kill()
    mine(palace, logs)
    sql = "SELECT c.uid, c.seq, t.body FROM chunks c JOIN texts t ON t.id = c.text ORDER BY c.uid"
    assert rows(palace, sql) == rows(whole, sql)
    assert answers(palace) == answers(whole)
    assert rows(palace, "SELECT COUNT(*) FROM embed_queue") == [(0,)]
    assert LexicalIndex.open(palace / "lexical").count() == 300


def test_miners_that_run_at_once_all_get_their_turn(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    for name in "abc":
        for n in range(4):
            write_claude(tmp_path / name / f"{n}.jsonl", [f"MARK-{name}{n} talk", "ok"], f"{name}{n}")
    folder.create(palace)
    commands = [[sys.executable, "-c", MINE, str(palace), str(tmp_path / name)] for name in "abc"]
    running = [subprocess.Popen(command, cwd=ROOT) for command in commands]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    assert rows(palace, "SELECT COUNT(*), (SELECT COUNT(*) FROM vectors) FROM chunks") == [(12, 12)]
    for name in "abc":
        for n in range(4):
            assert find(palace, f"MARK-{name}{n}").results[0].session_id == f"{name}{n}"


def test_a_palace_that_another_run_makes_meanwhile_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listing, ours = Path.iterdir, tmp_path / "ours"
    folder.create(ours)

    def made_meanwhile(path: Path) -> Any:
        shutil.copy(ours / folder.MARKER, path)
        return listing(path)

    (tmp_path / "palace").mkdir()
    monkeypatch.setattr(Path, "iterdir", made_meanwhile)
    folder.create(tmp_path / "palace")


def test_a_palace_that_is_being_made_is_no_damaged_one(tmp_path: Path) -> None:
    folder.create(tmp_path / "palace")
    with pytest.raises(NoPalace):
        find(tmp_path / "palace", "one")


def test_a_marker_that_was_never_finished_does_no_harm(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    palace.mkdir()
    (palace / folder.MARKER).touch()
    mine(palace, write_claude(tmp_path / "a.jsonl", ["one", "two"]))


# --- disks --------------------------------------------------------------------------------------------------

FULL = """
set -e
mount -t tmpfs -o size=1536k none {palace}
{python} -c "{mine}" || true
mount -o remount,size=100m {palace}
{python} -c "{mine}"
cp -r {palace}/p {out}
"""
MINE_OR_TELL = """
from pathlib import Path
from mempalace import errors, miner
try:
    print(dict(miner.mine(Path('{palace}/p'), [Path('{logs}')]).states))
except Exception as error:
    print(type(error).__name__, error)
"""


def test_after_a_full_disk_the_next_run_completes_the_palace(tmp_path: Path) -> None:
    noise = random.Random(1)
    for n in range(5):
        texts = ["".join(noise.choices(string.ascii_letters + " ", k=600)) for _ in range(500 if n == 2 else 4)]
        write_claude(tmp_path / "in" / f"{n}.jsonl", texts, f"s{n}")
    (tmp_path / "mount").mkdir()
    mine_code = MINE_OR_TELL.format(palace=tmp_path / "mount", logs=tmp_path / "in")
    script = FULL.format(palace=tmp_path / "mount", out=tmp_path / "out", python=sys.executable, mine=mine_code)
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, cwd=ROOT)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"cannot mount here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    first_run, second_run = done.stdout.splitlines()
    assert "full" in first_run or "No space left" in first_run
    assert "failed" not in second_run
    assert rows(tmp_path / "out", "SELECT COUNT(*), SUM(messages) FROM sessions") == [(5, 516)]


def test_an_index_that_cannot_be_made_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError):
        LexicalIndex.create(tmp_path / "file" / "lexical")


def test_sqlite_itself_finds_nothing_wrong(stored: Path) -> None:
    with closing(sqlite3.connect(f"{(stored / folder.CATALOG).as_uri()}?mode=ro", uri=True)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
