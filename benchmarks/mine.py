"""What mining costs in CPU seconds, stage by stage, against a bare orjson loop over the same files.

    python benchmarks/mine.py DIR [--profile]

DIR holds logs, for instance real-logs.tar.xz unpacked. Stages are timed three times in one process, the least
counts; the whole mine runs once, in a process of its own, with its greatest resident memory.
"""

from __future__ import annotations

import cProfile
import hashlib
import platform
import pstats
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import orjson

from mempalace import chunk, transcript
from mempalace.formats import registry
from mempalace.records import Ledger, jsonl
from mempalace.source import Source

ROUNDS = 3
WHOLE = """
import resource, sys, time
from pathlib import Path
from mempalace import miner
summary = miner.mine(Path(sys.argv[1]), [Path(sys.argv[2])])
usage = resource.getrusage(resource.RUSAGE_SELF)
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss, summary.chunks_total, summary.vectors_new)
"""


def least(work: Callable[[], object]) -> float:
    """The least CPU seconds of some rounds."""
    found = []
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def main() -> None:
    """Print the table."""
    folder = Path(sys.argv[1])
    files = sorted(path for path in folder.rglob("*.jsonl") if path.is_file())
    size = sum(path.stat().st_size for path in files) / 1e6
    digest = hashlib.sha256(b"".join(hashlib.sha256(path.read_bytes()).digest() for path in files)).hexdigest()[:12]
    print(
        f"{len(files)} files, {size:.1f} MB, corpus {digest}; Python {platform.python_version()}, {platform.machine()}"
    )
    known = registry.default()
    formats = {path: known.detect(path) for path in files}
    sessions = [session for path in files for session in formats[path].sessions(path)]
    transcripts = [transcript.render(session) for session in sessions]
    stages = {
        "bare orjson loop": lambda: [bare(path) for path in files],
        "records": lambda: [sum(1 for _ in jsonl(Source(path), Ledger())) for path in files],
        "file to Session": lambda: [list(formats[path].sessions(path)) for path in files],
        "Session to transcript": lambda: [transcript.render(session) for session in sessions],
        "transcript to chunks": lambda: [chunk.chunks(text) for text in transcripts],
    }
    for name, work in stages.items():
        seconds = least(work)
        print(f"{name:24} {seconds:6.2f} CPU s   {size / seconds:6.0f} MB/CPU s")
    with tempfile.TemporaryDirectory() as palace:
        told = subprocess.run(
            [sys.executable, "-c", WHOLE, palace, str(folder)], capture_output=True, text=True, check=True
        ).stdout.split()
        disk = sum(path.stat().st_size for path in Path(palace).rglob("*") if path.is_file()) / 1e6
    print(f"{'whole mine':24} {float(told[0]):6.2f} CPU s   {size / float(told[0]):6.1f} MB/CPU s")
    print(f"peak {int(told[1]) / 1024:.0f} MB resident; {told[2]} chunks, {told[3]} vectors; {disk:.1f} MB on disk")
    if "--profile" in sys.argv:
        profile(folder)


def bare(path: Path) -> int:
    """What cannot be done without: decode every line."""
    count = 0
    with open(path, "rb") as stream:
        for line in stream:
            try:
                orjson.loads(line)
            except ValueError:
                continue
            count += 1
    return count


def profile(folder: Path) -> None:
    """The ten functions in which a mine spends most."""
    from mempalace import miner

    with tempfile.TemporaryDirectory() as palace:
        profiler = cProfile.Profile()
        profiler.runcall(miner.mine, Path(palace), [folder])
        pstats.Stats(profiler).sort_stats("tottime").print_stats(10)


if __name__ == "__main__":
    main()
