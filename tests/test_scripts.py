"""Scripts of one's own, in Python and in Lua: what they give, and what goes wrong in them."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import mempalace
from mempalace import scripts
from mempalace.cli import group
from mempalace.errors import MempalaceError, ScriptError, SourceError, UnknownFormat, UsageError
from mempalace.model import Session
from tests.logs import write_claude

EXAMPLES = Path(mempalace.__file__).parent / "examples"
CLAUDE = EXAMPLES / "claude-code.jsonl"
needs_lua = pytest.mark.skipif(importlib.util.find_spec("lupa") is None, reason="needs the extra mempalace[lua]")

SEED_LOOP = """
local counts = {}
for _, path in ipairs(%s) do
  for _, session in ipairs(sessions.parse(path)) do
    for _, turn in ipairs(session.turns) do
      for _, message in ipairs(turn.messages) do
        for _, block in ipairs(message.content) do
          if block.type == "tool_use" then
            counts[block.name] = (counts[block.name] or 0) + 1
          end
        end
      end
    end
  end
end
return counts
"""


def script(folder: Path, text: str, name: str = "metric.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def examples() -> Iterator[Session]:
    for path in sorted(EXAMPLES.iterdir()):
        yield from mempalace.parse(path)


def stats(*words: str | Path) -> Result:
    return CliRunner().invoke(group, ["sessions", "stats", *map(str, words)])


def fails(path: Path, sessions: Iterable[Session] = ()) -> ScriptError:
    with pytest.raises(ScriptError) as caught:
        scripts.run(path, sessions or examples())
    assert caught.value.path == path
    return caught.value


# --- plain data from the library ----------------------------------------------------------------------------


def test_the_loop_of_normalize_over_plain_data_gives_tool_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "claude" / "projects" / "-home-ana-shop"
    folder.mkdir(parents=True)
    (folder / "0b5e6a52-7d0e-4c55-9a35-6d1d3a6a7c01.jsonl").write_bytes(CLAUDE.read_bytes())
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    counts: dict[str, int] = {}
    listed = [file.to_dict() for file in mempalace.list_sessions()]
    for file in listed:
        for session in mempalace.parse(file["path"]):
            for turn in session.to_dict()["turns"]:
                for message in turn["messages"]:
                    for block in message["content"]:
                        if block["type"] == "tool_use":
                            counts[block["name"]] = counts.get(block["name"], 0) + 1
    assert counts == {"Grep": 1, "Write": 1}
    assert json.loads(json.dumps(listed)) == listed
    assert listed[0]["session_id"] == "0b5e6a52-7d0e-4c55-9a35-6d1d3a6a7c01"
    assert "claude-code" in mempalace.formats()  # type: ignore[operator]


# --- Python -------------------------------------------------------------------------------------------------


def test_a_metric_per_session_and_what_combines_them(tmp_path: Path) -> None:
    path = script(tmp_path, "def metric(session):\n    return len(session.tool_uses)\n")
    outcome = scripts.run(path, examples())
    assert [value for _, value in outcome.values] == [2, 1, 1]
    assert outcome.values[0][0] == "0b5e6a52-7d0e-4c55-9a35-6d1d3a6a7c01"
    assert not outcome.is_combined
    path.write_text(path.read_text() + "def combine(values):\n    return {'calls': sum(values), 'of': values}\n")
    outcome = scripts.run(path, examples())
    assert outcome.result == {"calls": 4, "of": [2, 1, 1]}
    assert [entry.name for entry in tmp_path.iterdir()] == ["metric.py"]  # no __pycache__


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("x = 1\n", None, "no function `metric`"),
        ("metric = 3\n", None, "`metric` is no function"),
        ("def metric(session): return 1\ncombine = 3\n", None, "`combine` is no function"),
        ("def metric(session):\n    return 1 +\n", 2, "SyntaxError"),
        ("import nothing_of_this_name\n", 1, "ModuleNotFoundError"),
        ("def metric(session):\n    x = 1\n    return x / 0\n", 3, "ZeroDivisionError: division by zero"),
        ("def metric():\n    return 1\n", None, "TypeError"),
        ("class E(Exception):\n    def __str__(self): 1 / 0\ndef metric(s):\n    raise E\n", 4, "the script raises E"),
        ("def metric(s):\n    raise BaseExceptionGroup('many', [SystemExit(1)])\n", 2, "BaseExceptionGroup: many"),
        ("def metric(s):\n    raise GeneratorExit\n", 2, "GeneratorExit"),
        (
            "class D(dict):\n    def items(self): raise LookupError('odd')\ndef metric(s): return D(a=1)\n",
            None,
            "gives no JSON data: odd",
        ),
        ("import json\ndef metric(session):\n    return json.loads('{')\n", 3, "JSONDecodeError"),
        ("def metric(session):\n    raise SystemExit(3)\n", 2, "SystemExit: 3"),
        ("def metric(session):\n    return metric(session)\n", 2, "RecursionError"),
        ("def metric(session):\n    assert False\n", 2, "AssertionError"),
        ("def metric(session): return 1\ndef combine(values):\n    return values[9]\n", 3, "IndexError"),
        ("def metric(session): return {1, 2}\n", None, "gives no JSON data"),
        ("def metric(session): return float('nan')\n", None, "gives no JSON data"),
        ("def metric(session): return 1\ndef combine(values): return session\n", 2, "NameError"),
    ],
)
def test_what_goes_wrong_in_a_script_is_named_with_its_line(
    tmp_path: Path, text: str, line: int | None, message: str
) -> None:
    error = fails(script(tmp_path, text))
    assert message in error.message
    assert error.line == line


def test_files_that_are_no_scripts(tmp_path: Path) -> None:
    assert "cannot be read" in fails(tmp_path / "none.py").message
    assert "cannot be read" in fails(tmp_path).message
    path = tmp_path / "bytes.py"
    path.write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in fails(path).message


def test_an_interrupt_ends_the_run(tmp_path: Path) -> None:
    path = script(tmp_path, "def metric(session):\n    raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        scripts.run(path, examples())


def test_errors_of_the_library_stay_what_they_are(tmp_path: Path) -> None:
    path = script(tmp_path, "import mempalace\ndef metric(session):\n    return mempalace.parse('/no/such.jsonl')\n")
    with pytest.raises(SourceError):
        scripts.run(path, examples())


def test_nothing_is_half_printed(tmp_path: Path) -> None:
    path = script(tmp_path, "def metric(session):\n    print('one')\n    return session.message_count\n")
    shown = stats("--script", path, EXAMPLES)
    assert shown.exit_code == 0
    assert shown.output.splitlines()[:3] == ["one"] * 3
    data = json.loads(stats("--script", path, EXAMPLES, "--json").output)
    assert data["printed"] == "one\n" * 3
    assert [one["value"] for one in data["values"]] == [10, 6, 5]
    path.write_text("n = 0\ndef metric(session):\n    global n\n    n += 1\n    print(n)\n    return 1 / (n - 3)\n")
    shown = CliRunner().invoke(group, ["sessions", "stats", "--script", str(path), str(EXAMPLES)])
    assert isinstance(shown.exception, ScriptError)
    assert shown.output == ""


def test_a_script_computes_all_itself(tmp_path: Path) -> None:
    path = script(tmp_path, "def metric(session): return 1\n")
    for words in (["--by", "tool"], ["--subagents"], ["--prices", "x"]):
        assert isinstance(stats("--script", path, EXAMPLES, *words).exception, UsageError)


# --- Lua ----------------------------------------------------------------------------------------------------


def test_without_lupa_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lupa", None)  # as if it were not installed
    error = fails(script(tmp_path, "return 1", "a.lua"))
    assert error.hint == "pip install 'mempalace[lua]'"


@needs_lua
def test_the_loop_of_normalize_in_lua(tmp_path: Path) -> None:
    path = script(tmp_path, SEED_LOOP % f'{{"{CLAUDE}", "{EXAMPLES / "codex-rollout.jsonl"}"}}', "loop.lua")
    outcome = scripts.run(path, iter(()))
    assert outcome.result == {"Grep": 1, "Write": 1, "exec_command": 1}
    assert list(outcome.result) == sorted(outcome.result)


@needs_lua
def test_lists_and_formats_as_plain_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_claude(tmp_path / "claude" / "projects" / "-w-kiln-ctl" / "s1.jsonl", ["hello", "there"])
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    path = script(
        tmp_path,
        "local all = sessions.list()\n"
        "local none = sessions.list({format = 'codex', limit = 3})\n"
        "return {#all, #none, all[1].title, all[1].session_id, sessions.formats(), sessions.list({days = 0.0})}",
        "list.lua",
    )
    count, others, title, name, formats, recent = scripts.run(path, iter(())).result
    assert (count, others, title, name, recent) == (1, 0, "hello", "s1", {})
    assert formats == mempalace.formats()  # type: ignore[operator]


@needs_lua
def test_a_metric_in_lua(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        "function metric(session)\n"
        "  print(session.metadata.project, session.metadata.title)\n"
        "  return {turns = #session.turns, model = session.metadata.model}\n"
        "end\n"
        "function combine(values) return values[1].turns + values[2].turns end\n",
        "metric.LUA",
    )
    outcome = scripts.run(path, examples())
    assert [value["turns"] for _, value in outcome.values] == [2, 2, 2]
    assert outcome.values[0][1]["model"] == "claude-opus-4-5"
    assert outcome.result == 4
    assert outcome.printed.splitlines()[0] == "/home/ana/shop\tnil"


@needs_lua
def test_values_of_every_kind_reach_lua(tmp_path: Path) -> None:
    text = "\\ud800 \\u6f22 " + "x" * 10
    line = (
        '{"type":"assistant","sessionId":"s","uuid":"u","message":{"role":"assistant","model":"m","content":['
        '{"type":"tool_use","id":"1","name":"T","input":{"big":123456789012345678901234567890,"list":[1,null,2.5],'
        f'"none":null,"yes":true,"text":"{text}"}}}}]}}}}\n'
    )
    log = script(tmp_path, line, "log.jsonl")
    path = script(
        tmp_path,
        "function metric(s)\n  local i = s.turns[1].messages[1].content[1].input\n"
        "  return {i.big, #i.list, i.list[2], i.none == nil, i.yes, i.text}\nend",
        "kinds.lua",
    )
    ((_, value),) = scripts.run(path, mempalace.parse(log, "claude-code")).values
    assert value[:5] == [pytest.approx(1.2345678901234568e29), 3, False, True, True]
    assert value[5].endswith("漢 xxxxxxxxxx")


@needs_lua
@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("return (", 1, "unexpected symbol"),
        ("local x = nil\nreturn x.y", 2, "attempt to index a nil value"),
        ("error('mine')", 1, "mine"),
        ("error({code = 1})", None, "a value that is no text"),
        ("metric = 3", None, "`metric` is no function"),
        ("metric = {}", None, "`metric` is no function"),
        ("function metric(s)\n  return s.turns[99].messages\nend", 2, "attempt to index a nil value"),
        ("function metric(s) return 0/0 end", None, "gives no JSON data"),
        ("function metric(s) return print end", None, "gives no JSON data"),
        ("return string.char(255)", None, "decode"),
        ("local t = {}; t.t = t; return t", None, "nested too deeply"),
        ("return sessions.parse.__globals__", None, "have no attributes here"),
        ("sessions.parse.x = 1", None, "have no attributes here"),
        ("return python.eval('1')", 1, "nil value (global 'python')"),
        ("return require('python')", 1, "not found"),
        ("local x = 1\nos.exit(0)", 2, "os.exit() would end mempalace itself"),
    ],
)
def test_what_goes_wrong_in_lua_is_named_with_its_line(
    tmp_path: Path, text: str, line: int | None, message: str
) -> None:
    error = fails(script(tmp_path, text, "bad.lua"))
    assert message in error.message
    assert error.line == line


@needs_lua
@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize(
    "text",
    [
        "print('x'); io.stderr:write('on\\n'); while true do end",
        "function metric(s) io.stderr:write('on\\n'); while true do pcall(error) end end",
        "io.stderr:write('on\\n'); local f = coroutine.wrap(function() while true do end end) f()",
    ],
)
def test_an_interrupt_ends_a_loop_in_lua(tmp_path: Path, text: str) -> None:
    path = script(tmp_path, text, "loop.lua")
    command = [sys.executable, "-m", "mempalace", "sessions", "stats", "--script", str(path), str(CLAUDE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"on\n"
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(20) in (-signal.SIGINT, 130)
        finally:
            process.kill()


@needs_lua
def test_a_program_keeps_its_own_handler_of_interrupts(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    path = script(tmp_path, "return 1", "one.lua")
    assert scripts.run(path, iter(())).result == 1
    assert signal.getsignal(signal.SIGINT) is before
    with ThreadPoolExecutor(1) as pool:  # where signals cannot be set
        assert pool.submit(scripts.run, path, iter(())).result().result == 1


@needs_lua
@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("return sessions.parse('/no/such.jsonl')", SourceError),
        ("return sessions.parse('/no/such.jsonl', 'pigeon')", UnknownFormat),
        ("return sessions.list({format = 'pigeon'})", UnknownFormat),
        ("return sessions.list({colour = 'red'})", UsageError),
        ("return sessions.list('red')", UsageError),
    ],
)
def test_errors_of_the_library_come_through_lua(tmp_path: Path, text: str, error: type[MempalaceError]) -> None:
    with pytest.raises(error):
        scripts.run(script(tmp_path, text, "bad.lua"), iter(()))
