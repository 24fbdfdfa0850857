"""One session by what a person knows of it: its id, the beginning of it, words of its title, its file.

The tools' own logs are asked first: no palace is needed. What they no longer have is read out of the palace.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from mempalace import discover, tree
from mempalace.discover import Selection
from mempalace.errors import AmbiguousId, NoPalace, NotFound, ParseError, SourceError, expanded
from mempalace.formats.base import SessionFile
from mempalace.formats.registry import Registry
from mempalace.model import Session
from mempalace.palace import folder, restore
from mempalace.palace.catalog import path_text
from mempalace.palace.reader import PalaceReader
from mempalace.records import Ledger
from mempalace.source import Source
from mempalace.transcript import first_words

PART = "::"  # parts a file from the id of one of its sessions
_MOST_CANDIDATES = 20
_HINT = "give more of the id"


class _Candidate(NamedTuple):
    """A session that may be meant. `id` is what names it alone."""

    id: str
    title: str | None


def find_session(which: Path | str, registry: Registry, palace: Path) -> Session:
    """The session that is meant: by its file, its id, a unique beginning of it, or words of its title or file name.

    A file with several sessions takes `FILE::ID`. An id (a sub-agent's is `parent/agent`) is looked for in the
    logs of all tools, then in the palace, if there is one; then words are, in the same order. Main sessions come
    before sub-agents. Raises NotFound, AmbiguousId, and what reading the file raises.
    """
    path, _, part = str(which).partition(PART) if PART in str(which) else (str(which), "", "")
    if _means_file(which, path):
        return _in_file(expanded(path), part, registry, palace)
    text = str(which)
    files = _files_named(text, registry)
    if len({file.session_id for file in files if file.session_id == text}) != 1:
        files = discover.sessions(Selection(), registry)
    found = by_id(text, files)
    if found is not None:
        return read(found, registry)
    with _Palace(palace, registry) as kept:
        known = kept.by_id(text)
        if known is not None:
            return known
        found = by_words(text, files)
        if found is not None:
            return read(found, registry)
        known = kept.by_words(text)
        if known is not None:
            return known
    raise NotFound(
        f"no session has the id, title or file {text!r}",
        hint="mempalace sessions list --all-projects names those of the tools, mempalace search finds one by its words",
    )


def read(file: SessionFile, registry: Registry, ledger: Ledger | None = None) -> Session:
    """The session of a listed file. Raises ParseError if it is no longer there, SourceError."""
    format = registry.get(file.format)
    for session in tree.flatten(format.read(Source(file.path), ledger or Ledger())):
        if session.key == file.session_id:
            return format.with_subagents(session)
    raise ParseError(f"no longer holds the session {file.session_id}", path=file.path, hint="list the sessions again")


def by_id(text: str, files: Iterable[SessionFile]) -> SessionFile | None:
    """The file of the session with that id, or with an id that begins like that. Raises AmbiguousId.

    A sub-agent is also known by its own part of the id, but main sessions come first.
    """
    ids = [(file, file.session_id, file.session_id.rpartition("/")[2]) for file in _latest(files) if file.session_id]
    whole = "/" in text
    tried = (
        [file for file, id, _ in ids if id == text],
        [file for file, _, own in ids if own == text and file.is_subagent],
        [file for file, id, _ in ids if id.startswith(text) and (whole or not file.is_subagent)],
        [file for file, _, own in ids if own.startswith(text) and file.is_subagent],
    )
    return _only(text, next(filter(None, tried), []), "id")


def by_words(text: str, files: Iterable[SessionFile]) -> SessionFile | None:
    """The file of the session whose title or file name holds these words. Raises AmbiguousId."""
    words = text.casefold()
    found = [file for file in _latest(files) if words in f"{file.title}\n{file.path.name}".casefold()]
    return _only(text, [file for file in found if not file.is_subagent] or found, "title or file name")


def _latest(files: Iterable[SessionFile]) -> list[SessionFile]:
    """Of several files with the same session the one that was written last."""
    latest: dict[tuple[str, str], SessionFile] = {}
    for file in files:
        latest.setdefault((file.format, file.session_id or str(file.path)), file)
    return list(latest.values())


def _only(text: str, found: list[SessionFile], what: str) -> SessionFile | None:
    if len(found) > 1:
        raise _ambiguous(text, [_Candidate(file.session_id or str(file.path), file.title) for file in found], what)
    return found[0] if found else None


def _ambiguous(text: str, found: list[_Candidate], what: str) -> AmbiguousId:
    shown = [f"\n  {one.id}  {' '.join((one.title or '').split())}".rstrip() for one in found[:_MOST_CANDIDATES]]
    more = [f"\n  and {len(found) - _MOST_CANDIDATES} more"] if len(found) > _MOST_CANDIDATES else []
    return AmbiguousId(
        f"{text!r} fits the {what} of {len(found)} sessions:{''.join([*shown, *more])}",
        [one.id for one in found],
        hint=_HINT,
    )


def _files_named(text: str, registry: Registry) -> list[SessionFile]:
    """The files in whose name (the last part of) an id stands, so that a whole id is found without looking at all."""
    last = text.rsplit("/", 1)[-1]
    found = []
    for format in registry:
        named = (file for file in format.list_sessions() if last and last in file.path.name)
        found += [format.peek_quietly(file) for file in named]
    return found


# --- by file ------------------------------------------------------------------------------------------------


def _means_file(which: Path | str, path: str) -> bool:
    if isinstance(which, Path) or os.path.isfile(os.path.expanduser(path)):
        return True
    is_name = path.endswith((".jsonl", ".json", ".zst", ".md", ".txt")) and " " not in path
    return is_name or path.startswith(("/", "./", "../", "~"))


def _in_file(path: Path, part: str, registry: Registry, palace: Path) -> Session:
    try:
        format = registry.detect(path)
    except SourceError:
        with _Palace(palace, registry) as kept:
            found = kept.by_path(path)
        if not found:
            raise
    else:
        read = map(format.with_subagents, format.read(Source(path), Ledger()))
        found = [one for one in read if one.message_count or one.subagents]
    return _chosen(path, part, found)


def _chosen(path: Path, part: str, found: list[Session]) -> Session:
    """The one session of a file, or the one whose id is, or begins with, `part`."""
    if not part and len(found) == 1:
        return found[0]
    everyone = list(tree.flatten(found))
    named = [one for one in everyone if one.key == part] or [
        one for one in (everyone if part else found) if (one.key or "").startswith(part)
    ]
    if len(named) == 1:
        return named[0]
    if named:
        listed = [_Candidate(f"{path}{PART}{one.key}", one.metadata.title or first_words(one)) for one in named]
        raise _ambiguous(str(path), listed, "path")
    what = f"no session whose id begins with {part!r}" if part else "no conversation"
    raise NotFound(f"{path} holds {what}", hint="mempalace formats says what can be read")


# --- in the palace ------------------------------------------------------------------------------------------


class _Palace:
    """The palace, if there is one, opened when it is asked."""

    def __init__(self, path: Path, registry: Registry) -> None:
        self._path = path
        self._registry = registry
        self._reader: PalaceReader | None = None

    def __enter__(self) -> _Palace:
        if folder.exists(self._path):
            with suppress(NoPalace):  # it is being made
                self._reader = PalaceReader(self._path)
        return self

    def __exit__(self, *_: object) -> None:
        if self._reader is not None:
            self._reader.close()

    def by_id(self, text: str) -> Session | None:
        if self._reader is None:
            return None
        try:
            return self._session(self._reader.find_session(text))
        except NotFound:
            return None

    def by_words(self, text: str) -> Session | None:
        words = text.casefold()
        found = [
            (number, _Candidate(str(key), title))
            for number, key, title in self._rows("SELECT id, key, title FROM sessions WHERE kind <> 'subagent'")
            if title and words in str(title).casefold()
        ]
        if len(found) > 1:
            raise _ambiguous(text, [one for _, one in found], "title")
        return self._session(int(found[0][0])) if found else None

    def by_path(self, path: Path) -> list[Session]:
        rows = self._rows(
            "SELECT DISTINCT h.session FROM session_sources h JOIN sources s ON s.id = h.source WHERE s.path = ?"
            " ORDER BY h.session",
            path_text(path.absolute()),
        )
        return [self._session(int(number)) for (number,) in rows]

    def _rows(self, statement: str, *values: object) -> list[Any]:
        return [] if self._reader is None else self._reader.catalog.rows(statement, *values)

    def _session(self, number: int) -> Session:
        assert self._reader is not None
        return restore.family(self._reader.catalog, self._registry, number)
