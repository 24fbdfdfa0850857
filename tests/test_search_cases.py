"""Searches that hurt users of such tools, asked through every face: the library, `--json`, and what people read."""

from __future__ import annotations

import json
import random
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import exports
import pytest
from click.testing import CliRunner
from logs import find, marker, mine, rows, run, write_claude
from test_exports import chatgpt

import mempalace
from mempalace.cli import group

LONG = " ".join(f"and then the kiln rests for {hours} hours before the next glaze" for hours in range(10))


def command(*words: object) -> str:
    """What a command prints, in this process."""
    done = CliRunner().invoke(group, [str(word) for word in words], catch_exceptions=False, standalone_mode=False)
    assert done.exception is None, done.output
    return done.stdout


def ask(palace: Path, query: str, limit: int = 10, **filters: Any) -> list[dict[str, Any]]:
    """The hits of a search, which must be the same through every face."""
    found = json.loads(json.dumps(find(palace, query, limit, **filters).to_dict()))["results"]
    words: list[object] = ["search", "--palace", palace, "-n", limit]
    for name, value in filters.items():
        words += [f"--{name}", ",".join(value) if isinstance(value, tuple) else value]
    told = json.loads(command(*words, "--json", "--", query))
    assert told["results"] == found
    shown = re.findall(r"^    mempalace show (\S+)$", command(*words, "--", query), re.MULTILINE)
    assert shown == [hit["session_id"] for hit in found]
    return list(found)


# --- C49 ----------------------------------------------------------------------------------------------------

_DISHES = ["soup", "bread", "noodles", "dumplings", "salad", "curry", "stew", "pie", "pasta", "rice"]
_PLACES = ["harbour", "station", "market", "bridge", "tower", "garden", "square", "corner", "hall", "yard"]
_IDENTIFIERS = ["RESTAURANT_SIGNALS", "bd-q3fy", "v2.4.7-hotfix", "src/a_b/c-d.py:118", "E0502"]


