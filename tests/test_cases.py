"""Small inputs that hurt users of such tools, each with the right behaviour. Each test is named by its case.

Files lie in `cases/Cnn`; marker words are replaced by random ones, so that nothing is found by luck.
"""

from __future__ import annotations

import codecs
import json
import os
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from logs import (
    CASES,
    SEVERAL,
    anywhere,
    check_sums,
    claude_lines,
    cut_off,
    find,
    first,
    holders,
    marker,
    mine,
    plant,
    rows,
    run,
    stored_text,
    write_claude,
)

import mempalace
from mempalace import models
from mempalace.chunk import Kind, chunks, index_text
from mempalace.model import Message, Session
from mempalace.transcript import render, unquote

LONG = " ".join(f"and then the kiln rests for {hours} hours before the next glaze" for hours in range(10))


def roles(session: Session) -> list[str]:
    return [str(message.role) for message in session.messages]


def dialogue(session: Session) -> list[Message]:
    return [message for message in session.messages if message.origin in ("person", "assistant")]


def texts(session: Session) -> list[str]:
    return [message.text for message in session.messages]


def one_session(palace: Path, key: str) -> None:
    assert rows(palace, "SELECT key FROM sessions") == [(key,)]


# --- Claude Code --------------------------------------------------------------------------------------------


def test_c01_user_and_assistant_turns_both_survive(palace: Path, logs: Path) -> None:
    words = plant("C01", logs, "KILN-OVERHEAT", "Fahrenheit")
    session = mempalace.load(logs / "a.jsonl")
    assert roles(session) == ["user", "assistant"]

    summary = mine(palace, logs)

    assert (summary.stored, summary.is_partial) == (2, False)
    one_session(palace, "s1")
    asked, answered = first(palace, words["KILN-OVERHEAT"]), first(palace, words["Fahrenheit"])
    assert (asked.role, asked.timestamp, asked.line) == ("user", "2026-02-03T09:00:00Z", 1)
    assert (answered.role, answered.timestamp, answered.line) == ("assistant", "2026-02-03T09:00:04Z", 2)
    for hit in (asked, answered):
        assert (hit.session_id, hit.project) == ("s1", "/w/kiln-ctl")
    assert words["KILN-OVERHEAT"] in asked.text
    assert words["Fahrenheit"] in answered.text
    assert first(palace, words["Fahrenheit"], project="kiln-ctl").session_id == "s1"


def test_c02_side_files_are_not_conversations(palace: Path, logs: Path) -> None:
    dump, note = marker("ZZTOOLDUMP"), marker("MEMNOTE-1")
    plant("C01", logs)
    (logs / "a.jsonl").rename(logs / "s1.jsonl")
    side = {
        logs / "s1" / "tool-results" / "out.txt": "".join(f"grep: {dump} {n}\n" for n in range(90_000)),
        logs / "s1" / "subagents" / "agent-9.meta.json": '{"agentType":"explore"}',
        logs / "memory" / "notes.md": note,
    }
    for path, text in side.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    done = run("mine", "--palace", palace, logs, "--json")

    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    check_sums(summary)
    assert (summary["sources"]["found"], summary["sources"]["new"], summary["sources"]["ignored"]) == (4, 1, 3)
    told = {problem["path"]: problem["message"] for problem in summary["problems"]}
    assert set(told) == {str(path) for path in side}
    assert all("not a conversation" in message for message in told.values())
    one_session(palace, "s1")
    assert not anywhere(palace, dump)
    assert not anywhere(palace, note)
    assert "3 ignored" in run("mine", "--palace", palace / "other", logs).stdout


def test_c03_long_answer_kept_whole(palace: Path, logs: Path) -> None:
    plant("C03", logs)
    mine(palace, logs)

    answer = texts(mempalace.load(logs / "a.jsonl"))[1]
    assert answer.splitlines() == [f"step {n}: glaze-op-{n:02}" for n in range(1, 41)]
    assert answer in stored_text(palace, "s1")
    with mempalace.Palace(palace) as opened:
        for number in range(1, 41):
            step = f"glaze-op-{number:02}"
            assert step in opened.search(step).results[0].text


