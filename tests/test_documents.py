"""Big documents element by element: bounds, damage, places in the source, archives."""

from __future__ import annotations

import json
import stat
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mempalace.documents import Element, as_json, as_texts, elements, locate
from mempalace.errors import ParseError, SourceError
from mempalace.folders import Folder, members
from mempalace.head import Head
from mempalace.records import Ledger
from mempalace.source import Source, read_span
from mempalace.values import loads


def is_item(value: Any) -> bool:
    return isinstance(value, dict) and "item" in value


def read(data: bytes, keys: tuple[str, ...] = ()) -> tuple[list[Element], Ledger]:
    ledger = Ledger()
    return list(elements(Source(Path("a.json"), data), ledger, keys, is_item)), ledger


def values(data: bytes, keys: tuple[str, ...] = ()) -> list[Any]:
    found, ledger = read(data, keys)
    assert ledger.damaged == 0
    return [element.value for element in found]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"[]", []),
        (b'[1, 2.5, "a", null, [2], {"x": {"y": []}}]', [1, 2.5, "a", None, [2], {"x": {"y": []}}]),
        (b'{"a": 1}', [{"a": 1}]),
        (b'{"a": 1}\n{"b": 2}\n', [{"a": 1}, {"b": 2}]),
        (b'\xef\xbb\xbf[{"a": 1},]', [{"a": 1}]),
        ('[{"a": "é"}]'.encode("utf-16"), [{"a": "é"}]),
        (b"[123456789012345678901234567890, NaN]", [123456789012345678901234567890, "NaN"]),
        (b'["\\ud83d\\ude00", "\\ud83d"]', ["\U0001f600", "\ufffd"]),
        (b'[{"a": 1}{"a": 2}]', [{"a": 1}, {"a": 2}]),
    ],
)
def test_elements_of_any_document(data: bytes, expected: list[Any]) -> None:
    assert values(data) == expected


@pytest.mark.parametrize(
    "data",
    [
        b'{"conversations": [{"a": 1}, {"a": 2}], "more": 3}',
        b'{"id": "x", "who": {"n": 1}, "conversations": [{"a": 1}, {"a": 2}]}',
        b'{"deep": [[{"n": 1}]], "conversations": [{"a": 1}, {"a": 2}]}',
    ],
)
def test_an_array_below_a_key(data: bytes) -> None:
    assert values(data, ("conversations",)) == [{"a": 1}, {"a": 2}]


VALUES = st.recursive(
    st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9) | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@settings(deadline=None)
@given(st.lists(VALUES, max_size=4))
def test_elements_are_those_of_the_whole_document(data: list[Any]) -> None:
    for ascii_only in (True, False):
        raw = json.dumps(data, ensure_ascii=ascii_only).encode("utf-8", "replace")
        found, _ = read(raw)
        assert [element.value for element in found] == loads(raw)
        assert [element.ordinal for element in found] == list(range(1, len(found) + 1))
        assert all(loads(raw[element.start : element.end]) == element.value for element in found)


@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    if data[:4] not in (b"\x28\xb5\x2f\xfd",):
        read(b"[" + data)
        read(data, ("a",))


def test_elements_longer_than_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mempalace.documents._CHUNK", 7)
    data = json.dumps(
        [{"item": n, "é": "x" * n, "n": [1, {"k": "\\"}]} for n in range(60)], ensure_ascii=False
    ).encode()
    assert values(data) == json.loads(data)
    assert values(b"[12345678, 1.5e3, true, false]") == [12345678, 1500.0, True, False]


def test_a_damaged_element_costs_only_itself() -> None:
    data = b'[{"item": 1}, {"item": 2, "below": {"x": 1}, oops, "y": {"z": 2}}, {"item": 3}, {"item": 4}]'
    found, ledger = read(data)
    assert [element.value["item"] for element in found] == [1, 2, 3, 4]
    assert found[1].value == {"item": 2, "below": {"x": 1}}  # what is whole of it
    assert (ledger.read, ledger.damaged) == (1, 1)
    assert ledger.problems[0].line == 2
    assert "element 2" in ledger.problems[0].message


def test_a_document_that_is_cut_off() -> None:
    found, ledger = read(b'[{"item": 1}, {"item": 2, "below": {"x": 1}, "y')
    assert [element.value for element in found] == [{"item": 1}, {"item": 2, "below": {"x": 1}}]
    assert ledger.damaged == 1
    assert "ends" in ledger.problems[0].message
    found, ledger = read(b'[{"item": 1},')
    assert (len(found), ledger.damaged) == (1, 0)
    assert ledger.problems[0].kind == "incomplete_tail"


def test_nesting_beyond_reason_is_counted() -> None:
    found, ledger = read(b"[" + b"[" * 100_000 + b"]" * 100_000 + b', {"item": 1}]')
    assert [element.value for element in found] == [{"item": 1}]
    assert ledger.damaged == 1
    deep: Any = []
    for _ in range(900):
        deep = [deep]
    assert as_json(deep)
    assert as_texts([["a"], "b", None, {}]) == ['["a"]', "b"]


def test_bytes_that_are_no_utf8_keep_the_places_right() -> None:
    data = b'[{"item": "caf\xe9"}, {"item": "blob", "b": "QUJD"}]'
    found, ledger = read(data)
    assert [element.value["item"] for element in found] == ["caf\ufffd", "blob"]
    assert ledger.problems[0].kind == "replaced"
    place = locate(found[1], "QUJD")
    assert place is not None
    assert read_span(Source(Path("a.json"), data), *place) == b"QUJD"
    assert locate(found[1], "nowhere") is None


