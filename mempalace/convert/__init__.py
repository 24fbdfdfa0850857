"""Session -> another tool's file, and what that cost.

    convert(session, "codex")       Converted(data, name, report)
    to_jsonl(session, "codex")      the lines as one text
    save(session, path, "codex")    written whole or not at all

Each target is a module here with a pure function; all that is made is the same for the same session: ids are hashes of
its content, times are its own.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from mempalace.convert import claude_code, codex, html, markdown, native, openai, plan
from mempalace.convert.fidelity import FidelityReport, Level, report
from mempalace.convert.kinds import count_kinds
from mempalace.errors import ConvertError, UnknownFormat
from mempalace.model import Image, Session, ToolResult
from mempalace.values import dumps

__all__ = ["TARGETS", "Converted", "FidelityReport", "Level", "convert", "save", "to_jsonl"]

AGENTS = {claude_code.NAME: claude_code.records, codex.NAME: codex.records}
_PAGES = {"markdown": markdown.page, "html": html.page}
_SUFFIXES = {"openai": ".json", "json": ".json", "markdown": ".md", "html": ".html"}
TARGETS = (*AGENTS, *_SUFFIXES)

ReadImage = Callable[[Image], bytes]


class Converted(NamedTuple):
    """What was made of a session. `name` is the file's name; for an agent's log its place below the sessions' root."""

    data: bytes
    name: str
    report: FidelityReport


def convert(
    session: Session,
    target: str,
    *,
    cwd: str | None = None,
    read_image: ReadImage | None = None,
    raw: Iterable[bytes] | None = None,
) -> Converted:
    """The session as a file of the target: one of `TARGETS`.

    `cwd` is the working folder that an agent's log names, by default the session's project; `read_image` gives the
    bytes of images and `raw` the lines of the log, by default out of the source. Raises UnknownFormat, or ConvertError
    for a session that cannot be expressed in the target.
    """
    if target == "json":
        return _as_json(session, raw)
    if target not in TARGETS:
        raise UnknownFormat(f"nothing can be written as {target!r}", hint=f"one of: {', '.join(TARGETS)}")
    made = plan.make(session, target, read_image)
    if target in AGENTS:
        name, records = AGENTS[target](made, cwd)
        data = b"".join(dumps(record) + b"\n" for record in records)
    elif target == "openai":
        name, data = _name(session, target), dumps(openai.body(made)) + b"\n"
    else:
        name, data = _name(session, target), _PAGES[target](made).encode("utf-8", "replace")
    count_kinds(session, made.counts, raw)
    return Converted(data, name, report(target, Level.SEMANTIC, made.counts))


def to_jsonl(session: Session, format: str, *, cwd: str | None = None) -> str:
    """The session as the lines of a `claude-code` or `codex` log. Raises UnknownFormat or ConvertError."""
    if format not in AGENTS:
        raise UnknownFormat(f"there is no log of the format {format!r}", hint=f"one of: {', '.join(AGENTS)}")
    return convert(session, format, cwd=cwd).data.decode("utf-8", "replace")


def save(session: Session, path: Path | str, format: str, *, overwrite: bool = False) -> FidelityReport:
    """Write the session as a file of that format (also `native`), whole or not at all; what it cost.

    Raises UnknownFormat, and ConvertError for a session that cannot be expressed in it, a file that exists (unless
    `overwrite`) or a place that cannot be written.
    """
    if format == "native":
        write(Path(path), b"".join(native.to_native(session)), overwrite=overwrite)
        return FidelityReport(format, Level.BYTES, {})
    made = convert(session, format)
    write(Path(path), made.data, overwrite=overwrite)
    return made.report


def write(path: Path, data: bytes, *, overwrite: bool = False) -> None:
    """Write a file for the owner only, whole or not at all, with the folders above it. Raises ConvertError.

    What a symbolic link names is written, the link stays.
    """
    aside = None
    place = _target(path, overwrite)
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        number, aside = tempfile.mkstemp(prefix=f".{place.name[:40]}.", dir=place.parent)
        with os.fdopen(number, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        if overwrite:
            os.replace(aside, place)
        else:
            _place(aside, place)
    except OSError as error:
        if isinstance(error, FileExistsError) and aside is not None:
            raise _taken(path) from None
        hint = "choose another place with -o"
        raise ConvertError(f"cannot be written: {error.strerror or error}", path=path, hint=hint) from error
    finally:
        if aside is not None:
            with suppress(OSError):
                os.unlink(aside)


def write_all(files: Iterable[tuple[Path, bytes]], *, overwrite: bool = False) -> None:
    """Write several files as `write` does, all or none; but one that was written over is not had back."""
    wanted = list(files)
    for path, _ in wanted:
        _target(path, overwrite)
    made: list[Path] = []
    try:
        for path, data in wanted:
            is_new = not os.path.exists(path)
            write(path, data, overwrite=overwrite)
            made += [path] if is_new else []
    except BaseException:
        for path in made:
            with suppress(OSError):
                os.unlink(path)
        raise


def _target(path: Path, overwrite: bool) -> Path:
    """The place to write to. Raises ConvertError for one that must not be written."""
    if os.path.exists(path) and not os.path.isfile(path):
        hint = "choose another place with -o, or leave it out: then it goes to standard output"
        raise ConvertError("cannot be written: it is not a regular file", path=path, hint=hint)
    if not overwrite:
        if os.path.exists(path):
            raise _taken(path)
        return path
    place = Path(os.path.realpath(path))
    if os.path.islink(place):
        raise ConvertError(
            "cannot be written: it is a symbolic link to itself", path=path, hint="choose another place with -o"
        )
    return place


def _taken(path: Path) -> ConvertError:
    return ConvertError("the file exists", path=path, hint="choose another name, or overwrite with --force")


def _place(aside: str, path: Path) -> None:
    """Give a finished file its name. Fails if there is a file, also one that another process has just made."""
    try:
        os.link(aside, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        os.replace(aside, path)


def _as_json(session: Session, raw: Iterable[bytes] | None) -> Converted:
    """All that a Session holds; of images and of records without a message only the source has the bytes."""
    data = dumps({"schema_version": 1, **session.to_dict()}) + b"\n"
    counts: Counter[str] = Counter()
    count_kinds(session, counts, raw)
    blocks = [block for message in session.messages for block in message.content]
    shown = [image for block in blocks if isinstance(block, ToolResult) for image in block.images]
    shown += [block for block in blocks if isinstance(block, Image)]
    counts["images"] = sum(image.offset is not None for image in shown)
    return Converted(data, _name(session, "json"), report("json", Level.VALUES, counts))


def _name(session: Session, target: str) -> str:
    """A file name made of the session's id, or of its source's name."""
    stem = (session.key or session.path.stem).replace("/", "-")
    safe = "".join(sign if sign.isalnum() or sign in "-_." else "_" for sign in stem).strip(".") or "session"
    return safe[:120] + _SUFFIXES[target]
