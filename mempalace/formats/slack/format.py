"""Slack: a workspace export (folder or zip of day files), and files of a single channel.

A thread is one session, put together over day files; what is not in a thread is one session per day of a
channel. A session's id is made of the channel's id and the thread's or the day's; a message's id is its `ts`.

Slack's ids are its own everywhere, names are not: where an export gives a channel no id, its name stands behind
the workspace's id, which is the `team_id` that most in the list of people have, else the `team` of most of the
channel's messages. Old exports and scripts may have neither. Then a thread is known by the name and its `ts` (a
microsecond), and a day by the name and the `ts` of its first message, so that two workspaces with a channel of
one name stay apart; the price is that such a day is another session in an export that lacks its first message.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from mempalace.documents import as_dict, as_list, as_string, elements, sample
from mempalace.errors import MempalaceError
from mempalace.folders import Folder
from mempalace.formats.base import Format
from mempalace.formats.slack.messages import CONTROL, mentioned, read_message
from mempalace.formats.slack.text import Directory
from mempalace.head import Head
from mempalace.model import Message, Session, SessionMetadata, group_turns
from mempalace.records import Ledger, document
from mempalace.source import Source
from mempalace.values import parse_time

_TS = re.compile(r"\d{9,11}\.\d{1,6}")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_DAY_FILE = re.compile(r"(?P<root>(?:.*/)?)(?P<channel>[^/]+)/(?P<day>\d{4}-\d{2}-\d{2})\.json")
_INDEXES = ("channels.json", "groups.json", "dms.json", "mpims.json")
_ID = re.compile(r"[CDG][A-Z0-9]{8,}")
_USERS = ("users.json", "org_users.json")
_TITLE_LENGTH = 80


class Slack(Format):
    """Messages exported from a Slack workspace."""

    name = "slack"
    title = "Slack"
    suffixes = (".json",)

    def claims(self, head: Head) -> float:
        return 1.0 if sample(head, ("messages",), _is_message) else 0.0

    def read(self, source: Source, ledger: Ledger) -> Iterator[Session]:
        """The sessions of one day file, or of one channel's messages. Lists of users beside it are used."""
        value = _envelope(source)
        directory, places = _near(source)
        if value is None:
            values = (element.value for element in elements(source, ledger, ("messages",), _is_message))
        else:
            values = (one for one in as_list(value.get("messages")))
            directory = _merge(directory, _users([*as_list(value.get("users")), *as_dict(value.get("users")).values()]))
        channel = _single_channel(source, value or {}, places)
        collected = _Channel(channel, directory)
        collected.add(source, _day_of(source.name), values, ledger)
        yield from collected.sessions(self.name)

    def beside(self, source: Source) -> list[Source]:
        """The lists of people and channels beside a file, or in the folder above it."""
        return _lists(source)

    def claims_folder(self, names: Sequence[str]) -> float:
        """1 if the names (of a folder or zip) are those of a workspace export."""
        return 1.0 if self.folder_files(names) else 0.0

    def folder_files(self, names: Sequence[str]) -> list[str]:
        """The day files that `read_folder` reads together, as one export."""
        roots = {name[: -len(index)] for name in names for index in _INDEXES if _is_called(name, index)}
        found = ((name, _DAY_FILE.fullmatch(name)) for name in names)
        return [name for name, match in found if match and match["root"] in roots]

    def read_folder(self, folder: Folder, ledger_for: Callable[[str], Ledger]) -> Iterator[Session]:
        """The sessions of a workspace export. `ledger_for` gives the ledger of a day file, by its name."""
        channels: dict[tuple[str, str], list[str]] = {}
        for name in self.folder_files(folder.names):
            match = _DAY_FILE.fullmatch(name)
            if match:
                channels.setdefault((match["root"], match["channel"]), []).append(name)
        known: dict[str, tuple[Directory, dict[str, _Place]]] = {}
        for (root, channel), files in sorted(channels.items()):
            if root not in known:
                known[root] = _workspace(partial(_inside, folder, root))
            directory, places = known[root]
            collected = _Channel(places.get(channel) or _Place.of_folder(channel), directory)
            for name in sorted(files):
                source, ledger = folder.source(name), ledger_for(name)
                collected.add(source, _day_of(source.name), _values(source, ledger), ledger)
            yield from collected.sessions(self.name)


def _is_called(name: str, index: str) -> bool:
    return name == index or name.endswith(f"/{index}")


def _is_message(value: Any) -> bool:
    ts = value.get("ts") if isinstance(value, dict) and value.get("type") == "message" else None
    return isinstance(ts, str) and _TS.fullmatch(ts) is not None


def _values(source: Source, ledger: Ledger) -> Iterator[Any]:
    """A day file's records; a file that cannot be read is one damaged record of its ledger."""
    try:
        yield from (element.value for element in elements(source, ledger, ("messages",), _is_message))
    except MempalaceError as error:
        ledger.read += 1
        ledger.damage(error.message)


