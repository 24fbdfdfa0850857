"""The native container: one line of JSON, then the bytes of the session's files as they are.

    {"mempalace_native": 1, "format": "codex", "session_id": "...", "files": [{"name", "size", "sha256"}]}\\n
    ...                                       the bytes of each file, one behind the other, nothing between them

Nothing is decoded on the way: damaged lines, line ends, a missing last newline and compressed files come back as they
were. A conversation of an export is kept alone, by its own bytes (`"part": [start, end]` says where they stood in the
decoded file), unless `session.originals()` is given, which is the export. Sub-agents in files of their own are sessions
of their own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mempalace.errors import ParseError, SourceError
from mempalace.model import Session
from mempalace.source import Original

KEY = "mempalace_native"
VERSION = 1
_LONGEST_HEADER = 1 << 20
_HINT = "the container is damaged: export the session again"


@dataclass(frozen=True, slots=True)
class NativeFile:
    """A file in a container."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Native:
    """What a container holds. `part` says which bytes of its file a conversation of an export was."""

    format: str
    session_id: str | None
    files: tuple[NativeFile, ...]
    part: tuple[int, int | None] | None = None

    @property
    def data(self) -> bytes:
        """The bytes of its files, one behind the other; mostly there is one."""
        return b"".join(file.data for file in self.files)


def to_native(session: Session, originals: Sequence[Original] | None = None) -> Iterator[bytes]:
    """The container of a session, in pieces.

    `originals` are the files to keep where they are not where the session says (the palace has them). Each is read
    twice: what it gains meanwhile is left out. Raises SourceError if a file is gone, or changes otherwise.
    """
    part = None
    if originals is None:
        originals = session.originals()
        if session.is_part:
            originals = [Original(file.name, lambda: session.raw) for file in originals[:1]]
            part = [session.start, session.end]
    described = [_describe(file) for file in originals]
    header = {KEY: VERSION, "format": session.format, "session_id": session.key, "files": described}
    if part is not None:
        header["part"] = part
    yield json.dumps(header, ensure_ascii=True).encode() + b"\n"
    for file, known in zip(originals, described, strict=True):
        yield from _exactly(file, known)


def _describe(file: Original) -> dict[str, Any]:
    hasher = hashlib.sha256()
    size = 0
    for piece in file.read():
        hasher.update(piece)
        size += len(piece)
    return {"name": file.name, "size": size, "sha256": hasher.hexdigest()}


def _exactly(file: Original, known: dict[str, Any]) -> Iterator[bytes]:
    """The bytes that were described."""
    hasher = hashlib.sha256()
    left = int(known["size"])
    for piece in file.read():
        piece = piece[:left]
        left -= len(piece)
        hasher.update(piece)
        yield piece
        if not left:
            break
    if left or hasher.hexdigest() != known["sha256"]:
        raise SourceError(f"{file.name} changed while it was read", hint="try again")


def from_native(container: bytes | Iterable[bytes]) -> Native:
    """What a container holds, byte for byte. Raises ParseError if it is none, or is not whole."""
    data = container if isinstance(container, bytes) else b"".join(container)
    header = _header(data)
    at = data.find(b"\n") + 1
    files = []
    for described in header["files"]:
        body = data[at : at + described["size"]]
        at += described["size"]
        if hashlib.sha256(body).hexdigest() != described["sha256"]:
            what = f"{described['size'] - len(body)} bytes are missing" if at > len(data) else "its bytes are others"
            raise ParseError(f"{described['name']} is not whole: {what}", hint=_HINT)
        files.append(NativeFile(described["name"], body))
    if at != len(data):
        raise ParseError(f"{len(data) - at} bytes stand behind the last file", hint=_HINT)
    part = header.get("part")
    return Native(header["format"], header["session_id"], tuple(files), tuple(part) if part else None)


def _header(data: bytes) -> dict[str, Any]:
    """The header of a container, with all that is relied on checked."""
    try:
        header = json.loads(data[: data.find(b"\n", 0, _LONGEST_HEADER) + 1] or b"null")
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict) or KEY not in header:
        raise ParseError("not a native container", hint="make one: mempalace export SESSION --to native")
    if header[KEY] != VERSION:
        raise ParseError(
            f"a container of version {header[KEY]!r}, this program reads {VERSION}", hint="update mempalace"
        )
    files, part = header.get("files"), header.get("part")
    whole = (
        isinstance(header.get("format"), str)
        and isinstance(header.get("session_id"), str | None)
        and isinstance(files, list)
        and all(isinstance(file, dict) and _is_described(file) for file in files)
        and (part is None or _is_part(part))
    )
    if not whole:
        raise ParseError("the header of the container is damaged", hint=_HINT)
    return header


def _is_described(file: dict[str, Any]) -> bool:
    size = file.get("size")
    return isinstance(file.get("name"), str) and isinstance(file.get("sha256"), str) and type(size) is int and size >= 0


def _is_part(part: Any) -> bool:
    return isinstance(part, list) and len(part) == 2 and all(isinstance(at, int | None) for at in part)
