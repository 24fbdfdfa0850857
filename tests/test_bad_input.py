"""What is wrong with a file, a palace or a machine is told and counted, and harms nothing else."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from logs import check_sums, claude_lines, find, first, marker, mine, rows, run, start, wait_for, write_claude

from mempalace.errors import NoPalace, PalaceDamaged
from mempalace.palace import indexing

OLD, BEFORE, AFTER = "QUOKKA-1", "PANGOLIN-2", "WOMBAT-3"

Make = Callable[[Path], object]


def write(data: bytes, name: str = "m.jsonl") -> Make:
    return lambda folder: (folder / name).write_bytes(data)


def jsonl(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def with_value(text: str) -> str:
    """A record that holds a value which is given as JSON text."""
    (line,) = claude_lines(["odd"], "odd")
    return f'{line[:-1]}, "toolUseResult": {text}}}'


def link(name: str, target: str) -> Make:
    return lambda folder: (folder / name).symlink_to(target)


DEEP = 100_000
GOOD = claude_lines(["fine", "indeed"], "odd")

# Name: what lies among good files, its state, its problem (kind, line, some words), how many records are damaged.
Problem = tuple[str, int | None, str] | None
BAD: dict[str, tuple[Make, str, Problem, int]] = {
    "empty": (write(b""), "empty", None, 0),
    "blank": (write(b"\n \n\r\n"), "empty", None, 0),
    "binary": (write(bytes(range(256)) * 64), "unrecognised", ("unrecognised", None, "binary data"), 0),
    "only-nul": (write(bytes(10_000)), "unrecognised", ("unrecognised", None, "binary data"), 0),
    "prose": (write(b"Dear diary,\nnothing to tell.\n", "m.txt"), "unrecognised", ("unrecognised", None, "text"), 0),
    "unknown-json": (write(b'{"a": [1]}', "m.json"), "unrecognised", ("unrecognised", None, "JSON"), 0),
    "database": (
        write(b"SQLite format 3\0" + bytes(84), "m.db"),
        "unrecognised",
        ("unrecognised", None, "database"),
        0,
    ),
    "broken-line": (write(jsonl(GOOD[0], GOOD[1][:80], GOOD[1])), "new", ("damaged", 2, "not valid JSON"), 1),
    "not-an-object": (write(jsonl(GOOD[0], "[1]", GOOD[1])), "new", ("damaged", 2, "not a JSON object"), 1),
    "nul-run": (write(jsonl(GOOD[0], "\0" * 5_000, GOOD[1])), "new", ("damaged", 2, "NUL"), 1),
    "torn-tail": (write(jsonl(*GOOD) + GOOD[0][:50].encode()), "new", ("incomplete_tail", 3, "still being written"), 0),
    "deep-record": (
        write(jsonl(GOOD[0], with_value("[" * DEEP + "]" * DEEP), GOOD[1])),
        "new",
        ("damaged", 2, "nested too deeply"),
        1,
    ),
    "deep-file": (write(b"[" * DEEP + b"]" * DEEP, "m.json"), "unrecognised", ("unrecognised", None, ""), 0),
    "deep-open": (write(b'{"a":' * DEEP, "m.json"), "unrecognised", ("unrecognised", None, ""), 0),
    "long-number": (write(jsonl(GOOD[0], with_value("9" * 10_000), GOOD[1])), "new", None, 0),
    "number-file": (write(b"9" * 10_000, "m.json"), "unrecognised", ("unrecognised", None, ""), 0),
    "not-utf-8": (write(jsonl(*GOOD).replace(b"fine", b"fine \xff\xfe")), "new", ("replaced", 1, "not UTF-8"), 0),
    "surrogate-bytes": (write(jsonl(*GOOD).replace(b"fine", b"\xed\xa0\xbc")), "new", ("replaced", 1, "not UTF-8"), 0),
    "surrogate-key": (write(jsonl(*GOOD).replace(b'"cwd"', b'"\\udc00": 1, "cwd"')), "new", None, 0),
    "link-to-itself": (link("m.jsonl", "m.jsonl"), "ignored", ("ignored", None, "symbolic link"), 0),
    "link-to-nothing": (link("m.jsonl", "gone.jsonl"), "ignored", ("ignored", None, "symbolic link"), 0),
    "folder-loop": (link("m", "."), "ignored", ("ignored", None, "symbolic link"), 0),
    "fifo": (lambda folder: os.mkfifo(folder / "m.jsonl"), "ignored", ("ignored", None, "not a regular file"), 0),
}


@pytest.mark.parametrize("name", list(BAD))
def test_a_bad_file_is_counted_and_the_rest_of_the_batch_is_mined(palace: Path, logs: Path, name: str) -> None:
    make, state, problem, damaged = BAD[name]
    mine(palace, write_claude(logs.parent / "old.jsonl", [f"old {OLD}", "yes"], "old"))
    kept = chunks(palace)
    write_claude(logs / "a.jsonl", [f"before {BEFORE}", "yes"], "a")
    write_claude(logs / "z.jsonl", [f"after {AFTER}", "yes"], "z")
    make(logs)

    summary = mine(palace, logs)

    states = {name: count for name, count in summary.states.items() if count}
    assert states == ({"new": 3} if state == "new" else {"new": 2, state: 1})
    assert summary.damaged == damaged
    assert summary.is_partial == bool(damaged or state == "failed")
    if problem is None:
        assert not summary.problems
    else:
        (told,) = summary.problems
        kind, line, words = problem
        assert (told.kind, told.line) == (kind, line)
        assert words in told.message
        assert Path(told.path).parent == logs
    assert kept <= chunks(palace)
    for session, word in (("old", OLD), ("a", BEFORE), ("z", AFTER)):
        assert first(palace, word).session_id == session
    if state == "new":
        assert [text for (text,) in rows(palace, "SELECT id FROM messages WHERE id LIKE 'odd%'")] == ["odd-0", "odd-1"]

    again = mine(palace, logs)
    assert (again.stored, again.chunks_new) == (0, 0)


def test_the_command_line_tells_of_bad_files_and_goes_on(palace: Path, logs: Path) -> None:
    for number, (make, *_) in enumerate(BAD.values()):
        folder = logs / str(number)
        folder.mkdir()
        make(folder)
    write_claude(logs / "z.jsonl", [f"after {AFTER}", "yes"], "z")
    missing = logs.parent / "missing.jsonl"

    done = run("mine", "--palace", palace, missing, logs)

    assert done.returncode == 8
    assert "Traceback" not in done.stderr
    assert f"failed: {missing}: cannot be read: No such file or directory" in done.stdout
    assert "damaged: " in done.stdout
    assert first(palace, AFTER).session_id == "z"


def test_a_missing_path(palace: Path, logs: Path) -> None:
    missing = logs / "missing"
    done = run("mine", "--palace", palace, missing, "--json")

    assert done.returncode == 8
    summary = json.loads(done.stdout)
    check_sums(summary)
    assert (summary["sources"]["found"], summary["sources"]["failed"]) == (1, 1)
    (problem,) = summary["problems"]
    assert (problem["path"], problem["kind"]) == (str(missing), "failed")
    assert "No such file" in problem["message"]


def test_an_empty_folder(palace: Path, logs: Path) -> None:
    done = run("mine", "--palace", palace, logs)

    assert (done.returncode, done.stderr) == (0, "")
    assert "0 found" in done.stdout
    assert "No conversations were found" in done.stdout


def test_a_loop_of_links_that_is_named(palace: Path, logs: Path) -> None:
    (logs / "a").symlink_to("b")
    (logs / "b").symlink_to("a")
    summary = mine(palace, logs / "a")

    assert summary.states["failed"] == 1
    (problem,) = summary.problems
    assert "symbolic links" in problem.message


# --- permissions --------------------------------------------------------------------------------------------

_NOBODY = 65534


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may write to (those of pytest are for their owner)."""
    with tempfile.TemporaryDirectory(prefix="mempalace-test-") as name:
        os.chmod(name, 0o777)
        yield Path(name)


