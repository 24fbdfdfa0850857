"""Statistics: every metric by tables of small sessions, and the sums of real ones against counts by hand."""

from __future__ import annotations

import json
import runpy
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mempalace
from mempalace.analysis import chains, corrections, failures, retries
from mempalace.analysis.calls import NO_CALL, pair
from mempalace.analysis.cost import bundled_prices, load_prices, plain_name
from mempalace.analysis.files import file_of
from mempalace.analysis.groups import by_label, by_model
from mempalace.analysis.parts import Cost, ModelUsage, TokenStats, ToolChain, ToolStats
from mempalace.analysis.report import SessionAnalysis
from mempalace.errors import PriceError
from mempalace.model import (
    Message,
    Origin,
    Role,
    Session,
    SessionMetadata,
    Text,
    TokenUsage,
    ToolResult,
    ToolUse,
    Turn,
)
from mempalace.values import dumps

ROOT = Path(__file__).parent.parent
GOLDEN = Path(__file__).parent / "golden" / "statistics"
FIGURES: dict[str, Any] = json.loads((GOLDEN / "figures.json").read_text())
DAY = datetime(2026, 11, 1, 12, tzinfo=UTC)


def person(text: str = "go") -> Message:
    return Message(Role.USER, (Text(text),))


def says(text: str = "well") -> Message:
    return Message(Role.ASSISTANT, (Text(text),), origin=Origin.ASSISTANT)


def calls(*uses: ToolUse) -> Message:
    return Message(Role.ASSISTANT, uses, origin=Origin.ASSISTANT)


def call(id: str, name: str = "Bash", **input: Any) -> Message:
    return calls(ToolUse(id, name, input))


def gives(id: str, content: str = "", error: bool | None = None) -> Message:
    return Message(Role.TOOL, (ToolResult(id, content, error),), origin=Origin.TOOL_RESULT)


def turn(*messages: Message, usage: TokenUsage | None = None) -> Turn:
    return Turn(messages, usage)


def session(*turns: Turn, name: str = "s1", **fields: Any) -> Session:
    metadata = SessionMetadata(session_id=name, timestamp=DAY, model=fields.pop("model", None))
    return Session(Path("a.jsonl"), "claude-code", metadata, turns, **fields)


def commands(*runs: tuple[str, bool]) -> Session:
    """A session that runs these commands in one turn; True failed."""
    messages = [person()]
    for number, (command, failed) in enumerate(runs):
        messages += [call(f"c{number}", command=command), gives(f"c{number}", "Exit code 1" * failed, failed)]
    return session(turn(*messages))


# --- counts, tools ------------------------------------------------------------------------------------------


def test_messages_are_counted_by_role_with_results_as_tool() -> None:
    one = session(
        turn(person(), says(), call("1"), gives("1"), says()),
        turn(person(), Message(Role.SYSTEM, (Text("reminder"),), origin=Origin.INJECTED), says()),
    )
    assert mempalace.analyze(one).message_counts == {"assistant": 4, "user": 2, "system": 1, "tool": 1}


def test_calls_errors_and_output_per_tool() -> None:
    one = session(
        turn(
            person(),
            calls(ToolUse("1", "Bash", {}), ToolUse("2", "Read", {})),
            gives("1", "four", True),
            gives("2", "é" * 10, False),
            call("3"),
            gives("3", "no"),
            call("4"),
        )
    )
    stats = mempalace.analyze(one).tool_stats
    assert stats == {"Bash": ToolStats(3, 1, 6), "Read": ToolStats(1, 0, 10)}
    assert stats["Bash"].success_rate == pytest.approx(2 / 3)
    assert ToolStats().success_rate is None
    report = mempalace.analyze(one)
    assert (report.total_tool_calls, report.total_errors, report.success_rate) == (4, 1, 0.75)


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        # the result of a call that ran in the background comes a turn later
        ([turn(person(), call("1")), turn(person(), gives("1", "", True))], {"Bash": (1, 1)}),
        # ids that begin anew in each turn: the last call before the result is meant
        (
            [
                turn(person(), call("1", "A"), gives("1")),
                turn(person(), call("1", "B"), gives("1", "", True)),
            ],
            {"A": (1, 0), "B": (1, 1)},
        ),
        # two results of one call, both errors: one call failed
        ([turn(person(), call("1"), gives("1", "", True), gives("1", "", True))], {"Bash": (1, 1)}),
        # a result before its call
        ([turn(person(), gives("1", "", True), call("1"))], {"Bash": (1, 1)}),
        # an empty id pairs nothing
        ([turn(person(), call(""), gives("", "", True))], {"Bash": (1, 0)}),
        # not said is no error
        ([turn(person(), call("1"), gives("1", "error", None))], {"Bash": (1, 0)}),
    ],
)
def test_errors_are_paired_by_id_across_turns(turns: list[Turn], expected: dict[str, tuple[int, int]]) -> None:
    stats = mempalace.analyze(session(*turns)).tool_stats
    assert {name: (one.calls, one.errors) for name, one in stats.items()} == expected


