"""A folder or a zip archive as one thing: the names in it, and each file as a Source.

An export comes as a zip, or as the folder it was unpacked to. Members of a zip are decompressed while they
are read; nothing is written to disk. A member that must not be read is refused by name (`problems`).
"""

from __future__ import annotations

import io
import lzma
import os
import re
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, BinaryIO, cast

from mempalace.errors import ParseError, SourceError
from mempalace.records import Problem
from mempalace.source import Source

MOST_EXPANSION = 1000
_READABLE = (".json", ".jsonl", ".ndjson", ".md", ".markdown", ".txt", ".zst")
_BUFFER = 1 << 20

# What vendors put beside the conversations, by name: none of these holds one.
SIDE_FILES = frozenset(
    {
        # ChatGPT
        "user.json",
        "user_settings.json",
        "message_feedback.json",
        "shared_conversations.json",
        "model_comparisons.json",
        "export_manifest.json",
        # Claude.ai
        "users.json",
        "manifest.json",
        # Slack
        "org_users.json",
        "channels.json",
        "groups.json",
        "dms.json",
        "mpims.json",
        "integration_logs.json",
        "canvases.json",
        "lists.json",
        "file_conversations.json",
    }
)

# By these names a folder is known as an export that was unpacked.
_EXPORT_FILE = re.compile(r"conversations(-\d+)?\.json|(channels|groups|dms|mpims)\.json")

_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError)


class Folder:
    """The files below a directory, or in a zip archive. A context manager.

    `names` are relative, parted by "/", sorted; `ignored` is the part of them that is no conversation (images,
    web pages, `SIDE_FILES`); `problems` says which members were refused (kind `excluded`), each by name.
    """

    def __init__(self, path: Path, names: list[str], problems: list[Problem], archive: zipfile.ZipFile | None) -> None:
        self.path = path
        self.names = sorted(names)
        self.problems = problems
        self.ignored = [name for name in self.names if not is_readable(name)]
        self._archive = archive

    @classmethod
    def open(cls, path: Path, free: int | None = None) -> Folder:
        """A directory or a zip archive. `free` is the space on disk in bytes, if not that beside the archive.

        Raises SourceError if it cannot be read, ParseError if it is a zip that is cut off or damaged.
        """
        if path.is_dir():
            return cls(path, list(_files(path)), [], None)
        try:
            archive = zipfile.ZipFile(path)
        except OSError as error:
            raise SourceError(f"cannot be read: {error.strerror or error}", path=path) from error
        except (*_ZIP_ERRORS, ValueError) as error:
            hint = "download it again, or unpack what can be unpacked and mine the folder"
            raise ParseError(f"the zip archive is cut off or damaged: {error}", path=path, hint=hint) from error
        names, problems = _checked(archive.infolist())
        read = [info for info in archive.infolist() if info.filename in names and is_readable(info.filename)]
        expanded = sum(info.file_size for info in read)
        most = (shutil.disk_usage(path.parent).free if free is None else free) // 2
        if expanded > most:
            text = f"{path.name} expands to {expanded:,} bytes, more than half of the free disk ({2 * most:,} bytes)"
            names, problems = {}, [*problems, Problem("excluded", text)]
        return cls(path, list(names), problems, archive)

    def source(self, name: str) -> Source:
        """One file, by its name in `names`."""
        if self._archive is None:
            return Source(self.path / name)
        return ZipMember(self.path, member=name, archive=self._archive)

    def sizes(self) -> dict[str, int]:
        """The size in bytes of each file, by name."""
        if self._archive is None:
            return {name: (self.path / name).stat().st_size for name in self.names}
        return {name: self._archive.getinfo(name).file_size for name in self.names}

    def sources(self) -> Iterator[Source]:
        """Every file that may hold conversations, in order of name."""
        ignored = set(self.ignored)
        yield from (self.source(name) for name in self.names if name not in ignored)

    def close(self) -> None:
        """Close the archive. Its sources can still be opened: each then opens the file again."""
        if self._archive is not None:
            self._archive.close()

    def __enter__(self) -> Folder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def source_of(path: Path, member: str | None = None) -> Source:
    """The file at a path, or the member of the zip archive there."""
    return ZipMember(path, member=member) if member and zipfile.is_zipfile(path) else Source(path)


def members(path: Path, free: int | None = None) -> Iterator[Source]:
    """The sources of a folder or archive that may hold conversations. What was refused is passed over."""
    with Folder.open(path, free) as folder:
        yield from folder.sources()


def is_readable(name: str) -> bool:
    """Whether a file of that name may hold conversations."""
    base = name.rsplit("/", 1)[-1]
    hidden = base.startswith("._") or name.startswith("__MACOSX/")  # macOS puts one beside every file it packs
    return base.lower().endswith(_READABLE) and base not in SIDE_FILES and not hidden


