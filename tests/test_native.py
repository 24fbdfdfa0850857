"""Nothing is lost: every line as it stands, and every file back byte for byte, also after it has gone."""

from __future__ import annotations

import json
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from conftest import FIXTURES
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import claude_lines, write_claude

import mempalace
from mempalace.errors import MempalaceError, NotFound, ParseError, SourceError, UsageError
from mempalace.folders import Folder
from mempalace.formats import registry
from mempalace.model import Session, SessionMetadata
from mempalace.records import Ledger
from mempalace.source import Original

CHATGPT = FIXTURES / "chatgpt" / "list" / "conversations.json"
WORKSPACE = FIXTURES / "slack" / "workspace"


def contained(session: Session) -> bytes:
    """The bytes of a session's whole files, through a container."""
    return mempalace.from_native(mempalace.to_native(session, session.originals())).data


def sessions_of(path: Path) -> list[Session]:
    try:
        return mempalace.parse(path)
    except MempalaceError:
        return []


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


# --- every file ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", files_below(FIXTURES), ids=lambda path: path.relative_to(FIXTURES).as_posix())
def test_every_fixture_comes_back_byte_for_byte(path: Path) -> None:
    check(path)


def check(path: Path) -> None:
    data = path.read_bytes()
    plain = Session(path, "any")  # also of what no format claims
    assert b"".join(plain.raw) == contained(plain) == data
    for session in sessions_of(path):
        assert contained(session) == data
        if not session.is_part:
            assert mempalace.from_native(mempalace.to_native(session)).data == data
            assert b"".join(session.raw) == data


def test_every_sample_and_every_data_file_comes_back_byte_for_byte(corpus: Path) -> None:
    found = [*files_below(corpus / "samples"), *files_below(corpus / "data")]
    assert len(found) > 50
    for path in found:
        check(path)