def as_nobody(folder: Path, forbidden: Path) -> list[str]:
    """A command that runs another one as a user who cannot read the file. Skips the test if it can be read."""
    prefix = []
    if os.geteuid() == 0:
        prefix = ["setpriv", f"--reuid={_NOBODY}", "--clear-groups"]
    probe = "import sys, mempalace.cli; open(sys.argv[1]); print('read')"
    try:
        tried = run(forbidden, prefix=prefix, code=probe, HOME=str(folder))
    except FileNotFoundError:
        pytest.skip("needs setpriv")
    if "PermissionError" not in tried.stderr:
        pytest.skip(f"nothing can be forbidden here: {(tried.stdout + tried.stderr)[-200:]}")
    return prefix


def test_what_may_not_be_read_is_named_and_the_rest_is_mined(open_folder: Path) -> None:
    logs, palace = open_folder / "logs", open_folder / "palace"
    write_claude(logs / "a.jsonl", [f"before {BEFORE}", "yes"], "a")
    secret = write_claude(logs / "m.jsonl", ["secret", "yes"], "m")
    write_claude(logs / "z.jsonl", [f"after {AFTER}", "yes"], "z")
    secret.chmod(0)
    prefix = as_nobody(open_folder, secret)

    done = run("mine", "--palace", palace, logs, "--json", prefix=prefix, HOME=str(open_folder))

    assert done.returncode == 8, done.stderr
    summary = json.loads(done.stdout)
    check_sums(summary)
    assert (summary["sources"]["new"], summary["sources"]["failed"]) == (2, 1)
    (problem,) = summary["problems"]
    assert (problem["path"], problem["message"]) == (str(secret), "cannot be read: Permission denied")
    for session, word in (("a", BEFORE), ("z", AFTER)):
        assert first(palace, word).session_id == session

    secret.chmod(0o644)
    again = run("mine", "--palace", palace, logs, "--json", prefix=prefix, HOME=str(open_folder))
    assert json.loads(again.stdout)["sources"]["new"] == 1


