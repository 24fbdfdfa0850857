"""What comes first: meaning where words do not say it, words where they do; the same whatever was made beforehand."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from logs import claude_lines, find, first, mine, write_claude

import mempalace
from mempalace import encoder, late, models, ranking, wordpiece
from mempalace.cli import group
from mempalace.errors import ModelError
from mempalace.palace.catalog import Catalog
from mempalace.query import SearchResults, parse_query
from mempalace.ranking import Candidate

TALK = {
    "mail": ("The report goes out twice each night.", "A second scheduler fires it as well; one must be turned off."),
    "seat": ("I'd rather be by the window on long flights.", "Noted, I book the left side."),
    "db": ("We leave MongoDB, joins were impossible.", "Postgres it is, then."),
    "bread": ("My sourdough stays flat.", "Let the dough rest longer, the yeast is slow in a cold kitchen."),
    "plant": ("The balcony tomatoes turn yellow.", "They want nitrogen: give them nettle brew."),
    "lock": ("Two people edit the same invoice.", "Take an advisory lock for as long as the form is open."),
}


def filler(chance: random.Random) -> tuple[str, str]:
    things = ("queue", "router", "ledger", "camera", "printer", "budget", "parser", "garden", "tariff", "bridge")
    a, b = chance.sample(things, 2)
    return f"The {a} and the {b} need a look this week.", f"I put the {a} on the list; the {b} can wait."


@pytest.fixture(scope="module")
def palace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six talks among eighty others. Copy it before writing to it."""
    folder = tmp_path_factory.mktemp("ranking")
    for name, texts in TALK.items():
        write_claude(folder / "in" / f"{name}.jsonl", texts, name)
    chance = random.Random(5)
    for number in range(80):
        write_claude(folder / "in" / f"{number}.jsonl", filler(chance), f"other-{number:02}")
    mine(folder / "palace", folder / "in")
    return folder / "palace"


def sessions(results: SearchResults) -> list[str]:
    return [hit.session_id for hit in results.results]


QUESTIONS = {
    "why do duplicate e-mails get delivered": "mail",
    "which place do I prefer in the aeroplane": "seat",
    "what is the reason for dropping the document store": "db",
    "how does a loaf become airy": "bread",
    "which fertiliser for vegetables": "plant",
    "how to stop simultaneous changes to a bill": "lock",
}


def test_questions_that_share_few_words_with_the_answer(palace: Path) -> None:
    found = [session for question, session in QUESTIONS.items() if session in sessions(find(palace, question, 3))]
    assert len(found) >= 5
    by_words = [s for q, s in QUESTIONS.items() if s in sessions(find(palace, q, 3, lexical_only=True))]
    assert len(by_words) < len(found) - 1, "the words alone do not tell"


def test_scores_tell_why_a_hit_is_there(palace: Path) -> None:
    found = find(palace, "who fires the report twice")
    assert found.indexes == ["lexical", "vectors", "rerank"]
    scores = found.results[0].scores
    assert all(scores[name] for name in ("lexical", "vector", "late", "rerank")), scores
    assert scores["lexical"] == max(hit.scores["lexical"] or 0 for hit in found.results)


@pytest.mark.parametrize(
    "query", ["sourdough", "E0502", "Почему база данных медленная", "为什么换数据库", '"by the window"']
)
def test_the_sentence_encoder_is_left_out_where_it_knows_nothing(palace: Path, query: str) -> None:
    assert "rerank" not in find(palace, query).indexes


def test_the_order_never_depends_on_what_was_refined(palace: Path, tmp_path: Path) -> None:
    copy = tmp_path / "palace"
    shutil.copytree(palace, copy)
    questions = ["why do duplicate e-mails get delivered", "the ledger and the camera", "how does a loaf become airy"]
    before = [find(copy, question).results for question in questions]
    with mempalace.Palace(copy) as opened:
        total = Catalog.open(copy).count("texts")
        assert opened.refine(7) == (7, total - 7)
        assert [find(copy, question).results for question in questions] == before
        told: list[tuple[str, int]] = []
        assert opened.refine(on_event=lambda event: told.append((event.kind, event.count))) == (total - 7, 0)
        assert told[0] == ("phase", total - 7)
        assert sum(count for kind, count in told if kind == "embedded") == total - 7
        assert opened.refine() == (0, 0)
        assert [opened.search(question).results for question in questions] == before


def test_the_newest_is_refined_first(palace: Path, tmp_path: Path) -> None:
    copy = tmp_path / "palace"
    shutil.copytree(palace, copy)
    lines = claude_lines(["a newer talk of the harbour", "so it is"], "new")
    (tmp_path / "new.jsonl").write_text("\n".join(lines).replace('"timestamp": "20', '"timestamp": "21') + "\n")
    mine(copy, tmp_path / "new.jsonl")
    with mempalace.Palace(copy) as opened:
        opened.refine(1)
    with Catalog.open(copy) as catalog:
        newest = catalog.row("SELECT text FROM chunks WHERE kind = 'dialogue' ORDER BY last DESC, text DESC LIMIT 1")
        assert catalog.rows("SELECT text FROM refined") == [newest]