def test_a_result_without_a_call_is_counted_as_such_and_its_error_kept() -> None:
    report = mempalace.analyze(session(turn(person(), gives("lost", "Exit code 1", True))))
    assert (report.unpaired_results, report.tool_stats) == (1, {})
    assert [one.category for one in report.error_patterns] == ["Command failure"]
    assert report.largest_tool_results[0].tool == NO_CALL


def test_the_ten_largest_results() -> None:
    sizes = [5, 90, 7, 7, 60, 1, 2, 3, 4, 50, 40, 30]
    messages = [
        part for number, size in enumerate(sizes) for part in (call(str(number)), gives(str(number), "x" * size))
    ]
    found = mempalace.analyze(session(turn(person(), *messages))).largest_tool_results
    assert [one.chars for one in found] == [90, 60, 50, 40, 30, 7, 7, 5, 4, 3]
    assert [one.place for one in found if one.chars == 7] == [6, 8]  # equal ones in their order
    assert found[0] == (90, "Bash", "s1", 0, 4)


def test_which_tool_follows_which() -> None:
    one = session(turn(person(), call("1", "A"), call("2", "B")), turn(person(), call("3", "A"), call("4", "B")))
    report = mempalace.analyze(one)
    assert report.transitions == {("A", "B"): 2, ("B", "A"): 1}
    assert report.to_dict()["transitions"][0] == {"from": "A", "to": "B", "count": 2, "probability": 1.0}


# --- tokens -------------------------------------------------------------------------------------------------


def test_tokens_totals_and_context() -> None:
    one = session(
        turn(person(), says(), says(), usage=TokenUsage(100, 10, 900, 50)),
        turn(person(), says(), usage=TokenUsage(200, 20, 1800, None)),
        turn(person("no tokens told"), says()),
        turn(person(), says(), usage=TokenUsage(1, 5, None, 0)),
    )
    report = mempalace.analyze(one)
    stats = report.token_stats
    assert stats == TokenStats(301, 35, 2700, 50, 3, 4, 1, 2000)
    assert (stats.avg_context, stats.context_per_request) == (1000, 750)  # 3001 / 3 and / 4, rounded down
    assert report.total_turns == 4
    assert [one.tokens for one in report.context_per_turn] == [1000, 2000, None, 1]


def test_what_no_turn_tells_stays_none() -> None:
    stats = mempalace.analyze(session(turn(person(), says()))).token_stats
    assert stats == TokenStats()
    assert (stats.cache_read, stats.min_context, stats.avg_context) == (None, None, None)
    assert mempalace.analyze(session()).to_dict()["dedup_tokens"]["uniqueness_ratio"] is None


def test_requests_leave_out_what_the_client_makes_up() -> None:
    made_up = Message(Role.ASSISTANT, (Text("API Error"),), origin=Origin.INJECTED)
    one = session(turn(person(), says(), made_up, usage=TokenUsage(1, 1)))
    assert mempalace.analyze(one).token_stats.requests == 1


def test_new_tokens_are_the_growth_of_the_context_and_the_output() -> None:
    usages = [TokenUsage(100, 10, 0), TokenUsage(50, 10, 250), TokenUsage(100, 10, 0), TokenUsage(100, 10, 50)]
    dedup = mempalace.analyze(session(*(turn(person(), usage=usage) for usage in usages))).dedup_tokens
    # contexts 100, 300, 100 (compacted), 150: 100 + 200 + 0 + 50 are new
    assert (dedup.unique_input, dedup.unique_output, dedup.total_billed) == (350, 40, 690)
    assert dedup.uniqueness_ratio == pytest.approx(390 / 690)