@pytest.mark.parametrize("name", ["b", "z"])
def test_a_folder_that_may_not_be_read_is_named(open_folder: Path, name: str) -> None:
    logs, palace = open_folder / "logs", open_folder / "palace"
    write_claude(logs / "a" / "a.jsonl", [f"before {BEFORE}", "yes"], "a")
    secret = write_claude(logs / name / "n.jsonl", ["secret", "yes"], "n")
    (logs / name).chmod(0)
    prefix = as_nobody(open_folder, secret)

    done = run("mine", "--palace", palace, logs, "--json", prefix=prefix, HOME=str(open_folder))

    summary = json.loads(done.stdout)
    check_sums(summary)
    assert (done.returncode, summary["sources"]["new"], summary["sources"]["failed"]) == (8, 1, 1)
    (problem,) = summary["problems"]
    assert (problem["path"], problem["message"]) == (str(logs / name), "cannot be read: Permission denied")


def test_a_palace_that_may_not_be_made(open_folder: Path) -> None:
    log = write_claude(open_folder / "a.jsonl", ["a", "b"])
    shut = open_folder / "shut"
    shut.mkdir(mode=0o700)
    (shut / "x").write_text("x")
    prefix = as_nobody(open_folder, shut / "x")

    done = run("mine", "--palace", shut / "palace", log, prefix=prefix, HOME=str(open_folder))

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert str(shut / "palace") in done.stderr
    assert "Permission denied" in done.stderr


