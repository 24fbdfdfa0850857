"""Searching: what is asked for is found first, filters restrict before ranking, nothing is said twice."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from logs import claude_lines, find, first, mine, with_script, write_claude, write_script

import mempalace
from mempalace.errors import AmbiguousId, NotFound, UsageError
from mempalace.formats import registry
from mempalace.palace import indexing, lock, reader
from mempalace.palace.catalog import Catalog
from mempalace.palace.lexical import Wanted
from mempalace.query import SearchResults, parse_query


@pytest.fixture(autouse=True)
def _script_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_default", with_script())


def sessions(results: SearchResults) -> list[str]:
    return [hit.session_id for hit in results.results]


def day(number: int, hour: int = 0) -> datetime:
    return datetime(2026, 3, number, hour, tzinfo=UTC)


def said(*texts: str, id: str, at: str = "2026-03-01T00:00:00Z", **fields: Any) -> dict[str, Any]:
    """A session of the format `Script`: a person and the assistant in turn."""
    roles = ["user", "assistant"] * len(texts)
    messages = [[role, text, f"{id}-{n}", at] for n, (role, text) in enumerate(zip(roles, texts, strict=False))]
    return {"id": id, "messages": messages, **fields}


# --- the query ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("why GraphQL", Wanted("why GraphQL")),
        ("  spaced  ", Wanted("spaced")),
        ('"two words"', Wanted("", ("two words",))),
        ('why "two words" now', Wanted("why   now", ("two words",))),
        ('"a b" "c d"', Wanted("", ("a b", "c d"))),
        ("red -green", Wanted("red", (), ("green",))),
        ('red -"green blue" -src/a.py', Wanted("red", (), ("green blue", "src/a.py"))),
        ("well-known bd-q3fy", Wanted("well-known bd-q3fy")),
        ("git log --oneline -n 5", Wanted("git log --oneline -n 5")),
        ('5" pipe', Wanted('5" pipe')),
        ("don't", Wanted("don't")),
        ('"unclosed words', Wanted('"unclosed words')),
    ],
)
def test_queries(query: str, wanted: Wanted) -> None:
    found = parse_query(query)
    assert (found.words.split(), found.phrases, found.excluded) == (
        wanted.words.split(),
        wanted.phrases,
        wanted.excluded,
    )


@pytest.mark.parametrize("query", ["", " \t\n", "-green", '-"green blue" -red'])
def test_a_query_of_nothing_is_a_usage_error(query: str) -> None:
    with pytest.raises(UsageError, match="nothing to search for"):
        parse_query(query)


# --- one palace for many questions --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def palace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small project among 3,000 chunks of a large one, several tools, scopes and kinds. Do not write to it."""
    folder = tmp_path_factory.mktemp("search")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_default", with_script())
        large = [
            said(f"zebra talk number {n} about stripes", id=f"large-{n:04}", project="/w/large") for n in range(3_000)
        ]
        small = [said(f"one zebra in passing {n}", id=f"small-{n}", project="/w/small") for n in range(3)]
        days = [said(f"heron {n}", id=f"day-{n}", at=f"2026-03-0{n}T12:00:00Z", project="/w/days") for n in range(1, 6)]
        agents = [said("okapi of an agent", id="7", parent="p", agent="7"), said("okapi of the parent", id="p")]
        write_script(folder / "in" / "a.json", *large, *small, *days, *agents)
        write_claude(folder / "in" / "c.jsonl", ["a zebra in claude", "yes, zebra it is"], "claude-1", cwd="/w/large-2")
        tools = claude_lines(["run it", "running"], "tools")
        call = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "echo gnu-in-call"}}
        thought = {"type": "thinking", "thinking": "a gnu-in-thought"}
        tools += claude_lines(["x", "y"], "tools", first=2)[1:]
        tools[2] = tools[2].replace('[{"type": "text", "text": "y"}]', str([thought, call]).replace("'", '"'))
        (folder / "in" / "t.jsonl").write_text("\n".join(tools) + "\n")
        mine(folder / "palace", folder / "in")
    return folder / "palace"


def test_a_small_project_fills_its_results(palace: Path) -> None:
    for project in ("/w/small", "small"):
        for query in ("zebra", "striped animal", "zebra talk about stripes"):
            assert sorted(sessions(find(palace, query, project=project))) == ["small-0", "small-1", "small-2"]
    assert sessions(find(palace, "zebra", project="smal")) == []
    assert sessions(find(palace, "zebra", wing="small", lexical_only=True)) != []