@pytest.fixture(scope="module")
def restaurants(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 chunks about restaurants and signals, and one with each identifier."""
    folder, choose = tmp_path_factory.mktemp("restaurants"), random.Random(49)
    prose = []
    for _ in range(300):
        dish, place = choose.choice(_DISHES), choose.choice(_PLACES)
        prose.append(
            f"The restaurants near the {place} send signals when the {dish} is ready, and the signals of other"
            f" restaurants at the {choose.choice(_PLACES)} tell how much {choose.choice(_DISHES)} was sold. {LONG}"
        )
    for number, identifier in enumerate(_IDENTIFIERS, 1):
        prose.insert(number * 50, f"We saw {identifier} in the restaurants' signals today. {LONG}")
    for session in range(0, len(prose), 61):
        write_claude(folder / "logs" / f"{session}.jsonl", prose[session : session + 61], f"s{session}")
    mine(folder / "palace", folder / "logs")
    return folder / "palace"


@pytest.mark.parametrize("identifier", _IDENTIFIERS)
def test_c49_an_exact_identifier_comes_first(restaurants: Path, identifier: str) -> None:
    for query in (identifier, identifier.lower()):
        assert identifier in ask(restaurants, query)[0]["text"]


@pytest.mark.parametrize("query", ['"RESTAURANT_SIGNALS"', '"restaurant_signals"'])
def test_c49_in_quotes_only_the_literal_holders(restaurants: Path, query: str) -> None:
    (hit,) = ask(restaurants, query, 50)
    assert "RESTAURANT_SIGNALS" in hit["text"]


# --- C50 ----------------------------------------------------------------------------------------------------

# What was said, four letters of it, and a question in other words.
_TALKS = {
    "ru": ("Как посадить яблоню весной возле старого забора", "ябло", "Когда лучше сажать фруктовые деревья в саду"),
    "zh": ("我们应该怎样修理厨房里的水龙头", "修理厨房", "水管漏水了该找谁来修"),
    "ja": ("来週の京都旅行で金閣寺を見学したい", "京都旅行", "お寺の観光はいつ行く予定ですか"),
    "de": ("Die Wärmepumpe braucht einen größeren Pufferspeicher", "Puff", "Welcher Tank passt zu unserer Heizung"),
    "hi": ("मुझे बगीचे में टमाटर उगाना सीखना है", "टमाट", "घर पर सब्ज़ी कैसे पैदा करें"),
}


@pytest.fixture(scope="module")
def abroad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session in each of five languages among twenty others, in a ChatGPT export."""
    folder = tmp_path_factory.mktemp("abroad")
    talks = [chatgpt(key, [text, "ok 👍"]) for key, (text, _, _) in _TALKS.items()]
    others = [exports.conversation(number, 600, random.Random(number)) for number in range(20)]
    (folder / "conversations.json").write_text(json.dumps([*others, *talks]))
    mine(folder / "palace", folder / "conversations.json")
    return folder / "palace"


@pytest.mark.parametrize("language", _TALKS)
def test_c50_four_letters_find_their_session(abroad: Path, language: str) -> None:
    _, letters, _ = _TALKS[language]
    assert language in [hit["session_id"] for hit in ask(abroad, letters, 3)]


# No model here knows all five languages. This says what is, so that a change of it is seen.
_RANKS = {"ru": 1, "zh": 1, "ja": 1, "de": 1, "hi": 1}


def test_c50_ranks_of_a_question_in_other_words(abroad: Path) -> None:
    ranks: dict[str, int | None] = {}
    for language, (_, _, question) in _TALKS.items():
        sessions = [hit.session_id for hit in find(abroad, question).results]
        ranks[language] = sessions.index(language) + 1 if language in sessions else None
    assert ranks == _RANKS


# --- C51 ----------------------------------------------------------------------------------------------------


def test_c51_the_users_own_line(palace: Path, logs: Path) -> None:
    rule = f"{marker('cobalt').lower()} rule"
    line = f"I refuse to use tabs, {rule}"
    topics = "tabs and spaces, the rule of formatting, indentation, line length, the use of editors"
    essay = " ".join(f"Point {n} about {topics}." for n in range(230))
    assert len(essay.split()) >= 3_000
    write_claude(logs / "a.jsonl", [line, essay])
    mine(palace, logs)

    hit = ask(palace, rule)[0]
    assert (hit["role"], hit["rank"]) == ("user", 1)
    assert line in hit["text"]
    own = ask(palace, rule, 50, role="user")
    assert line in own[0]["text"]
    assert {hit["role"] for hit in own} == {"user"}
    theirs = ask(palace, "formatting", 50, role="assistant")
    assert {hit["role"] for hit in theirs} == {"assistant"}


def test_c51_a_role_filter_finds_only_what_that_role_said(palace: Path, logs: Path) -> None:
    word = marker()
    write_claude(logs / "a.jsonl", ["what is it", f"it is {word}"])
    mine(palace, logs)

    assert len(ask(palace, f'"{word}"', role="assistant")) == 1
    assert ask(palace, f'"{word}"', role="user") == []


# --- C52 ----------------------------------------------------------------------------------------------------

_SHARES = {"/w/large": 60, "/w/middle": 39, "/w/small": 1}  # percent of the sessions
_EACH = 20  # messages of a session, each a chunk


@pytest.fixture(scope="module", params=[2_000, *(pytest.param(n, marks=pytest.mark.slow) for n in (40_000, 120_000))])
def large(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A palace of three projects, and the number of its chunks."""
    folder, chunks = tmp_path_factory.mktemp("large"), request.param
    words = [f"{first}{second}" for first in _DISHES for second in _PLACES]
    for number in range(chunks // _EACH):
        choose = random.Random(number)
        project = next(name for name in _SHARES if number % 100 < _until(name))
        said = [f"call {number} {k} zebra " + " ".join(choose.choices(words, k=70)) for k in range(_EACH)]
        if project == "/w/small":
            said[3] = f"the needle of session {number}"
        write_claude(folder / "logs" / f"{number}.jsonl", said, f"s{number:05}", cwd=project)
    mine(folder / "palace", folder / "logs")
    return folder / "palace", chunks


def _until(project: str) -> int:
    """The percent of the sessions that are of a project or of one before it."""
    names = list(_SHARES)
    return sum(_SHARES[name] for name in names[: names.index(project) + 1])


def test_c52_totals_are_exact(large: tuple[Path, int]) -> None:
    palace, chunks = large
    told = json.loads(command("status", "--palace", palace, "--json"))
    assert {name: one["sessions"] for name, one in told["projects"].items()} == {
        Path(name).name: chunks // _EACH * percent // 100 for name, percent in _SHARES.items()
    }
    assert (told["sessions"], told["messages"]) == (chunks // _EACH, chunks)
    assert told["chunks"] == told["indexed"] == rows(palace, "SELECT COUNT(*) FROM chunks")[0][0]
    assert (told["vectors"]["share"], told["vector_store"]) == (1.0, "ok")


def test_c52_status_takes_less_than_two_seconds(large: tuple[Path, int]) -> None:
    palace, _ = large
    start = time.monotonic()
    assert run("status", "--palace", palace).returncode == 0
    assert time.monotonic() - start < 2


def test_c52_a_small_project_fills_its_results(large: tuple[Path, int]) -> None:
    palace, chunks = large
    sessions = chunks // _EACH // 100
    for query in ("zebra", "zebra soupharbour breadtower"):
        found = ask(palace, query, 3 * sessions, project="small")
        assert len(found) == 3 * sessions
        assert {hit["project"] for hit in found} == {"/w/small"}
    needles = ask(palace, "the needle of session", sessions, project="/w/small")
    assert all("the needle" in hit["text"] for hit in needles)
    assert len(needles) == sessions


def test_c52_every_filter_and_every_way_out_works(large: tuple[Path, int], tmp_path: Path) -> None:
    palace, chunks = large
    assert ask(palace, "zebra", tool="codex") == []
    assert ask(palace, "zebra", tool="claude-code")
    key = f"s{chunks // _EACH - 1:05}"
    assert {hit["session_id"] for hit in ask(palace, "zebra", session=key)} == {key}
    with mempalace.Palace(palace) as opened:
        later = datetime(2026, 2, 3, tzinfo=UTC)
        assert opened.search("zebra", since=later).results
        assert not opened.search("zebra", since=later + timedelta(days=1)).results
    shown = json.loads(command("show", "--palace", palace, key, "--json"))
    assert len(shown["turns"]) == _EACH // 2
    command("export", "--palace", palace, key, "--to", "original", "-o", tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_text().count("\n") == _EACH