def test_a_search_writes_nothing(palace: Path) -> None:
    def state() -> dict[str, tuple[int, str]]:
        return {
            str(path): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
            for path in sorted(palace.rglob("*"))
            if path.is_file() and not path.name.endswith(("-shm", "-wal"))
        }

    before = state()
    assert find(palace, "why do duplicate e-mails get delivered").results
    assert state() == before


def test_refine_on_the_command_line(palace: Path, tmp_path: Path) -> None:
    copy = tmp_path / "palace"
    shutil.copytree(palace, copy)
    done = CliRunner().invoke(group, ["refine", "--palace", str(copy), "-n", "3", "--json"])
    assert (done.exit_code, json.loads(done.stdout)["refined"]) == (0, 3), done.output
    status = CliRunner().invoke(group, ["status", "--palace", str(copy), "--json"])
    assert json.loads(status.stdout)["refined"]["kept"] == 3


def test_the_whole_word_comes_before_a_longer_one(tmp_path: Path) -> None:
    write_claude(tmp_path / "in" / "a.jsonl", ["see session_mirror_batches there, session_mirror_batches"], "longer")
    write_claude(tmp_path / "in" / "b.jsonl", ["it was in session_mirror_batch, I think, or so they told me"], "whole")
    mine(tmp_path / "palace", tmp_path / "in")
    assert sessions(find(tmp_path / "palace", "session_mirror_batch")) == ["whole", "longer"]


# --- words that no text has ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "session", "similar"),
    [
        ("sourdouhg", "bread", {"sourdouhg": ["sourdough"]}),
        ("schedulr", "mail", {"schedulr": ["scheduler"]}),
        ("ourdoug", "bread", {"ourdoug": ["sourdough"]}),
    ],
)
@pytest.mark.parametrize("lexical_only", [True, False])
def test_a_misspelt_or_partial_word(
    palace: Path, query: str, session: str, similar: dict[str, list[str]], lexical_only: bool
) -> None:
    found = find(palace, query, lexical_only=lexical_only)
    assert (found.results[0].session_id, found.similar) == (session, similar)


def test_a_word_that_is_there_stands_for_itself(palace: Path) -> None:
    found = find(palace, "sourdough")
    assert found.similar == {}
    assert find(palace, "xyzzyplugh", lexical_only=True).results == []


def test_the_command_line_says_what_it_looked_for(palace: Path) -> None:
    done = CliRunner().invoke(group, ["search", "--palace", str(palace), "sourdouhg"])
    assert "No text has 'sourdouhg'; looked for sourdough instead" in done.stdout


# --- what stands around a hit -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long_talk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("context")
    texts = [f"message {number} " + f"about kiln{number} " * (90 if number == 4 else 3) for number in range(8)]
    write_claude(folder / "a.jsonl", texts, "talk")
    mine(folder / "palace", folder / "a.jsonl")
    return folder / "palace"


@pytest.mark.parametrize(
    ("query", "before", "after"),
    [("kiln3", [1, 2], [4, 5]), ("kiln0", [], [1, 2]), ("kiln7", [5, 6], []), ("kiln5", [3, 4], [6, 7])],
)
def test_the_messages_around_a_hit(long_talk: Path, query: str, before: list[int], after: list[int]) -> None:
    hit = first(long_talk, query, context=2)
    assert [message.message_id for message in hit.before] == [f"talk-{number}" for number in before]
    assert [message.message_id for message in hit.after] == [f"talk-{number}" for number in after]
    for message, number in zip([*hit.before, *hit.after], [*before, *after], strict=True):
        assert message.text.startswith(f"message {number} about")
        assert message.text.count(f"kiln{number}") == (90 if number == 4 else 3), "whole, over the borders of chunks"
        assert message.role == ("assistant" if number % 2 else "user")


def test_no_context_unless_asked_for(long_talk: Path) -> None:
    hit = first(long_talk, "kiln3")
    assert (hit.before, hit.after) == ([], [])


def test_context_on_the_command_line(long_talk: Path) -> None:
    done = CliRunner().invoke(group, ["search", "--palace", str(long_talk), "kiln3", "-n", "1", "--context", "1"])
    lines = done.stdout.splitlines()
    assert [line.split(":")[0].strip() for line in lines[1:4]] == ["you", "assistant", "you"], done.stdout
    as_json = CliRunner().invoke(group, ["search", "--palace", str(long_talk), "kiln3", "-C", "1", "--json"])
    assert [message["message_id"] for message in json.loads(as_json.stdout)["results"][0]["before"]] == ["talk-2"]


# --- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query", ["the", "what is it", "???", "...", "-", '"', '"the', "\x00\x07\x1b[31m", "AND OR ( ["]
)
@pytest.mark.parametrize("lexical_only", [True, False])
def test_queries_that_say_nothing(palace: Path, query: str, lexical_only: bool) -> None:
    assert isinstance(find(palace, query, lexical_only=lexical_only).results, list)


