"""Slack exports: speakers, threads over days, bots, edits, markup; single files; a real export; any JSON."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from reading import FIXTURES, account, assert_accounted, json_like, read, read_value, stable

from mempalace.folders import Folder
from mempalace.formats.slack import Slack
from mempalace.formats.slack.text import Directory, attachment_text, blocks_text, resolve
from mempalace.head import Head
from mempalace.model import Image, Role, Session, Text
from mempalace.records import Ledger
from mempalace.source import Source

FOLDER = FIXTURES / "slack"
SLACK = Slack()
KEYS = """
type message ts 1452741600.000002 1452741601.000002 user U1 text thread_ts subtype bot_message message_changed bot_id
attachments fields blocks rich_text elements files file name preview comment profile messages users channel_info
"""


def read_all(path: Path) -> tuple[list[Session], dict[str, Ledger]]:
    """The sessions of a whole export, and its ledgers by file."""
    ledgers: dict[str, Ledger] = {}
    with Folder.open(path) as folder:
        assert SLACK.claims_folder(folder.names) == 1
        sessions = list(SLACK.read_folder(folder, lambda name: ledgers.setdefault(name, Ledger())))
        assert set(ledgers) == set(SLACK.folder_files(folder.names))
    assert_accounted(sessions, list(ledgers.values()))
    return sessions, ledgers


def by_key(sessions: list[Session]) -> dict[str | None, Session]:
    return {session.key: session for session in sessions}


def lines(session: Session) -> list[tuple[str, str | None, str]]:
    return [(str(message.origin), message.name, message.text) for message in session.messages]


def test_golden_workspace(golden: Callable[[Path, Any], None]) -> None:
    sessions, ledgers = read_all(FOLDER / "workspace")
    data = {
        "sessions": [stable(session, FOLDER) for session in sessions],
        "ledgers": {name: account(ledger) for name, ledger in ledgers.items()},
    }
    golden(FOLDER / "workspace" / "expected.json", data)


@pytest.mark.parametrize("path", ["single_file/2026-01-09.json", "channel_script/general.json"])
def test_golden_file(path: str, golden: Callable[[Path, Any], None]) -> None:
    sessions, ledger = read(SLACK, FOLDER / path)
    golden(
        (FOLDER / path).parent / "expected.json",
        {"sessions": [stable(session, FOLDER) for session in sessions], "ledger": account(ledger)},
    )
    assert SLACK.detect(FOLDER / path) == 1


def test_a_thread_is_one_session_over_its_days() -> None:
    sessions = by_key(read_all(FOLDER / "workspace")[0])
    thread = sessions["C1/1767870000.000100"]
    assert lines(thread) == [
        ("person", "Ana", "ship friday? see [the plan](https://x.example/plan) & #ops @here"),
        ("person", "Bob", "no, monday @Ana"),
        ("person", "cai", "agree with @Bob"),
        ("person", "Ana", "@Helper what is left?"),
        ("assistant", "Helper", "Two tickets."),
    ]
    assert thread.metadata.project == "#general"
    assert thread.metadata.lineage == {"parent_message_id": "1767870000.000100"}
    assert thread.metadata.extra["files"] == ["2026-01-08.json", "2026-01-09.json"]
    assert lines(sessions["C1/2026-01-08"]) == [("person", "Bob", "morning, is `a < b` right?")]


def test_people_are_users_with_names_and_bots_are_told_apart() -> None:
    sessions = by_key(read_all(FOLDER / "workspace")[0])
    ops = sessions["C2/2026-01-09"]
    assert lines(ops)[0] == ("injected", "ci", "build 7\n[failed](https://ci.example/7) on main\nbranch: main")
    assert lines(ops)[1] == ("assistant", "ChatGPT", "Retry it: the cache was cold.")
    direct = sessions["D1/2026-01-09"]
    assert [(m.role, m.name) for m in direct.messages] == [
        (Role.USER, "Ana"),
        (Role.ASSISTANT, "Helper"),
        (Role.SYSTEM, "USLACKBOT"),
    ]
    assert direct.metadata.project == "@Ana, Helper"
    general = lines(sessions["C1/2026-01-09"])
    assert ("person", "Zed", "left us") in general
    assert ("injected", None, "[Pools](https://news.example/pool)\nDrained at noon.") in general


def test_files_rich_text_comments_and_edits() -> None:
    sessions, ledgers = read_all(FOLDER / "workspace")
    ops = by_key(sessions)["C2/2026-01-09"]
    shared = next(message for message in ops.messages if message.name == "Bob")
    assert shared.content == (
        Text("the log"),
        Image("text/plain", 64, ref="build.log"),
        Text("[file: build.log]\nerror: out of memory"),
        Image("image/png", 900, ref="graph.png"),
    )
    said = [text for _, _, text in lines(ops)]
    assert "ask @Bob:wave:\n• first\n```\nmake all\n```" in said
    assert "new words" in said
    assert "old words" not in said
    account_of_ops = ledgers["ops/2026-01-09.json"]
    assert account_of_ops.skipped == Counter(control=1, superseded=1, empty=1, unknown=1)
    assert account_of_ops.damaged == 1
    assert ledgers["general/2026-01-09.json"].duplicate == 1


def test_a_zip_gives_the_same_as_its_folder(tmp_path: Path) -> None:
    root = FOLDER / "workspace"
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        for path in sorted(root.rglob("*.json")):
            archive.write(path, f"My Workspace/{path.relative_to(root)}")
    zipped, _ = read_all(tmp_path / "export.zip")
    plain, _ = read_all(root)
    assert [list(session.messages) for session in zipped] == [list(session.messages) for session in plain]
    assert {session.member for session in zipped} > {"My Workspace/ops/2026-01-09.json"}
    with Folder.open(tmp_path / "export.zip") as folder:
        source = folder.source("My Workspace/ops/2026-01-09.json")
        assert SLACK.claims(Head.of(source)) == 1
        sessions, _ = read(SLACK, source)
    assert sessions[0].key == "C2/2026-01-09"
    assert sessions[0].metadata.project == "#ops"


def test_a_day_file_alone_with_and_without_users(tmp_path: Path) -> None:
    path = FOLDER / "single_file" / "2026-01-09.json"
    sessions, _ = read(SLACK, path)
    thread, day = sessions
    assert [(m.name, m.text) for m in thread.messages] == [("Ana", "ship friday?"), ("cai", "agree with @Bob")]
    assert [(m.name, m.text) for m in day.messages] == [("Bob", "no, monday")]
    assert {m.role for session in sessions for m in session.messages} == {Role.USER}
    (tmp_path / path.name).write_bytes(path.read_bytes())
    bare = read(SLACK, tmp_path / path.name)[0]
    assert [m.name for session in bare for m in session.messages] == ["UANA", "UCAI", "UBOB"]
    assert [m.text for m in bare[0].messages][1] == "agree with @UBOB"


def test_a_day_file_of_a_workspace_has_the_same_identity_alone() -> None:
    whole = by_key(read_all(FOLDER / "workspace")[0])
    alone = read(SLACK, FOLDER / "workspace" / "ops" / "2026-01-09.json")[0]
    assert list(alone[0].messages) == list(whole[alone[0].key].messages)


def test_a_missing_or_damaged_index_leaves_ids(tmp_path: Path) -> None:
    root = FOLDER / "workspace"
    for name in ("channels.json", "general/2026-01-08.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((root / name).read_bytes())
    (tmp_path / "users.json").write_text("[{")
    (tmp_path / "general" / "2026-01-10.json").write_text('[{"type": "message", "ts": "1768')
    sessions, ledgers = read_all(tmp_path)
    assert {m.name for session in sessions for m in session.messages} == {"UANA", "UBOB"}
    assert ledgers["general/2026-01-10.json"].damaged == 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<@U1|bob> and <@U2> and <@U9>", "@bob and @Bea and @U9"),
        ("<#C1|general> <#C2> <#C9>", "#general #ops #C9"),
        ("<!channel> <!subteam^S1|@team> <!subteam^S2> <!date^1^{date}|monday>", "@channel @team @S2 monday"),
        ("<mailto:a@b.example|a@b.example> <https://x.example> <https://x.example|x>", None),
        ("1 &lt; 2 &amp;&amp; &gt; <not a token>", "1 < 2 && > <not a token>"),
        ("&amp;lt;", "&lt;"),
    ],
)
def test_markup(text: str, shown: str | None) -> None:
    directory = Directory({"U2": "Bea"}, {"C2": "ops"})
    expected = "a@b.example https://x.example [x](https://x.example)" if shown is None else shown
    assert resolve(text, directory) == expected


@settings(deadline=None)
@given(json_like(tuple(KEYS.split())))
def test_no_json_raises(value: Any) -> None:
    read_value(SLACK, value)
    message = {"type": "message", "ts": "1452741600.000002"}
    wrapped = value if isinstance(value, dict) else {"attachments": value, "blocks": value, "files": value}
    read_value(SLACK, [message | wrapped, value, {"user": value, "text": value, "thread_ts": value, **message}])
    read_value(SLACK, {"messages": [message | wrapped], "users": value, "channel_info": value})
    blocks_text([value], Directory())
    attachment_text(value, Directory())


@pytest.mark.parametrize(
    "value",
    [
        [{"type": "message", "role": "user", "content": []}],
        {"messages": [{"id": 1, "type": "message", "date": "2026-01-01T00:00:00", "from_id": "user1", "text": "x"}]},
        {"messages": [{"id": "1", "timestamp": "2026-01-01T00:00:00Z", "author": {"name": "a"}, "content": "x"}]},
        [{"type": "message", "ts": 1452741600}],
        [],
    ],
)
def test_other_json_is_not_claimed(value: Any) -> None:
    assert SLACK.claims(Head.of(Source(Path("a.json"), json.dumps(value).encode()))) == 0


def test_only_a_workspace_is_claimed_as_a_folder() -> None:
    assert SLACK.claims_folder(["channels.json", "general/2016-01-14.json"]) == 1
    assert SLACK.claims_folder(["x/channels.json", "x/general/2016-01-14.json", "y/notes/2016-01-14.json"]) == 1
    assert SLACK.folder_files(["x/dms.json", "x/D1/2016-01-14.json", "y/n/2016-01-14.json"]) == ["x/D1/2016-01-14.json"]
    assert SLACK.claims_folder(["general/2016-01-14.json", "users.json"]) == 0
    assert SLACK.claims_folder(["channels.json", "users.json"]) == 0


def test_a_real_export_agrees_with_a_count_by_hand(corpus: Path) -> None:
    root = corpus / "samples" / "slack" / "export"
    by_hand = Counter(
        message.get("subtype") for path in root.glob("*/*.json") for message in json.loads(path.read_bytes())
    )
    assert by_hand == {None: 49, "bot_message": 94, "channel_join": 8, "bot_add": 3, "file_share": 3, "file_comment": 1}
    sessions, ledgers = read_all(root)
    kinds = Counter((str(m.role), str(m.origin)) for session in sessions for m in session.messages if m.records)
    assert kinds == {("system", "injected"): 94, ("user", "person"): 49 + 3 + 1}
    assert sum(ledger.skipped["control"] for ledger in ledgers.values()) == 8 + 3
    assert sum(ledger.read for ledger in ledgers.values()) == 158
    names = {m.name for session in sessions for m in session.messages if m.role is Role.USER}
    assert names == {"user_2feh", "user_113r", "user_b6je", "user_t2fl"}
    assert not any(m.role is Role.ASSISTANT for session in sessions for m in session.messages)


def test_an_attachment_of_fields_only_is_headed_by_its_fallback() -> None:
    field = {"title": "branch", "value": "main"}
    assert attachment_text({"fallback": "build 7", "fields": [field]}, Directory()) == "build 7\nbranch: main"
    assert attachment_text({"fallback": "f", "title": "build", "fields": [field]}, Directory()) == "build\nbranch: main"
    assert attachment_text({"fallback": "build 7"}, Directory()) == "build 7"


def test_a_folder_that_no_list_names_is_called_by_its_id(tmp_path: Path) -> None:
    for folder in ("D024BE91L", "C024BE91L", "lost"):
        (tmp_path / folder).mkdir()
        message = {"type": "message", "user": "U1", "text": "hi", "ts": "1767870000.000100", "team": "T1"}
        (tmp_path / folder / "2026-01-08.json").write_text(json.dumps([message]))
    (tmp_path / "channels.json").write_text("[]")
    sessions, _ = read_all(tmp_path)
    assert [session.key for session in sessions] == [
        "C024BE91L/2026-01-08",
        "D024BE91L/2026-01-08",
        "T1/lost/2026-01-08",
    ]
