"""Which sessions this machine has: every filter, every root, and one session by what a person knows of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from conftest import FIXTURES
from logs import as_nobody, claude_lines, write_claude

import mempalace
from mempalace.cli import group
from mempalace.errors import AmbiguousId, MempalaceError, NotFound, SourceError, UnknownFormat, UsageError

PARENT = "5b0c7a52-9d1e-4c33-8a41-2f6b1d0e9a10"
SHOP = "0b5e6a52-7d0e-4c55-9a35-6d1d3a6a7c01"
LOFT = "0b5e6a99-1111-4c55-9a35-6d1d3a6a7c02"


def at(path: Path, day: int) -> Path:
    """The file as last written at noon of that day of 2026-03."""
    moment = datetime(2026, 3, day, 12, tzinfo=UTC).timestamp()
    os.utime(path, (moment, moment))
    return path


@pytest.fixture
def machine(home: Path) -> Path:
    """Sessions of three tools, in three projects, one a day; two of Claude Code's have a sub-agent."""
    projects = home / ".claude" / "projects"
    at(write_claude(projects / "-w-shop" / f"{SHOP}.jsonl", ["Move to GraphQL", "ok"], SHOP, cwd="/w/shop"), 1)
    loft = projects / "-w-loft" / f"{LOFT}.jsonl"
    at(write_claude(loft, ["Paint the loft", "done", "and the door", "done too"], LOFT, cwd="/w/loft"), 2)
    for number, kind in ((1, "Explore"), (2, "Plan")):
        agent = loft.with_suffix("") / "subagents" / f"agent-a{number}.jsonl"
        write_claude(agent, ["Measure", "3 m"], LOFT, cwd="/w/loft", isSidechain=True, agentId=f"a{number}")
        agent.with_suffix(".meta.json").write_text(json.dumps({"agentType": kind}))
        at(agent, 2 + number)
    codex = home / ".codex" / "sessions" / "2026" / "03" / "04"
    codex.mkdir(parents=True)
    for case in ("tokens", "subagent"):
        (rollout,) = (FIXTURES / "codex" / case).glob("*.jsonl")
        at(Path(shutil.copy(rollout, codex / f"rollout-{case}.jsonl")), 5)
    shutil.copytree(FIXTURES / "gemini" / "tree" / ".gemini", home / ".gemini")
    for path in (home / ".gemini").rglob("*"):
        at(path, 6)
    return home


def ids(**filters: Any) -> list[str | None]:
    return [file.session_id for file in mempalace.list_sessions(**filters)]


# --- filters ------------------------------------------------------------------------------------------------


def test_all_of_this_machine_are_listed_newest_first(machine: Path) -> None:
    found = mempalace.list_sessions()
    assert {file.format for file in found} == {"claude-code", "codex", "gemini"}
    assert [file.modified for file in found] == sorted((file.modified for file in found), reverse=True)
    assert found[-1].session_id == SHOP
    (shop,) = mempalace.list_sessions("/w/shop")
    assert (shop.project, shop.title, shop.is_subagent) == ("/w/shop", "Move to GraphQL", False)
    assert shop.started == datetime(2026, 2, 3, 9, tzinfo=UTC)


def test_sub_agents_are_found_with_their_parents(machine: Path) -> None:
    agents = {
        file.session_id: (file.parent_id, file.agent_type)
        for file in mempalace.list_sessions(mode="subagent")
        if file.format == "claude-code"
    }
    assert agents == {f"{LOFT}/a1": (LOFT, "Explore"), f"{LOFT}/a2": (LOFT, "Plan")}
    for tool in ("codex", "gemini"):  # the one says it in its header, the other by its folder
        (agent,) = mempalace.list_sessions(format=tool, mode="subagent")
        assert agent.parent_id
        assert agent.agent_type


