"""The formats there are, in the order in which they are tried.

A third party adds one through the entry-point group `mempalace.formats` (the value is the format object or
its class), or at run time with `register`.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from mempalace.errors import SourceError, UnknownFormat
from mempalace.formats.base import Format, SessionFile
from mempalace.head import Head
from mempalace.model import Session
from mempalace.records import Ledger
from mempalace.source import Source

ENTRY_POINT_GROUP = "mempalace.formats"


class Registry:
    """An ordered set of formats. The best claim wins, 0 never does, ties go to the one registered first."""

    def __init__(self, formats: list[Format] | None = None) -> None:
        self._formats: dict[str, Format] = {}
        for format in formats or []:
            self.register(format)

    def register(self, format: Any) -> None:
        """Add a format, or replace the one of the same name. Takes objects that only look like a Format."""
        adapted = format if isinstance(format, Format) else _Foreign(format)
        self._formats[adapted.name] = adapted

    def __iter__(self) -> Iterator[Format]:
        return iter(self._formats.values())

    def names(self) -> list[str]:
        """The formats' names in order."""
        return list(self._formats)

    def get(self, name: str) -> Format:
        """The format of that name. Raises UnknownFormat, which lists the names there are."""
        try:
            return self._formats[name]
        except KeyError:
            known = ", ".join(self._formats)
            raise UnknownFormat(f"there is no format named {name!r}", hint=f"one of: {known}") from None

    def identify(self, head: Head) -> Format | None:
        """The format that claims a file with this beginning, if any does."""
        best: Format | None = None
        score = 0.0
        for format in self:
            claim = format.claims(head)
            if claim > score:
                best, score = format, claim
        return best

    def detect(self, path: Path | str) -> Format:
        """The format of a file. Raises UnknownFormat or SourceError."""
        format = self.identify(Head.of(Source(Path(path))))
        if format is None:
            raise UnknownFormat("no known format claims this file", path=path, hint="see: mempalace formats")
        return format


class _Foreign(Format):
    """A third party's object that has the five members of the contract, but is no Format."""

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped() if isinstance(wrapped, type) else wrapped
        self.name = str(self._wrapped.name)  # type: ignore[misc]
        self.title = str(getattr(self._wrapped, "title", self.name))  # type: ignore[misc]

    def claims(self, head: Head) -> float:
        if head.source.data is not None:
            return 0.0  # it can only look at files
        return float(self._wrapped.detect(head.source.path))

    def read(self, source: Source, ledger: Ledger) -> Iterator[Session]:
        if source.data is not None:
            raise SourceError(f"the format {self.name} reads files only", path=source.path)
        for session in self._wrapped.sessions(source.path):
            ledger.read += sum(message.records for message in session.messages)
            yield session

    def sessions_dir(self, project: Path | None = None) -> Path | None:
        folder: Path | None = self._wrapped.sessions_dir(project)
        return folder

    def list_sessions(self, project: Path | None = None) -> list[SessionFile]:
        return list(self._wrapped.list_sessions(project))

    def roots(self) -> list[Path]:
        folder = self.sessions_dir()
        return [] if folder is None else [folder]


# Our own formats, in the order in which they are tried.
_BUILTIN = {
    "claude-code": "claude_code:ClaudeCode",
    "codex": "codex:Codex",
    "gemini": "gemini:Gemini",
    "claude-ai": "claude_ai:ClaudeAi",
    "chatgpt": "chatgpt:ChatGPT",
    "slack": "slack:Slack",
    "chat": "chat:Chat",
    "markdown": "markdown:Markdown",
    "transcript": "plain:PlainTranscript",
}


def builtin() -> list[Format]:
    """Our own formats, in the order of the dispatch chain."""
    return [_builtin(name) for name in _BUILTIN]


def _builtin(name: str) -> Format:
    """One of them, without importing the others."""
    module, _, cls = _BUILTIN[name].partition(":")
    format: Format = getattr(import_module(f"mempalace.formats.{module}"), cls)()
    return format


_default: Registry | None = None


def default() -> Registry:
    """The one registry that parse, list, mine and detect share: ours, then the entry points'."""
    global _default
    if _default is None:
        from importlib.metadata import entry_points

        registry = Registry(builtin())
        for entry in entry_points(group=ENTRY_POINT_GROUP):
            loaded = entry.load()
            registry.register(loaded() if isinstance(loaded, type) else loaded)
        _default = registry
    return _default


def find(name: str) -> Format | None:
    """The format of that name, if there is one; of ours without looking for those of other packages."""
    if _default is None and name in _BUILTIN:
        return _builtin(name)
    return default()._formats.get(name)


def register(format: Any) -> None:
    """Add a format to the shared registry."""
    default().register(format)