def test_every_real_log_comes_back_byte_for_byte(corpus: Path, tmp_path: Path) -> None:
    with tarfile.open(corpus / "data" / "real-logs.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    found = files_below(tmp_path)
    assert len(found) > 50
    for path in found:
        check(path)


PIECES = st.sampled_from(
    [
        *(line.encode() for line in claude_lines(["hello", "hi", "é\u2028\x85"])),
        b'{"torn": "',
        b"}{",
        b"\xff\xfe\x00",
        b"\x00\x00",
        b"[1, 2",
        b"",
        b"\xef\xbb\xbf{}",
        b'{"type":"user"}{"type":"user"}',
    ]
)
LINES = st.lists(st.tuples(PIECES | st.binary(max_size=12), st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n", b""])))


@given(LINES)
@settings(max_examples=200, deadline=None)
def test_whatever_is_damaged_comes_back(lines: list[tuple[bytes, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.jsonl")
        path.write_bytes(b"".join(line + end for line, end in lines))
        for session in [Session(path, "claude-code"), *registry.default().get("claude-code").sessions(path)]:
            if not path.read_bytes().startswith(b"\x28\xb5\x2f\xfd"):
                assert b"".join(session.raw) == path.read_bytes()
                assert all(line.find(b"\n") in (-1, len(line) - 1) for line in session.raw)
            assert contained(session) == path.read_bytes()


# --- what a container is ------------------------------------------------------------------------------------


def test_a_container_is_a_line_and_then_the_file(tmp_path: Path) -> None:
    path = write_claude(tmp_path / "s1.jsonl", ["hello", "hi"])
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n").rstrip())
    session = mempalace.load(path)
    header, _, body = b"".join(mempalace.to_native(session)).partition(b"\n")
    assert body == path.read_bytes() == b"".join(session.raw)
    assert json.loads(header) | {"files": None} == {
        "mempalace_native": 1,
        "format": "claude-code",
        "session_id": "s1",
        "files": None,
    }
    native = mempalace.from_native(header + b"\n" + body)
    assert (native.format, native.session_id, native.part) == ("claude-code", "s1", None)
    (file,) = native.files
    (back,) = mempalace.parse_bytes(file.data, file.name, native.format)
    assert list(back.messages) == list(session.messages)
    assert back.metadata == session.metadata


def test_two_containers_of_a_session_are_equal(tmp_path: Path) -> None:
    session = mempalace.load(write_claude(tmp_path / "s1.jsonl", ["hello", "hi"]))
    assert b"".join(mempalace.to_native(session)) == b"".join(mempalace.to_native(session))


def test_a_compressed_file_stays_compressed_and_its_lines_are_read(tmp_path: Path) -> None:
    (rollout,) = (FIXTURES / "codex" / "tokens").glob("*.jsonl")
    path = tmp_path / "rollout-a.jsonl.zst"
    path.write_bytes(zstandard.compress(rollout.read_bytes()))
    session = mempalace.load(path)
    assert contained(session) == mempalace.from_native(mempalace.to_native(session)).data == path.read_bytes()
    assert b"".join(session.raw) == rollout.read_bytes()


@pytest.mark.parametrize("mark", ["plain", "bom", "utf-16", "zst"])
def test_a_conversation_of_an_export_is_its_part_or_the_whole(tmp_path: Path, mark: str) -> None:
    text = CHATGPT.read_bytes()
    data = {
        "plain": text,
        "bom": b"\xef\xbb\xbf" + text,
        "utf-16": text.decode().encode("utf-16"),
        "zst": zstandard.compress(text),
    }[mark]
    path = tmp_path / "conversations.json"
    path.write_bytes(data)
    found = mempalace.parse(path)
    assert len(found) > 1
    for session in found:
        native = mempalace.from_native(mempalace.to_native(session))
        assert native.part == (session.start, session.end)
        assert native.data == text[slice(*native.part)] == b"".join(session.raw)
        (alone,) = mempalace.parse_bytes(native.data, native.files[0].name)
        assert [message.text for message in alone.messages] == [message.text for message in session.messages]
        assert contained(session) == data


def zipped(folder: Path, path: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files_below(folder):
            archive.write(file, file.relative_to(folder).as_posix())
    return path


def read_folder(path: Path, format: str) -> Iterator[Session]:
    with Folder.open(path) as folder:
        yield from registry.default().get(format).read_folder(folder, lambda name: Ledger())


def test_a_member_of_a_zip_is_read_out_of_it(tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data/conversations.json", CHATGPT.read_bytes())
    with Folder.open(path) as folder:
        (source,) = folder.sources()
        session = list(registry.default().get("chatgpt").read(source, Ledger()))[1]
    assert b"".join(session.raw) == CHATGPT.read_bytes()[session.start : session.end]
    assert contained(session) == CHATGPT.read_bytes()


@pytest.mark.parametrize("packed", [False, True])
def test_a_channel_of_several_days_is_all_its_files(tmp_path: Path, packed: bool) -> None:
    where = zipped(WORKSPACE, tmp_path / "w.zip") if packed else WORKSPACE
    several = {}
    for session in read_folder(where, "slack"):
        native = mempalace.from_native(mempalace.to_native(session))
        several[len(native.files)] = session
        assert native.data == b"".join(session.raw)
    assert max(several) > 1
    thread = several[max(several)]
    days = sorted((WORKSPACE / "general").iterdir())
    assert contained(thread) == b"".join(day.read_bytes() for day in days)
    native = mempalace.from_native(mempalace.to_native(thread))
    assert [(file.name, file.data) for file in native.files] == [(day.name, day.read_bytes()) for day in days]


def test_a_header_that_names_other_files_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    header = {"sessionId": "g", "projectHash": "x", "files": ["a.jsonl", "secret", "../secret"], "spawns": {"a": "b"}}
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(header) + '\n{"id":"1","type":"user","content":"hello"}\n')
    assert contained(mempalace.load(path)) == b"".join(mempalace.load(path).raw) == path.read_bytes()
    session = Session(path, "any", SessionMetadata(extra={"files": ["a.jsonl", "../secret", ""]}))
    assert contained(session) == path.read_bytes()


# --- out of the palace --------------------------------------------------------------------------------------


@pytest.fixture
def palace(tmp_path: Path) -> Iterator[mempalace.Palace]:
    with mempalace.Palace(tmp_path / "palace") as opened:
        yield opened


def test_the_palace_gives_the_file_after_it_has_gone(palace: Any, tmp_path: Path) -> None:
    damaged = b"\r\n".join([*(line.encode() for line in claude_lines(["hello", "hi"])), b"{torn", b"\xff\x00"])
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "s1.jsonl").write_bytes(damaged)
    (rollout,) = (FIXTURES / "codex" / "tokens").glob("*.jsonl")
    packed = zstandard.compress(rollout.read_bytes())
    (folder / "rollout-a.jsonl.zst").write_bytes(packed)
    codex = mempalace.load(folder / "rollout-a.jsonl.zst").key
    palace.mine([folder])
    shutil.rmtree(folder)
    assert b"".join(palace.original("s1")) == damaged
    assert b"".join(palace.original(codex)) == packed
    session = mempalace.find_session("s1", palace.path)
    with pytest.raises(SourceError):
        b"".join(mempalace.to_native(session))
    native = mempalace.from_native(mempalace.to_native(session, palace.originals("s1")))
    assert (native.data, native.files[0].name) == (damaged, "s1.jsonl")
    with pytest.raises(NotFound):
        palace.original("zzz")


def test_the_palace_gives_what_a_file_was_last(palace: Any, tmp_path: Path) -> None:
    log = write_claude(tmp_path / "s1.jsonl", ["hello", "hi"])
    palace.mine([log])
    log.write_bytes(log.read_bytes() + b"{}\n")
    palace.mine([log])
    assert b"".join(palace.original("s1")) == log.read_bytes()
    write_claude(log, ["written", "anew"])
    palace.mine([log])
    last = log.read_bytes()
    log.unlink()
    assert b"".join(palace.original("s1")) == last


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_the_palace_gives_an_export_and_each_conversation_of_it(palace: Any, tmp_path: Path, mark: bytes) -> None:
    path = tmp_path / "conversations.json"
    path.write_bytes(mark + CHATGPT.read_bytes())
    found = mempalace.parse(path)
    palace.mine([path])
    path.unlink()
    for session in found:
        assert b"".join(palace.original(session.key)) == mark + CHATGPT.read_bytes()
        assert mempalace.find_session(session.key or "", palace.path) == session


@pytest.mark.parametrize("packed", [False, True])
def test_the_palace_gives_all_days_of_a_channel(palace: Any, tmp_path: Path, packed: bool) -> None:
    where = tmp_path / "w.zip"
    if packed:
        zipped(WORKSPACE, where)
    else:
        where = Path(shutil.copytree(WORKSPACE, tmp_path / "w"))
    live = list(read_folder(where, "slack"))
    palace.mine([where])
    before = {session.key: contained(session) for session in live}
    where.unlink() if packed else shutil.rmtree(where)
    several = 0
    for session in live:
        assert mempalace.find_session(session.key or "", palace.path) == session
        originals = palace.originals(session.key)
        assert b"".join(piece for file in originals for piece in file.read()) == before[session.key]
        if len(originals) > 1:
            several += 1
            with pytest.raises(UsageError, match="2 files"):
                palace.original(session.key)
    assert several


# --- what is no container, or not whole ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"words",
        b"{}",
        b'{"mempalace_native": 1}',
        b"[" * 2000,
        b"\xff\xfe",
        b"null\n",
        b'{"type":"user"}\n',
    ],
)
def test_what_is_no_container_is_told(data: bytes) -> None:
    with pytest.raises(ParseError):
        mempalace.from_native(data)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data[:-1], "1 bytes are missing"),
        (lambda data: data[:-3] + b"xyz", "others"),
        (lambda data: data + b"\n", "1 bytes stand behind"),
        (lambda data: data.replace(b'"mempalace_native": 1', b'"mempalace_native": 2'), "version 2"),
        (lambda data: data.replace(b'"size": ', b'"size": -'), "header"),
        (lambda data: data.replace(b'"files": [', b'"files": [7, '), "header"),
        (lambda data: data.replace(b'"session_id": "s1"', b'"session_id": []'), "header"),
        (lambda data: data.replace(b'"files"', b'"part": [1], "files"'), "header"),
    ],
)
def test_a_container_that_is_damaged_is_told(tmp_path: Path, damage: Any, said: str) -> None:
    data = b"".join(mempalace.to_native(mempalace.load(write_claude(tmp_path / "s1.jsonl", ["hello", "hi"]))))
    with pytest.raises(ParseError, match=said) as error:
        mempalace.from_native(damage(data))
    assert error.value.hint


def test_a_file_that_grows_meanwhile_is_kept_as_it_was(tmp_path: Path) -> None:
    path = write_claude(tmp_path / "s1.jsonl", ["hello", "hi"])
    before = path.read_bytes()
    pieces = mempalace.to_native(mempalace.load(path))
    header = next(pieces)
    path.write_bytes(before + b"{}\n")
    assert mempalace.from_native([header, *pieces]).data == before


def test_a_file_that_changes_meanwhile_is_told(tmp_path: Path) -> None:
    path = write_claude(tmp_path / "s1.jsonl", ["hello", "hi"])
    for change in (lambda data: data[:-5], lambda data: data.replace(b"hello", b"jello")):
        data = path.read_bytes()
        pieces = mempalace.to_native(mempalace.load(path))
        next(pieces)
        path.write_bytes(change(data))
        with pytest.raises(SourceError, match="changed"):
            list(pieces)
        path.write_bytes(data)


def test_a_file_that_has_gone_is_told(tmp_path: Path) -> None:
    session = mempalace.load(write_claude(tmp_path / "s1.jsonl", ["hello", "hi"]))
    session.path.unlink()
    for work in (lambda: list(session.raw), lambda: list(mempalace.to_native(session))):
        with pytest.raises(SourceError):
            work()
    kept = Original("s1.jsonl", lambda: iter([b"as ", b"kept"]))
    assert mempalace.from_native(mempalace.to_native(session, [kept])).data == b"as kept"
