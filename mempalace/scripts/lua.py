"""Scripts in Lua, through the library lupa (an extra: `pip install 'mempalace[lua]'`).

The script finds a global table:

    sessions.formats()            the names of the formats
    sessions.list(options)        the session files; options is nil or a table with the names of mempalace.list_sessions
    sessions.parse(path, format)  the sessions in a file, in the shape of Session.to_dict

All are plain tables: lists from 1, `nil` for what is absent (`false` within a list). It may define `metric(session)`
and `combine(values)` as a script in Python does; one without `metric` is run once, and what it returns is its result.
What it prints is shown at the end. No attribute of a Python object can be reached from Lua.
"""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mempalace import library
from mempalace.errors import MempalaceError, ScriptError, UsageError
from mempalace.formats import registry
from mempalace.model import Session
from mempalace.scripts.script import Script, read

_CHUNK = "script"
_EXIT = "function os.exit() error('os.exit() would end mempalace itself: return instead', 2) end"
_LARGEST = (1 << 63) - 1
_OPTIONS = ("project", "format", "days", "grep", "mode", "agent_type", "limit", "sort")


def load(path: Path) -> Script:
    """Run a script and take its functions. Raises ScriptError, also where lupa is not installed."""
    text = read(path)
    try:
        from lupa import LuaError, LuaRuntime
    except ImportError as error:
        hint = "pip install 'mempalace[lua]'"
        raise ScriptError("scripts in Lua need the library lupa", path=path, hint=hint) from error
    lua = LuaRuntime(register_eval=False, register_builtins=False, attribute_filter=_refuse, encoding="utf-8")
    bridge = _Bridge(lua, path, LuaError)
    printed: list[str] = []
    names = lua.globals()
    names.python = None
    names.package.loaded.python = None
    tostring = names.tostring
    names.print = lambda *words: printed.append("\t".join(str(tostring(word)) for word in words) + "\n")
    lua.execute(_EXIT, name="=mempalace")
    names.sessions = bridge.table(
        {"parse": bridge.parse, "list": bridge.list, "formats": lambda: bridge.table(registry.default().names())}
    )
    returned = bridge.guarded(lambda: bridge.plain(lua.execute(text, name=f"={_CHUNK}")))
    return Script(bridge.function("metric"), bridge.function("combine"), returned, printed)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C ends the process meanwhile: Python's own handler would wait for Lua, which may never come back.

    A program with a handler of its own keeps it, and only the main thread may change it.
    """
    plain = signal.default_int_handler
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not plain:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, plain)


def _refuse(thing: object, name: object, is_setting: bool) -> object:
    raise AttributeError("Python objects have no attributes here")


class _Bridge:
    """Plain data into Lua and back, and errors out of it."""

    def __init__(self, lua: Any, path: Path, lua_error: type[Exception]) -> None:
        self._lua = lua
        self._path = path
        self._lua_error = lua_error
        self._type = type(lua.table())

    def parse(self, path: Any, format: Any = None) -> Any:
        return self.table([session.to_dict() for session in library.parse(str(path), format)])

    def list(self, options: Any = None) -> Any:
        given = dict(options.items()) if isinstance(options, self._type) else {}
        unknown = sorted(str(name) for name in given if name not in _OPTIONS)
        if unknown or (options is not None and not isinstance(options, self._type)):
            raise UsageError(
                f"sessions.list takes a table with: {', '.join(_OPTIONS)}", hint=f"not: {unknown or options}"
            )
        return self.table([file.to_dict() for file in library.list_sessions(**given)])

    def function(self, name: str) -> Callable[..., Any] | None:
        found = self._lua.globals()[name]
        if found is None:
            return None
        if isinstance(found, self._type) or not callable(found):
            raise ScriptError(f"`{name}` is no function", path=self._path)

        def call(value: Any) -> Any:
            data = value.to_dict() if isinstance(value, Session) else value
            return self.guarded(lambda: self.plain(found(self.table(data))))

        return call

    def guarded(self, function: Callable[[], Any]) -> Any:
        """What a function gives, with all that Lua and the bridge raise told as a ScriptError."""
        try:
            with _interruptible():
                return function()
        except MempalaceError:
            raise
        except RecursionError as error:
            raise ScriptError("the data is nested too deeply for Lua", path=self._path) from error
        except (self._lua_error, UnicodeError, TypeError, ValueError, AttributeError, OverflowError) as error:
            match = re.search(rf"\b{_CHUNK}:(\d+): ", str(error))
            line = int(match[1]) if match else None
            told = str(error).partition("\nstack traceback:")[0]
            what = (told.replace(match[0], "") if match else told) or "a value that is no text"
            raise ScriptError(f"the script raises an error: {what}", path=self._path, line=line) from error

    def table(self, value: Any) -> Any:
        """JSON data as Lua has it. Integers beyond 64 bit become floats, lone surrogates question marks."""
        if isinstance(value, dict):
            return self._lua.table_from({self.table(key): self.table(one) for key, one in value.items()})
        if isinstance(value, list | tuple):
            return self._lua.table_from([False if one is None else self.table(one) for one in value])
        if isinstance(value, str):
            return value.encode("utf-8", "replace")
        if isinstance(value, int) and not -_LARGEST <= value <= _LARGEST:
            return float(value)
        return value

    def plain(self, value: Any) -> Any:
        """A Lua value as JSON data: a table whose keys are 1 to n is a list."""
        if not isinstance(value, self._type):
            return value
        items = list(value.items())
        if items and {key for key, _ in items} == set(range(1, len(items) + 1)):
            return [self.plain(one) for _, one in sorted(items)]
        return {str(key): self.plain(one) for key, one in sorted(items, key=lambda item: str(item[0]))}