# --- errors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("Exit code 1: file not found", "Command failure"),
        ("EXIT CODE 2", "Command failure"),
        ("No such file or directory: permission", "File not found"),
        ("tool not found, timeout", "File not found"),
        ("Permission denied after timeout", "Permission error"),
        ("connection timed out in syntax check", "Timeout"),
        ("SyntaxError: import error", "Syntax error"),
        ("ImportError: cannot import name x", "Import error"),
        ("No module named numpy", "Import error"),
        ("an important matter", "Other"),  # holds "import"
        ("", "Other"),
    ],
)
def test_the_first_category_that_fits_an_error_wins(text: str, category: str) -> None:
    assert failures.categorize(text) == category


def test_errors_are_sorted_by_count_with_at_most_three_short_examples() -> None:
    texts = ["odd"] * 2 + [f"İ{number}" + "ſ漢\ud800" * 60 + "Exit code" for number in range(5)] + ["permission"] * 2
    messages = [
        part for number, text in enumerate(texts) for part in (call(str(number)), gives(str(number), text, True))
    ]
    found = mempalace.analyze(session(turn(person(), *messages))).error_patterns
    # of the same count in the order of the categories
    assert [(one.category, one.count) for one in found] == [
        ("Command failure", 5),
        ("Permission error", 2),
        ("Other", 2),
    ]
    examples = found[0].examples
    assert [one.text for one in examples] == [text[:100] for text in texts[2:5]]  # whole characters of the text itself
    assert all(len(one.text) <= 100 for one in examples)
    dumps(mempalace.analyze(session(turn(person(), *messages))).to_dict())  # lone surrogates are no obstacle


# --- files, parallel, chains --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "input", "expected"),
    [
        ("Read", {"file_path": "/a.py"}, "/a.py"),
        ("NotebookEdit", {"notebook_path": "n.ipynb"}, "n.ipynb"),
        ("read_file", {"absolute_path": "/b"}, "/b"),
        ("write_file", {"path": "c"}, "c"),
        ("Grep", {"path": "src"}, None),  # a folder that is searched
        ("Read", {"file_path": 7}, None),
        ("Read", "raw", None),
        ("Bash", {"command": "cat a.py"}, None),
    ],
)
def test_the_file_that_a_call_is_about(name: str, input: Any, expected: str | None) -> None:
    assert file_of(ToolUse("1", name, input)) == expected


def test_tokens_per_file_are_a_quarter_of_the_characters_of_results() -> None:
    one = session(
        turn(person(), call("1", "Read", file_path="a"), gives("1", "x" * 9), call("2", "Edit", file_path="a")),
        turn(
            person(), gives("2", "ok"), call("3", "Read", file_path="b"), call("4", "Grep", path="a"), gives("4", "zzz")
        ),
    )
    assert mempalace.analyze(one).file_tokens == {"a": 3 + 1, "b": 0}


READ = {"file_path": "/src/first.py"}


@pytest.mark.parametrize(
    ("messages", "loose", "strict"),
    [
        ([call("1"), gives("1")], 1, 0),
        ([call("1", "Read", file_path="/x/one.py"), gives("1", "text")], 1, 0),
        # two reads, one after the other: one round trip to save
        (
            [call("1", "Read", file_path="/x/one.py"), gives("1", "a"), call("2", "Grep", pattern="zed"), gives("2")],
            0,
            1,
        ),
        # three
        ([part for n in "123" for part in (call(n, "Read", file_path=f"/f{n}.py"), gives(n, "x"))], 0, 2),
        # the second names what the first found
        (
            [
                call("1", "Glob", pattern="*.py"),
                gives("1", "src/two.py"),
                call("2", "Read", file_path="/w/src/two.py"),
                gives("2"),
            ],
            0,
            0,
        ),
        # the second writes
        (
            [call("1", "Read", file_path="/one.py"), gives("1"), call("2", "Edit", file_path="/two.py"), gives("2")],
            0,
            0,
        ),
        # already sent together, in one message or in two
        (
            [calls(ToolUse("1", "Read", READ), ToolUse("2", "Read", {"file_path": "/b.py"})), gives("1"), gives("2")],
            0,
            0,
        ),
        ([call("1", "Read", file_path="/a.py"), call("2", "Read", file_path="/b.py"), gives("1"), gives("2")], 0, 0),
    ],
)
def test_parallel_opportunities_by_the_rule_of_normalize_and_by_the_stricter_one(
    messages: list[Message], loose: int, strict: int
) -> None:
    report = mempalace.analyze(session(turn(person(), *messages)))
    assert (report.parallel_opportunities, report.parallel_opportunities_strict) == (loose, strict)