def test_projects_with_a_common_beginning_are_parted(palace: Path) -> None:
    assert set(sessions(find(palace, "zebra", project="large-2"))) == {"claude-1"}
    assert not any("claude" in key for key in sessions(find(palace, "zebra", project="large")))


def test_a_project_and_a_wing_must_both_hold(palace: Path) -> None:
    assert sessions(find(palace, "zebra", project="/w/small", wing="large")) == []


def test_a_project_is_found_by_its_base_name_whatever_the_wing(tmp_path: Path) -> None:
    mine(tmp_path / "palace", write_claude(tmp_path / "a.jsonl", ["zebra", "ok"]), wing="animals")
    assert sessions(find(tmp_path / "palace", "zebra", project="kiln-ctl")) == ["s1"]


def test_tools(palace: Path) -> None:
    for tool in ("claude-code", "claude"):
        found = find(palace, "zebra", 30, tool=tool)
        assert {hit.format for hit in found.results} == {"claude-code"}
        assert sessions(found)[0] == "claude-1"
    assert "claude-1" not in sessions(find(palace, "zebra in claude", tool="script"))
    with pytest.raises(UsageError, match="no tool named 'nope'") as caught:
        find(palace, "zebra", tool="nope")
    assert "claude-code" in (caught.value.hint or "")


def test_a_role_gives_that_roles_message(palace: Path) -> None:
    for role, message in (("user", "claude-1-0"), ("assistant", "claude-1-1")):
        (hit,) = find(palace, "zebra", role=role, session="claude-1").results
        assert (hit.role, hit.message_id) == (role, message)
    assert find(palace, "zebra", role="system").results == []