def test_by_project_by_its_folder_or_its_name(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(ids(project="/w/loft")) == set(ids(project=Path("/w/loft"))) == {LOFT, f"{LOFT}/a1", f"{LOFT}/a2"}
    assert set(ids(project="loft")) == set(ids(project="/w/loft"))
    assert ids(project="/w/loft/sub") == ids(project="/w") == ids(project="nowhere") == []
    assert {file.format for file in mempalace.list_sessions("/w/loom")} == {"codex"}
    assert {file.format for file in mempalace.list_sessions("kiln-ctl")} == {"gemini"}


def test_projects_that_share_a_folder_are_told_apart(home: Path) -> None:
    for name in ("a.b", "a-b"):
        write_claude(home / f".claude/projects/-w-a-b/{name}.jsonl", ["hello"], name, cwd=f"/w/{name}")
    write_claude(home / ".claude/projects/-w-a-b/moved.jsonl", ["hello"], "moved", cwd="/w/elsewhere")
    assert set(ids(project="/w/a.b")) == {"a.b", "moved"}
    assert set(ids(project="/w/a-b")) == {"a-b", "moved"}


def test_every_root_of_a_tool_counts(home: Path) -> None:
    write_claude(home / ".claude/projects/-w-shop/one.jsonl", ["hello"], "one", cwd="/w/shop")
    write_claude(home / ".config/claude/projects/-w-shop/two.jsonl", ["hello"], "two", cwd="/w/shop")
    assert set(ids()) == set(ids(project="/w/shop")) == {"one", "two"}


def test_by_time(machine: Path) -> None:
    def days(**filters: Any) -> list[int]:
        found = mempalace.list_sessions(format="claude-code", **filters)
        return [datetime.fromtimestamp(file.modified, UTC).day for file in found]

    noon = datetime(2026, 3, 2, 12, tzinfo=UTC)
    assert days() == [4, 3, 2, 1]
    assert days(since=noon) == [4, 3, 2]
    assert days(until=noon) == [2, 1]
    assert days(since=noon, until=noon) == [2]
    assert days(days=1) == []
    past = (datetime.now(UTC) - datetime(2026, 3, 3, tzinfo=UTC)).total_seconds() / 86_400
    assert days(days=past) == [4, 3]


def test_by_what_stands_in_it(machine: Path) -> None:
    assert ids(grep="GraphQL") == [SHOP]
    assert ids(grep="(?i)graph.l$") == [SHOP]
    assert ids(grep="graphql") == []
    assert set(ids(grep=r"^Measure$")) == {f"{LOFT}/a1", f"{LOFT}/a2"}


def test_what_stands_in_calls_results_and_thoughts_counts(home: Path) -> None:
    blocks = [
        {"type": "thinking", "thinking": "maybe\nTHOUGHT-1", "signature": "s"},
        {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": ["echo", {"deep": 'INPUT-2 "é\n'}]}},
    ]
    result = [{"type": "tool_result", "tool_use_id": "t", "content": "first\nRESULT-3"}]
    lines = claude_lines(["hello"])
    for number, (role, content) in enumerate((("assistant", blocks), ("user", result))):
        record = json.loads(claude_lines(["x"])[0]) | {"uuid": f"n{number}", "type": role}
        lines.append(json.dumps(record | {"message": {"role": role, "content": content}}))
    path = home / ".claude/projects/-w-x/s1.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(lines))
    for pattern in ("^THOUGHT-1$", 'INPUT-2 "é$', "^RESULT-3$", "^Bash$"):
        assert ids(grep=pattern) == ["s1"], pattern
    assert ids(grep="tool_use") == []  # the keys of the log are no words of the conversation


def test_by_mode_and_type(machine: Path) -> None:
    every = set(ids())
    mains, agents = set(ids(mode="interactive")), set(ids(mode="subagent"))
    assert mains | agents == every
    assert not mains & agents
    assert {SHOP, LOFT} < mains
    assert len(agents) == 4
    assert ids(agent_type="Plan") == [f"{LOFT}/a2"]
    assert ids(agent_type="Plan", mode="interactive") == []


def test_limit_and_order(machine: Path) -> None:
    newest = ids(format="claude-code")
    assert ids(format="claude-code", limit=2) == newest[:2]
    assert ids(format="claude-code", sort="duration")[0] == LOFT  # of four messages, a second apart
    mains = mempalace.list_sessions(format="claude-code", mode="interactive", sort="name")
    assert [file.title for file in mains] == ["Move to GraphQL", "Paint the loft"]
    assert ids(format="claude-code", sort="duration", limit=1) == [LOFT]


@pytest.mark.parametrize("filters", [{"grep": "("}, {"grep": "*"}, {"mode": "x"}, {"sort": "x"}, {"limit": 0}])
def test_a_filter_that_cannot_be_is_told(filters: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as error:
        mempalace.list_sessions(**filters)
    assert str(next(iter(filters.values()))) in error.value.message
    assert error.value.hint or "limit" in filters


def test_an_unknown_tool_is_told() -> None:
    with pytest.raises(UnknownFormat, match="no format named 'kimi'"):
        mempalace.list_sessions(format="kimi")


def test_files_without_a_conversation_are_left_out(home: Path) -> None:
    folder = home / ".claude/projects/-w-x"
    write_claude(folder / "good.jsonl", ["hello"], "good")
    (folder / "empty.jsonl").touch()
    (folder / "summary.jsonl").write_text('{"type":"summary","summary":"x","leafUuid":"y"}\n')
    (folder / "garbage.jsonl").write_bytes(b"\x00\xff{{{")
    assert ids() == ["good"]


def test_a_long_beginning_without_words_is_read_on(home: Path) -> None:
    path = home / ".claude/projects/-w-x/late.jsonl"
    record = json.dumps({"type": "file-history-snapshot", "messageId": "m", "snapshot": {"pad": "x" * 1000}})
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"{line}\n" for line in [*[record] * 200, *claude_lines(["hello"], "late")]))
    assert ids() == ["late"]
    path.write_text("".join(f"{line}\n" for line in claude_lines(["x" * 300_000], "late")))  # one line of 300 kB
    assert ids() == ["late"]


def test_listing_reads_only_the_beginning(home: Path) -> None:
    lines = [*claude_lines(["hello"]), json.dumps({"type": "x", "pad": "x" * 100_000}), "{damaged"]
    path = home / ".claude/projects/-w-x/s1.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(lines))
    size = path.stat().st_size
    with path.open("r+b") as stream:
        stream.truncate(20_000_000_000)  # sparse: nobody could read all of it in time
    (file,) = mempalace.list_sessions()
    assert (file.session_id, file.title, file.size > size) == ("s1", "hello", True)


# --- what cannot be read ------------------------------------------------------------------------------------


LISTED = """
import json, mempalace
from mempalace.formats import registry
problems = []
found = mempalace.list_sessions(on_problem=problems.append)
print(json.dumps([[file.format for file in found], [[str(one.path), one.message] for one in problems]]))
for format in registry.default():
    format.list_sessions(), format.sessions_dir(), format.roots()
"""


@pytest.mark.parametrize(
    ("closed", "left"),
    [
        (".claude/projects", {"codex", "gemini"}),
        (".claude/projects/-w-loft", {"claude-code", "codex", "gemini"}),
        (".codex", {"claude-code", "gemini"}),
        (".gemini/tmp", {"claude-code", "codex"}),
    ],
)
def test_folders_that_are_closed_are_named_and_passed_over(machine: Path, closed: str, left: set[str]) -> None:
    (machine / closed).chmod(0)
    try:
        formats, problems = json.loads(as_nobody(machine, LISTED, HOME=str(machine)))
    finally:
        (machine / closed).chmod(0o755)
    assert set(formats) == left
    assert problems
    assert all(path.startswith(str(machine / closed)) and "Permission denied" in text for path, text in problems)


def test_roots_that_are_missing_or_files_are_no_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problems: list[MempalaceError] = []
    assert mempalace.list_sessions(on_problem=problems.append) == []
    (home / "file").touch()
    monkeypatch.setenv("CODEX_HOME", str(home / "file"))
    monkeypatch.setenv("CLAUDE_SESSIONS_DIR", str(home / "file"))
    assert mempalace.list_sessions(on_problem=problems.append) == []
    assert problems == []


# --- one session --------------------------------------------------------------------------------------------


def test_one_is_found_by_id_prefix_agent_title_or_file_name(machine: Path) -> None:
    assert mempalace.find_session(SHOP).key == SHOP
    assert mempalace.find_session("0b5e6a52").key == SHOP
    assert mempalace.find_session(f"{LOFT}/a2").subagent_type == "Plan"
    assert mempalace.find_session(f"{LOFT}/a1").key == f"{LOFT}/a1"
    assert mempalace.find_session("a2").key == f"{LOFT}/a2"
    assert mempalace.find_session("graphQL").key == SHOP  # words of its title
    assert mempalace.find_session("rollout-tokens").format == "codex"
    write_claude(machine / ".claude/projects/-w-x/x9.jsonl", ["Mend package.json", "done"], "x9")
    assert mempalace.find_session("mend package.json").key == "x9"


def test_an_id_that_fits_several_lists_them(machine: Path) -> None:
    with pytest.raises(AmbiguousId) as error:
        mempalace.find_session("0b5e6a")
    assert sorted(error.value.candidates) == [SHOP, LOFT]
    assert SHOP in error.value.message
    assert "Paint the loft" in error.value.message
    with pytest.raises(AmbiguousId, match="title or file name of"):
        mempalace.find_session("o")


def test_an_id_that_fits_none_is_told(machine: Path) -> None:
    with pytest.raises(NotFound, match="zzz") as error:
        mempalace.find_session("zzz")
    assert "sessions list" in (error.value.hint or "")


def test_a_file_is_read_as_it_is(machine: Path, tmp_path: Path) -> None:
    path = write_claude(tmp_path / "elsewhere.jsonl", ["hello"], "x1")
    assert mempalace.find_session(path).key == mempalace.find_session(str(path)).key == "x1"
    with pytest.raises(SourceError):
        mempalace.find_session(tmp_path / "none.jsonl")
    (tmp_path / "notes.txt").write_text("words")
    with pytest.raises(UnknownFormat):
        mempalace.find_session(str(tmp_path / "notes.txt"))


def test_of_a_file_with_several_one_can_be_named() -> None:
    path = FIXTURES / "chatgpt" / "list" / "conversations.json"
    every = [session.key for session in mempalace.parse(path)]
    assert len(every) > 1
    with pytest.raises(AmbiguousId) as error:
        mempalace.find_session(path)
    assert error.value.candidates == [f"{path}::{key}" for key in every]
    for candidate, key in zip(error.value.candidates, every, strict=True):
        assert mempalace.find_session(candidate).key == key
    with pytest.raises(NotFound, match="nothing-like-it"):
        mempalace.find_session(f"{path}::nothing-like-it")


def test_the_palace_answers_when_the_log_is_gone(machine: Path, tmp_path: Path) -> None:
    with mempalace.Palace(tmp_path / "palace") as palace:
        palace.mine()
    path = machine / ".claude/projects/-w-shop" / f"{SHOP}.jsonl"
    live = mempalace.find_session(SHOP, tmp_path / "palace")
    path.unlink()
    for which in (SHOP, "0b5e6a52", "move to graphql", path, str(path)):
        assert mempalace.find_session(which, tmp_path / "palace") == live
    with pytest.raises(NotFound):
        mempalace.find_session(SHOP)  # the default palace was never made


# --- the command line ---------------------------------------------------------------------------------------


def run(*words: str) -> Result:
    return CliRunner().invoke(group, ["sessions", *words], catch_exceptions=False, standalone_mode=False)


def listed(*words: str) -> list[str]:
    return [one["session_id"] for one in json.loads(run("list", *words, "--json").stdout)["sessions"]]


def test_the_list_is_of_this_folder_by_default(machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "my.shop"
    folder.mkdir()
    slug = "".join(sign if sign.isalnum() or sign == "-" else "-" for sign in str(folder))
    write_claude(machine / f".claude/projects/{slug}/here.jsonl", ["hello"], "here", cwd=str(folder))
    monkeypatch.chdir(folder)
    assert listed() == ["here"]
    assert {SHOP, LOFT, "here"} < set(listed("--all-projects"))
    assert listed("--project", "shop") == listed("--project", "/w/shop") == [SHOP]
    monkeypatch.chdir(tmp_path)
    empty = run("list")
    assert "--all-projects" in empty.stderr
    assert empty.exit_code == 0


def test_json_of_the_list(machine: Path) -> None:
    data = json.loads(run("list", "--project", "shop", "--json").stdout)
    (shop,) = data["sessions"]
    assert data == {"schema_version": 1, "sessions": [shop], "problems": []}
    path = machine / ".claude/projects/-w-shop" / f"{SHOP}.jsonl"
    assert shop == {
        "session_id": SHOP,
        "format": "claude-code",
        "path": str(path),
        "project": "/w/shop",
        "title": "Move to GraphQL",
        "started": "2026-02-03T09:00:00Z",
        "modified": "2026-03-01T12:00:00Z",
        "size": path.stat().st_size,
        "is_subagent": False,
        "parent_id": None,
        "agent_type": None,
    }


def test_filters_of_the_list(machine: Path) -> None:
    everywhere = ("--all-projects", "--tool", "claude-code")
    assert listed(*everywhere) == [LOFT, SHOP]
    assert len(listed(*everywhere, "--mode", "all")) == 4
    assert listed(*everywhere, "--agent-type", "Plan") == [f"{LOFT}/a2"]
    assert listed(*everywhere, "--since", "2026-03-02") == [LOFT]
    assert listed(*everywhere, "--until", "2026-03-01") == [SHOP]  # noon of a day lies within it
    assert listed(*everywhere, "--days", "1") == []
    assert listed(*everywhere, "--grep", "Graph") == [SHOP]
    assert listed(*everywhere, "--sort", "name", "-n", "1") == [SHOP]


def test_the_table_and_what_it_shows_can_be_shown(machine: Path) -> None:
    table = run("list", "--all-projects", "--mode", "all").stdout
    assert "Move to GraphQL" in table
    assert "[Explore] Measure" in table
    (line,) = (line for line in table.splitlines() if "GraphQL" in line)
    short = next(word for word in line.split() if SHOP.startswith(word))
    shown = run("show", short).stdout
    assert f"session {SHOP}" in shown
    assert "> Move to GraphQL\n\nok" in shown
    assert json.loads(run("show", short, "--json").stdout)["metadata"]["session_id"] == SHOP


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["list", "--grep", "("], "usage"),
        (["list", "--project", "x", "--all-projects"], "usage"),
        (["list", "--since", "yesterday"], "usage"),
        (["list", "--until", "9999-12-31"], "usage"),
        (["list", "--tool", "kimi"], "unknown_format"),
        (["show", "0b5e6a"], "ambiguous_id"),
        (["show", "zzz"], "not_found"),
    ],
)
def test_errors_are_typed(machine: Path, words: list[str], kind: str) -> None:
    code = "from mempalace.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "sessions", *words, "--json"], capture_output=True, text=True, check=False
    )
    error = json.loads(done.stdout)["error"]
    assert error["kind"] == kind
    assert done.returncode == (1 if kind == "unknown_format" else 2)
    assert error["hint"] or kind == "usage"
    assert not done.stderr
