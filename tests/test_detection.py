"""Detection is exclusive: the matrix of formats and files has only its diagonal, and no claim ever raises."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import FIXTURES
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reading import SCALARS, json_like

from mempalace.formats.registry import Registry, builtin
from mempalace.head import Head
from mempalace.source import Source

REGISTRY = Registry(builtin())
OWNERS = {"plain": "transcript", "gemini-cli": "gemini"}  # folders that are not called as their format

# What stands among the fixtures and nobody claims, by its beginning, and why.
UNCLAIMED = {
    "claude-code/minimal/": "records of `type` and `message` only: read when named, too little to be known by",
    "claude-code/odd-values/": "no record has the fields that tell the tool",
    "claude-code/subagent-files/5b0c7a52-9d1e-4c33-8a41-2f6b1d0e9a10/subagents/agent-a1.meta.json": "a label",
    "claude-code/subagent-files/5b0c7a52-9d1e-4c33-8a41-2f6b1d0e9a10/tool-results/": "the output of a tool",
    "claude-code/subagent-files/memory/": "notes that are not a conversation",
    "gemini/no_header/": "messages without anything before them that names the tool",
    "gemini/tree/.gemini/projects.json": "the list of projects",
    "gemini/tree/.gemini/tmp/bakery/chats/session-2026-01-02T10-00-bbbbbbbb.jsonl.unreadable-1": "set aside",
    "gemini/tree/.gemini/tmp/kiln-ctl/.project_root": "a path",
    "gemini/tree/.gemini/tmp/kiln-ctl/logs.json": "what was typed, without the answers",
    "gemini/tree/.gemini/tmp/kiln-ctl/tool-outputs/": "the output of a tool",
    "plain/preamble/": "prose stands before the first speaker: read when named",
    "plain/refused/": "text that only looks like a dialogue",
    "slack/single_file/users.json": "the people",
    **{
        f"slack/workspace/{name}.json": "an index"
        for name in ("channels", "dms", "groups", "mpims", "users", "integration_logs")
    },
}
# The same for real files.
UNCLAIMED_SAMPLES = {
    "INDEX.md": "says where the samples come from",
    "other/": "tools that are not supported yet",
    "claude-code/empty-0-bytes.jsonl": "empty",
    **{
        f"claude-code/v2.1.114/ef958aa1-0e93-49f0-bb71-150f63befcd1/subagents/agent-{name}.meta.json": "a label"
        for name in ("a36efb2a1231c41e2", "a4ca7529859c158c2", "a52886dc180afb356")
    },
    **{f"slack/export/{name}.json": "an index" for name in ("channels", "integration_logs", "users")},
}
# A file that another format owns than its folder says.
MOVED = {"plain/refused/specstory.md": "markdown"}

FILES = sorted(
    path for path in FIXTURES.rglob("*") if path.is_file() and path.name not in ("expected.json", "README.md")
)


def claims(head: Head) -> dict[str, float]:
    """The formats that claim a file, each with its score."""
    scores = {format.name: format.claims(head) for format in REGISTRY}
    assert all(0 <= score <= 1 for score in scores.values())
    return {name: score for name, score in scores.items() if score}


def owner(name: str, unclaimed: dict[str, str]) -> set[str]:
    """The format to which a file belongs by its place; none for what nobody claims."""
    if name in MOVED:
        return {MOVED[name]}
    if any(name == start or (start.endswith("/") and name.startswith(start)) for start in unclaimed):
        return set()
    folder = name.partition("/")[0]
    return {OWNERS.get(folder, folder)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(FIXTURES).as_posix())
def test_a_fixture_is_claimed_by_its_own_format_only(path: Path) -> None:
    name = path.relative_to(FIXTURES).as_posix()
    assert set(claims(Head.of(Source(path)))) == owner(name, UNCLAIMED)


def test_every_exception_of_the_matrix_is_still_there() -> None:
    names = [path.relative_to(FIXTURES).as_posix() for path in FILES]
    for start in (*UNCLAIMED, *MOVED):
        assert any(name.startswith(start) for name in names), start


def test_every_format_has_fixtures() -> None:
    names = {OWNERS.get(path.name, path.name) for path in FIXTURES.iterdir() if path.is_dir()}
    assert names >= {*REGISTRY.names()}


def test_a_real_file_is_claimed_by_its_own_format_only(corpus: Path) -> None:
    samples = corpus / "samples"
    found = {
        path.relative_to(samples).as_posix(): set(claims(Head.of(Source(path))))
        for path in sorted(samples.rglob("*"))
        if path.is_file()
    }
    assert found == {name: owner(name, UNCLAIMED_SAMPLES) for name in found}
    for start in UNCLAIMED_SAMPLES:
        assert any(name.startswith(start) for name in found), start


def test_a_file_is_claimed_alike_whatever_its_name_is(tmp_path: Path) -> None:
    for path in FILES:
        if path.stat().st_size < 200_000 and path.suffix in (".json", ".jsonl"):
            copy = tmp_path / f"copy{path.suffix}"
            copy.write_bytes(path.read_bytes())
            assert claims(Head.of(Source(copy))) == claims(Head.of(Source(path))), path


# --- no claim raises ----------------------------------------------------------------------------------------


KEYS = (
    *("type", "uuid", "sessionId", "message", "role", "content", "parts", "timestamp", "payload", "cwd", "summary"),
    *("mapping", "current_node", "parent", "children", "create_time", "chat_messages", "sender", "uuid", "docs"),
    *("ts", "user", "text", "messages", "conversations", "from", "value", "history", "id", "session_meta", "items"),
    *("session_metadata", "projectHash", "startTime", "lastUpdated", "conversations_memory", "prompt_template"),
    *("user", "assistant", "human", "system", "record_type", "$set", "$rewindTo", "author", "user_message"),
)
VALUES = json_like(KEYS)


def strange(name: str, data: bytes) -> Iterator[Head]:
    """A file's beginning as itself and cut in the middle."""
    for cut in (len(data), len(data) // 2):
        yield Head.of(Source(Path(name), data[:cut]))


@given(VALUES)
@example({"mapping": {"a": None}})
@example([{"mapping": {"a": {"message": 1, "parent": []}}}])
@example({"messages": {"role": "user"}})
@example([None, [], {}, "user", 1e308])
@settings(max_examples=150, deadline=None)
def test_no_claim_raises_on_any_json_document(value: Any) -> None:
    for head in strange("a.json", json.dumps(value).encode()):
        claims(head)


@given(st.lists(VALUES | SCALARS, max_size=6), st.sampled_from(["\n", "\r\n", "\n\n", ""]))
@settings(max_examples=150, deadline=None)
def test_no_claim_raises_on_any_json_lines(values: list[Any], end: str) -> None:
    for head in strange("a.jsonl", "".join(json.dumps(value) + end for value in values).encode()):
        claims(head)


@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda text: text.encode("utf-8", "surrogatepass")))
@settings(max_examples=150, deadline=None)
def test_no_claim_raises_on_any_bytes(data: bytes) -> None:
    for name in ("a.txt", "a.md", "a.json", "a"):
        for head in strange(name, data):
            claims(head)


@pytest.mark.parametrize("opening", ["[", '{"a":', '{"messages":[', '[{"mapping":{"a":{"message":'])
def test_no_claim_raises_on_what_is_nested_deeply(opening: str) -> None:
    assert not claims(Head.of(Source(Path("a.json"), (opening * 1_200).encode())))


def test_what_is_nested_deeply_is_refused_at_once() -> None:
    head = Head.of(Source(Path("a.json"), b'{"a":' * 5_000))
    start = time.process_time()
    claims(head)
    assert time.process_time() - start < 1
