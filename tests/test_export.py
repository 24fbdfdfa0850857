"""`mempalace export` and `mempalace resume`: files, places, commands, and what is refused."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest
import zstandard
from click.testing import CliRunner, Result
from logs import chatgpt, claude_lines, find, run, slack, slack_files, unpack, write_claude

import mempalace
from mempalace.cli import group
from mempalace.cli.output import report
from mempalace.convert import TARGETS, convert
from mempalace.errors import MempalaceError
from mempalace.resume import Resume

KILN = "0b5e6a52-7d0e-4c55-9a35-6d1d3a6a7c01"
READABLE = {"claude-code": "claude-code", "codex": "codex", "openai": "chat", "markdown": "markdown"}


@pytest.fixture
def palace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEMPALACE_PALACE_PATH", str(tmp_path / "palace"))
    return tmp_path / "palace"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "my shop's"
    folder.mkdir()
    return folder


@pytest.fixture
def log(home: Path, palace: Path, project: Path) -> Path:
    """A Claude Code log in its place, mined."""
    slug = "".join(sign if sign.isascii() and (sign.isalnum() or sign == "-") else "-" for sign in str(project))
    path = home / ".claude" / "projects" / slug / f"{KILN}.jsonl"
    write_claude(path, ["why does KILN-7 overheat", "the probe is loose", "thanks"], KILN, cwd=str(project))
    with path.open("a") as stream:
        stream.write(json.dumps({"type": "last-prompt", "lastPrompt": "thanks", "sessionId": KILN}) + "\n")
    invoke("mine")
    return path


def invoke(*words: str) -> Result:
    """A command in this process, which it must not end by an error."""
    done = CliRunner().invoke(group, words, catch_exceptions=False, standalone_mode=False)
    assert done.exception is None, done.output
    return done


def told(*words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(invoke(*words, "--json").stdout)
    assert found["schema_version"] == 1
    return found


def error(*words: str) -> dict[str, Any]:
    """The error that a command ends with, as it is reported to programs; its standard output was empty until then."""
    with pytest.raises(MempalaceError) as raised:
        CliRunner().invoke(group, words, catch_exceptions=False, standalone_mode=False)
    with CliRunner().isolation() as (stdout, *_):
        assert report(raised.value, as_json=True) == raised.value.exit_code != 0
        found: dict[str, Any] = json.loads(stdout.getvalue())["error"]
    return found


# --- export -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_a_session_of_the_palace_is_written_after_its_log_is_gone(log: Path, tmp_path: Path, target: str) -> None:
    log.unlink()
    done = invoke("export", "0b5e", "--to", target)
    assert "overheat" in done.stdout
    assert target in done.stderr.splitlines()[0]
    out = tmp_path / "out"
    out.mkdir()
    found = told("export", "0b5e", "--to", target, "-o", str(out))
    path = Path(found["path"])
    assert path.parent == out
    assert path.read_text() == done.stdout
    assert (found["session_id"], found["bytes"]) == (KILN, path.stat().st_size)
    assert found["report"]["target"] == target
    assert found["report"]["residue"].get("records: last-prompt") == 1
    if target in READABLE:
        (back,) = mempalace.parse(path)
        assert back.format == READABLE[target]
        assert [message.text for message in back.messages] == [
            "why does KILN-7 overheat",
            "the probe is loose",
            "thanks",
        ]


def test_the_log_itself_comes_back_byte_for_byte(log: Path, tmp_path: Path) -> None:
    data = log.read_bytes().replace(b"\n", b"\r\n") + b'{"torn": '
    log.write_bytes(data)
    invoke("mine")
    log.unlink()
    assert told("export", "0b5e", "--to", "original", "-o", str(tmp_path / "back.jsonl"))["report"]["residue"] == {}
    assert (tmp_path / "back.jsonl").read_bytes() == data


def test_the_native_container_holds_the_log(log: Path, tmp_path: Path) -> None:
    data = log.read_bytes()
    mempalace.save(mempalace.load(log), tmp_path / "from a file", "native")
    log.unlink()
    path = Path(told("export", "0b5e", "--to", "native", "-o", str(tmp_path))["path"])
    assert path.name == f"{log.name}.native"
    assert mempalace.from_native(path.read_bytes()).data == data
    assert path.read_bytes() == (tmp_path / "from a file").read_bytes()


def test_a_session_of_several_files_needs_a_folder(palace: Path, tmp_path: Path) -> None:
    thread = "1767949200.000100"
    days = {"d09": [slack("UANA", "KILN-1", thread, thread)], "d10": [slack("UBOB", "ok", "1768035600.1", thread)]}
    export = tmp_path / "export"
    for name, text in slack_files(**days).items():
        (export / name).parent.mkdir(parents=True, exist_ok=True)
        (export / name).write_text(str(text))
    before = {path.name: path.read_bytes() for path in (export / "kiln").iterdir()}
    invoke("mine", str(export))
    (key,) = {hit.session_id for hit in find(palace, "KILN-1")}
    shutil.rmtree(export)
    found = error("export", key, "--to", "original")
    assert (found["kind"], "-o DIR" in found["hint"]) == ("usage", True)
    (tmp_path / "out").mkdir()
    paths = [Path(path) for path in told("export", key, "--to", "original", "-o", str(tmp_path / "out"))["paths"]]
    assert {path.name: path.read_bytes() for path in paths} == before
    assert "[Ana] KILN-1" in invoke("export", key, "--to", "claude-code").stdout


def test_a_conversation_of_an_export_is_its_own_bytes(palace: Path, tmp_path: Path) -> None:
    conversations = [chatgpt("c-one", ["KILN-1 hot", "yes"]), chatgpt("c-two", ["KILN-2 cold", "no"])]
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps(conversations))
    invoke("mine", str(path))
    path.unlink()
    done = invoke("export", "c-two", "--to", "original")
    assert json.loads(done.stdout) == conversations[1]
    invoke("export", "c-two", "--to", "codex")


def test_a_file_is_written_without_a_palace(tmp_path: Path) -> None:
    path = write_claude(tmp_path / "a.jsonl", ["why", "because"])
    done = invoke("export", str(path), "--to", "codex", "--palace", str(tmp_path / "none"))
    assert json.loads(done.stdout.splitlines()[0])["type"] == "session_meta"
    assert not (tmp_path / "none").exists()


def test_a_session_of_a_tools_logs_needs_no_palace(log: Path, palace: Path) -> None:
    shutil.rmtree(palace)
    assert "overheat" in invoke("export", "0b5e", "--to", "markdown").stdout
    assert not palace.exists()


def test_what_a_tool_wrote_since_it_was_mined_counts(log: Path) -> None:
    mined = log.read_bytes()
    log.write_bytes(mined + "".join(f"{line}\n" for line in claude_lines(["KILN-9"], KILN, first=4)).encode())
    assert "KILN-9" in invoke("export", "0b5e", "--to", "markdown").stdout
    assert invoke("export", "0b5e", "--to", "original").stdout_bytes == log.read_bytes()
    log.write_bytes(b"{}\n" * 5_000)  # another log in its place: what was kept counts
    assert invoke("export", "0b5e", "--to", "original").stdout_bytes == mined


def test_a_file_that_exists_is_refused(log: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("mine")
    found = error("export", KILN, "--to", "markdown", "-o", str(path))
    assert (found["kind"], found["path"]) == ("convert", str(path))
    assert "--force" in found["hint"]
    assert path.read_text() == "mine"
    invoke("export", KILN, "--to", "markdown", "-o", str(path), "--force")
    assert "overheat" in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_is_followed_and_what_is_no_file_is_refused(log: Path, tmp_path: Path) -> None:
    real, link = tmp_path / "real.md", tmp_path / "link.md"
    real.write_text("mine")
    link.symlink_to(real)
    assert error("export", KILN, "--to", "markdown", "-o", str(link))["kind"] == "convert"
    invoke("export", KILN, "--to", "markdown", "-o", str(link), "--force")
    assert link.is_symlink()
    assert "overheat" in real.read_text()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path, words in ((pipe, "not a regular file"), (loop, "link to itself")):
        found = error("export", KILN, "--to", "markdown", "-o", str(path), "--force")
        assert words in found["message"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert "leave it out" in error("export", KILN, "--to", "markdown", "-o", str(pipe))["hint"]
    assert loop.is_symlink()
    done = run("export", KILN, "--to", "markdown", "-o", "/dev/stdout", "--force")
    assert (done.returncode, "not a regular file" in done.stderr) == (1, True)


def test_of_several_files_all_are_written_or_none(
    palace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = "1767949200.000100"
    days = {"d09": [slack("UANA", "KILN-1", thread, thread)], "d10": [slack("UBOB", "ok", "1768035600.1", thread)]}
    invoke("mine", str(unpack(tmp_path / "export", slack_files(**days))))
    (key,) = {hit.session_id for hit in find(palace, "KILN-1")}
    out = tmp_path / "out"
    out.mkdir()
    last = out / "2026-01-10.json"
    last.write_text("mine")
    assert error("export", key, "--to", "original", "-o", str(out))["path"] == str(last)
    assert [path.name for path in out.iterdir()] == [last.name]
    last.unlink()
    write = os.fdopen

    def full(number: int, *more: Any, **options: Any) -> Any:
        if list(out.glob("*.json")):
            os.close(number)
            raise OSError(28, "No space left on device")
        return write(number, *more, **options)

    monkeypatch.setattr(os, "fdopen", full)
    assert "No space" in error("export", key, "--to", "original", "-o", str(out))["message"]
    assert list(out.iterdir()) == []


def test_what_cannot_be_exported_is_told(log: Path, tmp_path: Path) -> None:
    assert error("export", KILN, "--to", "nix", "-o", "x")["kind"] == "unknown_format"
    assert error("export", "zzz", "--to", "json", "-o", "x")["kind"] == "not_found"
    assert error("export", KILN, "--to", "json", "--json")["kind"] == "usage"
    done = run("export", KILN)
    assert (done.returncode, "--to" in done.stderr) == (2, True)
    done = run("export", KILN, "--to", "nix", "-o", "x", "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]["kind"]) == (1, "unknown_format")
    below = error("export", KILN, "--to", "json", "-o", str(log / "x.json"))
    assert below["kind"] == "convert"
    second = write_claude(log.parent / "0b5e0000.jsonl", ["KILN-8", "b"], "0b5e0000-0000-4000-8000-000000000000")
    invoke("mine", str(second))
    found = error("export", "0b5e", "--to", "json", "-o", "x")
    assert (found["kind"], len(found["candidates"])) == ("ambiguous_id", 2)
    many = tmp_path / "conversations.json"
    many.write_text(json.dumps([chatgpt("c-one", ["a", "b"]), chatgpt("c-two", ["c", "d"])]))
    found = error("export", str(many), "--to", "json", "-o", "x")
    assert (found["kind"], found["candidates"]) == ("ambiguous_id", [f"{many}::c-one", f"{many}::c-two"])
    assert json.loads(invoke("export", f"{many}::c-two", "--to", "original").stdout)["title"] == "c-two"
    nothing = tmp_path / "silent.jsonl"
    nothing.write_text(
        json.dumps({"type": "user", "uuid": "u", "parentUuid": None, "sessionId": "s", "isMeta": True}
        | {"message": {"role": "user", "content": "Caveat"}}) + "\n"
    )  # fmt: skip
    assert error("export", str(nothing), "--to", "codex", "-o", str(tmp_path / "x"))["kind"] == "convert"
    assert not (tmp_path / "x").exists()


def test_a_folder_that_may_not_be_written() -> None:
    with tempfile.TemporaryDirectory(prefix="mempalace-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        path = write_claude(folder / "a.jsonl", ["why", "because"])
        prefix = ["setpriv", "--reuid=65534", "--clear-groups"] if os.geteuid() == 0 else []
        if prefix and shutil.which("setpriv") is None:
            pytest.skip("needs setpriv")
        folder.chmod(0o555)
        probe = run(code=f"open({str(folder / 'probe')!r}, 'w')", prefix=prefix, HOME=name)
        assert "PermissionError" in probe.stderr
        for out in (folder / "a.html", folder / "new" / "a.html"):
            done = run("export", path, "--to", "html", "-o", out, "--json", prefix=prefix, HOME=name)
            assert done.returncode == 1, done.stderr
            found = json.loads(done.stdout)["error"]
            assert (found["kind"], found["path"]) == ("convert", str(out))
        assert [found.name for found in folder.iterdir()] == ["a.jsonl"]
        folder.chmod(0o755)


# --- resume -------------------------------------------------------------------------------------------------


def test_a_session_is_resumed_in_its_own_tool(log: Path, project: Path) -> None:
    done = invoke("resume", "0b5e")
    assert shlex.split(done.stdout) == ["cd", str(project), "&&", "claude", "--resume", KILN]
    found = told("resume", KILN)
    assert (found["written"], found["path"], found["report"]) == (False, str(log), None)


def test_a_log_that_its_tool_deleted_is_put_back(log: Path) -> None:
    data = log.read_bytes()
    log.unlink()
    log.parent.rmdir()
    found = told("resume", KILN)
    assert (found["written"], found["path"]) == (True, str(log))
    assert log.read_bytes() == data
    log.write_bytes(data + b"{}\n")
    assert told("resume", KILN)["written"] is False
    assert log.read_bytes() == data + b"{}\n"


def test_a_log_that_lies_elsewhere_goes_to_the_tools_place(palace: Path, home: Path, tmp_path: Path) -> None:
    backup = write_claude(tmp_path / "backup" / "x.jsonl", ["KILN-7", "b"], KILN, cwd=str(tmp_path))
    found = told("resume", str(backup))
    place = Path(found["path"])
    assert place.is_relative_to(home / ".claude" / "projects")
    assert place.name == f"{KILN}.jsonl"
    assert place.read_bytes() == backup.read_bytes()


@pytest.mark.parametrize("variable", [None, "CODEX_HOME"])
def test_a_session_is_resumed_in_codex(
    log: Path, project: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None
) -> None:
    root = home / ".codex"
    if variable:
        root = tmp_path / "codex home"
        monkeypatch.setenv(variable, str(root))
    found = told("resume", "0b5e", "--in", "codex")
    path = Path(found["path"])
    assert found["written"]
    assert path.parent == root / "sessions" / "2026" / "02" / "03"
    session = mempalace.load(path)
    assert session.format == "codex"
    assert [message.text for message in session.messages_by_role("user")] == ["why does KILN-7 overheat", "thanks"]
    assert shlex.split(found["command"]) == ["cd", str(project), "&&", "codex", "resume", session.key]
    assert mempalace.list_sessions(project=project, format="codex")[0].path == path
    again = told("resume", "0b5e", "--in", "codex")
    assert (again["written"], again["path"]) == (False, str(path))
    grown = path.read_bytes() + b'{"timestamp": "x", "type": "event_msg", "payload": {}}\n'
    path.write_bytes(grown)  # Codex went on in it
    assert told("resume", "0b5e", "--in", "codex")["written"] is False
    path.write_bytes(b"something else\n")
    assert error("resume", "0b5e", "--in", "codex")["kind"] == "convert"
    assert path.read_bytes() == b"something else\n"


@pytest.mark.parametrize("variable", [None, "CLAUDE_CONFIG_DIR", "CLAUDE_SESSIONS_DIR"])
def test_a_session_is_resumed_in_claude_code(
    palace: Path, project: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None
) -> None:
    root = home / ".claude" / "projects"
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / "claude"))
        root = tmp_path / "claude" / ("projects" if variable == "CLAUDE_CONFIG_DIR" else "")
    export = tmp_path / "conversations.json"
    export.write_text(json.dumps([chatgpt("c-one", ["KILN-1 hot", "yes"])]))
    monkeypatch.chdir(project)
    found = told("resume", str(export), "--in", "claude-code")
    path = Path(found["path"])
    assert path.parent.parent == root
    session = mempalace.load(path)
    assert (session.metadata.project, session.metadata.title) == (str(project), "c-one")
    assert shlex.split(found["command"]) == ["cd", str(project), "&&", "claude", "--resume", path.stem]
    assert str(project) in found["notes"][0]


def fake(folder: Path, name: str) -> Path:
    """A program of that name that writes down where and how it was called."""
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text('#!/bin/sh\n{ pwd; for word in "$@"; do echo "$word"; done; } > "$CALLED"\necho ran\n')
    program.chmod(0o755)
    return program


def test_exec_becomes_the_tool(log: Path, project: Path, tmp_path: Path) -> None:
    fake(tmp_path / "bin", "claude")
    fake(tmp_path / "bin", "codex")
    called = tmp_path / "called"
    variables = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "CALLED": str(called)}
    done = run("resume", KILN, "--exec", **variables)
    assert (done.stdout, done.returncode) == ("ran\n", 0)
    assert called.read_text().splitlines() == [str(project), "--resume", KILN]
    done = run("resume", KILN, "--in", "codex", "--exec", **variables)
    assert done.returncode == 0
    assert called.read_text().splitlines()[:2] == [str(project), "resume"]
    done = run("resume", KILN, "--exec", PATH=str(tmp_path / "nothing"))
    assert done.returncode == 1
    assert "claude cannot be started" in done.stderr
    project.rmdir()
    done = run("resume", KILN, "--exec", **variables)
    assert done.returncode == 1
    assert "cannot go to the session's folder" in done.stderr


@pytest.mark.parametrize("given", [None, "3"])
def test_exec_leaves_the_tool_its_own_environment(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    program = fake(tmp_path / "bin", "claude")
    program.write_text('#!/bin/sh\necho "threads ${OPENBLAS_NUM_THREADS-unset}"\n')
    variables = {} if given is None else {"OPENBLAS_NUM_THREADS": given}
    done = run("resume", KILN, "--exec", PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}", **variables)
    assert done.stdout == f"threads {given or 'unset'}\n"


def test_what_cannot_be_resumed_is_told(log: Path, tmp_path: Path, project: Path) -> None:
    assert error("resume", KILN, "--in", "gemini")["kind"] == "unknown_format"
    assert error("resume", KILN, "--exec", "--json")["kind"] == "usage"
    assert error("resume", "zzz")["kind"] == "not_found"
    export = tmp_path / "conversations.json"
    export.write_text(json.dumps([chatgpt("c-one", ["KILN-1 hot", "yes"])]))
    found = error("resume", str(export))
    assert found["kind"] == "convert"
    assert "--in claude-code" in found["hint"]


def test_a_command_is_safe_in_a_shell(palace: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a; touch $(pwd) HACKED `id` 'x'"
    folder.mkdir()
    path = write_claude(tmp_path / "a.jsonl", ["why", "because"], KILN, cwd=str(folder))
    command = told("resume", str(path), "--in", "codex")["command"]
    words = shlex.split(command)
    assert words[:4] == ["cd", str(folder), "&&", "codex"]


def test_an_id_that_is_an_option_is_no_part_of_a_command(palace: Path, tmp_path: Path) -> None:
    path = write_claude(tmp_path / "a.jsonl", ["why", "because"], "--dangerously-skip-permissions", cwd="-P")
    assert error("resume", str(path))["kind"] == "convert"
    ready = Resume("cd -- -P && claude --resume a", None, False)
    assert (ready.folder, ready.words) == (Path("-P"), ["claude", "--resume", "a"])
    ready = Resume("cd '&&' && claude --resume a", None, False)
    assert (ready.folder, ready.words) == (Path("&&"), ["claude", "--resume", "a"])


def write_codex(path: Path, texts: list[str], session: str) -> Path:
    """A rollout of Codex with these messages of a person."""
    start = "2026-02-03T09:00:00Z"
    meta = {"id": session, "timestamp": start, "cwd": "/w", "source": "cli"}
    records = [{"timestamp": start, "type": "session_meta", "payload": meta}]
    for at, text in enumerate(texts):
        said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
        records.append({"timestamp": f"2026-02-03T09:00:{at:02}Z", "type": "response_item", "payload": said})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize("target", ["codex", "claude-code"])
def test_no_id_leads_out_of_the_tools_folder(palace: Path, home: Path, tmp_path: Path, target: str) -> None:
    evil = "x/../../../../evil"
    if target == "codex":
        path = write_codex(tmp_path / "in" / "a.jsonl", ["KILN-1", "hot"], evil)
    else:
        path = write_claude(tmp_path / "in" / "a.jsonl", ["KILN-1", "hot"], evil, cwd=str(tmp_path))
    assert error("resume", str(path))["kind"] == "convert"
    before = set(home.rglob("*"))
    made = convert(mempalace.load(path), target)
    assert ".." not in made.name
    assert evil.encode() not in made.data
    other = "codex" if target == "claude-code" else "claude-code"
    place = Path(told("resume", str(path), "--in", other)["path"])
    assert place.is_relative_to(home)
    assert {found for found in home.rglob("*") if found.is_file()} - before == {place}
    for kind in ("native", "original", *TARGETS):
        out = tmp_path / kind
        out.mkdir()
        assert Path(told("export", str(path), "--to", kind, "-o", str(out))["path"]).parent == out


def test_a_log_that_was_mined_through_another_folder_is_not_put_outside(palace: Path, home: Path) -> None:
    (home / ".claude" / "projects").mkdir(parents=True)
    outside = write_claude(home / "elsewhere" / "x.jsonl", ["KILN-7", "b"], KILN)
    invoke("mine", str(home / ".claude" / "projects" / ".." / ".." / "elsewhere" / "x.jsonl"))
    outside.unlink()
    place = Path(told("resume", KILN)["path"])
    assert os.path.normpath(place).startswith(str(home / ".claude" / "projects"))
    assert not outside.exists()


@pytest.mark.parametrize("moved", ["archived", "compressed"])
def test_a_log_that_codex_moved_is_used(palace: Path, home: Path, moved: str) -> None:
    day = home / ".codex" / "sessions" / "2026" / "02" / "03"
    path = write_codex(day / f"rollout-2026-02-03T09-00-00-{KILN}.jsonl", ["KILN-1", "hot"], KILN)
    invoke("mine")
    path.unlink()
    if moved == "archived":
        place = write_codex(home / ".codex" / "archived_sessions" / path.name, ["KILN-1", "hot", "KILN-2"], KILN)
    else:
        place = path.with_name(f"{path.name}.zst")
        newer = write_codex(home / "aside.jsonl", ["KILN-1", "hot", "KILN-2"], KILN)
        place.write_bytes(zstandard.ZstdCompressor().compress(newer.read_bytes()))
        newer.unlink()
    found = told("resume", KILN)
    assert (found["written"], found["path"]) == (False, str(place))
    assert not path.exists()


def test_a_log_in_a_folder_of_another_name_is_used(log: Path) -> None:
    copy = log.with_name("copy.jsonl")
    copy.write_bytes(log.read_bytes())
    renamed = log.parent.with_name("-w-renamed")
    log.parent.rename(renamed)
    assert told("resume", KILN)["path"] == str(renamed / log.name)
    (renamed / log.name).unlink()  # by a name like that of the copy Claude Code does not find a session
    assert told("resume", KILN)["path"] == str(log)


@pytest.mark.parametrize("newer", ["partial", "whole"])
def test_the_most_complete_copy_is_given_with_its_own_name(log: Path, tmp_path: Path, newer: str) -> None:
    data = log.read_bytes()
    backup = tmp_path / "backup" / f"{KILN}.bak.jsonl"
    backup.parent.mkdir()
    backup.write_bytes(b"".join(data.splitlines(keepends=True)[: 2 if newer == "partial" else 9]))
    os.utime(backup, (2_000_000_000, 2_000_000_000))
    invoke("mine", str(backup))
    log.unlink()
    backup.unlink()
    assert invoke("export", KILN, "--to", "original").stdout_bytes == data
    found = told("resume", KILN)
    assert (found["written"], found["path"]) == (True, str(log))
    assert log.read_bytes() == data


def test_the_bytes_and_the_name_are_of_one_copy(palace: Path, home: Path) -> None:
    day = home / ".codex" / "sessions" / "2026" / "02" / "03"
    path = write_codex(day / f"rollout-2026-02-03T09-00-00-{KILN}.jsonl", ["KILN-1", "hot"], KILN)
    invoke("mine")
    packed = path.with_name(f"{path.name}.zst")
    packed.write_bytes(zstandard.ZstdCompressor().compress(path.read_bytes()))
    path.unlink()
    os.utime(packed, (1_000_000_000, 1_000_000_000))
    invoke("mine")
    packed.unlink()
    place = Path(told("resume", KILN)["path"])
    assert place.name.endswith(".zst") == place.read_bytes().startswith(b"\x28\xb5\x2f\xfd")
    assert len(mempalace.load(place).turns) == 2


def test_a_log_that_was_written_anew_and_shorter_comes_back_whole(log: Path, tmp_path: Path) -> None:
    data = log.read_bytes()
    log.write_bytes(b"".join(data.splitlines(keepends=True)[:1]))
    invoke("mine")
    log.unlink()
    native = mempalace.from_native(invoke("export", KILN, "--to", "native").stdout_bytes)
    assert native.data == invoke("export", KILN, "--to", "original").stdout_bytes == data
    assert told("resume", KILN)["written"]
    assert log.read_bytes() == data


def test_messages_that_only_another_copy_has_are_told(log: Path, tmp_path: Path) -> None:
    lines = log.read_text().splitlines()
    log.write_text("\n".join([lines[0], *lines[2:]]) + "\n")
    invoke("mine")
    log.write_text("\n".join([*lines[1:3], *claude_lines(["KILN-9"], KILN, first=3)]) + "\n")
    invoke("mine")
    log.unlink()
    done = invoke("export", KILN, "--to", "original")
    assert "KILN-9" in done.stdout
    assert "1 messages elsewhere" in done.stderr
    found = told("export", KILN, "--to", "native", "-o", str(tmp_path))
    assert found["report"]["residue"] == {"messages elsewhere": 1}
    assert any("lacks 1 messages" in note for note in told("resume", KILN)["notes"])


def test_a_session_whose_file_is_anothers_by_now_is_exported(palace: Path, tmp_path: Path) -> None:
    log = write_claude(tmp_path / "backup.jsonl", ["KILN-1", "b", "c", "d"], "b-1")
    before = log.read_bytes()
    invoke("mine", str(log))
    log.write_bytes(before + "".join(f"{line}\n" for line in claude_lines(["KILN-9"], "a-1", first=4)).encode())
    invoke("mine", str(log))
    log.unlink()
    assert "KILN-1" in invoke("show", "b-1").stdout
    assert "KILN-9" not in invoke("export", "b-1", "--to", "markdown").stdout
    assert invoke("export", "b-1", "--to", "original").stdout_bytes.startswith(before)
    assert told("resume", "b-1")["written"]