def test_calls_of_different_turns_cannot_be_sent_together() -> None:
    turns = [turn(person(), call(n, "Read", file_path=f"/f{n}.py"), gives(n, "x")) for n in "12"]
    report = mempalace.analyze(session(*turns))
    assert (report.parallel_opportunities, report.parallel_opportunities_strict) == (2, 0)


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        (["A", "B"], []),
        (["A", "B", "C"], [(0, 2, ("A", "B", "C"))]),
        (["A", "B", "C", "", "A", "A", "A", "A"], [(0, 2, ("A", "B", "C")), (4, 7, ("A",) * 4)]),
        (["A", "B", "AB", "C", "D"], []),
        (["", "A", "B", "C", "AB"], [(1, 3, ("A", "B", "C"))]),
    ],
)
def test_chains_are_three_or_more_turns_with_one_call_each(tools: list[str], expected: list[Any]) -> None:
    turns = [turn(person(), *(call(f"{n}{name}", name) for name in names)) for n, names in enumerate(tools)]
    assert mempalace.analyze(session(*turns)).tool_chains == tuple(ToolChain("s1", *one) for one in expected)


def test_patterns_are_sequences_of_two_to_five_tools_found_twice() -> None:
    found = chains.tool_patterns([ToolChain("s1", 0, 2, ("A", "B", "C")), ToolChain("s2", 0, 3, ("A", "B", "C", "D"))])
    assert [(one.tools, one.occurrences) for one in found] == [
        (("A", "B", "C"), 2),
        (("A", "B"), 2),
        (("B", "C"), 2),
    ]
    long = chains.tool_patterns([ToolChain("s", 0, 6, ("A",) * 7)])
    assert [(len(one.tools), one.occurrences) for one in long] == [(2, 6), (3, 5), (4, 4), (5, 3)]


# --- retries ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([("pytest", True)] * 2, []),  # two attempts
        ([("pytest", True), ("pytest", False), ("pytest", False)], []),  # one failure
        ([("pytest -x", True), ("pytest a.py", True), ("pytest", False)], [("pytest", 3, 2, 1)]),
        ([("cd /w && pytest", True), ("pytest; ls", True), ("pytest || true", False)], [("pytest", 3, 2, 1)]),
        ([("git push", True), ("git pull", True), ("git push", False)], []),
        ([("make", True)] * 3 + [("cargo test", True)] * 4, [("cargo test", 4, 4, 1), ("make", 3, 3, 1)]),
    ],
)
def test_retry_hotspots_are_three_attempts_and_two_failures(runs: list[Any], expected: list[Any]) -> None:
    assert mempalace.analyze(commands(*runs)).retry_hotspots == tuple(expected)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("a && b; c || d", ["a", "b", "c", "d"]),
        ("a | b & c", ["a"]),
        ("""git commit -m "one; two && 'three'" && git push""", ["git commit", "git push"]),
        ("echo 'a;b", ["echo"]),
        (r"echo a\;b", ["echo"]),
        ("cat <<'EOF' > f && make\nfor x; do y && z; don't\nEOF\nrm q", ["cat", "make"]),
        ("# first\nRUST_LOG=debug A=1 ./target/cargo --locked test", ["cargo test"]),
        ("git -C /w status; npm run lint; python3 -m pytest -q", ["git status", "npm run lint", "python3 -m pytest"]),
        ("cd /w", ["cd"]),
        ("cd /w && cd /x && ls", ["ls"]),
        ("make \\\n  test", ["make"]),
        (";; && A=1", []),
    ],
)
def test_the_patterns_of_a_command_line(command: str, expected: list[str]) -> None:
    assert retries.patterns(command) == expected


@given(st.text(alphabet="ab \"'\\;&|#\n=<-EOF/"))
def test_no_command_line_is_an_obstacle(command: str) -> None:
    assert all(pattern == pattern.strip() and pattern for pattern in retries.patterns(command))