def test_a_pasted_log(palace: Path) -> None:
    chance = random.Random(1)
    words = ["ERROR", "at", "0x7f", "main.py:42", "sourdough", "stays", "flat", "scheduler"]
    pasted = "\n".join(" ".join(chance.choices(words, k=12)) for _ in range(1_500))
    assert len(pasted) > 90_000
    assert {"bread", "mail"} & set(sessions(find(palace, pasted, 5)))


def test_a_filter_that_allows_nothing(palace: Path) -> None:
    assert find(palace, "sourdough", project="no-such-project").results == []


def test_a_palace_without_vectors_yet(tmp_path: Path) -> None:
    write_claude(tmp_path / "a.jsonl", TALK["bread"], "bread")
    mine(tmp_path / "palace", tmp_path / "a.jsonl", embed=False)
    found = find(tmp_path / "palace", "why does the sourdough stay flat")
    assert (sessions(found), found.embedded) == (["bread"], 0.0)
    assert found.indexes == ["lexical", "rerank"]


def test_a_model_that_is_not_what_was_shipped(palace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(models.FOLDER, tmp_path / "models")
    (tmp_path / "models" / models.ENCODER).write_bytes(b"not a model")
    monkeypatch.setattr(models, "FOLDER", tmp_path / "models")
    encoder.default.cache_clear()
    try:
        with pytest.raises(ModelError, match="damaged") as caught:
            find(palace, "why do duplicate e-mails get delivered")
        assert "install mempalace again" in (caught.value.hint or "")
        assert sessions(find(palace, "sourdough flat", lexical_only=True))[0] == "bread"
    finally:
        encoder.default.cache_clear()


# --- what the slow model sees ---------------------------------------------------------------------------------


def candidate(number: int, *, vector: float, late: float) -> Candidate:
    one = Candidate(number, f"u{number:03}", number, "dialogue", 0.0, number, b"%d" % number, "", "[]")
    one.vector, one.late, one.score = vector, late, late
    return one


def test_of_a_vague_query_the_nearest_by_meaning_are_looked_at_though_their_words_differ() -> None:
    near = [candidate(number, vector=0.9, late=0.1) for number in range(30)]
    alike = [candidate(100 + number, vector=0.1, late=0.4) for number in range(100)]
    chosen = {one.chunk for one in ranking.best_texts([*near, *alike])}
    assert len(chosen) == ranking.RERANKED_IF_VAGUE
    assert set(range(30)) < chosen


def test_of_a_clear_query_only_the_best_are_looked_at() -> None:
    near = [candidate(number, vector=0.9, late=0.1) for number in range(30)]
    clear = [candidate(100 + number, vector=0.1, late=0.9) for number in range(100)]
    chosen = [one.chunk for one in ranking.best_texts([*near, *clear])]
    assert chosen == list(range(100, 100 + ranking.RERANKED))


def test_what_was_asked_for_beside_dialogue_counts_more() -> None:
    talk, tool = candidate(1, vector=0.5, late=0.5), candidate(2, vector=0.5, late=0.5)
    tool.kind = "tool"
    ranking.score([talk, tool], "x", parse_query("x"), included=("tool",))
    assert tool.score == pytest.approx(talk.score + ranking.INCLUDED_BONUS)
    ranking.score([talk, tool], "x", parse_query("x"))
    assert tool.score == talk.score


# --- late interaction ---------------------------------------------------------------------------------------


def tokens(words: str) -> dict[int, float]:
    return {token: 1.0 for word in words.split() for token in wordpiece.shared().ids(word)}


def test_late_interaction_of_the_same_words_is_one_and_of_none_is_nothing() -> None:
    query = tokens("kiln glaze")
    whole, half, none = late.scores(
        query, [late.pack(["", "a glaze for the kiln"]), late.pack(["", "kiln"]), late.pack([""])]
    )
    assert whole == pytest.approx(1, abs=1e-6)
    assert 0.5 <= half < 1
    assert none == 0


def test_words_in_one_message_count_more_than_in_two() -> None:
    together, apart = late.scores(
        tokens("kiln glaze"),
        [late.pack(["", "kiln glaze", "boat harbour"]), late.pack(["", "kiln boat", "glaze harbour"])],
    )
    assert together > apart


def test_a_text_is_scored_alike_whatever_stands_beside_it() -> None:
    texts = [late.pack(["[2026-01-02]", text]) for pair in TALK.values() for text in pair]
    query = tokens("who edits the invoice at night")
    together = late.scores(query, texts)
    assert together == pytest.approx([late.scores(query, [text])[0] for text in texts], abs=1e-6)
    assert late.scores({}, texts) == [0.0] * len(texts)
    assert late.scores(query, []) == []


def test_the_encoder_gives_a_text_the_same_vector_in_any_company() -> None:
    model = encoder.default()
    texts = ["a kiln", "the boat is slow and the harbour is far away from here", "glaze"]
    together = model.embed(texts)
    assert (together == [model.embed([text])[0] for text in texts]).all()
    assert [round(float(row @ row), 5) for row in together] == [1.0, 1.0, 1.0]
