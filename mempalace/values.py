"""JSON values and times as logs hold them: what orjson refuses is read all the same.

Mended here: bytes that are not UTF-8, NUL runs, lone surrogates, NaN, integers of any size.
"""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

SURROGATE = re.compile("[\ud800-\udfff]")
_PLAIN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,127}\Z")
_DIGITS = bytes.maketrans(b"0123456789", b"0" * 10)
_LONG_NUMBER = b"0" * 19
_LONGEST_INT = 4000


def is_plain_id(text: str | None) -> bool:
    """Whether an id is as the agents make theirs: safe as a part of a file's name and as a word of a command."""
    return text is not None and _PLAIN_ID.match(text) is not None


@contextmanager
def uncollected() -> Iterator[None]:
    """While records are decoded nothing looks for cycles: there are none, and to look took a fifth of the time.

    Not for code that yields in between: the whole process goes without.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def decode_all(text: str) -> tuple[list[Any], str]:
    """The JSON values at the start of a text, and what follows them."""
    values: list[Any] = []
    while text:
        value, end = decode_first(text)
        if end == 0:
            break
        values.append(value)
        text = text[end:].lstrip(" \t\r,")
    return values, text


def why_damaged(rest: str) -> str:
    if not rest:
        return "only NUL bytes"
    try:
        json.loads(rest)
    except json.JSONDecodeError as error:
        return f"not valid JSON: {error.msg} at character {error.pos + 1}"
    except RecursionError:
        return "nested too deeply"
    except ValueError as error:
        return f"not valid JSON: {error}"
    return "not valid JSON"


def _parse_int(digits: str) -> int | str:
    """Integers of any size; one of more than 4,000 digits stays text (Python refuses to convert it)."""
    return int(digits) if len(digits) <= _LONGEST_INT else digits


# NaN and Infinity are not JSON: kept as text, so that what we write is. Control characters may stand in strings.
LENIENT = json.JSONDecoder(parse_int=_parse_int, parse_constant=str, strict=False)


def decode_first(text: str) -> tuple[Any, int]:
    """The first JSON value of a text and where it ends; (None, 0) if there is none."""
    try:
        value, end = LENIENT.raw_decode(text)
        return clean(value), end
    except (ValueError, RecursionError):
        return None, 0


def loads_line(raw: bytes) -> Any:
    """The value of a line that holds exactly one; everything else raises ValueError (see `records`)."""
    return _loads_slow(raw) if _LONG_NUMBER in raw.translate(_DIGITS) else orjson.loads(raw)


def _loads_slow(raw: bytes) -> Any:
    """Like orjson.loads, for lines with integers beyond 64 bit. Raises ValueError."""
    text = raw.decode("utf-8").strip()
    value, end = decode_first(text)
    if end == 0 or text[end:].strip():
        raise ValueError("not one JSON value")
    return value


def loads(data: bytes | str) -> Any:
    """One JSON value, with all that orjson refuses and Python can read. Raises ValueError."""
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    try:
        if _LONG_NUMBER not in raw.translate(_DIGITS):
            return orjson.loads(raw)
    except ValueError:
        pass
    text = decode(raw)[0].replace("\x00", "").strip()
    value, end = decode_first(text)
    if end == 0 or text[end:].strip():
        raise ValueError(why_damaged(text))
    return value


def dumps(value: Any) -> bytes:
    """JSON bytes of any value that `loads` can give, keys in their order."""
    try:
        return orjson.dumps(value)
    except (TypeError, ValueError):
        return "".join(_write(value)).encode("utf-8", "replace")


def _write(value: Any) -> Iterator[str]:
    """JSON text, written without recursion: orjson stops at 254 levels, json at the interpreter's limit."""
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, _Piece):
            yield item
        elif isinstance(item, dict):
            parts: list[Any] = []
            for key, member in item.items():
                parts += [_Piece("," if parts else ""), _Piece(json.dumps(str(key), ensure_ascii=False) + ":"), member]
            stack += [_Piece("}"), *reversed(parts), _Piece("{")]
        elif isinstance(item, list | tuple):
            parts = []
            for member in item:
                parts += [_Piece("," if parts else ""), member]
            stack += [_Piece("]"), *reversed(parts), _Piece("[")]
        else:
            yield json.dumps(item, ensure_ascii=False, default=str)


class _Piece(str):
    """Finished JSON text on the stack of `_write`."""


def decode(raw: bytes) -> tuple[str, bool]:
    """Bytes as text, and whether some of them were no UTF-8 and had to be replaced by U+FFFD."""
    try:
        return raw.decode("utf-8"), False
    except UnicodeDecodeError:
        return raw.decode("utf-8", errors="replace"), True


def clean(value: Any) -> Any:
    """The value with surrogate pairs joined and lone halves replaced by U+FFFD, in every string."""
    if isinstance(value, str):
        return _clean_text(value)
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean_text(key): clean(item) for key, item in value.items()}
    return value


def _clean_text(text: str) -> str:
    if text.isascii() or not SURROGATE.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


_EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)


_LATEST = datetime(2100, 1, 1, tzinfo=UTC)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


_LATEST_SECONDS = 4_102_444_800


def parse_time(value: Any) -> datetime | None:
    """A time in any form that logs use, as an aware UTC datetime; None for what is absent or absurd.

    ISO 8601 with or without zone (without: UTC), epoch seconds or milliseconds as number or text.
    """
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            try:
                value = float(value)
            except ValueError:
                return None
        else:
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=UTC)
            elif moment.tzinfo is not UTC:
                try:
                    moment = moment.astimezone(UTC)
                except OverflowError:
                    return None
            return moment if _EARLIEST <= moment < _LATEST else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 < value < _LATEST_SECONDS * 1000:
        return None
    seconds = value / 1000 if value > 1e11 else value
    if not 0 < seconds < _LATEST_SECONDS:
        return None
    moment = _EPOCH + timedelta(seconds=seconds)
    return moment if moment >= _EARLIEST else None


def project_name(project: str | None) -> str | None:
    """The last part of a project's path, of whatever system."""
    if not project:
        return None
    return project.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1] or project