def test_c04_one_huge_paragraph_without_line_breaks(palace: Path, logs: Path) -> None:
    from tokenizers import Tokenizer

    tail = marker("TAIL-ZEBRA-9")
    said = "wool " * 15_000 + tail
    file = write_claude(logs / "a.jsonl", [said, "a lot of wool"])
    summary = mine(palace, logs)

    assert not summary.problems
    found = first(palace, tail)
    assert tail in found.text
    session = mempalace.load(file)
    transcript = render(session)
    assert stored_text(palace, "s1") == transcript
    (span, _) = transcript.spans
    assert unquote(transcript[span.start : span.end]) == said

    encode = Tokenizer.from_str(models.read(models.ENCODER_TOKENIZER).decode())
    encode.no_truncation()
    encode.no_padding()
    moment = next(session.messages).timestamp
    for chunk in chunks(transcript):
        assert chunk.kind == Kind.DIALOGUE
        seen = index_text(transcript[chunk.start : chunk.end], chunk.start, chunk, moment, {})
        assert len(encode.encode(seen).ids) <= 256


@pytest.mark.parametrize("pairs", [3_000, pytest.param(30_000, marks=pytest.mark.slow)])
def test_c05_no_per_file_chunk_cap(palace: Path, logs: Path, pairs: int) -> None:
    said = [part for n in range(pairs) for part in (f"ask about PAIR-{n:05} please", f"PAIR-{n:05} is settled")]
    file = write_claude(logs / "a.jsonl", said)
    summary = mine(palace, logs)

    assert not summary.problems
    assert summary.stored == 2 * pairs
    for number in (0, pairs // 2 - 1, pairs - 1):
        wanted = f"PAIR-{number:05}"
        assert any(wanted in hit.text for hit in find(palace, wanted, 3))
    assert stored_text(palace, "s1") == render(mempalace.load(file))


def test_c06_broken_line_in_the_middle(palace: Path, logs: Path) -> None:
    words = plant("C06", logs, "ALPHA-1", "BRAVO-2", "CHARLIE-3")

    done = run("mine", "--palace", palace, logs)

    assert done.returncode == 8
    assert "4 read = 3 stored + 0 duplicate + 1 damaged + 0 skipped" in done.stdout
    told = [line for line in done.stdout.splitlines() if "damaged:" in line]
    assert len(told) == 1
    assert f"{logs / 'a.jsonl'}:2" in told[0]
    assert len(rows(palace, "SELECT * FROM messages")) == 3
    for word in words.values():
        assert word in first(palace, word).text


def test_c07_nul_padding_in_the_middle(palace: Path, logs: Path) -> None:
    words = plant("C07", logs, "NULPAD-A", "NULPAD-B")
    summary = mine(palace, logs)

    assert (summary.stored, summary.damaged, summary.is_partial) == (2, 1, True)
    (problem,) = summary.problems
    assert (problem.kind, problem.line) == ("damaged", 2)
    for word in words.values():
        assert word in first(palace, word).text
    assert rows(palace, "SELECT COUNT(*) FROM texts WHERE instr(body, char(0))") == [(0,)]


def test_c07_nul_padding_before_a_record_on_the_same_line(palace: Path, logs: Path) -> None:
    ask, answer = claude_lines([f"before {marker()}", f"after {marker()}"])
    nul = "\0" * 300
    (logs / "a.jsonl").write_text(f"{ask}\n{nul}{answer}\n")
    summary = mine(palace, logs)

    assert summary.stored == 2
    assert "\0" not in stored_text(palace, "s1")


def test_c08_torn_tail_completed_later(palace: Path, logs: Path) -> None:
    plant("C01", logs)
    file = logs / "a.jsonl"
    head, tail, _ = file.read_bytes().split(b"\n")
    file.write_bytes(head + b"\n" + tail[:60])

    torn = run("mine", "--palace", palace, logs, "--json")

    assert torn.returncode == 0
    summary = json.loads(torn.stdout)
    check_sums(summary)
    assert summary["records"]["stored"] == 1
    assert summary["records"]["skipped"] == {"incomplete_tail": 1}
    assert [(problem["kind"], problem["line"]) for problem in summary["problems"]] == [("incomplete_tail", 2)]

    file.write_bytes(head + b"\n" + tail + b"\n")
    done = mine(palace, logs)

    assert (done.states["grown"], done.stored, done.duplicate, done.damaged) == (1, 1, 1, 0)
    assert done.vectors_new == 1  # of the chunk that was still open; it holds both messages now
    assert not done.problems
    assert [role for (role,) in rows(palace, "SELECT role FROM messages ORDER BY seq")] == ["user", "assistant"]
    assert stored_text(palace, "s1") == render(mempalace.load(file))
    assert len(holders(palace, "KILN-OVERHEAT")) == 1


def test_c08_what_stands_before_a_torn_tail_is_not_embedded_again(palace: Path, logs: Path) -> None:
    lines = claude_lines([f"first {LONG}", f"second {LONG}"])
    file = logs / "a.jsonl"
    file.write_text(lines[0] + "\n" + lines[1][:60])
    mine(palace, logs)
    before = rows(palace, "SELECT c.uid, c.text FROM chunks c")

    file.write_text("".join(f"{line}\n" for line in lines))
    assert mine(palace, logs).vectors_new == 1
    assert set(before) < set(rows(palace, "SELECT c.uid, c.text FROM chunks c"))


def test_c09_subagent_files_share_the_parents_session_id(palace: Path, home: Path) -> None:
    parent, one, two = marker("PARENT-1"), marker("CHILD-1"), marker("CHILD-2")
    project = home / ".claude" / "projects" / "-w-kiln-ctl"
    write_claude(project / "p.jsonl", [f"ask {parent}", "yes"], "p")
    for number, word in enumerate((one, two), 1):
        texts = [f"look into {word}", f"looked into {word}"]
        file = project / "p" / "subagents" / f"agent-{number}.jsonl"
        write_claude(file, texts, "p", isSidechain=True, agentId=str(number))

    done = run("mine", "--palace", palace, "--json")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sessions"] == {"new": 3, "updated": 0}
    kinds = rows(palace, "SELECT kind, parent_key, COUNT(DISTINCT key) FROM sessions GROUP BY 1, 2 ORDER BY 1")
    assert kinds == [("main", None, 1), ("subagent", "p", 2)]
    assert first(palace, parent).session_id == "p"
    for word in (one, two):
        assert not holders(palace, word)
        hit = first(palace, word, include=("subagent",))
        assert word in hit.text
        assert hit.parent_session_id == "p"
        assert hit.session_id != "p"
    assert {hit.session_id for hit in find(palace, f"{parent} {one} {two}", 100)} == {"p"}
    assert [file.path.name for file in mempalace.list_sessions() if not file.is_subagent] == ["p.jsonl"]
    status = json.loads(run("status", "--palace", palace, "--json").stdout)
    assert (status["sessions"], status["subagents"]) == (3, 2)


def test_c10_half_of_an_emoji_escape(palace: Path, logs: Path) -> None:
    words = plant("C10", logs, "SURRO-1", "SURRO-2")
    other = marker()
    write_claude(logs / "b.jsonl", [f"unharmed {other}"], "s2")

    done = run("mine", "--palace", palace, logs)

    assert done.returncode == 0, done.stderr
    for word in (*words.values(), other):
        assert word in first(palace, word).text
    assert f"broken \ufffd here {words['SURRO-2']}" in stored_text(palace, "s1")
    for encoding in ("utf-8", "ascii"):
        shown = run("search", "--palace", palace, words["SURRO-2"], PYTHONIOENCODING=encoding)
        assert (shown.returncode, words["SURRO-2"] in shown.stdout) == (0, True)
        assert "Traceback" not in shown.stderr


def test_c11_branching_writes_each_message_twice(palace: Path, logs: Path) -> None:
    words = plant("C11", logs, "ONCE-77", "ONCE-78")
    summary = mine(palace, logs)

    assert (summary.read, summary.stored, summary.duplicate) == (4, 2, 2)
    for word in words.values():
        assert stored_text(palace, "s1").count(word) == 1
        assert len(anywhere(palace, word)) == 1
    assert mempalace.load(logs / "a.jsonl").metadata.lineage["forked_from"] == "s0"
    shown = json.loads(run("show", "--palace", palace, "s1", "--json").stdout)
    assert shown["metadata"]["lineage"]["forked_from"] == "s0"


def test_c12_parent_pointer_to_a_message_never_written(palace: Path, logs: Path) -> None:
    names = [f"PHANTOM-{n}" for n in range(1, 5)]
    words = plant("C12", logs, *names)
    summary = mine(palace, logs)

    assert (summary.stored, summary.damaged) == (4, 0)
    assert [any(word in text for text in texts(mempalace.load(logs / "a.jsonl"))) for word in words.values()] == [
        True
    ] * 4
    stored = stored_text(palace, "s1")
    assert all(stored.index(words[a]) < stored.index(words[b]) for a, b in pairwise(names))
    for word in words.values():
        assert word in first(palace, word).text


@pytest.mark.parametrize("filler", [LONG, ""], ids=["long", "short"])
def test_c13_forked_session_file_repeats_its_parent(palace: Path, logs: Path, filler: str) -> None:
    words = [marker(f"F-{n:02}XXXX") for n in range(1, 13)]
    said = [f"{word} {filler}".strip() for word in words]
    history = claude_lines(said[:10], "s0")
    (logs / "s0.jsonl").write_text("".join(f"{line}\n" for line in history))
    copies = []
    for line in history:
        record = json.loads(line)
        fork = {"sessionId": "s0", "messageUuid": record["uuid"]}
        copies.append(json.dumps({**record, "sessionId": "s1", "forkedFrom": fork}))
    new = claude_lines(said[10:], "s1", first=10)
    (logs / "s1.jsonl").write_text("".join(f"{line}\n" for line in [*copies, *new]))

    summary = mine(palace, logs)

    assert summary.stored == 12
    assert summary.vectors_new <= 13
    (hit,) = holders(palace, words[2])
    assert {hit.session_id, *hit.copies} == {"s0", "s1"}
    shown = run("show", "--palace", palace, "s1").stdout
    assert all(word in shown for word in words)


def test_c14_file_opens_with_bookkeeping_records(palace: Path, logs: Path) -> None:
    words = plant("C14", logs, "OPENING-5", "OPENING-6", "old title", "enqueue")
    session = mempalace.load(logs / "a.jsonl")
    assert session.format == "claude-code"
    assert roles(session) == ["user", "assistant"]

    mine(palace, logs)

    for word in ("OPENING-5", "OPENING-6"):
        assert words[word] in first(palace, words[word]).text
    for word in (words["old title"], words["enqueue"], "permission-mode"):
        assert not anywhere(palace, word)


def test_c16_slash_command_records_are_not_the_users_words(palace: Path, logs: Path) -> None:
    words = plant("C16", logs, "NOISE-OPUS", "SIGNAL-1", "SIGNAL-2")
    mine(palace, logs)

    hit = first(palace, words["SIGNAL-1"])
    assert hit.title == f"actual question {words['SIGNAL-1']}"
    said = dialogue(mempalace.load(logs / "a.jsonl"))
    assert [message.text for message in said] == [f"actual question {words['SIGNAL-1']}", words["SIGNAL-2"]]
    assert not holders(palace, words["NOISE-OPUS"])
    (labelled,) = holders(palace, words["NOISE-OPUS"], include=("injected",))
    assert labelled.origin == "command"


def test_c17_compaction_summary(palace: Path, logs: Path) -> None:
    words = plant("C17", logs, "PRE-COMPACT-1", "PRE-COMPACT-2", "MACHINE-SUMMARY-3", "POST-4", "POST-5")
    mine(palace, logs)

    summary = words.pop("MACHINE-SUMMARY-3")
    for word in words.values():
        assert word in first(palace, word).text
    assert not holders(palace, summary)
    assert all(summary not in hit.text for hit in find(palace, "session continued summary", 100))
    (labelled,) = holders(palace, summary, include=("injected",))
    assert labelled.origin == "summary"
    assert labelled.role != "user"
    assert not holders(palace, summary, include=("all",), role="user")


# --- Codex --------------------------------------------------------------------------------------------------


def test_c20_codex_writes_each_message_in_two_records(palace: Path, logs: Path) -> None:
    words = plant("C20", logs, "INDIGO-1", "INDIGO-2")
    mine(palace, logs)

    said = dialogue(mempalace.load(logs / "rollout-a.jsonl"))
    assert [str(message.role) for message in said] == ["user", "assistant"]
    for word in words.values():
        assert stored_text(palace, "r1").count(word) == 1
        assert len(anywhere(palace, word)) == 1
    assert first(palace, words["INDIGO-1"]).project == "/w/loom"


def test_c21_newer_codex_with_item_records_only(palace: Path, logs: Path) -> None:
    words = plant("C21", logs, "DEV-NOISE", "MADDER-1", "MADDER-2")
    mine(palace, logs)

    session = mempalace.load(logs / "rollout-a.jsonl")
    said = [f"only items {words['MADDER-1']}", f"yes {words['MADDER-2']}"]
    assert [message.text for message in dialogue(session)] == said
    assert len([turn for turn in session.turns if dialogue_of(turn.messages)]) == 1
    assert not holders(palace, words["DEV-NOISE"])
    for word in ("MADDER-1", "MADDER-2"):
        assert words[word] in first(palace, words[word]).text


def dialogue_of(messages: tuple[Message, ...]) -> list[Message]:
    return [message for message in messages if message.origin in ("person", "assistant")]


def test_c22_codex_injected_context(palace: Path, logs: Path) -> None:
    words = plant("C22", logs, "AGENTSNOISE", "ENVNOISE", "WELD-1", "WELD-2")
    mine(palace, logs)

    session = mempalace.load(logs / "rollout-a.jsonl")
    assert [(str(message.role), message.text) for message in dialogue(session)] == [
        ("user", f"real {words['WELD-1']}"),
        ("assistant", words["WELD-2"]),
    ]
    for noise in (words["AGENTSNOISE"], words["ENVNOISE"]):
        assert not holders(palace, noise)
        (labelled,) = holders(palace, noise, include=("injected",))
        assert labelled.origin == "injected"
    assert first(palace, words["WELD-1"]).title == f"real {words['WELD-1']}"


# --- Gemini CLI ---------------------------------------------------------------------------------------------


def test_c25_gemini_single_file_session(palace: Path, logs: Path) -> None:
    words = plant("C25", logs, "OVEN-1", "OVEN-2", "INFO-NOISE", "ab12")
    mine(palace, logs)

    one_session(palace, "g1")
    session = mempalace.load(logs / "session-g.json")
    assert [(str(message.role), message.text) for message in dialogue(session)] == [
        ("user", f"tune the oven {words['OVEN-1']}"),
        ("assistant", f"set PID {words['OVEN-2']}"),
    ]
    assert not holders(palace, words["INFO-NOISE"])
    for key in (words["ab12"], "projectHash", "lastUpdated"):
        assert not anywhere(palace, key)
    for word in ("OVEN-1", "OVEN-2"):
        assert words[word] in first(palace, words[word]).text


def test_c26_gemini_line_format_with_injected_first_message(palace: Path, logs: Path) -> None:
    words = plant("C26", logs, "TREE-NOISE", "RYE-1", "RYE-2")
    mine(palace, logs)

    session = mempalace.load(logs / "session-g.jsonl")
    assert [(str(message.role), message.text) for message in dialogue(session)] == [
        ("user", f"bake rye {words['RYE-1']}"),
        ("assistant", words["RYE-2"]),
    ]
    assert not holders(palace, words["TREE-NOISE"])
    assert first(palace, words["RYE-1"]).title == f"bake rye {words['RYE-1']}"
    assert first(palace, words["RYE-2"]).role == "assistant"


# --- bytes and shapes ---------------------------------------------------------------------------------------


def test_c32_unknown_json(palace: Path, logs: Path) -> None:
    words = plant("C32", logs, "UNKNOWN-SHAPE-1")

    done = run("mine", "--palace", palace, logs)

    assert done.returncode == 0
    assert "1 found = 1 unrecognised" in done.stdout
    assert f"unrecognised: {logs / 'mystery.json'}" in done.stdout
    assert "0 new, 0 in all" in done.stdout
    assert not find(palace, words["UNKNOWN-SHAPE-1"], include=("all",)).results


@pytest.mark.parametrize("form", ["bom", "utf-16-le", "utf-16-be"])
def test_c33_byte_order_mark_and_utf16(palace: Path, logs: Path, form: str) -> None:
    plain = "".join(f"{line}\n" for line in claude_lines([f"größe 日本 {marker()}", "naïve ✓ 😀"]))
    marks = {"bom": codecs.BOM_UTF8, "utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE}
    (logs / "a.jsonl").write_bytes(marks[form] + plain.encode("utf-8" if form == "bom" else form))
    other = logs.parent / "plain.jsonl"
    other.write_text(plain, encoding="utf-8")

    summary = mine(palace, logs)

    assert (summary.stored, len(summary.problems)) == (2, 0)
    assert stored_text(palace, "s1") == render(mempalace.load(other))


def test_c33_what_cannot_be_decoded_is_named_and_never_stored_as_garbage(palace: Path, logs: Path) -> None:
    record = json.dumps(json.loads(claude_lines(["größe 日本 ✓"])[0]), ensure_ascii=False)
    file = logs / "a.jsonl"
    file.write_bytes(f"{record}\n".encode("utf-16-le"))  # without a mark: it might be anything

    summary = mine(palace, logs)

    if summary.stored:
        assert "größe 日本 ✓" in stored_text(palace, "s1")
    else:
        assert [problem.path for problem in summary.problems] == [str(file)]
        assert rows(palace, "SELECT COUNT(*) FROM chunks") == [(0,)]


def test_c34_windows_line_ends_and_blank_lines(palace: Path, logs: Path) -> None:
    data = (CASES / "C01" / "a.jsonl").read_bytes()
    (logs / "crlf.jsonl").write_bytes(data.replace(b"\n", b"\r\n") + b"\r\n\r\n")
    summary = mine(palace, logs)

    assert (summary.read, summary.stored, len(summary.problems)) == (2, 2, 0)
    assert stored_text(palace, "s1") == render(mempalace.load(CASES / "C01" / "a.jsonl"))


def test_c35_tool_calls_and_results_are_part_of_the_record(palace: Path, logs: Path) -> None:
    words = plant("C35", logs, "THINK-1", "CMD-2", "OUT-3", "ANS-4")
    mine(palace, logs)

    for word in (words["CMD-2"], words["OUT-3"]):
        assert not holders(palace, word)
        (hit,) = holders(palace, word, include=("tool",))
        assert f"[Bash] make {words['CMD-2']}" in hit.text
    assert first(palace, words["CMD-2"], include=("tool",)).origin == "tool_call"
    assert first(palace, words["OUT-3"], include=("tool",)).origin == "tool_result"
    session = mempalace.load(logs / "a.jsonl")
    assert [call.id for call in session.tool_uses] == [result.tool_use_id for result in session.tool_results] == ["t1"]

    ranked = [hit.text for hit in find(palace, "why did linking fail", include=("tool",))]
    places = [[n for n, text in enumerate(ranked) if words[name] in text] for name in ("ANS-4", "OUT-3")]
    assert places[0]
    assert not places[1] or places[0] < places[1]

    assert not holders(palace, words["THINK-1"])
    assert not holders(palace, words["THINK-1"], include=("tool",))
    assert len(holders(palace, words["THINK-1"], include=("thinking",))) == 1
    assert "thinking" in run("search", "--help").stdout


def test_c35_a_quoted_identifier_is_shown_in_the_message_that_holds_it(palace: Path, logs: Path) -> None:
    words = plant("C35", logs, "OUT-3")
    mine(palace, logs)

    (hit,) = holders(palace, words["OUT-3"], include=("tool",))
    assert (hit.origin, hit.line) == ("tool_result", 3)


def test_c36_whitespace_is_verbatim(palace: Path, logs: Path) -> None:
    words = plant("C36", logs, "INDENT-1", "INDENT-2", "INDENT-3")
    mine(palace, logs)

    code = f"keep indentation:\n```py\ndef f():\n    if x:\n        return '{words['INDENT-1']}'\n```"
    answer = f"fine:\n\n    four spaces {words['INDENT-2']}\n\ttab {words['INDENT-3']}"
    quoted = "\n".join(f"> {line}" for line in code.split("\n"))
    for text in (stored_text(palace, "s1"), run("show", "--palace", palace, "s1").stdout):
        assert quoted in text
        assert answer in text
    shown = json.loads(run("show", "--palace", palace, "s1", "--json").stdout)
    said = [message["content"][0]["text"] for turn in shown["turns"] for message in turn["messages"]]
    assert said == [code, answer]


def test_c37_no_spelling_correction(palace: Path, logs: Path) -> None:
    words = plant("C37", logs, "TYPO-1")
    mine(palace, logs)

    sentence = f"teh recieve fucntion in mian.cpp, dont fix {words['TYPO-1']}"
    assert sentence in first(palace, sentence).text
    assert sentence in holders(palace, sentence)[0].text
    assert sentence in stored_text(palace, "s1")


def test_c38_quote_marks_inside_messages(palace: Path, logs: Path) -> None:
    words = plant("C38", logs, *(f"QUOTE-{n}" for n in range(1, 5)))
    mine(palace, logs)

    session = mempalace.load(logs / "a.jsonl")
    asked = f"> is this quoted?\n> {words['QUOTE-1']} yes\nmy own line {words['QUOTE-2']}"
    answered = f"> {words['QUOTE-3']} quoted by me\nplain {words['QUOTE-4']}"
    assert [(str(message.role), message.text) for message in session.messages] == [
        ("user", asked),
        ("assistant", answered),
    ]
    transcript = render(session)
    assert [(str(span.role), span.message) for span in transcript.spans] == [("user", 0), ("assistant", 1)]
    said = [transcript[span.start : span.end] for span in transcript.spans]
    assert (unquote(said[0]), said[1]) == (asked, answered)
    for name, role in (("QUOTE-1", "user"), ("QUOTE-2", "user"), ("QUOTE-3", "assistant"), ("QUOTE-4", "assistant")):
        assert first(palace, words[name]).role == role


@pytest.mark.parametrize("encoding", ["cp1252", "cp950", "ascii"])
def test_c39_console_that_cannot_print_the_character(palace: Path, logs: Path, encoding: str) -> None:
    word = marker()
    write_claude(logs / "naïve-日本.jsonl", [f"{word} naïve → 日本 ✓", "ok"])

    commands = [["mine", logs], ["search", word], ["show", "s1"], ["status"], ["search", word, "--json"]]
    variables = {"PYTHONIOENCODING": encoding, "MEMPALACE_PALACE_PATH": str(palace)}
    done = run(*(" ".join(map(str, arguments)) for arguments in commands), code=SEVERAL, **variables)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(word) >= 3
    assert f"{word} naïve → 日本 ✓" in stored_text(palace, "s1")
    told = done.stdout.splitlines()[-1]
    assert told.isascii()
    assert f"{word} naïve → 日本 ✓" in json.loads(told)["results"][0]["text"]


# --- again and again ----------------------------------------------------------------------------------------

# Runs the command line and tells at its end which files were opened.
_TELL_OPENED = """
import sys
opened = []
sys.addaudithook(lambda event, details: opened.append(str(details[0])) if event == "open" else None)
from mempalace.cli import main
try:
    main()
finally:
    print(*opened, sep="\\n", file=sys.stderr)
"""


def test_c40_nothing_changed(palace: Path, logs: Path) -> None:
    plant("C01", logs)
    (logs / "empty.jsonl").touch()
    (logs / "short.txt").write_bytes(b"twenty bytes of text")

    done = run("mine", "--palace", palace, logs, "--json", code=_TELL_OPENED)
    opened = done.stderr.splitlines()
    assert str(logs / "a.jsonl") in opened
    assert any(name.endswith(models.STATIC_WEIGHTS) for name in opened)
    before = rows(palace, "SELECT * FROM vectors")

    again = run("mine", "--palace", palace, logs, "--json", code=_TELL_OPENED)

    assert again.returncode == 0
    summary = json.loads(again.stdout)
    check_sums(summary)
    assert (summary["sources"]["found"], summary["sources"]["unchanged"]) == (3, 3)
    assert (summary["records"]["stored"], summary["chunks"]["new"], summary["vectors"]["new"]) == (0, 0, 0)
    opened = again.stderr.splitlines()
    assert [name for name in opened if name.startswith(str(logs))] == []
    assert not any(name.endswith(models.STATIC_WEIGHTS) for name in opened)  # the embedder is not even loaded
    assert rows(palace, "SELECT * FROM vectors") == before
    assert "3 unchanged" in run("mine", "--palace", palace, logs).stdout


def test_c41_session_grows(palace: Path, logs: Path) -> None:
    words = [marker(f"G-{n:02}XXXX") for n in range(1, 14)]
    said = [f"{word} {LONG}" for word in words]
    file = write_claude(logs / "a.jsonl", said[:10])
    mine(palace, logs)
    modified = file.stat().st_mtime_ns
    before = rows(palace, "SELECT c.uid, c.id, c.text FROM chunks c ORDER BY c.seq")
    ids = rows(palace, "SELECT id, ident FROM messages ORDER BY seq")

    with file.open("a") as stream:
        stream.writelines(f"{line}\n" for line in claude_lines(said[10:], first=10))
    os.utime(file, ns=(modified, modified))
    summary = mine(palace, logs)

    assert (summary.states["grown"], summary.stored, summary.duplicate) == (1, 3, 10)
    assert 3 <= summary.vectors_new <= 4
    for word in words:
        assert word in first(palace, word).text
    assert rows(palace, "SELECT c.uid, c.id, c.text FROM chunks c ORDER BY c.seq")[:9] == before[:9]
    assert rows(palace, "SELECT id, ident FROM messages ORDER BY seq")[:10] == ids


def test_c43_identical_beginnings(palace: Path, logs: Path) -> None:
    template = "\n".join(f"{n}. follow rule {n} of the house to the letter" for n in range(100))
    assert len(template) > 4096
    kept = {session: marker("KEEP-ABCDE") for session in ("one", "two")}
    for session, word in kept.items():
        write_claude(logs / f"{session}.jsonl", [f"{template}\n\ndecision: {word}", "noted"], session)
    mine(palace, logs)

    for session, word in kept.items():
        hit = first(palace, word)
        assert (hit.session_id, word in hit.text) == (session, True)
        assert template in unquote(stored_text(palace, session))


# --- filters ------------------------------------------------------------------------------------------------


def test_c72_project_names_with_dashes_and_odd_letters(palace: Path, home: Path) -> None:
    projects = {"-w-my-app-v2": "/w/my-app-v2", "-w-my-app": "/w/my_app", "-w--------": "/w/проект"}
    words = {}
    for number, (folder, cwd) in enumerate(projects.items()):
        words[cwd] = marker()
        file = home / ".claude" / "projects" / folder / f"s{number}.jsonl"
        write_claude(file, [f"build it {words[cwd]}", "built"], f"s{number}", cwd=cwd)
    done = run("mine", "--palace", palace)
    assert done.returncode == 0, done.stderr

    assert {project for (project,) in rows(palace, "SELECT DISTINCT project FROM sessions")} == set(projects.values())
    for cwd, word in words.items():
        for name in (cwd, cwd.rsplit("/", 1)[-1]):
            found = find(palace, "build it", 50, project=name).results
            assert {hit.project for hit in found} == {cwd}
            assert word in found[0].text
    told = run("search", "--palace", palace, "build it", "--project", "проект", "--json").stdout
    assert {hit["project"] for hit in json.loads(told)["results"]} == {"/w/проект"}
    for name in ("my", "my-app", "app", "/w"):
        assert not find(palace, "build it", 50, project=name).results


def test_c72_a_label_does_not_hide_the_project(palace: Path, logs: Path) -> None:
    write_claude(logs / "a.jsonl", ["build it", "built"], "s1", cwd="/w/my_app")
    mine(palace, logs, wing="work")

    for filters in ({"wing": "work"}, {"project": "/w/my_app"}, {"project": "my_app"}):
        assert [hit.session_id for hit in find(palace, "build it", **filters)] == ["s1"], filters


def test_c72_project_and_label_must_both_fit(palace: Path, logs: Path) -> None:
    for session, wing in (("s1", "work"), ("s2", "play")):
        for project in ("loom", "kiln"):
            key = f"{session}-{project}"
            write_claude(logs / f"{key}.jsonl", [f"build it {key}", "built"], key, cwd=f"/w/{project}")
            mine(palace, logs / f"{key}.jsonl", wing=wing)

    hits = find(palace, "build it", project="/w/loom", wing="work")
    assert [hit.session_id for hit in hits] == ["s1-loom"]


# --- no network, damaged model ------------------------------------------------------------------------------


def test_c54_no_network_at_all(palace: Path, logs: Path) -> None:
    prefix = cut_off()
    words = plant("C01", logs, "KILN-OVERHEAT")

    mined = run("mine", "--palace", palace, logs, prefix=prefix)
    found = run("search", "--palace", palace, words["KILN-OVERHEAT"], "--json", prefix=prefix)

    for done in (mined, found):
        assert (done.returncode, done.stderr) == (0, "")
        assert "telemetry" not in done.stdout.lower()
    hits = json.loads(found.stdout)
    assert hits["indexes"] == ["lexical", "vectors"]
    assert words["KILN-OVERHEAT"] in hits["results"][0]["text"]


def test_c54_damaged_model(palace: Path, logs: Path, tmp_path: Path) -> None:
    plant("C01", logs)
    package = tmp_path / "site" / "mempalace"
    original = Path(mempalace.__file__).parent
    shutil.copytree(original, package, ignore=shutil.ignore_patterns("__pycache__", "*.onnx"))
    model = package / "models" / models.STATIC_WEIGHTS
    data = model.read_bytes()
    model.write_bytes(data[: len(data) // 2])

    for arguments in (["mine", logs], ["search", "overheat"]):
        done = run(*arguments, "--palace", palace, PYTHONPATH=str(package.parent))
        assert done.returncode not in (0, 8)
        assert not done.stdout
        message, *hint = done.stderr.splitlines()
        assert message.startswith("error: ")
        assert str(model) in message
        assert models.SHA256[models.STATIC_WEIGHTS] in message
        assert len(hint) == 1
        assert "install" in hint[0]
    assert words_are_searchable(palace)


def words_are_searchable(palace: Path) -> bool:
    done = run("search", "--palace", palace, "KILN-OVERHEAT", "--fast", "--json")
    return "KILN-OVERHEAT" in json.loads(done.stdout)["results"][0]["text"]