@pytest.mark.parametrize(
    "use",
    [
        ToolUse("c", "shell", {"command": ["bash", "-lc", "pytest -q"]}),
        ToolUse("c", "exec_command", {"cmd": "pytest -q"}),
        ToolUse("c", "run_shell_command", {"command": "pytest -q"}),
        ToolUse("c", "shell", {"command": ["pytest", "-q"]}),
    ],
)
def test_commands_of_every_tool(use: ToolUse) -> None:
    messages = [part for n in "123" for part in (calls(replace(use, id=n)), gives(n, "", True))]
    assert mempalace.analyze(session(turn(person(), *messages))).retry_hotspots == (("pytest", 3, 3, 1),)


# --- corrections --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I apologize, I was wrong.", ("apology", "I apologize, I was wrong.")),
        ("Oh. I’m sorry about it", ("apology", "I’m sorry about it")),
        ("You are right: I MADE A MISTAKE", ("mistake", "I MADE A MISTAKE")),
        ("So let me fix that", ("let_me_fix", "let me fix that")),
        ("Actually, no", ("actually", "Actually, no")),
        ("İİİİ漢: my mistake, 漢字" + "x" * 100, ("mistake", "my mistake, 漢字" + "x" * 66)),
        ("it is actually fine", None),
        ("semi apologizers; factually, no", None),
        ("", None),
    ],
)
def test_corrections_by_kind_with_an_excerpt_from_where_they_begin(text: str, expected: Any) -> None:
    assert corrections.detect(text) == expected


def test_only_the_assistant_corrects_itself() -> None:
    one = session(
        turn(person("I was wrong"), says("fine"), call("1"), gives("1", "my mistake")),
        turn(person(), says("My mistake")),
    )
    assert mempalace.analyze(one).corrections == (("s1", 1, 5, "mistake", "My mistake"),)


# --- cost ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "usage", "cost", "savings"),
    [
        # per million: 5 in, 25 out, 6.25 written, 0.50 read
        ("claude-opus-4-5-20251101", (1_000_000, 0, 0, 0), "5", "0"),
        ("anthropic/claude-opus-4.5", (0, 1_000_000, 0, 0), "25", "0"),
        ("us.anthropic.claude-opus-4-5-20251101-v1:0", (0, 0, 0, 1_000_000), "6.25", "0"),
        ("claude-opus-4-6[1m]", (0, 0, 1_000_000, 0), "0.5", "4.5"),
        ("claude-sonnet-4-5@20250929", (1000, 2000, 3000, 4000), "0.0489", "0.0081"),
        ("claude-haiku-4-5-latest", (7, 7, 7, 7), "0.00005145", "0.0000063"),
        ("gpt-5.2-codex", (1000, 100, 10_000, None), "0.0049", "0.01575"),
        ("gemini-3-pro-preview", (1000, 100, 10_000, None), "0.0052", "0.018"),
    ],
)
def test_costs_from_the_table_of_prices(model: str, usage: Any, cost: str, savings: str) -> None:
    one = session(turn(person(), usage=TokenUsage(*usage, model=model)))
    found = mempalace.analyze(one).cost
    assert found is not None
    assert (found.total, found.cache_savings) == (Decimal(cost), Decimal(savings))


@pytest.mark.parametrize("model", ["kimi-k2.7", "claude-opus-9", "gpt-5.2-mini", "opus", "sonnet", "<synthetic>", None])
def test_an_unknown_model_costs_none_and_never_0(model: str | None) -> None:
    report = mempalace.analyze(session(turn(person(), usage=TokenUsage(1, 1, 1, 1, model))))
    name = model or "(unknown)"
    assert report.costs == {name: None}
    assert report.cost is None
    assert report.unpriced == {name: 1}
    assert report.to_dict()["costs"][name]["cost"] is None
    assert report.to_dict()["total_cost"] is None


def test_a_sum_says_what_it_lacks() -> None:
    known = turn(person(), usage=TokenUsage(1_000_000, 0, model="claude-opus-4-5"))
    report = mempalace.analyze(session(known, turn(person(), usage=TokenUsage(1, 0, model="other"))))
    assert report.cost is not None
    assert (report.cost.total, report.unpriced) == (Decimal(5), {"other": 1})