def test_folders_and_files_are_for_their_owner_only(palace: Path, logs: Path) -> None:
    mine(palace, write_claude(logs / "a.jsonl", ["a", "b"]))
    for path in [palace, *palace.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


# --- palaces that are none ----------------------------------------------------------------------------------


def bytes_below(path: Path) -> dict[str, bytes | None]:
    """Every file and folder with its contents."""
    paths = [path, *sorted(path.rglob("*"))]
    return {str(one.relative_to(path)): one.read_bytes() if one.is_file() else None for one in paths}


def every_command(log: Path) -> list[list[object]]:
    return [["mine", log], ["mine", log, "--dry-run"], ["search", "word"], ["status"], ["show", "s1"], ["rebuild"]]


_ALL = """
import json, sys
from mempalace.cli import main
for arguments in json.loads(sys.argv[1]):
    sys.argv[1:] = arguments
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code
    print(json.dumps(["code", code]), flush=True)
"""


def codes(palace: Path, commands: list[list[object]]) -> tuple[list[int], list[dict[str, Any]]]:
    """Run commands with --json one after another in one process: the exit code and the output of each."""
    each = [[*map(str, arguments), "--palace", str(palace), "--json"] for arguments in commands]
    done = run(json.dumps(each), code=_ALL)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return [code for _, code in lines[1::2]], lines[::2]


def test_a_palace_that_is_a_file(palace: Path, logs: Path) -> None:
    log = write_claude(logs / "a.jsonl", ["a", "b"])
    palace.write_text("my thesis")

    found, told = codes(palace, every_command(log))

    assert set(found) == {1}
    for output in told:
        assert output["error"]["kind"] == "foreign_folder"
        assert output["error"]["path"] == str(palace)
        assert "--palace" in output["error"]["hint"]
    assert palace.read_text() == "my thesis"


def test_a_palace_of_another_project_is_left_as_it_is(home: Path, logs: Path) -> None:
    log = write_claude(logs / "a.jsonl", [f"say {OLD}", "b"])
    foreign = home / ".mempalace" / "palace"
    foreign.mkdir(parents=True)
    (foreign / "chroma.sqlite3").write_bytes(b"SQLite format 3\0" + bytes(5_000))
    (foreign / "knowledge.json").write_text("{}")
    before = bytes_below(foreign)

    found, told = codes(foreign, every_command(log))

    assert set(found) == {1}
    assert {output["error"]["kind"] for output in told} == {"foreign_folder"}
    assert bytes_below(foreign) == before
    refused = run("mine", "--palace", foreign, log)
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"error: {foreign}: ")
    assert "--palace" in refused.stderr

    assert run("mine", log).returncode == 0  # the default folder lies beside it
    assert bytes_below(foreign) == before
    assert first(home / ".mempalace" / "conversations", OLD).session_id == "s1"


def test_a_folder_with_a_marker_of_something_else(palace: Path, logs: Path) -> None:
    log = write_claude(logs / "a.jsonl", ["a", "b"])
    palace.mkdir()
    (palace / "mempalace.json").write_text('{"mempalace": "knowledge"}')
    before = bytes_below(palace)

    found, _ = codes(palace, every_command(log))

    assert set(found) == {1}
    assert bytes_below(palace) == before


def test_no_palace_yet(palace: Path) -> None:
    found, told = codes(palace, [["search", "word"], ["status"], ["show", "s1"], ["rebuild"]])

    assert found == [3] * 4
    for output in told:
        assert output["error"]["kind"] == "no_palace"
        assert "mempalace mine" in output["error"]["hint"]
    assert not palace.exists()


def test_usage(palace: Path, logs: Path) -> None:
    mine(palace, write_claude(logs / "a.jsonl", ["a", "b"]))
    wrong: list[list[object]] = [
        ["search", ""],
        ["search", "a", "--since", "soon"],
        ["search", "a", "--tool", "nothing"],
        ["search", "a", "--include", "nothing"],
        ["search", "a", "--limit", "0"],
        ["show", "nothing"],
        ["mine", "--mode", "projects"],
        ["mine", "--no-such-option"],
    ]
    found, told = codes(palace, wrong)

    assert found == [2] * len(wrong)
    assert all(output["error"]["message"] for output in told)


def test_a_query_that_is_no_text(palace: Path, logs: Path) -> None:
    mine(palace, write_claude(logs / "a.jsonl", [f"say {OLD}", "b"]))
    done = run("search", "--palace", palace, os.fsdecode(b"caf\xe9 " + OLD.encode()))

    assert "Traceback" not in done.stderr
    assert (done.returncode, OLD in done.stdout) == (0, True)