def _day_of(name: str) -> str | None:
    found = _DATE.match(name)
    return found.group() if found else None


# --- who and where ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Place:
    """A channel or a direct message: its id, as far as it is known, what it is called, and its bare name."""

    id: str
    label: str | None
    is_direct: bool = False
    name: str = ""

    @classmethod
    def of_folder(cls, name: str) -> _Place:
        """What a folder stands for that no list names: direct messages are in folders called by their ids."""
        return cls(name, name, name[0] == "D") if _ID.fullmatch(name) else cls("", f"#{name}", name=name)


def _workspace(find: Callable[[str], Source | None]) -> tuple[Directory, dict[str, _Place]]:
    """What the index files say: the directory, and the places by the names of their folders."""
    directory = _users(value for name in _USERS for value in _listed(find(name)))
    places: dict[str, _Place] = {}
    channels: dict[str, str] = {}
    for index in _INDEXES:
        for value in map(as_dict, _listed(find(index))):
            identity, name = as_string(value.get("id")), as_string(value.get("name"))
            if index == "dms.json":
                members = [
                    directory.person(member) for member in as_list(value.get("members")) if isinstance(member, str)
                ]
                place = _Place(identity or "", "@" + ", ".join(members) if members else identity, True)
            else:
                place = _Place(identity or "", f"#{name}" if name else identity, name=name or "")
                if identity and name:
                    channels[identity] = name
            places.update({key: place for key in (name, identity) if key})
    return replace(directory, channels=channels), places


def _listed(source: Source | None) -> list[Any]:
    """The entries of an index file; none of one that is missing or damaged: ids then stand for names."""
    if source is None:
        return []
    try:
        return as_list(document(source))
    except MempalaceError:
        return []


def _users(values: Iterable[Any]) -> Directory:
    people: dict[str, str] = {}
    bots = set()
    teams: Counter[str] = Counter()
    for value in map(as_dict, values):
        identity = as_string(value.get("id"))
        profile = as_dict(value.get("profile"))
        names = (profile.get("display_name"), profile.get("real_name"), value.get("real_name"), value.get("name"))
        name = next((name for name in names if isinstance(name, str) and name), None)
        teams.update(filter(None, [as_string(value.get("team_id"))]))
        if identity and name:
            people[identity] = name
        if identity and value.get("is_bot") is True:
            bots.add(identity)
    return Directory(people, {}, frozenset(bots), _most(teams))


def _most(counts: Counter[str]) -> str | None:
    """What is there most often, of several the first in order."""
    return min(counts, key=lambda one: (-counts[one], one), default=None)


def _merge(first: Directory, second: Directory) -> Directory:
    return replace(
        first, people={**first.people, **second.people}, bots=first.bots | second.bots, team=first.team or second.team
    )


def _near(source: Source) -> tuple[Directory, dict[str, _Place]]:
    """What the index files beside a file, or in the folder above it, say."""
    return _workspace({found.name: found for found in _lists(source)}.get)


def _lists(source: Source) -> list[Source]:
    for above in (0, 1):
        found = [one for name in (*_INDEXES, *_USERS) if (one := source.beside(name, above)) is not None]
        if found:
            return found
    return []


def _inside(folder: Folder, root: str, name: str) -> Source | None:
    return folder.source(root + name) if root + name in folder.names else None


def _envelope(source: Source) -> dict[str, Any] | None:
    """The object around a single channel's messages, as scripts write it; None for a bare list."""
    with source.open() as stream:
        start = stream.read(4096).lstrip()
    if not start.startswith(b"{") or re.match(rb'\{[^\n]*"ts"', start.split(b"\n")[0]):
        return None
    try:
        value = document(source)
    except MempalaceError:
        return None
    return value if isinstance(value, dict) and isinstance(value.get("messages"), list) else None


def _single_channel(source: Source, value: dict[str, Any], places: dict[str, _Place]) -> _Place:
    info = as_dict(value.get("channel_info") or value.get("channel"))
    identity, name = as_string(info.get("id")), as_string(info.get("name"))
    if identity or name:
        label = f"#{name}" if name else identity
        return _Place(identity or "", label, (identity or "").startswith("D"), name or "")
    parts = (source.member or source.path.as_posix()).split("/")
    folder = parts[-2] if len(parts) > 1 else ""
    return places.get(folder) or (_Place.of_folder(folder) if _ID.fullmatch(folder) else _Place("", None))


# --- putting threads together -------------------------------------------------------------------------------


@dataclass(slots=True)
class _Entry:
    value: dict[str, Any]
    day: str
    line: int
    source: Source
    ledger: Ledger

    @property
    def order(self) -> tuple[int, int]:
        found = as_string(self.value.get("ts"))
        if found is None or not _TS.fullmatch(found):
            return (0, 0)
        seconds, _, part = found.partition(".")
        return int(seconds), int(part.ljust(6, "0"))


