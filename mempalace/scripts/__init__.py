"""Metrics of one's own: a Python or Lua file that is run over sessions.

    outcome = run(Path("my_metric.py"), sessions)     Outcome(values, result, printed)

A script is its owner's program and runs with all their rights; it is imported when it is named, never found by itself.
What it gives must be JSON data. Whatever goes wrong in it is a ScriptError with its file and line, and the outcome is
given only when all went well, so that nothing is half shown.
"""

from __future__ import annotations

from mempalace.scripts.run import Outcome, run

__all__ = ["Outcome", "run"]