# --- damaged palaces ----------------------------------------------------------------------------------------


def filled(palace: Path, logs: Path) -> list[list[object]]:
    """A palace with some sessions; the commands that need it whole."""
    for number in range(6):
        write_claude(logs / f"{number}.jsonl", [f"ask {marker()} {'words ' * 400}", f"say {OLD}"], f"s{number}")
    mine(palace, logs)
    log = write_claude(logs / "new.jsonl", [f"after {AFTER}", "yes"], "new")
    return [["search", OLD], ["status"], ["show", "s1"], ["mine", log], ["rebuild"]]


def cut(size: Callable[[int], int]) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, size(path.stat().st_size))


def overwrite(path: Path) -> None:
    path.write_bytes(random.Random(5).randbytes(path.stat().st_size))


def overwrite_behind_header(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4096] + random.Random(5).randbytes(len(data) - 4096))


CATALOG_DAMAGE = {
    "overwritten": overwrite,
    "overwritten-behind-header": overwrite_behind_header,
    "half": cut(lambda size: size // 2),
    "one-page": cut(lambda size: 4096),
    "empty": cut(lambda size: 0),
    "gone": Path.unlink,
}


@pytest.mark.parametrize("damage", list(CATALOG_DAMAGE))
def test_a_damaged_catalog(palace: Path, logs: Path, damage: str) -> None:
    commands = filled(palace, logs)
    CATALOG_DAMAGE[damage](palace / "catalog.sqlite3")
    before = bytes_below(palace / "lexical")

    found, told = codes(palace, commands)

    assert found == [5] * len(commands)
    for output in told:
        assert output["error"]["kind"] == "damaged"
        assert output["error"]["path"] == str(palace / "catalog.sqlite3")
        assert output["error"]["hint"]
    assert bytes_below(palace / "lexical") == before


@pytest.mark.parametrize(
    "table",
    [
        "texts",
        "chunks",
        "sessions",
        "texts_words",
        "vectors",
    ],
)
def test_mining_into_a_damaged_table_is_no_fault_of_the_log(palace: Path, logs: Path, table: str) -> None:
    filled(palace, logs)
    ((page, size),) = rows(
        palace, "SELECT rootpage, page_size FROM sqlite_master, pragma_page_size WHERE name = ?", table
    )
    with (palace / "catalog.sqlite3").open("r+b") as catalog:
        catalog.seek((page - 1) * size)
        catalog.write(b"\xff" * size)

    with pytest.raises(PalaceDamaged) as raised:
        mine(palace, logs)
    assert raised.value.path == palace / "catalog.sqlite3"
    assert raised.value.hint


def remove(folder: Path) -> None:
    shutil.rmtree(folder)


def overwrite_each(folder: Path) -> None:
    for path in folder.iterdir():
        overwrite(path)


def overwrite_list(folder: Path) -> None:
    overwrite(folder / "meta.json")


def halve_each(folder: Path) -> None:
    for path in folder.iterdir():
        if path.suffix not in (".json", ".lock"):
            os.truncate(path, path.stat().st_size // 2)


def empty_each(folder: Path) -> None:
    for path in folder.iterdir():
        os.truncate(path, 0)


LEXICAL_DAMAGE = [remove, overwrite_each, overwrite_list, halve_each, empty_each]


@pytest.mark.parametrize("damage", LEXICAL_DAMAGE, ids=lambda damage: damage.__name__)
def test_a_damaged_lexical_index(palace: Path, logs: Path, damage: Callable[[Path], None]) -> None:
    filled(palace, logs)
    kept = chunks(palace)
    damage(palace / "lexical")

    found, told = codes(
        palace, [["search", OLD], ["mine", logs], ["rebuild", "--lexical"], ["mine", logs], ["search", AFTER]]
    )

    assert found == [5, 5, 0, 0, 0]
    for output in told[:2]:
        assert output["error"]["kind"] == "damaged"
        assert output["error"]["path"] == str(palace / "lexical")
        assert "mempalace rebuild" in output["error"]["hint"]
    assert AFTER in told[4]["results"][0]["text"]
    assert first(palace, OLD).text.endswith(f"say {OLD}")
    assert kept < chunks(palace)


def test_a_lexical_index_whose_damage_is_met_while_searching(palace: Path, logs: Path) -> None:
    filled(palace, logs)
    (postings,) = (palace / "lexical").glob("*.idx")
    data = postings.read_bytes()
    half = len(data) // 2  # the footer stays as it is
    postings.write_bytes(b"\xff" * half + data[half:])

    found, told = codes(palace, [["search", OLD], ["rebuild", "--lexical"], ["search", OLD]])

    assert found == [5, 0, 0]
    assert told[0]["error"]["kind"] == "damaged"
    assert "mempalace rebuild" in told[0]["error"]["hint"]
    assert OLD in told[2]["results"][0]["text"]


def test_a_vector_store_that_was_lost_is_made_again(palace: Path, logs: Path) -> None:
    for session in ("a", "b"):
        texts = [f"{session} {n} {'word ' * 100}" for n in range(indexing.FEWEST_TO_STORE)]
        write_claude(logs / f"{session}.jsonl", texts, session)
        assert run("mine", "--palace", palace, logs / f"{session}.jsonl").returncode == 0
        if session == "a":
            shutil.rmtree(palace / "vectors")

    with closing(sqlite3.connect(palace / "vectors" / "chroma.sqlite3")) as chroma:
        (stored,) = chroma.execute("SELECT COUNT(*) FROM embeddings")
    assert stored == rows(palace, "SELECT COUNT(*) FROM vectors")[0]
    assert json.loads(run("status", "--palace", palace, "--json").stdout)["vector_store"] == "ok"


_READ_ONLY = """
mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" || exit 70
touch "$0/probe" 2>/dev/null && exit 71
exec "$@"
"""


def test_a_palace_on_a_disk_that_can_only_be_read(palace: Path, logs: Path) -> None:
    filled(palace, logs)
    prefix = ["unshare", "--map-root-user", "--mount", "sh", "-c", _READ_ONLY, palace]
    try:
        tried = run(prefix=prefix, code="print('read-only')")
    except FileNotFoundError:
        pytest.skip("needs unshare")
    if tried.stdout != "read-only\n":
        pytest.skip(f"nothing can be mounted here: {tried.returncode} {tried.stderr[-200:]}")
    before = bytes_below(palace)

    commands = [["search", OLD], ["status"], ["show", "s1"], ["mine", logs]]
    each = [[*map(str, arguments), "--palace", str(palace), "--json"] for arguments in commands]
    done = run(json.dumps(each), prefix=prefix, code=_ALL)

    assert (done.returncode, done.stderr) == (0, "")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [code for _, code in lines[1::2]] == [0, 0, 0, 1]
    assert OLD in lines[0]["results"][0]["text"]
    assert lines[6]["error"]["kind"] == "store"
    assert "Read-only file system" in lines[6]["error"]["message"]
    assert bytes_below(palace) == before


# --- a second writer ----------------------------------------------------------------------------------------

_HOLD = """
import sys, time
from pathlib import Path
from mempalace.palace import lock
with lock.writing(Path(sys.argv[1])):
    print("held", flush=True)
    while not Path(sys.argv[2]).exists():
        time.sleep(0.01)
"""


def test_a_second_writer_is_refused_or_waits(palace: Path, logs: Path) -> None:
    mine(palace, write_claude(logs / "old.jsonl", [f"old {OLD}", "yes"], "old"))
    log = write_claude(logs / "new.jsonl", [f"after {AFTER}", "yes"], "new")
    release = logs.parent / "release"
    holder = start(palace, release, code=_HOLD)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        kept = bytes_below(palace)

        refused = run("mine", "--palace", palace, log)
        assert refused.returncode == 7
        assert f"another mine is running (pid {holder.pid}, since " in refused.stderr
        assert "--wait" in refused.stderr
        found, told = codes(palace, [["mine", log], ["rebuild"], ["search", OLD]])
        assert found == [7, 7, 0]
        assert told[0]["error"]["kind"] == "locked"
        assert OLD in told[2]["results"][0]["text"]
        assert {name: kept[name] for name in kept if not name.endswith("-shm")} == {
            name: data for name, data in bytes_below(palace).items() if name in kept and not name.endswith("-shm")
        }

        waiting = start("mine", "--palace", palace, log, "--wait")
        assert waiting.stderr is not None
        assert f"waiting for another mine (pid {holder.pid}" in waiting.stderr.readline()
        assert waiting.poll() is None
        release.touch()
        waiting.communicate(timeout=60)
        assert waiting.returncode == 0
    finally:
        release.touch()
        holder.communicate(timeout=60)
    assert first(palace, AFTER).session_id == "new"
    assert first(palace, OLD).session_id == "old"


# --- interrupted and killed ---------------------------------------------------------------------------------


def chunks(palace: Path) -> set[tuple[Any, ...]]:
    """Every chunk: its session, place, id, kind, spans and text."""
    sql = (
        "SELECT s.key, c.seq, c.uid, c.kind, c.spans, t.body FROM chunks c"
        " JOIN texts t ON t.id = c.text JOIN sessions s ON s.id = c.session"
    )
    return set(rows(palace, sql))


def many(logs: Path, count: int = 150) -> Path:
    for number in range(count):
        texts = [f"question {number} of {turn}: {'why ' * 60}" for turn in range(6)]
        write_claude(logs / f"{number:03}.jsonl", texts, f"s{number}")
    return logs


def is_complete(palace: Path) -> bool:
    """Whether everything is in both indexes, and nothing waits."""
    status = json.loads(run("status", "--palace", palace, "--json").stdout)
    return status["indexed"] == status["chunks"] and status["vectors"]["queued"] == 0


def sessions(palace: Path) -> int:
    """How many sessions can be seen so far."""
    try:
        return int(rows(palace, "SELECT COUNT(*) FROM sessions")[0][0])
    except Exception:  # there is no catalog yet
        return 0


def test_ctrl_c_keeps_what_was_read_and_a_second_run_goes_on(palace: Path, logs: Path) -> None:
    many(logs, 300)
    mining = start("mine", "--palace", palace, logs)
    wait_for(lambda: sessions(palace) >= 5 or mining.poll() is not None)
    mining.send_signal(signal.SIGINT)
    _, told = mining.communicate(timeout=60)

    assert mining.returncode == 130
    assert "Traceback" not in told
    assert "interrupted" in told
    assert 5 <= sessions(palace) < 300
    assert find(palace, "question").results  # what was read is found already

    summary = mine(palace, logs)
    assert summary.states["new"] + summary.states["unchanged"] == 300
    other = logs.parent / "other"
    mine(other, logs)
    assert chunks(palace) == chunks(other)
    assert is_complete(palace)


def test_killed_at_any_moment_nothing_is_lost(palace: Path, logs: Path) -> None:
    many(logs)
    other = logs.parent / "other"
    began = time.monotonic()
    assert run("mine", "--palace", other, logs).returncode == 0
    whole = time.monotonic() - began
    for _ in range(3):
        mining = start("mine", "--palace", palace, logs)
        try:
            mining.communicate(timeout=random.uniform(0.2 * whole, whole))
        except Exception:
            mining.kill()
            mining.communicate(timeout=60)
        assert mining.returncode in (0, -signal.SIGKILL)
        with suppress(NoPalace):  # killed before there was one
            find(palace, "question")

    assert run("mine", "--palace", palace, logs).returncode == 0
    assert chunks(palace) == chunks(other)
    assert is_complete(palace)
    again = mine(palace, logs)
    assert (again.states["unchanged"], again.stored, again.chunks_new) == (150, 0, 0)
