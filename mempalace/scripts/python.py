"""Scripts in Python.

def metric(session): ...       required: called with each mempalace.Session
def combine(values): ...       optional: called once with the list of all that `metric` gave
"""

from __future__ import annotations

import io
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from mempalace.errors import MempalaceError, ScriptError
from mempalace.scripts.script import Script, read

_NAME = "mempalace_script"


class _Loader(SourceFileLoader):
    """Compiles the file as it is now; leaves no `__pycache__` beside it."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def load(path: Path) -> Script:
    """The functions of a script. Raises ScriptError."""
    read(path)
    spec = spec_from_file_location(_NAME, path, loader=_Loader(_NAME, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    printed = _Printed()
    _guarded(spec.loader.exec_module, path, printed)(module)
    metric, combine = (_function(module, name, path, printed) for name in ("metric", "combine"))
    if metric is None:
        raise ScriptError("defines no function `metric`", path=path, hint="write: def metric(session): ...")
    return Script(metric, combine, printed=printed.texts)


class _Printed(io.TextIOBase):
    """Keeps what a script prints: it is shown when all went well."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def write(self, text: str) -> int:
        self.texts.append(text)
        return len(text)


def _function(module: ModuleType, name: str, path: Path, printed: _Printed) -> Callable[..., Any] | None:
    found = getattr(module, name, None)
    if found is not None and not callable(found):
        raise ScriptError(f"`{name}` is no function", path=path)
    return None if found is None else _guarded(found, path, printed)


def _guarded(function: Callable[..., Any], path: Path, printed: _Printed) -> Callable[..., Any]:
    """The function with its prints kept, and all that it raises told as a ScriptError at the script's own line."""

    def call(*values: Any) -> Any:
        try:
            with redirect_stdout(printed):
                return function(*values)
        except (MempalaceError, KeyboardInterrupt):
            raise
        except BaseException as error:  # a program that is not ours may raise anything, or end the process
            raise ScriptError(f"the script raises {_named(error)}", path=path, line=_line(error, path)) from error

    return call


def _named(error: BaseException) -> str:
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # its class is the script's, too
        return name
    return f"{name}: {text}" if text else name


def _line(error: BaseException, path: Path) -> int | None:
    """The innermost line of the script that an error came through, or where its syntax is wrong."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return lines[-1] if lines else None
