"""Which format reads a file: the best claim, in the order of registration, and typed errors for all else."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import FIXTURES
from logs import write_claude

import mempalace
from mempalace.errors import ParseError, SourceError, UnknownFormat
from mempalace.formats import registry
from mempalace.formats.base import Format
from mempalace.formats.registry import Registry, builtin
from mempalace.head import HEAD_BYTES, Head
from mempalace.model import Image, Session, SessionMetadata
from mempalace.records import Ledger
from mempalace.source import Source


class Fixed(Format):
    """Claims everything with one score."""

    title = "Fixed"

    def __init__(self, name: str, score: float) -> None:
        self.name = name  # type: ignore[misc]
        self.score = score

    def claims(self, head: Head) -> float:
        return self.score

    def read(self, source: Source, ledger: Ledger) -> Iterator[Session]:
        yield Session(source.path, self.name, SessionMetadata(self.name))


@pytest.mark.parametrize(
    ("scores", "winner"),
    [([0.2, 0.9, 0.5], "1"), ([0.5, 0.5], "0"), ([0.0, 0.1], "1"), ([0.0, 0.0], None), ([], None)],
)
def test_the_best_claim_wins_none_never_and_the_first_of_equals(
    tmp_path: Path, scores: list[float], winner: str | None
) -> None:
    (tmp_path / "a").write_text("words")
    known = Registry([Fixed(str(at), score) for at, score in enumerate(scores)])
    if winner is None:
        with pytest.raises(UnknownFormat, match=str(tmp_path / "a")):
            known.detect(tmp_path / "a")
    else:
        assert known.detect(tmp_path / "a").name == winner


def test_registries_are_their_own_and_a_name_is_one_format() -> None:
    one, other = Registry(builtin()), Registry([Fixed("x", 1)])
    assert other.names() == ["x"]
    assert "x" not in one.names()
    other.register(Fixed("x", 0.5))
    assert other.names() == ["x"]
    assert other.get("x").claims(Head.of(Source(Path("a"), b""))) == 0.5
    with pytest.raises(UnknownFormat, match="'y'") as error:
        other.get("y")
    assert "x" in (error.value.hint or "")
    assert mempalace.formats() == one.names()  # type: ignore[operator]


def test_a_registered_format_is_seen_by_parse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_default", Registry(builtin()))
    path = write_claude(tmp_path / "a.jsonl", ["hello", "hi"])
    assert mempalace.load(path).format == "claude-code"
    mempalace.register(Fixed("mine", 1.0))
    assert mempalace.load(path).format == "claude-code"  # it came first
    assert mempalace.load(path, "mine").format == "mine"
    (tmp_path / "b").write_text("words")
    assert mempalace.load(tmp_path / "b").format == "mine"


def test_a_file_and_its_text_are_read_alike(tmp_path: Path) -> None:
    for path in sorted(FIXTURES.rglob("*.jsonl")):
        try:
            known = registry.default().detect(path).name
        except UnknownFormat:
            continue
        if path.name.startswith("agent-"):
            continue  # its id may stand in its name only
        text = path.read_bytes().decode("utf-8", "surrogateescape")
        if "\udcff" in text or any(0xDC80 <= ord(sign) <= 0xDCFF for sign in text):
            continue
        detected, named = mempalace.parse_str(text), mempalace.parse_str(text, known)
        assert detected == named
        assert [one.turns for one in named] == [one.turns for one in mempalace.parse(path)], path


def test_what_cannot_be_read_is_told_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"none\.jsonl"):
        mempalace.parse(tmp_path / "none.jsonl")
    (tmp_path / "notes.md").write_text("# Notes\n")
    with pytest.raises(UnknownFormat, match=r"notes\.md"):
        mempalace.parse(tmp_path / "notes.md")
    with pytest.raises(UnknownFormat, match="kimi"):
        mempalace.parse(tmp_path / "notes.md", "kimi")
    with pytest.raises(UnknownFormat):
        mempalace.parse_str("no conversation")
    with pytest.raises(ParseError, match="2 sessions"):
        mempalace.load(FIXTURES / "normalize-agent" / "several" / "c.jsonl")


def test_detection_gives_a_share_of_one_and_never_raises(tmp_path: Path) -> None:
    path = write_claude(tmp_path / "a.jsonl", ["hello", "hi"])
    for format in registry.default():
        assert format.detect(tmp_path / "none") == 0
        assert format.detect(tmp_path) == 0
        assert 0 <= format.detect(path) <= 1
    assert registry.default().get("claude-code").detect(str(path)) == 1


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf", b"\n\n", b"\r\n \r\n"])
def test_marks_and_blank_lines_in_front_do_not_matter(tmp_path: Path, start: bytes) -> None:
    path = write_claude(tmp_path / "a.jsonl", ["hello", "hi"])
    path.write_bytes(start + path.read_bytes().replace(b"\n", b"\r\n"))
    assert mempalace.load(path).message_count == 2


def test_detection_reads_the_beginning_only(tmp_path: Path) -> None:
    path = write_claude(tmp_path / "a.jsonl", ["hello", "hi"])
    with path.open("ab") as stream:
        stream.write(b"\n" * HEAD_BYTES)
        stream.truncate(20_000_000_000)  # sparse: nobody could read all of it in time
    assert registry.default().detect(path).name == "claude-code"


# --- a session for an API -----------------------------------------------------------------------------------


def openai(*records: dict[str, object]) -> list[dict[str, object]]:
    lines = []
    for at, record in enumerate(records):
        said = {"uuid": f"u{at}", "parentUuid": None, "sessionId": "s", "timestamp": "2026-01-01T00:00:00Z"}
        lines.append(json.dumps({**said, "type": record["role"], "message": record}))
    (session,) = mempalace.parse_str("\n".join(lines))
    return session.to_openai()


def test_a_session_is_the_messages_of_an_api() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "a.py"}
    messages = openai(
        {"role": "user", "content": "list"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": [{"type": "text", "text": "one file"}]},
    )
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    user, asked, answered, said = messages
    assert (user["content"], said["content"]) == ("list", "one file")
    assert asked.get("content") is None  # a call alone has no words
    (made,) = asked["tool_calls"]  # type: ignore[misc, attr-defined]
    assert (made["id"], made["type"], made["function"]["name"]) == ("t1", "function", "Bash")
    assert json.loads(made["function"]["arguments"]) == {"command": "ls"}
    assert (answered["tool_call_id"], answered["content"]) == ("t1", "a.py")


def test_images_are_parts_of_the_content() -> None:
    (path,) = (FIXTURES / "claude-code" / "images").glob("*.jsonl")
    session = mempalace.load(path)
    parts = [
        part
        for message in session.to_openai(images=True)
        if isinstance(message.get("content"), list)
        for part in message["content"]
    ]
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    assert urls[0].startswith("data:image/png;base64,")
    assert urls[1] == "https://example.org/a.png"
    picture = next(block for message in session.messages for block in message.content if isinstance(block, Image))
    assert base64.b64decode(urls[0].partition(",")[2]) == session.read_image(picture)


def test_every_block_has_its_tag() -> None:
    tags = {
        block["type"]
        for found in FIXTURES.rglob("*.jsonl")
        if found.parent.name in ("images", "tool-results", "plain", "merged-lines")
        for session in mempalace.parse(found)
        for turn in session.to_dict()["turns"]
        for message in turn["messages"]
        for block in message["content"]
    }
    assert tags == {"text", "tool_use", "tool_result", "thinking", "image"}
