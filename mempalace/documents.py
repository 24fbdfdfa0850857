"""Big JSON documents, element by element: exports of any size without ever holding one.

    elements(source, ledger)   Element(value, start, end, ordinal, text) for every conversation of an export
    sample(head, keys, accept) whether such elements stand at the beginning of a file
    locate(element, payload)   where a blob of an element stands in the source

A vendor's export is one JSON array, mostly on one line, of hundreds of MB. What is read here is such an
array, an array below a named key of an object, a single object, or objects one after another.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, BinaryIO, NamedTuple

from mempalace.errors import ParseError, SourceError
from mempalace.head import Head, complete
from mempalace.records import Ledger
from mempalace.source import Source
from mempalace.values import LENIENT, SURROGATE, clean, dumps, uncollected

_CHUNK = 2 << 20
_EDGE = 16  # an error this close to the end of what was read may only mean that more must be read
_LIMIT = 64 << 20  # how much may be read on to see whether a piece of a damaged document is whole
_SAMPLE = 3

Accept = Callable[[Any], bool]


class Element(NamedTuple):
    """One value of a document. `start` and `end` are bytes in the decoded source, `ordinal` counts from 1.

    `text` is the element's own JSON text.
    """

    value: Any
    start: int
    end: int
    ordinal: int
    text: str


def elements(
    source: Source, ledger: Ledger, keys: Sequence[str] = (), accept: Accept | None = None
) -> Iterator[Element]:
    """The elements of a JSON document in order, each decoded on its own.

    The elements are those of the top-level array; or, of a top-level object, those of the array below the
    first of `keys` that it has, else the object itself. `accept` tells an element from a part of one: with
    it, reading goes on behind a damaged element, of which the whole beginning is given. Each damaged element
    is counted in the ledger as one record, with its ordinal. Raises SourceError if the file cannot be read.
    """
    with source.open() as stream:
        window = _Window(stream, source)
        for element in _walk(window, ledger, keys, accept):
            wrapped = _wrapped(element.value, keys)
            if wrapped is None:
                yield element
            else:
                yield from (element._replace(value=value, ordinal=at) for at, value in enumerate(wrapped, 1))
        if window.error is not None:
            ledger.read += 1
            ledger.damage(window.error)


def sample(head: Head, keys: Sequence[str], accept: Accept) -> bool:
    """Whether one of the first elements of a file is accepted, also if the file is damaged or cut off."""
    if head.data.lstrip()[:1] not in (b"{", b"["):
        return False
    first = islice(elements(Source(head.source.path, head.data), Ledger(), keys, accept), _SAMPLE)
    return any(accept(element.value) for element in first)


def locate(element: Element, payload: str) -> tuple[int, int] | None:
    """Where a long ASCII string of an element stands in the decoded source: (offset, length in bytes).

    None if it is not there letter for letter.
    """
    at = element.text.find(payload) if payload else -1
    return None if at < 0 else (element.start + _size(element.text[:at]), len(payload))


def _walk(window: _Window, ledger: Ledger, keys: Sequence[str], accept: Accept | None) -> Iterator[Element]:
    inside = enveloped = False
    index = 0
    while (mark := window.next_mark()) and not (enveloped and mark == "]"):
        if not inside and mark == "[":
            inside = True
            window.advance(window.pos + 1)
        elif inside and mark == "]":
            inside = False
            window.advance(window.pos + 1)
        elif not inside and index == 0 and mark == "{" and keys and window.enter(keys):
            inside = enveloped = True
        else:
            index += 1
            start = window.offset
            try:
                value, end = window.decode()
            except _Broken as broken:
                yield from _salvage(window, broken, index, ledger, accept)
                if accept is None or not window.resume(accept, broken.at):
                    return
            else:
                text = window.text[window.pos : end]
                window.advance(end)
                if _bytes_replaced(text):
                    ledger.note("replaced", "bytes that are not UTF-8 were replaced", index)
                yield Element(value, start, window.offset, index, text)
    if inside and not enveloped and window.error is None:
        ledger.note("incomplete_tail", f"the file ends early, behind element {index}")


def _salvage(window: _Window, broken: _Broken, index: int, ledger: Ledger, accept: Accept | None) -> Iterator[Element]:
    """Count a damaged element, and give what is whole of its beginning if that is an element still."""
    reason, window.error = window.error or broken.reason, None
    ledger.read += 1
    ledger.damage(f"element {index}, byte {window.offset}: {reason}", index)
    text = window.text[window.pos : broken.at]
    if accept is None or not 0 < len(text) <= _LIMIT:
        return
    value = complete(text.encode("utf-8", "surrogateescape"))
    if accept(value):
        yield Element(value, window.offset, window.offset + _size(text), index, text)


def _wrapped(value: Any, keys: Sequence[str]) -> list[Any] | None:
    """The elements inside an object that had to be decoded as a whole."""
    if not isinstance(value, dict):
        return None
    return next((value[key] for key in keys if isinstance(value.get(key), list)), None)


# --- the moving window --------------------------------------------------------------------------------------


class _Broken(Exception):
    """No JSON value stands here; `at` is the character where reading failed."""

    def __init__(self, reason: str, at: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.at = at


_BETWEEN = re.compile(r"[\s,\x00]*")
_OBJECT = re.compile(r'\{\s*["}]')
_OPENERS = re.compile(r'(?:[\[{]\s*(?:"[^"\\]*"\s*:\s*)?)+')
_TOO_DEEP = "nested too deeply"
_BAD_BYTES = re.compile("[\udc80-\udcff]")
_LONE_ESCAPE = re.compile(
    r"\\u[dD](?:[89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..\\u[dD])[c-fC-F])",
)
_MEMBER = r'"{}"\s*:\s*'
_PLAIN_MEMBER = r'"[^"\\]*"\s*:\s*(?:"(?:[^"\\]|\\.)*"|[^\s"\[\]{{}},]+|\{{[^\[\]{{}}]*\}}|\[[^\[\]{{}}]*\])\s*,\s*'


class _Window:
    """The text of a stream from a position on. Bytes that are no UTF-8 stand as surrogate escapes."""

    def __init__(self, stream: BinaryIO, source: Source) -> None:
        self.text = ""
        self.pos = 0
        self.offset = 0
        self.error: str | None = None
        self._stream = stream
        self._source = source
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._ended = False

    def fill(self) -> bool:
        """Read on, and let go of what lies behind the position. False at the end."""
        if self._ended:
            return False
        rest = self.text[self.pos :]
        pieces: list[bytes] = []
        wanted = max(_CHUNK, len(rest))
        try:
            # Piece by piece: what a damaged archive gives before its damage is kept.
            while wanted > 0 and (piece := self._stream.read1(wanted)):  # type: ignore[attr-defined]
                pieces.append(piece)
                wanted -= len(piece)
        except OSError as error:
            raise SourceError(f"cannot be read: {error.strerror or error}", path=self._source.path) from error
        except _stream_errors() as error:
            self.error = str(getattr(error, "message", f"the compressed file is damaged: {error}"))
        data = b"".join(pieces)
        self._ended = not data or self.error is not None
        self.text = rest + self._decoder.decode(data, final=self._ended)
        self.pos = 0
        return bool(data)

    def advance(self, end: int) -> None:
        """Move the position to a later character."""
        self.offset += _size(self.text[self.pos : end])
        self.pos = end

    def next_mark(self) -> str:
        """The next character that is neither space nor comma, at the position; "" at the end."""
        while True:
            found = _BETWEEN.match(self.text, self.pos)
            self.advance(found.end() if found else self.pos)
            if self.pos < len(self.text):
                return self.text[self.pos]
            if not self.fill():
                return ""

    def decode(self, limit: int | None = None) -> tuple[Any, int]:
        """The value at the position and where it ends. Raises _Broken."""
        while True:
            try:
                value, end = _decode(self.text, self.pos)
            except json.JSONDecodeError as error:
                cut = error.pos >= len(self.text) - _EDGE or error.msg.startswith("Unterminated string")
                within = limit is None or len(self.text) - self.pos < limit
                if cut and within and self.fill():
                    continue
                reason = "the file ends here" if cut and self._ended else f"not valid JSON: {error.msg}"
                raise _Broken(reason, error.pos) from None
            except RecursionError:
                raise _Broken(_TOO_DEEP, self.pos + 1) from None
            if end == len(self.text) and not isinstance(value, dict | list) and self.fill():
                continue  # a number may go on
            return self._cleaned(value, end), end

    def _cleaned(self, value: Any, end: int) -> Any:
        text = self.text[self.pos : end]
        escaped = ("\\ud" in text or "\\uD" in text) and _LONE_ESCAPE.search(text)
        if not escaped and (text.isascii() or not SURROGATE.search(text)):
            return value
        try:
            return clean(value)
        except RecursionError:
            raise _Broken(_TOO_DEEP, self.pos + 1) from None

    def enter(self, keys: Sequence[str]) -> bool:
        """Move into the array below one of the keys, if only plain members stand before it."""
        names = "|".join(re.escape(key) for key in keys)
        pattern = r"\{{\s*(?:{plain})*?{key}\[".format(plain=_PLAIN_MEMBER.format(), key=_MEMBER.format(f"(?:{names})"))
        found = re.compile(pattern).match(self.text, self.pos)
        if found:
            self.advance(found.end())
        return found is not None

    def resume(self, accept: Accept, at: int) -> bool:
        """Move to the next whole element at or behind a character. False if there is none."""
        self.advance(max(at, self.pos + 1) if at < len(self.text) else len(self.text))
        while True:
            found = _OBJECT.search(self.text, self.pos)
            if found is None:
                start = self.text.rfind("{", max(self.pos, len(self.text) - _EDGE))
                self.advance(len(self.text) if start < 0 else start)
                if not self.fill():
                    return False
                continue
            self.advance(found.start())
            try:
                value, end = self.decode(_LIMIT)
            except _Broken as error:
                # Behind a thousand open brackets each of them fails alike: step over the whole run.
                run = _OPENERS.match(self.text, self.pos) if error.reason == _TOO_DEEP else None
                self.advance(max(run.end() if run else 0, self.pos + 1))
                continue
            if accept(value):
                return True
            self.advance(end)


def _decode(text: str, pos: int) -> tuple[Any, int]:
    with uncollected():
        return LENIENT.raw_decode(text, pos)


def _stream_errors() -> tuple[type[Exception], ...]:
    """What a damaged compressed stream raises. Looked up only when something was raised."""
    from zstandard import ZstdError

    return ParseError, ZstdError


def _size(text: str) -> int:
    """How many bytes a text takes in the source."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))


def _bytes_replaced(text: str) -> bool:
    return not text.isascii() and _BAD_BYTES.search(text) is not None


# --- fields of any type -------------------------------------------------------------------------------------


def as_dict(value: Any) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def as_string(value: Any) -> str | None:
    """The value if it is a string that is not empty."""
    return value if isinstance(value, str) and value else None


def as_size(value: Any) -> int | None:
    """The value if it is a whole number, not below zero."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def as_json(value: Any) -> str:
    """The JSON text of a decoded value; of one nested too deeply for that, only a note."""
    try:
        return dumps(value).decode()
    except RecursionError:
        return "[nested too deeply]"


def as_texts(value: Any) -> list[str]:
    """The strings of a field that holds one, a list of them, or (as JSON) anything else but nothing."""
    found = value if isinstance(value, list) else [value]
    empty: tuple[Any, ...] = (None, "", [], {})
    return [item if isinstance(item, str) else as_json(item) for item in found if item not in empty]