@dataclass
class _Channel:
    """All messages of a channel. Each record is counted in the ledger of its file."""

    place: _Place
    directory: Directory
    entries: list[_Entry] = field(default_factory=list)
    by_ts: dict[str, _Entry] = field(default_factory=dict)

    def add(self, source: Source, day: str | None, values: Iterable[Any], ledger: Ledger) -> None:
        """Take in the records of a file."""
        for line, value in enumerate(values, 1):
            ledger.read += 1
            if not isinstance(value, dict):
                ledger.damage("the message is not an object", line)
                continue
            value, is_edit = _edited(value)
            if value.get("type", "message") != "message":
                ledger.skip("unknown")
            elif as_string(value.get("subtype")) in CONTROL or (value.get("hidden") is True and not is_edit):
                ledger.skip("control")
            else:
                moment = parse_time(value.get("ts"))
                label = day or (moment.date().isoformat() if moment else "undated")
                self._take(_Entry(value, label, line, source, ledger), is_edit)

    def _take(self, entry: _Entry, is_edit: bool) -> None:
        ts = as_string(entry.value.get("ts"))
        known = self.by_ts.get(ts) if ts else None
        if known is None:
            self.entries.append(entry)
            if ts:
                self.by_ts[ts] = entry
        elif is_edit:
            known.value = entry.value
            entry.ledger.skip("superseded")
        else:
            entry.ledger.repeat()  # a broadcast reply, or the same file twice

    @cached_property
    def _where(self) -> str:
        """What the ids of this channel's sessions begin with; nothing if that would be its name alone."""
        if self.place.id or not self.place.name:
            return self.place.id
        teams = Counter(team for entry in self.entries if (team := as_string(entry.value.get("team"))))
        team = self.directory.team or _most(teams)
        return f"{team}/{self.place.name}" if team else ""

    def sessions(self, format: str) -> Iterator[Session]:
        """The threads and the days, in the order of their first messages."""
        self.entries.sort(key=lambda entry: entry.order)
        replies = {_thread(entry.value) for entry in self.entries}
        groups: dict[tuple[str, str], list[_Entry]] = {}
        for entry in self.entries:
            ts = as_string(entry.value.get("ts"))
            thread = _thread(entry.value) or (ts if ts in replies else None)
            groups.setdefault(("thread", thread) if thread else ("day", entry.day), []).append(entry)
        for (kind, key), entries in groups.items():
            session = self._session(format, kind, key, entries)
            if session is not None:
                yield session

    def _session(self, format: str, kind: str, key: str, entries: list[_Entry]) -> Session | None:
        asked = mentioned(entry.value for entry in entries) if kind == "thread" else set()
        messages: list[Message] = []
        for entry in entries:
            found = read_message(entry.value, self.directory, entry.line, asked, self.place.is_direct)
            if not found:
                entry.ledger.skip("empty")
            messages += found
        if not messages:
            return None
        return Session(
            path=entries[0].source.path,
            format=format,
            metadata=self._metadata(kind, key, entries, messages),
            turns=group_turns(messages),
            member=entries[0].source.member,
        )

    def _metadata(self, kind: str, key: str, entries: list[_Entry], messages: list[Message]) -> SessionMetadata:
        first = messages[0]
        where = self._where or "/".join(filter(None, (self.place.name, first.id if kind == "day" else None)))
        files = list(dict.fromkeys(entry.source.member or entry.source.path.name for entry in entries))
        extra: dict[str, Any] = {"channel_id": self.place.id} if self.place.id else {}
        extra |= {"thread_ts" if kind == "thread" else "date": key}
        extra |= {"files": files} if len(files) > 1 else {}
        named = f"{self.place.label} {key}" if self.place.label else key
        title: str | None = named
        if kind == "thread":
            # Without its beginning it has no title; another reading may know it.
            begun = as_string(entries[0].value.get("ts")) == key
            title = (first.text.strip().split("\n")[0][:_TITLE_LENGTH] or named) if begun else None
        return SessionMetadata(
            session_id=f"{where}/{key}" if where else key,
            timestamp=first.timestamp,
            provider="slack",
            project=self.place.label,
            title=title,
            source="slack",
            lineage={"parent_message_id": key} if kind == "thread" else {},
            extra=extra,
        )


def _thread(value: dict[str, Any]) -> str | None:
    return as_string(value.get("thread_ts"))


def _edited(value: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The message, and whether it is a later version of one: `message_changed` wraps that."""
    inner = value.get("message")
    if value.get("subtype") == "message_changed" and isinstance(inner, dict):
        return {"type": "message", **inner}, True
    return value, False
