"""Take a session up again: in its own tool, or in another one, for which it is written in that tool's place."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from mempalace import convert
from mempalace.convert.fidelity import FidelityReport
from mempalace.errors import ConvertError, SourceError, UnknownFormat
from mempalace.formats import registry
from mempalace.formats.base import Format
from mempalace.located import Located
from mempalace.model import Session
from mempalace.records import Ledger
from mempalace.source import Source


@dataclass(frozen=True, slots=True)
class Resume:
    """How to take a session up.

    `command` is for a shell; `path` is the tool's log of the session, `written` says that it was put there now.
    `report` says what a conversion cost; None for a session in its own tool. `notes` are for the person.
    """

    command: str
    path: Path | None
    written: bool
    report: FidelityReport | None = None
    notes: tuple[str, ...] = ()

    @property
    def folder(self) -> Path | None:
        """The folder that the command goes to first."""
        return self._parts[0]

    @property
    def words(self) -> list[str]:
        """The program and its arguments."""
        return self._parts[1]

    @property
    def _parts(self) -> tuple[Path | None, list[str]]:
        words = shlex.split(self.command)
        if words[0] != "cd":
            return None, words
        at = 2 if words[1] == "--" else 1
        return Path(words[at]), words[at + 2 :]


def prepare(found: Located, tool: str | None = None) -> Resume:
    """Make a session ready to be taken up in a tool, by default its own; files that exist stay as they are.

    Raises UnknownFormat for a tool that nothing can be written for, ConvertError for a session that its own tool cannot
    take up, or that cannot be written.
    """
    if tool is not None and tool not in convert.AGENTS:
        raise UnknownFormat(f"no session can be resumed in {tool!r}", hint=f"one of: {', '.join(convert.AGENTS)}")
    if tool is None or (tool == found.session.format and not found.session.is_subagent):
        return _in_own_tool(found)
    return _in_other_tool(found, registry.default().get(tool))


def _in_own_tool(found: Located) -> Resume:
    session = found.session
    own = registry.default().get(session.format)
    command = own.resume_command(session)
    if command is None:
        raise ConvertError(
            f"{own.title} has no command that reopens this session",
            path=found.path,
            hint=f"take it up in another tool: --in {' or --in '.join(convert.AGENTS)}",
        )
    notes = _missing_folder(session)
    place = _own_place(found, own)
    if place is not None and not os.path.lexists(place):
        place = _moved(session, own) or place
    if place is None or os.path.isfile(place):
        return Resume(command, place, False, notes=notes)
    convert.write(place, b"".join(piece for file in found.files for piece in file.read()))
    if found.missing:
        notes = (f"it lacks {found.missing} messages of the session, which only other copies of the log hold", *notes)
    return Resume(command, place, True, notes=(f"{own.title} had no such log any more: it was put back", *notes))


def _own_place(found: Located, own: Format) -> Path | None:
    """Where the tool looks for the session: where it had it, else where it would put it.

    Raises ConvertError if the log is gone and nobody can say where it belongs.
    """
    if found.source.member is None and any(_is_below(root, found.path) for root in own.roots()):
        return found.path
    if own.name in convert.AGENTS:
        place = _place(own, convert.convert(found.session, own.name, raw=()).name)
        if own.name == "codex" and found.path.name.startswith("rollout-"):
            place = place.with_name(found.path.name)
        return place
    if os.path.isfile(found.path):
        return None
    raise ConvertError(
        f"{own.title} has deleted the log of this session, and where it looked for it is not known",
        path=found.path,
        hint="put it back yourself: mempalace export SESSION --to original -o FILE",
    )


def _moved(session: Session, own: Format) -> Path | None:
    """Where the tool has the session by now: archived, compressed, or in a folder of another name.

    A log that was older than that one must not come to lie beside it.
    """
    key = session.key or ""
    listed = [file for file in own.list_sessions() if own.finds(file.path, key)]
    for files in ([file for file in listed if key in file.path.name], listed):
        there = next((file for file in map(own.peek_quietly, files) if file.session_id == key), None)
        if there is not None:
            return there.path
    return None


def _in_other_tool(found: Located, tool: Format) -> Resume:
    session = found.session
    project = session.metadata.project
    notes: tuple[str, ...] = ()
    if project and os.path.isabs(project) and os.path.isdir(project):
        cwd = project
    else:
        cwd = os.getcwd()
        notes = (f"the session names no folder of this machine: it goes on in {cwd}",)
    made = convert.convert(session, tool.name, cwd=cwd, read_image=found.read_image, raw=found.raw)
    place = _place(tool, made.name)
    written = _keep_or_write(place, made.data)
    (back,) = tool.read(Source(place, made.data), Ledger())
    command = tool.resume_command(back)
    if command is None:
        raise ConvertError(f"{tool.title} cannot take up what was written", path=place)
    return Resume(command, place, written, made.report, notes)


def _keep_or_write(place: Path, data: bytes) -> bool:
    """Write the log, unless it is there already, be it that the tool has gone on in it. Raises ConvertError."""
    try:
        there = Source(place).read() if os.path.lexists(place) else None
    except SourceError as error:
        raise ConvertError(error.message, path=place, hint="nothing was written") from error
    if there is None:
        convert.write(place, data)
        return True
    if not there.startswith(data):
        raise ConvertError("another log has this name", path=place, hint="move it away; nothing was written")
    return False


def _place(tool: Format, name: str) -> Path:
    """The path of a log below the tool's root. Raises ConvertError if its name leads out of there."""
    root = _root(tool)
    if not _is_below(root, root / name):
        raise ConvertError(f"the log's name leads out of the folder of {tool.title}: {name}", path=root)
    return root / name


def _is_below(root: Path, path: Path) -> bool:
    """Whether a path lies below a folder, whatever `..` it goes through."""
    return Path(os.path.normpath(root.absolute())) in Path(os.path.normpath(path.absolute())).parents


def _root(tool: Format) -> Path:
    """The folder in which the tool keeps its sessions: the first that there is, else the first that it would make."""
    roots = [root for root in tool.roots() if root.name != "archived_sessions"]
    return next((root for root in roots if os.path.isdir(root)), roots[0]).absolute()


def _missing_folder(session: Session) -> tuple[str, ...]:
    project = session.metadata.project
    if project is None or os.path.isdir(project):
        return ()
    return (f"the session's folder is not on this machine: {project}",)