def test_only_the_words_of_the_role_count(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    write_claude(tmp_path / "in" / "a.jsonl", ["hello there friend", "the zebra protocol is fine"], "answered")
    write_claude(tmp_path / "in" / "b.jsonl", ["what is a zebra in the protocol suite", "a thing"], "asked")
    mine(palace, tmp_path / "in")
    assert sessions(find(palace, "zebra protocol", role="user"))[0] == "asked"


@pytest.mark.parametrize("lexical_only", [True, False])
def test_until_is_exclusive(palace: Path, lexical_only: bool) -> None:
    found = find(palace, "heron", until=day(3, 12), project="days", lexical_only=lexical_only)
    assert sorted(sessions(found)) == ["day-1", "day-2"]
    found = find(palace, "heron", since=day(2, 12), until=day(4), project="days", lexical_only=lexical_only)
    assert sorted(sessions(found)) == ["day-2", "day-3"]


def test_since_is_inclusive(palace: Path) -> None:
    assert sorted(sessions(find(palace, "heron", since=day(3, 12), project="days"))) == ["day-3", "day-4", "day-5"]


@pytest.mark.parametrize("lexical_only", [True, False])
def test_what_has_no_time_is_outside_of_any_time(tmp_path: Path, lexical_only: bool) -> None:
    mine(tmp_path / "palace", write_script(tmp_path / "a.json", {"id": "x", "messages": [["user", "zebra timeless"]]}))
    assert sessions(find(tmp_path / "palace", "zebra", until=day(1), lexical_only=lexical_only)) == []


def test_a_time_is_that_of_the_message(tmp_path: Path) -> None:
    messages = [
        ["user", "early heron", "1", "2026-03-01T08:00:00Z"],
        ["assistant", "late zebra", "2", "2026-03-01T22:00:00Z"],
    ]
    mine(tmp_path / "palace", write_script(tmp_path / "a.json", {"id": "x", "messages": messages}))
    assert sessions(find(tmp_path / "palace", "late zebra", since=day(1, 12), until=day(2))) == ["x"]


def test_sessions_by_prefix(palace: Path) -> None:
    assert set(sessions(find(palace, "zebra", session="large-0042"))) == {"large-0042"}
    assert set(sessions(find(palace, "zebra", session="clau"))) == {"claude-1"}
    assert set(sessions(find(palace, "okapi", session="p"))) == {"p"}
    assert set(sessions(find(palace, "okapi", session="p/"))) == {"p/7"}
    with pytest.raises(AmbiguousId) as caught:
        find(palace, "zebra", session="large-004")
    assert caught.value.candidates == [f"large-004{n}" for n in range(10)]
    for unknown in ("nothing", "%", "large_0042", "\\"):
        with pytest.raises(NotFound):
            find(palace, "zebra", session=unknown)


def test_what_is_included(palace: Path) -> None:
    def kinds(query: str, *include: str) -> set[str]:
        return {hit.origin for hit in find(palace, f'"{query}"', include=include).results}

    assert kinds("gnu-in-call") == kinds("gnu-in-thought") == set()
    assert kinds("gnu-in-call", "tool") == {"tool_call"}
    assert kinds("gnu-in-call", "thinking") == set()
    assert kinds("gnu-in-thought", "thinking") == {"thinking"}
    assert kinds("gnu-in-thought", "tool", "thinking") == {"thinking"}
    assert kinds("gnu-in-thought", "all") == {"thinking"}
    with pytest.raises(UsageError, match="nonsense"):
        kinds("x", "nonsense")


def test_subagents_are_found_when_asked_for(palace: Path) -> None:
    assert sessions(find(palace, "okapi"))[:1] == ["p"]
    assert "p/7" not in sessions(find(palace, "okapi"))
    for include in ("subagent", "all"):
        assert set(sessions(find(palace, '"okapi"', include=(include,)))) == {"p", "p/7"}
    (hit,) = (hit for hit in find(palace, "okapi", include=("subagent",)).results if hit.session_id == "p/7")
    assert hit.parent_session_id == "p"


def test_what_is_hidden_is_counted(palace: Path) -> None:
    assert find(palace, "gnu-in-call").hidden == {"tool": 1}
    assert find(palace, "okapi").hidden == {"subagent": 1}
    assert find(palace, "okapi", include=("subagent",)).hidden == {}
    assert find(palace, "okapi", include=("all",)).hidden == {}


def test_filters_that_allow_everything_change_nothing(palace: Path) -> None:
    for query in ("heron 3", "wading bird", "heron zebra"):
        free = find(palace, query, 30, session=None)
        narrow = find(palace, query, 30, until=datetime(2099, 1, 1, tzinfo=UTC))
        assert [(hit.chunk_id, hit.score) for hit in free] == [(hit.chunk_id, hit.score) for hit in narrow]


def test_the_same_question_has_the_same_answer(palace: Path) -> None:
    assert find(palace, "zebra stripes", 50).to_dict() == find(palace, "zebra stripes", 50).to_dict()
    ten, fifty = find(palace, "zebra talk 77", 10).results, find(palace, "zebra talk 77", 20).results
    assert [hit.chunk_id for hit in ten] == [hit.chunk_id for hit in fifty[:10]]


@pytest.mark.parametrize(
    "query", ["!!!", '"', "***", "+ - *", "AND", "a:b", '"->" b', "()", "\x00", "🏺", "x" * 50_000]
)
def test_any_query_is_answered(palace: Path, query: str) -> None:
    assert isinstance(find(palace, query).results, list)


def test_a_limit_below_one_is_a_usage_error(palace: Path) -> None:
    with pytest.raises(UsageError):
        find(palace, "zebra", 0)


def test_a_result_tells_where_it_stands(palace: Path) -> None:
    hit = first(palace, "yes, zebra it is", session="claude-1")
    assert (hit.rank, hit.session_id, hit.message_id, hit.format) == (1, "claude-1", "claude-1-1", "claude-code")
    assert (hit.project, hit.title, hit.line) == ("/w/large-2", "a zebra in claude", 2)
    assert (hit.role, hit.origin, hit.timestamp) == ("assistant", "assistant", "2026-02-03T09:00:01Z")
    assert hit.text == "> a zebra in claude\n\nyes, zebra it is"
    assert hit.text[slice(*hit.match)] == "yes, zebra it is"
    assert Path(hit.path).name == "c.jsonl"
    assert (hit.source_gone, hit.copies) == (False, [])
    assert "claude-1" in (hit.resume or "")


def test_results_as_json_keep_their_contract(palace: Path) -> None:
    data = find(palace, "zebra", 2, tool="claude", until=day(9), include=("tool",)).to_dict()
    assert data["schema_version"] == 1
    assert data["filters"] == {"tool": "claude", "until": "2026-03-09T00:00:00Z", "include": ["tool"]}
    assert data["indexes"] == ["lexical", "vectors"]
    assert {"rank", "score", "scores", "chunk_id", "session_id", "message_id", "parent_session_id"} < set(
        data["results"][0]
    )
    assert set(data["results"][0]["scores"]) == {"lexical", "vector", "late", "rerank"}


def test_the_vector_store_gives_the_same_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    palace = tmp_path / "palace"
    things = ["kiln", "loom", "engine", "garden", "river", "court", "violin", "bread", "planet", "market"]
    texts = [f"about the {one} and the {two}, {n}" for n, (one, two) in enumerate(product(things, things))]
    mine(palace, write_script(tmp_path / "a.json", *(said(text, id=f"s{n}") for n, text in enumerate(texts))))
    with lock.writing(palace), Catalog.open_for_writing(palace) as catalog:
        indexing.store_queued(catalog, palace, fewest=1)
    queries = ["violin", "weaving textiles", "a car motor in the orchestra", "baking bread by the river", "stars"]
    exact = [[(hit.chunk_id, hit.score) for hit in find(palace, query, 5)] for query in queries]
    monkeypatch.setattr(reader, "EXACT_LIMIT", 0)
    with mempalace.Palace(palace) as opened:
        assert [[(hit.chunk_id, hit.score) for hit in opened.search(query, 5)] for query in queries] == exact


# --- ranking ------------------------------------------------------------------------------------------------


def test_the_literal_words_come_before_their_stems(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    texts = ["the tests were running and run again, run, runs", "running tests", "a runner that tests tested tests"]
    for n, text in enumerate(texts):
        write_claude(tmp_path / "in" / f"{n}.jsonl", [text, "ok"], f"s{n}")
    mine(palace, tmp_path / "in")
    assert first(palace, "running tests").session_id == "s1"
    assert first(palace, "were running and run").session_id == "s0"


def test_the_users_own_line_is_first(tmp_path: Path) -> None:
    lines = ["I refuse to use tabs, cobalt rule", "formatting rule with tabs and spaces " * 400]
    mine(tmp_path / "palace", write_claude(tmp_path / "a.jsonl", lines))
    hit = first(tmp_path / "palace", "cobalt rule")
    assert (hit.role, hit.message_id) == ("user", "s1-0")


def test_copies_are_one_hit_that_lists_the_sessions(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    for n in range(4):
        write_claude(tmp_path / "in" / f"{n}.jsonl", ["zebra boilerplate", "ok"], f"s{n}")
    mine(palace, tmp_path / "in")
    (hit,) = find(palace, "zebra").results
    assert sorted([hit.session_id, *hit.copies]) == ["s0", "s1", "s2", "s3"]
    assert sessions(find(palace, "zebra", session="s2")) == ["s2"]


def test_messages_numbered_in_each_session_are_no_copies(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    for name, words in {"a": "zebra in the garden", "b": "zebra on the river"}.items():
        write_script(tmp_path / "in" / f"{name}.json", {"id": name, "messages": [["user", words, "1"]]})
    mine(palace, tmp_path / "in")
    found = find(palace, "zebra")
    assert sorted(sessions(found)) == ["a", "b"]
    assert [hit.copies for hit in found.results] == [[], []]


def test_sessions_that_begin_with_the_same_greeting_are_no_copies(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    for name, words in {"a": "fix the car engine", "b": "sell the automobile motor"}.items():
        messages = [["user", "hi"], ["assistant", words]]
        write_script(tmp_path / "in" / f"{name}.json", {"id": name, "messages": messages})
    mine(palace, tmp_path / "in")
    assert sorted(sessions(find(palace, "vehicle"))) == ["a", "b"]


def _crowd(folder: Path) -> None:
    for n in range(5):
        write_claude(
            folder / f"b{n}.jsonl", [f"we once spoke of a zebra {n} " + "other words here " * 30, "ok"], f"t{n}"
        )


def test_a_session_has_at_most_three_hits_unless_it_is_asked_for(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    write_claude(tmp_path / "in" / "a.jsonl", [f"zebra talk {n} " + f"pad{n} " * 120 for n in range(12)], "s1")
    _crowd(tmp_path / "in")
    mine(palace, tmp_path / "in")
    found = sessions(find(palace, "zebra"))
    assert found.count("s1") == 3
    assert {f"t{n}" for n in range(5)} < set(found)
    assert sessions(find(palace, "zebra", 10, session="s1")) == ["s1"] * 10


def test_a_session_with_many_matches_does_not_hide_the_others(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    write_claude(tmp_path / "in" / "a.jsonl", [f"zebra zebra talk {n} " + f"pad{n} " * 120 for n in range(80)], "s1")
    _crowd(tmp_path / "in")
    mine(palace, tmp_path / "in", embed=False)
    assert set(sessions(find(palace, "zebra"))) == {"s1", "t0", "t1", "t2", "t3", "t4"}


def test_a_text_with_many_copies_does_not_hide_the_others(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    write_script(tmp_path / "in" / "a.json", *(said("zebra zebra boilerplate", id=f"s{n}") for n in range(100)))
    _crowd(tmp_path / "in")
    mine(palace, tmp_path / "in", embed=False)
    assert {f"t{n}" for n in range(5)} < set(sessions(find(palace, "zebra")))


def test_subagents_do_not_hide_main_sessions(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    agents = [said(f"automobile vehicle engine {n}", id="p", parent="p", agent=str(n)) for n in range(400)]
    main = [said(f"automobile trip {n}", id=f"m{n}") for n in range(3)]
    mine(palace, write_script(tmp_path / "a.json", *agents, *main))
    assert set(sessions(find(palace, "car"))) == {"m0", "m1", "m2"}


def test_phrases_are_literal(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    for name, text in {"a": "run the test now", "b": "running the tests now", "c": "the test now, run"}.items():
        write_claude(tmp_path / "in" / f"{name}.jsonl", [text, "ok"], name)
    mine(palace, tmp_path / "in")
    assert sessions(find(palace, '"run the test"')) == ["a"]
    assert sessions(find(palace, '"Run  The Test"')) == ["a"]
    assert sorted(sessions(find(palace, '"the test"'))) == ["a", "b", "c"]
    assert find(palace, '"test run"').results == []


def test_a_phrase_goes_on_over_the_lines_of_a_person(tmp_path: Path) -> None:
    mine(tmp_path / "palace", write_claude(tmp_path / "a.jsonl", ["first line\nsecond line", "ok"]))
    assert sessions(find(tmp_path / "palace", '"first line second line"')) == ["s1"]
    assert sessions(find(tmp_path / "palace", '"> second"')) == []


def test_excluded_words_hold_for_both_indexes(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    write_claude(tmp_path / "in" / "a.jsonl", ["deploy kubernetes cluster today", "use helm"], "a")
    write_claude(tmp_path / "in" / "b.jsonl", ["deploy kubernetes staging cluster", "fine"], "b")
    mine(palace, tmp_path / "in")
    assert sessions(find(palace, "deploy kubernetes -staging")) == ["a"]
    assert sessions(find(palace, "orchestrate containers -staging")) in (["a"], [])
    assert sorted(sessions(find(palace, "deploy kubernetes"))) == ["a", "b"]


def test_equal_scores_are_ordered_by_time_and_then_always_alike(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    moments = {"old": "2026-03-01T00:00:00Z", "new": "2026-03-05T00:00:00Z", "mid": "2026-03-03T00:00:00Z"}
    write_script(tmp_path / "a.json", *(said(f"zebra {name}", id=name, at=at) for name, at in moments.items()))
    mine(palace, tmp_path / "a.json", embed=False)
    assert sessions(find(palace, "zebra")) == ["new", "mid", "old"]


# --- long-lived readers -------------------------------------------------------------------------------------


def test_a_reader_sees_what_was_mined_later(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    mine(palace, write_claude(tmp_path / "a.jsonl", ["early heron", "ok"], "a"))
    with mempalace.Palace(palace) as opened:
        assert sessions(opened.search("heron")) == ["a"]
        mine(palace, write_claude(tmp_path / "b.jsonl", ["LATE-1 heron", "ok"], "b"))
        assert sessions(opened.search("LATE-1"))[0] == "b"
        assert opened.search("LATE-1").behind == 0
        with lock.writing(palace), Catalog.open_for_writing(palace) as catalog:
            indexing.rebuild_lexical(catalog, palace)
        assert sessions(opened.search("LATE-1"))[0] == "b"


def test_a_palace_without_sessions_has_no_hits(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    mine(tmp_path / "palace", tmp_path / "in")
    found = find(tmp_path / "palace", "anything")
    assert (found.results, found.indexes, found.embedded) == ([], [], 1.0)


MINE = """
import sys
from pathlib import Path
from mempalace import miner
miner.mine(Path(sys.argv[1]), [Path(sys.argv[2])])
"""


def test_a_reader_sees_what_another_process_gave_to_the_vector_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "EXACT_LIMIT", 0)
    palace, log = tmp_path / "palace", tmp_path / "in" / "a.jsonl"
    mine(palace, write_claude(log, [f"talk {n} of glaze " + f"kiln{n} " * 130 for n in range(520)], "early"))
    with mempalace.Palace(palace) as opened:
        assert opened.search("automobile engine").results
        late = [f"automobile trip {n} " + f"seat{n} " * 130 for n in range(520)]
        write_claude(tmp_path / "in" / "b.jsonl", late, "late")
        command = [sys.executable, "-c", MINE, str(palace), str(tmp_path / "in")]
        subprocess.run(command, check=True, cwd=Path(__file__).parents[1])
        found = opened.search("vehicle car driving")
        assert (found.indexes, sessions(found)[:1]) == (["lexical", "vectors", "rerank"], ["late"])


def test_a_session_of_a_format_that_is_gone_is_still_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine(tmp_path / "palace", write_script(tmp_path / "a.json", said("zebra kept", id="x")))
    monkeypatch.setattr(registry, "_default", None)
    assert first(tmp_path / "palace", "zebra kept").resume is None
