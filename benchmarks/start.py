"""What starting costs in CPU seconds: bare Python, --help, a search on a palace of the bundled examples.

    python benchmarks/start.py

Each command runs in a process of its own, seven times; the least is printed, since other work only adds.
"""

from __future__ import annotations

import platform
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import common

MAIN = "from mempalace.cli import main; main()"
EXAMPLES = Path(__file__).parent.parent / "mempalace" / "examples"
ROUNDS = 7


def cpu_of(*words: str, palace: str) -> float:
    """The least CPU seconds of a process."""
    found = []
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-c", *words],
            stdout=subprocess.DEVNULL,
            env={**common.environment(), "MEMPALACE_PALACE_PATH": palace},
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


def main() -> None:
    """Print the table."""
    print(f"Python {platform.python_version()}, {platform.machine()}, least of {ROUNDS}")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-c", MAIN, "mine", str(EXAMPLES), "--palace", folder],
            stdout=subprocess.DEVNULL,
            env=common.environment(),
            check=True,
        )
        bare = cpu_of("pass", palace=folder)
        rows = {
            "python -c pass": bare,
            "import mempalace": cpu_of("import mempalace", palace=folder),
            "mempalace --help": cpu_of(MAIN, "--help", palace=folder),
            "mempalace search --fast": cpu_of(MAIN, "search", "GraphQL", "--fast", palace=folder),
            "mempalace search": cpu_of(MAIN, "search", "GraphQL", palace=folder),
            "mempalace mine, nothing new": cpu_of(MAIN, "mine", str(EXAMPLES), palace=folder),
        }
    for name, seconds in rows.items():
        print(f"{name:30} {seconds * 1000:6.0f} ms   {seconds / bare:4.1f} x bare")


if __name__ == "__main__":
    main()