def test_a_turn_belongs_to_the_model_of_the_session_if_it_names_none() -> None:
    one = session(turn(person(), usage=TokenUsage(1_000_000, 0)), model="claude-opus-4-5")
    assert mempalace.analyze(one).costs == {"claude-opus-4-5": Cost(input=Decimal(5))}


def test_turns_without_a_token_have_no_model() -> None:
    assert mempalace.analyze(session(turn(person(), usage=TokenUsage(model="<synthetic>")))).models == {}


def test_tokens_of_a_kind_without_a_price_are_not_free() -> None:
    # OpenAI asks nothing for writing to the cache before 5.6: a log that counts such tokens is not understood.
    assert mempalace.analyze(session(turn(person(), usage=TokenUsage(1, 1, 1, 5, "gpt-5.2")))).cost is None


def test_prices_of_the_day() -> None:
    def cost(day: int, month: int) -> Decimal:
        message = replace(person(), timestamp=datetime(2026, month, day, tzinfo=UTC))
        found = mempalace.analyze(session(turn(message, usage=TokenUsage(1_000_000, 0, model="gpt-5.6-luna")))).cost
        assert found is not None
        return found.total

    assert [cost(29, 7), cost(30, 7), cost(1, 11)] == [Decimal("1"), Decimal("0.2"), Decimal("0.2")]


def test_the_bundled_prices_have_date_and_source_and_no_model_twice() -> None:
    import tomllib

    data = tomllib.loads((ROOT / "mempalace/analysis/prices.toml").read_text())
    seen = [(plain_name(model), one.get("since")) for one in data["family"] for model in one["models"]]
    assert len(seen) == len(set(seen))
    assert all(one["source"].startswith("https://") and one["date"].year >= 2025 for one in data["family"])
    assert bundled_prices().date == max(one["date"] for one in data["family"])
    assert bundled_prices().price("claude-opus-4-5") is not None


FAMILY = 'models = ["m"]\ninput = 2\noutput = 4\nsource = "own"\ndate = 2026-01-02\n'


def test_a_table_of_ones_own_takes_the_place_of_the_bundled_one(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text('currency = "EUR"\n[[family]]\n' + FAMILY)
    table = load_prices(path)
    one = session(turn(person(), usage=TokenUsage(1_000_000, 1, model="m")), model="claude-opus-4-5")
    report = mempalace.analyze(one, prices=table)
    assert report.costs == {"m": Cost(Decimal(2), Decimal("0.000004"))}
    assert table.currency == "EUR"
    assert table.price("claude-opus-4-5") is None
    path.write_text("extends = true\n[[family]]\n" + FAMILY)
    assert load_prices(path).price("claude-opus-4-5") is not None


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("x = =", 1, "no table of prices"),
        ("", None, "no [[family]]"),
        ("family = 3", None, "no [[family]]"),
        ("family = [3]", None, "family 1: not a table"),
        ("[[family]]\n" + FAMILY.replace('["m"]', "[]"), None, "family 1: `models`"),
        ("[[family]]\n" + FAMILY.replace("= 2\n", '= "2"\n'), None, "family 1: `input`"),
        ("[[family]]\n" + FAMILY.replace("= 2\n", "= -2\n"), None, "family 1: `input`"),
        ("[[family]]\n" + FAMILY.replace("= 2\n", "= nan\n"), None, "family 1: `input`"),
        ("[[family]]\n" + FAMILY.replace("= 2\n", "= true\n"), None, "family 1: `input`"),
        ("[[family]]\n" + FAMILY.replace("date = 2026-01-02", ""), None, "family 1: `date`"),
        ("[[family]]\n" + FAMILY + "since = 3\n", None, "family 1: `since`"),
        ("[[family]]\n" + FAMILY.replace('source = "own"', ""), None, "family 1: `source`"),
        ('currency = "EUR"\nextends = true\n[[family]]\n' + FAMILY, None, "in USD, not EUR"),
        ("[[family]]\n" + FAMILY + "inputt = 3\n", None, "family 1: unknown key 'inputt'"),
    ],
)
def test_a_bad_table_of_prices_is_named(tmp_path: Path, text: str, line: int | None, message: str) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(text)
    with pytest.raises(PriceError) as caught:
        load_prices(path)
    assert message in str(caught.value)
    assert (caught.value.path, caught.value.line) == (path, line)
    with pytest.raises(PriceError, match="cannot be read"):
        load_prices(tmp_path / "none.toml")


