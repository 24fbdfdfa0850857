"""The formats: one per tool, each with where its files live, how to recognise one, how to read it.

`mempalace.formats()` gives their names.
"""

from __future__ import annotations

import sys
from types import ModuleType


class _Callable(ModuleType):
    """The package is also a function: `mempalace.formats()`."""

    def __call__(self) -> list[str]:
        """The names of all formats, in the order in which they are tried."""
        from mempalace.formats import registry

        return registry.default().names()


sys.modules[__name__].__class__ = _Callable