def unpacked(paths: Iterable[Path]) -> set[Path]:
    """The folders of some files that are exports which were unpacked."""
    return {path.parent for path in paths if _EXPORT_FILE.fullmatch(path.name)}


def _files(root: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in names:
            path = Path(folder, name)
            if not path.is_symlink():
                yield path.relative_to(root).as_posix()


def _checked(infos: list[zipfile.ZipInfo]) -> tuple[dict[str, None], list[Problem]]:
    """The names that may be read, and why the others may not."""
    names: dict[str, None] = {}
    problems = []
    for info in infos:
        if info.is_dir():
            continue
        reason = _refusal(info)
        if reason is None and info.filename in names:
            problems.append(
                Problem("excluded", f"{info.filename}: the archive holds several of this name, one is read")
            )
        elif reason is None:
            names[info.filename] = None
        elif is_readable(info.filename):
            problems.append(Problem("excluded", f"{info.filename}: {reason}"))
    return names, problems


def _refusal(info: zipfile.ZipInfo) -> str | None:
    name = info.filename.replace("\\", "/")
    if name.startswith("/") or name[1:2] == ":" or ".." in name.split("/"):
        return "a name that leads out of the archive"
    if stat.S_ISLNK(info.external_attr >> 16):
        return "a symbolic link"
    if info.flag_bits & 1:
        return "encrypted"
    if info.file_size > MOST_EXPANSION * max(info.compress_size, 1):
        return f"expands more than {MOST_EXPANSION:,}-fold"
    return None


# --- members ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ZipMember(Source):
    """A file inside a zip archive, decompressed while it is read."""

    archive: zipfile.ZipFile | None = field(default=None, compare=False, repr=False)

    def beside(self, name: str, above: int = 0) -> Source | None:
        """Another member, of the open archive only."""
        folders = (self.member or "").split("/")[:-1]
        if len(folders) < above or self.archive is None or self.archive.fp is None:
            return None
        member = "/".join([*folders[: len(folders) - above], name])
        return replace(self, member=member) if member in self.archive.NameToInfo else None

    def _open_raw(self) -> BinaryIO:
        return cast(BinaryIO, io.BufferedReader(_Inflated(self), _BUFFER))


class _Inflated(io.RawIOBase):
    """The bytes of a member. Seeking back reads from the start again.

    Raises ParseError, naming the member, where it is damaged; what was read up to there has been given.
    """

    def __init__(self, source: ZipMember) -> None:
        self._source = source
        shared = source.archive if source.archive is not None and source.archive.fp is not None else None
        self._own = None if shared is not None else _archive(source.path)
        self._archive = shared if shared is not None else cast(zipfile.ZipFile, self._own)
        self._stream: IO[bytes] | None = None
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        if self._stream is not None:
            self._stream.close()
        try:
            info = copy(self._archive.getinfo(self._source.member or ""))
            self._expected = info.CRC
            # Without it zipfile leaves the checksum to us: its own check keeps back the last piece read.
            del info.CRC
            self._stream = self._archive.open(info)
        except KeyError as error:
            raise SourceError(f"no member {self._source.member!r}", path=self._source.path) from error
        except _ZIP_ERRORS as error:
            raise self._damaged(error) from error
        self._at = 0
        self._sum = 0

    def _damaged(self, error: object) -> ParseError:
        return ParseError(f"{self._source.member}: damaged in the archive: {error}", path=self._source.path)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END:
            raise io.UnsupportedOperation("a member's end is not known before it is read")
        target = offset + (self._at if whence == os.SEEK_CUR else 0)
        if target < self._at:
            self._start()
        while self._at < target:
            if not self._read(min(_BUFFER, target - self._at)):
                break
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = self._read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _read(self, size: int) -> bytes:
        stream = cast(zipfile.ZipExtFile, self._stream)
        try:
            data = stream.read1(size)  # piece by piece: what is whole before a damage is given
        except _ZIP_ERRORS as error:
            raise self._damaged(error) from error
        self._at += len(data)
        self._sum = zlib.crc32(data, self._sum)
        if not data and self._sum != self._expected:
            self._expected = self._sum  # said once
            raise self._damaged("the checksum does not match")
        return data

    def close(self) -> None:
        if not self.closed:
            if self._stream is not None:
                self._stream.close()
            if self._own is not None:
                self._own.close()
        super().close()


def _archive(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror or error}", path=path) from error
    except (*_ZIP_ERRORS, ValueError) as error:
        raise ParseError(f"the zip archive is cut off or damaged: {error}", path=path) from error