@pytest.mark.slow
def test_one_line_of_300_mb() -> None:
    text = "x" * 1_000_000
    data = json.dumps([{"item": [text] * 300}]).encode()
    found, ledger = read(data)
    assert len(found[0].value["item"]) == 300
    assert ledger.damaged == 0


# --- folders and archives -----------------------------------------------------------------------------------


def make_zip(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def test_members_of_a_zip_and_files_of_a_folder_are_read_alike(tmp_path: Path) -> None:
    files = {
        "in/conversations.json": b'[{"item": 1}]',
        "in/chat.html": b"<p>",
        "in/user.json": b"{}",
        "b.jsonl": b"{}\n",
    }
    for name, data in files.items():
        target = tmp_path / "folder" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    for path in (tmp_path / "folder", make_zip(tmp_path / "a.zip", files)):
        with Folder.open(path) as folder:
            assert folder.names == ["b.jsonl", "in/chat.html", "in/conversations.json", "in/user.json"]
            assert folder.ignored == ["in/chat.html", "in/user.json"]
            assert [source.name for source in folder.sources()] == ["b.jsonl", "conversations.json"]
            assert [Head.of(source).kind for source in folder.sources()] == ["jsonl", "json"]
            assert folder.source("in/conversations.json").read() == b'[{"item": 1}]'
    assert [source.member for source in members(tmp_path / "a.zip")] == ["b.jsonl", "in/conversations.json"]


def test_a_member_is_read_at_its_places_after_the_archive_was_closed(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "a.zip", {"a.json": b'[{"item": "' + b"y" * 3_000_000 + b'"}, {"item": "QUJD"}]'})
    with Folder.open(path) as folder:
        source = folder.source("a.json")
    found = list(elements(source, Ledger()))
    place = locate(found[1], "QUJD")
    assert place is not None
    assert read_span(source, *place) == b"QUJD"
    stream = source.open()
    with stream:
        assert stream.read(3) == b'[{"'
        assert stream.seek(1) == 1
        assert stream.read(2) == b'{"'
        assert not stream.seekable() or stream.seek(2_000_000) == 2_000_000
    with pytest.raises(SourceError, match="no member"):
        folder.source("missing.json").read()


def test_members_that_are_refused_are_named(tmp_path: Path) -> None:
    path = make_zip(
        tmp_path / "a.zip", {"../up.json": b"[]", "/root.json": b"[]", "C:\\x.json": b"[]", "good.json": b"[]"}
    )
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.json", b" " * 20_000_000)
        link = zipfile.ZipInfo("link.json")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    with Folder.open(path) as folder:
        assert folder.names == ["good.json"]
        reasons = {problem.message.partition(": ")[0]: problem.message for problem in folder.problems}
    assert set(reasons) == {"../up.json", "/root.json", "C:\\x.json", "bomb.json", "link.json"}
    assert "1,000-fold" in reasons["bomb.json"]
    assert {problem.kind for problem in folder.problems} == {"excluded"}


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "a.zip", {"a.json": b"[]"})
    data = bytearray(path.read_bytes())
    central = data.rfind(b"PK\x01\x02")
    data[central + 8] |= 1
    path.write_bytes(data)
    with Folder.open(path) as folder:
        assert folder.names == []
        assert [problem.message for problem in folder.problems] == ["a.json: encrypted"]


def test_an_archive_that_would_fill_the_disk_is_refused(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "a.zip", {"a.json": b"[" + bytes(range(32, 127)) * 100 + b"]"})
    with Folder.open(path, free=10_000) as folder:
        assert folder.names == []
        assert "half of the free disk" in folder.problems[0].message
    with Folder.open(path, free=100_000) as folder:
        assert folder.names == ["a.json"]


def test_an_archive_that_is_cut_off(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "a.zip", {"a.json": b"[]" * 100})
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ParseError, match="cut off or damaged") as raised:
        Folder.open(path)
    assert raised.value.path == path
    with pytest.raises(SourceError):
        Folder.open(tmp_path / "missing.zip")


def test_a_member_with_a_wrong_checksum_is_read_and_reported(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "a.zip", {"a.json": b'[{"item": 1}, {"item": 2}]'})
    data = bytearray(path.read_bytes())
    for at in (14, data.rfind(b"PK\x01\x02") + 16):
        data[at] ^= 0xFF
    path.write_bytes(data)
    ledger = Ledger()
    with Folder.open(path) as folder:
        found = list(elements(folder.source("a.json"), ledger, (), is_item))
    assert [element.value["item"] for element in found] == [1, 2]
    assert ledger.damaged == 1
    assert "a.json" in ledger.problems[0].message
    assert "checksum" in ledger.problems[0].message


def test_a_member_that_cannot_be_inflated_to_its_end(tmp_path: Path) -> None:
    import random

    noise = random.Random(1).randbytes(300_000).hex()
    data = json.dumps([{"item": n, "noise": noise[n * 1000 : n * 1000 + 1000]} for n in range(500)]).encode()
    path = make_zip(tmp_path / "a.zip", {"a.json": data})
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2 : len(raw) // 2 + 40] = b"\xff" * 40
    path.write_bytes(raw)
    ledger = Ledger()
    with Folder.open(path) as folder:
        found = list(elements(folder.source("a.json"), ledger, (), is_item))
    assert len(found) > 100  # what stands before the damage
    assert ledger.damaged >= 1
    assert "a.json" in ledger.problems[0].message


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=300))
def test_no_archive_raises_anything_but_our_errors(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("zip") / "a.zip"
    make_zip(path, {"a.json": b'[{"item": 1}]'})
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2] + data + raw[len(raw) // 2 :])
    try:
        with Folder.open(path) as folder:
            for source in folder.sources():
                list(elements(source, Ledger(), (), is_item))
    except (ParseError, SourceError):
        pass
