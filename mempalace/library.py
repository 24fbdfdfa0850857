"""The Python library: parse sessions without a palace, mine and search one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from mempalace import discover, encoder, lookup, miner, search
from mempalace.discover import OnProblem, Selection
from mempalace.errors import ParseError, UnknownFormat, UsageError
from mempalace.formats import registry
from mempalace.formats.base import Format, SessionFile
from mempalace.model import Session
from mempalace.palace import folder, refining, restore
from mempalace.query import Filters, SearchResults
from mempalace.records import Ledger
from mempalace.source import Original, Source
from mempalace.summary import Event, OnEvent, Summary
from mempalace.values import dumps


def parse(path: Path | str, format: str | None = None) -> list[Session]:
    """The sessions in a file; `format` names its format, else it is detected.

    Sub-agents are in the `subagents` of the session that spawned them, also where they lie in files of their own.
    Raises UnknownFormat, SourceError or ParseError.
    """
    known = registry.default().detect(path) if format is None else registry.default().get(format)
    return [known.with_subagents(session) for session in known.read(Source(Path(path)), Ledger())]


def parse_str(text: str, format: str | None = None) -> list[Session]:
    """The sessions in a text, as `parse` gives those in a file."""
    source = Source(Path("<text>"), text.encode("utf-8", "surrogatepass"))
    known = _identify(source) if format is None else registry.default().get(format)
    return list(known.read(source, Ledger()))


def from_openai(messages: list[dict[str, Any]] | dict[str, Any]) -> Session:
    """The session of chat-completions messages, or of a request's body with them, as `Session.to_openai` gives them.

    Raises ParseError if they hold no conversation.
    """
    body = {"messages": messages} if isinstance(messages, list) else messages
    found = list(registry.default().get("chat").read(Source(Path("<messages>"), dumps(body)), Ledger()))
    if len(found) != 1:
        raise ParseError("these are no chat messages", hint='give a list of {"role": ..., "content": ...}')
    return found[0]


def parse_bytes(data: bytes, name: str, format: str | None = None) -> list[Session]:
    """The sessions in the bytes of a file of that name, as `parse` gives those in the file itself."""
    source = Source(Path(name), data)
    known = _identify(source) if format is None else registry.default().get(format)
    return list(known.read(source, Ledger()))


def _identify(source: Source) -> Format:
    from mempalace.head import Head

    known = registry.default().identify(Head.of(source))
    if known is None:
        raise UnknownFormat("no known format claims this text", hint="see: mempalace formats")
    return known


def load(path: Path | str, format: str | None = None) -> Session:
    """The one session in a file. Raises ParseError, which says how many there are, if it is not one."""
    found = parse(path, format)
    if len(found) != 1:
        raise ParseError(f"{len(found)} sessions where one was expected", path=path, hint="use mempalace.parse")
    return found[0]


def list_sessions(
    project: Path | str | None = None,
    format: str | None = None,
    *,
    days: float | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    grep: str | None = None,
    mode: str = "all",
    agent_type: str | None = None,
    limit: int | None = None,
    sort: str = "date",
    on_problem: OnProblem | None = None,
) -> list[SessionFile]:
    """The session files on this machine, newest first: of a project or of all, of one tool or of all.

    The filters are those of `mempalace.discover.Selection`. Folders and files that cannot be read are passed over,
    and told to `on_problem`. Raises UsageError for a filter that cannot be, UnknownFormat.
    """
    selection = Selection(project, format, days, since, until, grep, mode, agent_type, limit, sort)
    return discover.sessions(selection, registry.default(), on_problem)


def find_session(which: Path | str, palace: Path | str | None = None) -> Session:
    """One session by its file, its id, a unique beginning of it, or words of its title.

    The tools' logs are asked first, then the palace, if there is one: no palace is needed. A file with several
    sessions takes `FILE::ID`. Raises NotFound, AmbiguousId (with `candidates`), SourceError, ParseError.
    """
    place = folder.default_path() if palace is None else Path(palace).expanduser()
    return lookup.find_session(which, registry.default(), place)


class Palace:
    """A palace on disk. Use it as a context manager; searching keeps it open, mining opens it anew."""

    def __init__(self, path: Path | str | None = None) -> None:
        self.path = folder.default_path() if path is None else Path(path).expanduser()
        self._reader: search.Reader | None = None

    def __enter__(self) -> Palace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the files."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def mine(
        self,
        paths: Iterable[Path | str] | None = None,
        *,
        wing: str | None = None,
        dry_run: bool = False,
        wait: bool = False,
        on_event: OnEvent | None = None,
    ) -> Summary:
        """Read conversations into the palace; without paths, those of every known tool on this machine."""
        options = miner.Options(wing=wing, dry_run=dry_run, wait=wait)
        return miner.mine(self.path, None if paths is None else [Path(path) for path in paths], options, on_event)

    def search(
        self,
        query: str,
        limit: int = 10,
        *,
        project: str | None = None,
        tool: str | None = None,
        role: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        session: str | None = None,
        wing: str | None = None,
        include: Iterable[str] | str = (),
        lexical_only: bool = False,
        per_session: int | None = 3,
        context: int = 0,
    ) -> SearchResults:
        """The best hits for a query, at most `per_session` of one session (None: any number).

        Times are aware datetimes; `context` is how many messages before and after each hit come with it; see
        `mempalace search --help` for the rest.
        """
        for moment in (since, until):
            if moment is not None and not isinstance(moment, datetime):
                raise UsageError(f"a time is a datetime, not {moment!r}")
        if self._reader is None:
            self._reader = search.Reader(self.path)
        included = (include,) if isinstance(include, str) else tuple(include)
        filters = Filters(project, tool, role, since, until, session, wing, included)
        return self._reader.search(
            query, limit, filters, lexical_only=lexical_only, per_session=per_session, context=context
        )

    def refine(self, limit: int | None = None, *, on_event: OnEvent | None = None) -> tuple[int, int]:
        """Keep the sentence encoder's vectors of dialogue, newest first: (how many were made, how many are left).

        Searches find the same without, and take longer. May be stopped at any moment.
        """
        folder.require(self.path)
        done = 0

        def tell(count: int, total: int) -> None:
            nonlocal done
            if on_event is None:
                return
            if not done:
                on_event(Event("phase", "refining", total))
            on_event(Event("embedded", count=count - done))
            done = count

        return refining.refine(self.path, encoder.default(), limit, tell)

    def originals(self, session: str) -> list[Original]:
        """The files that a session was read from, out of the archive, also after they are gone.

        `session` is its id or a unique beginning of it. Mostly it is one file; a Slack channel has one a day. Raises
        NotFound, AmbiguousId.
        """
        if self._reader is None:
            self._reader = search.Reader(self.path)
        with self._reader.at_one_moment():
            catalog = self._reader.catalog
            return restore.originals(catalog, registry.default(), self._reader.find_session(session))

    def original(self, session: str) -> Iterator[bytes]:
        """The bytes of the one file that a session was read from, in pieces. Raises UsageError if there are several."""
        found = self.originals(session)
        if len(found) > 1:
            names = ", ".join(file.name for file in found)
            raise UsageError(f"the session lies in {len(found)} files: {names}", hint="take them from Palace.originals")
        return found[0].read()
