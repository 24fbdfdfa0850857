"""The formats there are, in the order in which they are tried.

A third party adds one through the entry-point group `mempalace.formats` (the value is the format object or
its class), or at run time with `register`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mempalace.errors import PluginError, UnknownFormat
from mempalace.formats.base import Format, SessionFile, newest_first
from mempalace.head import Head
from mempalace.model import Session
from mempalace.records import Ledger
from mempalace.source import Source

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

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
        with _as_file(head.source) as path:
            return float(self._wrapped.detect(path))

    def read(self, source: Source, ledger: Ledger) -> Iterator[Session]:
        with _as_file(source) as path:
            for session in self._wrapped.sessions(path):
                ledger.read += sum(message.records for message in session.messages)
                yield replace(session, path=source.path, member=source.member)

    def sessions_dir(self, project: Path | None = None) -> Path | None:
        folder = self._wrapped.sessions_dir(project)
        return None if folder is None else Path(folder)

    def list_sessions(self, project: Path | None = None) -> list[SessionFile]:
        """Its own SessionFiles, or paths."""
        listed = list(self._wrapped.list_sessions(project))
        found = [file for file in listed if isinstance(file, SessionFile)]
        for path in (Path(file) for file in listed if not isinstance(file, SessionFile)):
            try:
                stat = path.stat()
            except OSError:
                continue
            found.append(SessionFile(path, self.name, stat.st_size, stat.st_mtime))
        return sorted(found, key=newest_first)

    def roots(self) -> list[Path]:
        folder = self.sessions_dir()
        return [] if folder is None else [folder]


@contextmanager
def _as_file(source: Source) -> Iterator[Path]:
    """A path at which the bytes of a source lie: its own, else for as long as it is needed that of a copy."""
    if source.data is None and source.member is None:
        yield source.path
        return
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="mempalace-") as folder, source.open_raw() as stream:
        copy = Path(folder, source.name.strip("<>"))
        copy.write_bytes(stream.read())
        yield copy


# Our own formats, in the order in which they are tried.
_BUILTIN = {
    "claude-code": "claude_code:ClaudeCode",
    "codex": "codex:Codex",
    "gemini": "gemini:Gemini",
    "normalize-agent": "normalize_agent:NormalizeAgent",
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
            registry.register(_load(entry))
        _default = registry
    return _default


def _load(entry: EntryPoint) -> Any:
    """The format of another package. Raises PluginError if it cannot be had: a format that is missing is not silent."""
    try:
        loaded = entry.load()
        return loaded() if isinstance(loaded, type) else loaded
    except (ImportError, AttributeError, TypeError, SyntaxError) as error:
        package = entry.dist.name if entry.dist is not None else entry.value
        raise PluginError(
            f"the format {entry.name!r} of the package {package} cannot be loaded: {error}",
            hint=f"repair or uninstall it: python -m pip uninstall {package}",
        ) from error


def find(name: str) -> Format | None:
    """The format of that name, if there is one; of ours without looking for those of other packages."""
    if _default is None and name in _BUILTIN:
        return _builtin(name)
    return default()._formats.get(name)


def register(format: Any) -> None:
    """Add a format to the shared registry."""
    default().register(format)