# --- sums ---------------------------------------------------------------------------------------------------


def test_sub_agents_are_counted_on_request() -> None:
    agent = session(turn(person(), call("1"), usage=TokenUsage(5, 5)), agent_id="a1", parent_id="s1", subagent_type="x")
    deeper = replace(agent, agent_id="a2")
    parent = session(
        turn(person(), call("1"), usage=TokenUsage(1, 1)), subagents=(replace(agent, subagents=(deeper,)),)
    )
    alone, whole = mempalace.analyze(parent), mempalace.analyze(parent, subagents=True)
    assert (alone.sessions, alone.subagents, alone.subagents_left_out) == (1, 0, 2)
    assert (whole.sessions, whole.subagents, whole.subagents_left_out) == (1, 2, 0)
    assert (alone.total_tool_calls, whole.total_tool_calls) == (1, 3)
    assert (alone.token_stats.total_input, whole.token_stats.total_input) == (1, 11)
    assert whole.ids == ("s1", "s1/a1", "s1/a2")
    apart = [replace(one, subagents=()) for one in (parent, agent, deeper)]
    assert whole == mempalace.aggregate(mempalace.analyze(one) for one in apart)


NAMES = st.sampled_from(["Read", "Grep", "Bash", "Edit"])
BLOCKS = st.one_of(
    st.builds(Text, st.sampled_from(["ok", "I was wrong", "let me fix"])),
    st.builds(
        ToolUse, st.sampled_from("123"), NAMES, st.sampled_from([{"command": "pytest"}, {"file_path": "a"}, None])
    ),
    st.builds(
        ToolResult, st.sampled_from("123"), st.sampled_from(["", "Exit code 1", "a\n" * 9]), st.none() | st.booleans()
    ),
)
MESSAGES = st.builds(
    lambda role, blocks: Message(role, tuple(blocks)), st.sampled_from(list(Role)), st.lists(BLOCKS, max_size=3)
)
COUNTS = st.integers(0, 10**7)
USAGES = st.builds(
    TokenUsage,
    COUNTS,
    COUNTS,
    st.none() | COUNTS,
    st.none() | COUNTS,
    st.sampled_from(["claude-opus-4-5", "gpt-5.2", "x"]),
)
TURNS = st.builds(
    lambda messages, usage: Turn(tuple(messages), usage), st.lists(MESSAGES, max_size=5), st.none() | USAGES
)
SESSIONS = st.builds(
    lambda name, turns: session(*turns, name=name), st.sampled_from(["s1", "s2", "s3"]), st.lists(TURNS, max_size=5)
)


@given(st.lists(SESSIONS, min_size=3, max_size=3))
@settings(deadline=None)
def test_sums_do_not_depend_on_order_or_grouping(sessions: list[Session]) -> None:
    reports = [mempalace.analyze(one) for one in sessions]
    total = mempalace.aggregate(reports)
    for order in permutations(reports):
        assert mempalace.aggregate(order) == total
        assert mempalace.aggregate([order[0], mempalace.aggregate(order[1:])]) == total
        assert list(mempalace.aggregate(order).tool_stats) == list(total.tool_stats)
    assert mempalace.aggregate([reports[0]]) == reports[0]
    assert mempalace.aggregate([]) == SessionAnalysis()
    assert total.total_tool_calls == sum(one.total_tool_calls for one in reports)
    assert total.token_stats.total_input == sum(one.token_stats.total_input for one in reports)
    assert json.loads(json.dumps(total.to_dict(), allow_nan=False)) == total.to_dict()


def test_hotspots_of_sessions_are_added_not_made() -> None:
    once = commands(("pytest", True), ("pytest", False))
    assert mempalace.aggregate([mempalace.analyze(once)] * 5).retry_hotspots == ()
    hot = commands(*[("pytest", True)] * 3)
    assert mempalace.aggregate([mempalace.analyze(hot)] * 2).retry_hotspots == (("pytest", 6, 6, 2),)


