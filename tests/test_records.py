"""Bytes -> records: whatever the bytes are, nothing raises, every line is accounted for, what is whole is kept."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mempalace.errors import ParseError, SourceError
from mempalace.head import HEAD_BYTES, Head, complete
from mempalace.records import Ledger, Record, document, jsonl, locate
from mempalace.source import Source, lines, read_span
from mempalace.values import clean, dumps, loads, loads_line, parse_time

PATH = Path("log.jsonl")


def read(data: bytes) -> tuple[list[Record], Ledger]:
    ledger = Ledger()
    return list(jsonl(Source(PATH, data), ledger)), ledger


def values(data: bytes) -> list[Any]:
    return [record.value for record in read(data)[0]]


def kinds(ledger: Ledger) -> list[tuple[str, int | None]]:
    return [(problem.kind, problem.line) for problem in ledger.problems]


# --- any bytes ----------------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        b'{"a":1}',
        b'{"type":"user","timestamp":"2026-01-01T00:00:00Z"}',
        b'{"type":"user","mess',
        b'{"a":"',
        b"[1,2]",
        b"null",
        b"\x00" * 5,
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\x28\xb5\x2f\xfd",
        b'"\\ud83c"',
        b"9" * 25,
        b"NaN",
        b"\r",
        b"\n",
        b"\n",
        b" ",
        b"\xe2\x80\xa8",
        b"}",
        b",",
    ]
)
ANYTHING = st.one_of(st.binary(max_size=200), st.lists(PIECES, max_size=14).map(b"".join))


@given(ANYTHING)
@example(b"\xff\xfe")
@example(b"\x28\xb5\x2f\xfd")
@example(b'{"a":1}\x85\n')
@settings(max_examples=400, deadline=None)
def test_any_bytes_are_read_without_raising_and_add_up(data: bytes) -> None:
    records, ledger = read(data)
    assert ledger.read == len(records) + ledger.damaged + ledger.skipped["incomplete_tail"]
    assert ledger.unstored == ledger.read - len(records)
    assert all(type(record.value) is dict for record in records)


@given(ANYTHING.map(lambda data: b"\n" + data))  # so that no mark of an encoding stands first
@settings(max_examples=200, deadline=None)
def test_every_line_that_is_not_blank_is_accounted_for(data: bytes) -> None:
    records, ledger = read(data)
    spoken = {n for n, line in enumerate(data.split(b"\n"), 1) if line.strip(b" \t\r\n")}
    named = {record.line for record in records} | {problem.line for problem in ledger.problems}
    assert named == spoken


@given(ANYTHING)
@settings(max_examples=200, deadline=None)
def test_lines_and_records_give_the_bytes_back(data: bytes) -> None:
    source = Source(PATH, data)
    try:
        decoded = source.read()
    except ParseError:
        with pytest.raises(ParseError):
            list(lines(source))
        return
    assert b"".join(lines(source)) == decoded
    for record in jsonl(source, Ledger()):
        assert decoded[record.offset : record.offset + len(record.raw)] == record.raw


@given(st.binary(max_size=200) | ANYTHING)
@settings(max_examples=200, deadline=None)
def test_a_head_of_any_bytes_has_a_kind(data: bytes) -> None:
    head = Head.of(Source(PATH, data))
    assert head.kind in {"empty", "jsonl", "json", "text", "zip", "sqlite", "binary"}
    assert isinstance(head.text, str)


# --- damage -------------------------------------------------------------------------------------------------


def test_a_broken_line_is_counted_by_number_and_the_others_kept() -> None:
    records, ledger = read(b'{"a":1}\n{"type":"x","m\n{"b":2}\n')
    assert [(record.value, record.line) for record in records] == [({"a": 1}, 1), ({"b": 2}, 3)]
    assert (ledger.read, ledger.damaged, kinds(ledger)) == (3, 1, [("damaged", 2)])


@pytest.mark.parametrize("glue", [b"", b" ", b",", b"\r", b"\x00"])
def test_records_on_one_line_are_all_kept(glue: bytes) -> None:
    records, ledger = read(b'{"a":1}' + glue + b'{"b":2}\n{"c":3}\n')
    assert [record.value for record in records] == [{"a": 1}, {"b": 2}, {"c": 3}]
    assert (ledger.read, ledger.damaged, kinds(ledger)) == (3, 0, [("glued", 1)])


def test_a_torn_last_line_is_a_write_in_progress() -> None:
    records, ledger = read(b'{"a":1}\n{"b":"tor')
    assert [record.value for record in records] == [{"a": 1}]
    assert (ledger.read, ledger.damaged, ledger.skipped, ledger.tail) == (2, 0, {"incomplete_tail": 1}, 8)


def test_a_whole_last_line_needs_no_newline() -> None:
    records, ledger = read(b'{"a":1}\n{"b":2}')
    assert (len(records), ledger.read, ledger.tail) == (2, 2, None)


def test_a_whole_record_behind_a_torn_write_is_kept() -> None:
    whole = b'{"type":"user","timestamp":"2026-02-03T09:00:00Z","message":{"content":"kept"}}'
    records, ledger = read(b'{"type":"assistant","message":{"content":"to' + whole + b'\n{"a":1}\n')
    assert [record.value.get("type") for record in records] == ["user", None]
    assert (ledger.read, ledger.damaged, kinds(ledger)) == (3, 1, [("damaged", 1)])


def test_an_object_inside_a_torn_record_is_no_record() -> None:
    records, ledger = read(b'{"type":"user","message":{"content":[{"type":"text","text":"half"}]\n{"a":1}\n')
    assert [record.value for record in records] == [{"a": 1}]
    assert ledger.damaged == 1


def test_nul_runs_are_damage_alone_and_nothing_beside_a_record() -> None:
    records, ledger = read(b'{"a":1}\n' + b"\x00" * 300 + b'\n\x00\x00{"b":2}\x00\n')
    assert [record.value for record in records] == [{"a": 1}, {"b": 2}]
    assert (ledger.read, ledger.damaged) == (3, 1)
    assert kinds(ledger)[0] == ("damaged", 2)


@pytest.mark.parametrize("line", [b"[1,2]", b"null", b"7", b'"text"', b"true"])
def test_a_value_that_is_no_object_is_damage(line: bytes) -> None:
    records, ledger = read(line + b'\n{"a":1}\n')
    assert (len(records), ledger.read, ledger.damaged) == (1, 2, 1)


def test_bytes_that_are_no_utf8_are_replaced_and_told() -> None:
    records, ledger = read(b'{"a":"x\xffy"}\n')
    assert records[0].value == {"a": "x\ufffdy"}
    assert kinds(ledger) == [("replaced", 1)]


# --- encodings ----------------------------------------------------------------------------------------------

PLAIN = '{"a": "wörd 日本 🏺"}\n{"b": 2}\n'


@pytest.mark.parametrize(
    "data",
    [
        PLAIN.encode(),
        b"\xef\xbb\xbf" + PLAIN.encode(),
        PLAIN.encode("utf-16"),
        b"\xff\xfe" + PLAIN.encode("utf-16-le"),
        b"\xfe\xff" + PLAIN.encode("utf-16-be"),
        PLAIN.replace("\n", "\r\n").encode(),
        b"\n\n" + PLAIN.replace("\n", "\n\n \r\n").encode() + b"\r\n\r\n",
        zstandard.ZstdCompressor().compress(PLAIN.encode()),
        b"".join(zstandard.ZstdCompressor().compress(part.encode()) for part in PLAIN.splitlines(True)),
        zstandard.ZstdCompressor().compress(PLAIN[:9].encode()) + zstandard.compress(PLAIN[9:].encode()),
    ],
    ids=["utf-8", "bom", "utf-16", "le", "be", "crlf", "blank lines", "zst", "zst frames", "zst frames inside a line"],
)
def test_the_same_records_in_every_encoding(data: bytes) -> None:
    records, ledger = read(data)
    assert [record.value for record in records] == [{"a": "wörd 日本 🏺"}, {"b": 2}]
    assert (ledger.read, ledger.unstored, ledger.problems) == (2, 0, [])


def test_only_a_newline_parts_records() -> None:
    text = "one\u2028two\u2029three\x85four\x0bfive\x0csix\x1cseven"
    line = json.dumps({"a": text}, ensure_ascii=False).replace("\\u000b", "\x0b").encode()
    assert [record["a"] for record in values(line + b"\n")] == [text]


def test_lone_surrogates_become_replacement_characters_and_pairs_one() -> None:
    assert values(b'{"a":"broken \\ud83c here","\\udc00":"\\ud83c\\udffa"}\n') == [
        {"a": "broken \ufffd here", "\ufffd": "🏺"}
    ]
    assert clean({"k": ["\ud83c\udffa", 1, None, "\udc00"]}) == {"k": ["🏺", 1, None, "\ufffd"]}


def test_numbers_of_any_size_are_exact_or_text() -> None:
    big, huge = 2**64 + 1, "9" * 10_000
    record = values(f'{{"a":{big},"b":{-big},"c":{huge},"d":18446744073709551615,"e":1e400}}\n'.encode())[0]
    assert (record["a"], record["b"], record["c"], record["d"]) == (big, -big, huge, 2**64 - 1)


def test_constants_that_are_not_json_are_kept_as_text() -> None:
    assert values(b'{"a":NaN,"b":-Infinity}\n') == [{"a": "NaN", "b": "-Infinity"}]
    assert loads(dumps(values(b'{"a":NaN}\n')[0])) == {"a": "NaN"}


def test_nesting_without_end_is_damage_and_stops_nothing() -> None:
    deep = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    records, ledger = read(deep + b'\n{"b":2}\n')
    assert [record.value for record in records] == [{"b": 2}]
    assert (ledger.read, ledger.damaged) == (2, 1)
    with pytest.raises(ValueError):
        loads(deep)


# --- compressed ---------------------------------------------------------------------------------------------


def _noise(count: int) -> bytes:
    noise = random.Random(7)
    return b"".join(b'{"n":%d,"pad":"%s"}\n' % (n, noise.randbytes(300).hex().encode()) for n in range(count))


def test_a_cut_frame_gives_what_is_whole_and_says_that_it_was_cut() -> None:
    packed = zstandard.compress(_noise(500))
    records, ledger = read(packed[: len(packed) // 2])
    assert 0 < len(records) < 500
    assert [record.value["n"] for record in records] == list(range(len(records)))
    assert ledger.damaged + ledger.skipped["incomplete_tail"] == 1


def test_a_frame_cut_between_two_lines_is_told_too() -> None:
    stream = zstandard.ZstdCompressor().compressobj()
    data = stream.compress(b'{"a":1}\n') + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    records, ledger = read(data)
    assert [record.value for record in records] == [{"a": 1}]
    assert ledger.problems


def test_a_damaged_frame_is_counted_and_what_stands_before_it_kept() -> None:
    whole = zstandard.compress(b'{"a":1}\n')
    bad = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(b'{"b":2}\n'))
    bad[-1] ^= 0xFF
    records, ledger = read(whole + bytes(bad))
    assert [record.value for record in records] == [{"a": 1}]
    assert (ledger.read, ledger.damaged) == (2, 1)


# --- growing and missing files ------------------------------------------------------------------------------


def test_a_file_that_grows_is_read_to_the_size_it_had(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a":1}\n{"b":2}\n')
    source = Source(path, size=path.stat().st_size)
    with source.open() as stream:
        first = stream.readline()
        with path.open("ab") as more:
            more.write(b'{"c":3}\n' * 1000)
        assert first + stream.read() == b'{"a":1}\n{"b":2}\n'
    assert len(list(jsonl(source, Ledger()))) == 2
    assert source.open_raw().read() == b'{"a":1}\n{"b":2}\n'


def test_a_file_that_is_missing_says_so(tmp_path: Path) -> None:
    for call in (lambda source: list(jsonl(source, Ledger())), Head.of, document):
        with pytest.raises(SourceError, match="No such file") as caught:
            call(Source(tmp_path / "none.jsonl"))
        assert caught.value.path == tmp_path / "none.jsonl"


# --- detection ----------------------------------------------------------------------------------------------


def head(data: bytes) -> Head:
    return Head.of(Source(PATH, data))


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "empty"),
        (b" \r\n\n", "empty"),
        (b"\x00\x00", "binary"),
        (b'{"a":1}\n{"b":2}\n', "jsonl"),
        (b'{"a":1}\nbroken\n', "jsonl"),
        (b'{"a":1}{"b":2}\n', "jsonl"),
        (b'{"a":1}', "jsonl"),
        (b'{\n  "a": 1\n}\n', "json"),
        (b'[{"a":1},{"b":2}]', "json"),
        (b'[\n{"a":1},\n{"b":2}\n]\n', "json"),
        (b'\n\n[\n{"a":1}\n]', "json"),
        (b"[]", "json"),
        (b"> hello\n\nanswer\n", "text"),
        (b"{not json", "text"),
        (b"PK\x03\x04rest", "zip"),
        (b"SQLite format 3\x00...", "sqlite"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00", "binary"),
        (b"\x28\xb5\x2f\xfdgarbage", "binary"),
        (zstandard.compress(b'{"a":1}\n{"b":2}\n'), "jsonl"),
        ('{"a":1}\n{"b":2}\n'.encode("utf-16"), "jsonl"),
    ],
)
def test_kinds(data: bytes, kind: str) -> None:
    assert head(data).kind == kind


def test_a_document_over_several_lines_is_one_document() -> None:
    pretty = json.dumps([{"id": n, "more": {"x": [1, {"y": 2}]}} for n in range(3)], indent=1).encode()
    by_line = b"[\n" + b",\n".join(b'{"id":%d}' % n for n in range(3)) + b"\n]\n"
    for data in (pretty, by_line):
        assert head(data).kind == "json"
        assert [item["id"] for item in head(data).document] == [0, 1, 2]


def test_a_head_holds_the_first_records_of_a_long_log() -> None:
    found = head(b'{"a":"%s"}\n' % (b"x" * 1000) * 2000)
    assert (found.kind, found.whole, len(found.records)) == ("jsonl", False, 50)
    assert len(found.data) == HEAD_BYTES


def test_a_head_takes_a_first_line_that_is_longer_than_itself() -> None:
    found = head(b'{"a":"%s"}\n{"b":1}\n' % (b"x" * (HEAD_BYTES * 2)))
    assert found.kind == "jsonl"
    assert "a" in found.records[0]


DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 10**20) | st.text('ab,:{}[]"\\ü🏺\n', max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab,{", max_size=3), inner, max_size=3),
    max_leaves=10,
).filter(lambda value: isinstance(value, dict | list))


@given(DOCUMENTS, st.sampled_from([None, 1]))
@settings(max_examples=60, deadline=None)
def test_the_beginning_of_a_document_never_raises(value: Any, indent: int | None) -> None:
    data = json.dumps(value, indent=indent, ensure_ascii=False).encode()
    assert complete(data) == value
    for cut in range(1, len(data)):
        assert isinstance(complete(data[:cut]), type(value) | None)


@given(DOCUMENTS)
@settings(max_examples=60, deadline=None)
def test_the_beginning_of_a_document_is_a_document(value: Any) -> None:
    data = json.dumps(value, ensure_ascii=False).encode()
    for cut in range(1, len(data)):
        assert isinstance(complete(data[:cut]), type(value))


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"[", []),
        (b"[1, 2", [1]),
        (b'{"a": tru', {}),
        (b'{"a": 1, "b": [{"c": "d"}, {"e"', {"a": 1, "b": [{"c": "d"}, {}]}),
        (b'[{"a": "\xc3', [{}]),
        (b"[1] trailing", [1]),
        (b"]", None),
        (b"[}", None),
    ],
)
def test_what_is_whole_of_a_beginning_is_kept(data: bytes, value: Any) -> None:
    assert complete(data) == value


# --- loads and dumps ----------------------------------------------------------------------------------------


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=12,
    )
)
@example(2**80)
@example([-(2**200), {"a": 2**64}])
@settings(max_examples=200, deadline=None)
def test_loads_reads_what_dumps_writes(value: Any) -> None:
    assert loads(dumps(value)) == value


@pytest.mark.parametrize("depth", [10, 254, 255, 500, 900])
def test_deep_values_are_written_and_read(depth: int) -> None:
    value: Any = "end"
    for level in range(depth):
        value = [value] if level % 2 else {"k": value}
    assert loads(dumps(value)) == value


@pytest.mark.parametrize("text", ["", "{", "[1,]", "nul", "{} {}", '{"a":1}x'])
def test_what_is_not_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        loads(text)
    with pytest.raises(ParseError):
        document(Source(PATH, text.encode()))


# --- times --------------------------------------------------------------------------------------------------

MOMENT = datetime(2026, 2, 3, 9, 0, 4, tzinfo=UTC)


@pytest.mark.parametrize(
    "value",
    [
        "2026-02-03T09:00:04Z",
        "2026-02-03T09:00:04+00:00",
        "2026-02-03T10:00:04+01:00",
        "2026-02-03T09:00:04",
        "2026-02-03 09:00:04",
        "2026-02-03T09:00:04.000Z",
        "20260203T090004Z",
        1770109204,
        1770109204.0,
        1770109204000,
        "1770109204",
        "1770109204000",
        "1770109204.000",
    ],
)
def test_times_in_every_form(value: Any) -> None:
    found = parse_time(value)
    assert found == MOMENT
    assert found is not None
    assert found.tzinfo is UTC


def test_fractions_of_a_second_are_kept() -> None:
    assert parse_time("2026-02-03T09:00:04.123456Z") == MOMENT.replace(microsecond=123456)
    assert parse_time(1770109204123) == MOMENT.replace(microsecond=123000)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "yesterday",
        True,
        0,
        -1,
        1e300,
        float("nan"),
        float("inf"),
        10**400,
        "nan",
        "1999-12-31T23:59:59Z",
        "2100-01-01T00:00:00Z",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
        12,
        [],
        {},
        b"2026-02-03",
    ],
)
def test_what_is_absent_or_absurd_is_no_time(value: Any) -> None:
    assert parse_time(value) is None


@given(st.one_of(st.text(max_size=30), st.integers(), st.floats(), st.none(), st.booleans(), st.lists(st.integers())))
@settings(max_examples=200, deadline=None)
def test_no_value_makes_a_time_raise(value: Any) -> None:
    found = parse_time(value)
    assert found is None or found.tzinfo is UTC


# --- blobs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [bytes, lambda data: b"\xef\xbb\xbf" + data, zstandard.compress])
def test_a_blob_is_found_again_in_its_source(wrap: Any) -> None:
    payload = "QUJD" * 500
    source = Source(PATH, wrap(b'{"a":1}\n{"img":"%s"}\n' % payload.encode()))
    record = list(jsonl(source, Ledger()))[1]
    place = locate(record, payload)
    assert place is not None
    assert read_span(source, *place) == payload.encode()


def test_a_blob_that_is_not_there_letter_for_letter_has_no_place() -> None:
    (record,) = jsonl(Source(PATH, b'{"a":"x\\/y"}\n'), Ledger())
    assert locate(record, "x/y") is None
    assert locate(record, "") is None


@pytest.mark.parametrize("digits", range(17, 26))
def test_a_long_number_is_found_wherever_it_stands(digits: int) -> None:
    number = int("9" * digits)
    for shift in range(5):
        line = json.dumps({"p": "x" * shift, "n": number, "m": [-number], "q": "y" * (9 - shift)}).encode()
        found = loads_line(line)
        assert (found["n"], found["m"]) == (number, [-number])
        assert type(found["n"]) is int