def test_groups_by_label_and_by_model() -> None:
    def spent(model: str, tokens: int) -> SessionAnalysis:
        return mempalace.analyze(session(turn(person(), call("1"), usage=TokenUsage(tokens, 0, model=model))))

    first, second, third = spent("claude-opus-4-5", 1_000_000), spent("x", 7), spent("claude-opus-4-5", 1_000_000)
    rows = by_label([("b", first), ("a", second), ("b", third)])
    assert [(one.name, one.sessions, one.calls, one.input, one.unpriced_turns) for one in rows] == [
        ("a", 1, 1, 7, 1),
        ("b", 2, 2, 2_000_000, 0),
    ]
    models = by_model([first, second, third])
    assert [(one.name, one.sessions, one.turns, one.calls) for one in models] == [
        ("claude-opus-4-5", 2, 2, None),
        ("x", 1, 1, None),
    ]
    assert models[0].cost is not None
    assert models[0].cost.total == Decimal(10)
    assert models[1].cost is None
    assert ModelUsage().cost == Cost()


def test_the_shape_of_the_data() -> None:
    data = mempalace.analyze(session()).to_dict()
    assert set(data) == {
        *("sessions", "subagents", "subagents_left_out", "ids", "formats", "total_turns", "message_counts"),
        *("total_tool_calls", "total_errors", "success_rate", "tool_stats", "unpaired_results", "token_stats"),
        *("context_per_turn", "dedup_tokens", "costs", "total_cost", "unpriced_turns", "error_patterns", "file_tokens"),
        *("parallel_opportunities", "parallel_opportunities_strict", "tool_chains", "tool_patterns", "transitions"),
        *("retry_hotspots", "corrections", "largest_tool_results"),
    }
    assert pair(session()).calls == []


# --- real sessions ------------------------------------------------------------------------------------------


def counted(path: Path) -> dict[str, Any]:
    """What the package finds in a log, in the form of figures.json."""
    (one,) = mempalace.parse(path)
    report = mempalace.analyze(one)
    stats = report.token_stats
    assert report.cost is not None
    assert stats.requests == report.message_counts["assistant"]
    return {
        "messages": {role: report.message_counts.get(role, 0) for role in ("user", "assistant", "tool")},
        "tools": {
            name: {"calls": tool.calls, "errors": tool.errors, "output_chars": tool.output_chars}
            for name, tool in sorted(report.tool_stats.items())
        },
        "tokens": {
            "input": stats.total_input,
            "output": stats.total_output,
            "cache_create": stats.cache_create or 0,
            "cache_read": stats.cache_read or 0,
        },
        "model": next(iter(report.models)),
        "cost": pytest.approx(float(report.cost.total), abs=6e-5),
        "cache_savings": pytest.approx(float(report.cost.cache_savings), abs=6e-5),
    }


def agree(folder: Path, names: Iterable[str]) -> None:
    derive = runpy.run_path(str(GOLDEN / "derive.py"))["derive"]
    for name in names:
        assert derive((folder / name).read_text()) == FIGURES[name], name
        assert counted(folder / name) == FIGURES[name], name


def test_the_bundled_example_as_counted_by_hand() -> None:
    agree(ROOT, [name for name in FIGURES if name.startswith("mempalace/")])


def test_real_sessions_as_counted_by_hand(corpus: Path) -> None:
    names = [name for name in FIGURES if name.startswith("samples/")]
    assert len(names) == 5
    agree(corpus, names)


def test_analysis_is_fast_beside_parsing(corpus: Path) -> None:
    paths = sorted((corpus / "samples" / "claude-code").glob("v*.jsonl"))
    started = time.process_time()
    sessions = [one for path in paths for one in mempalace.parse(path)]
    parsed = time.process_time()
    for one in sessions:
        mempalace.analyze(one)
    assert time.process_time() - parsed < 0.5 * (parsed - started)


def test_every_fixture_can_be_analysed_and_added_up() -> None:
    reports = []
    for path in sorted((Path(__file__).parent / "fixtures").rglob("*.json*")):
        try:
            sessions = mempalace.parse(path)
        except mempalace.MempalaceError:
            continue
        reports += [mempalace.analyze(one, subagents=True) for one in sessions]
    total = mempalace.aggregate(reports)
    assert len(reports) > 100
    assert set(total.formats) >= {"claude-code", "codex", "gemini", "chatgpt", "claude-ai", "chat"}
    assert total == mempalace.aggregate(reversed(reports))
    assert json.loads(dumps(total.to_dict()))["total_tool_calls"] == total.total_tool_calls
