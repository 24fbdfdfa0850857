"""How long a search takes: palaces of 10,000, 100,000 and (on request) 500,000 chunks, warm and cold.

    python benchmarks/latency.py --work DIR [--sizes 10000,100000,500000] [--json FILE]

The sessions are made up (Claude Code, Codex, Gemini), about half of the chunks dialogue, half tool output: words by
Zipf's law over the bundled tokenizer's vocabulary (which is in order of frequency), one in nine an identifier. They
go through the real miner. The palaces stay in DIR for the next run: remove them to have them made by another version.
(`mempalace refine --palace DIR/latency-100000`, where it exists, before a run measures with kept vectors.)

Warm: one process, after ten queries, 60 queries each without and with a filter, up to 10 hits; wall and CPU
milliseconds, all threads counted. Cold: a whole `mempalace search` process, CPU seconds, the median of five.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import common
import needle_formats
import numpy as np
import orjson
from needle_formats import Exchange, Talk

import mempalace
from mempalace import models

SIZES = "10000,100000"
QUERIES = 60
WARM_UP = 10
COLD = 5
START = datetime(2023, 1, 2, 8, tzinfo=UTC)
DAYS = 1_000
PROJECTS = 60
EXCHANGES = 40  # a session
CHUNKS_PER_EXCHANGE = 3.9  # measured; the miner has the last word
FORMATS = ("claude-code", "claude-code", "codex", "gemini")
_CLI = "from mempalace.cli import main; main()"


# --- what is said -------------------------------------------------------------------------------------------


class Words:
    """Words by Zipf's law. The same seed gives the same words on every machine."""

    def __init__(self, seed: int) -> None:
        vocabulary = orjson.loads(models.read(models.STATIC_TOKENIZER))["model"]["vocab"]
        plain = [word for word in vocabulary if word.isalpha() and word.isascii() and len(word) > 1]
        names = (f"{plain[500 + at % 7_000]}_{plain[900 + at * 7 % 9_000]}" for at in range(1_000_000))
        self.words: list[str] = []
        for at, word in enumerate(plain):
            self.words.append(word)
            if at % 8 == 7:
                name = next(names)
                self.words.append(name if at % 16 == 7 else f"src/{name.replace('_', '/')}.py:{at}")
        weights = 1 / np.arange(1, len(self.words) + 1)
        self._sums = np.cumsum(weights / weights.sum())
        self._chance = np.random.default_rng(seed)

    def some(self, low: int, high: int) -> str:
        """Between so many words."""
        count = int(self._chance.integers(low, high))
        return " ".join(self.words[at] for at in self._at(count))

    def rare(self, count: int) -> str:
        """So many words beyond the hundred most frequent, as people search for."""
        found = [at for at in self._at(count * 20) if at >= 100]
        return " ".join(self.words[at] for at in found[:count])

    def number(self, below: int) -> int:
        """A number below another."""
        return int(self._chance.integers(below))

    def _at(self, count: int) -> list[int]:
        last = len(self.words) - 1
        return [min(int(at), last) for at in np.searchsorted(self._sums, self._chance.random(count))]


def talks(count: int) -> Iterator[Talk]:
    """So many sessions."""
    words = Words(1)
    for number in range(count):
        start = START + timedelta(minutes=words.number(60 * 24 * DAYS))
        exchanges = [
            Exchange(
                words.some(8, 40),
                words.some(60, 180),
                f"grep -rn {words.rare(1)} {words.rare(1)}",
                words.some(150, 420),
            )
            for _ in range(EXCHANGES)
        ]
        project = f"project-{words.number(PROJECTS)}"
        yield Talk(f"latency-{number:06}", FORMATS[number % len(FORMATS)], start, project, exchanges)


def questions() -> list[str]:
    """What is searched for: two to four words, questions with frequent words, identifiers."""
    words = Words(2)
    found = [words.rare(2 + at % 3) for at in range(QUERIES // 2)]
    found += [f"why did the {words.rare(2)} and what was it with {words.some(2, 4)}" for _ in range(QUERIES // 4)]
    names = [word for word in words.words if "_" in word or "/" in word]
    found += [names[words.number(len(names) // 4)] for _ in range(QUERIES - len(found))]
    return found


def palace(work: Path, size: int) -> tuple[Path, str]:
    """A palace of about that size, made if it is not there yet, and what made it."""
    folder = work / f"latency-{size}"
    mark = work / f"latency-{size}.txt"
    if not mark.exists():
        files = work / f"latency-{size}-files"
        needle_formats.write(list(talks(round(size / CHUNKS_PER_EXCHANGE / EXCHANGES))), files)
        common.progress(f"{size}: files written")
        start, wall = common.cpu(), time.perf_counter()
        summary = mempalace.Palace(folder).mine([files])
        told = f"{summary.chunks_total} chunks, {summary.vectors_new} vectors, mined by {common.commit()} in"
        mark.write_text(f"{told} {common.cpu() - start:.0f} CPU s, {time.perf_counter() - wall:.0f} s wall")
    return folder, mark.read_text()


# --- measuring ----------------------------------------------------------------------------------------------


def ways(folder: Path) -> dict[str, dict[str, Any]]:
    """What is measured: a name and the options of the search."""
    session = common.rows(folder, "SELECT key FROM sessions ORDER BY id LIMIT 1 OFFSET 3")[0][0]
    filters: dict[str, dict[str, Any]] = {
        "": {},
        " project": {"project": "project-7"},
        " tool": {"tool": "codex"},
        " role": {"role": "assistant"},
        " since": {"since": START + timedelta(days=DAYS * 9 // 10)},
        " session": {"session": session},
        " include tool": {"include": ["tool"]},
    }
    found = {f"hybrid{name}": options for name, options in filters.items()}
    return found | {f"lexical{name}": {**options, **common.options_of("lexical")} for name, options in filters.items()}


def warm(folder: Path) -> dict[str, dict[str, dict[str, float]]]:
    """Wall and CPU milliseconds of every query, by way."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    with mempalace.Palace(folder) as opened:
        for name, options in ways(folder).items():
            for query in questions()[:WARM_UP]:
                opened.search(query, **options)
            for query in questions():
                wall, cpu = time.perf_counter(), time.process_time()
                hits = len(opened.search(query, **options))
                times = {"wall": 1000 * (time.perf_counter() - wall), "CPU": 1000 * (time.process_time() - cpu)}
                found.setdefault(name, {})[query] = {**times, "hits": float(hits)}
    return found


def cold(folder: Path, *options: str) -> float:
    """CPU seconds of a whole `mempalace search` process, the median; the first, which compiles, does not count."""
    environment = common.environment()
    seconds = []
    for query in questions()[: COLD + 1]:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-P", "-c", _CLI, "search", query, "--palace", str(folder), *options]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(seconds[1:])


def show(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    """Print p50 and p95."""
    lines = []
    for name, queries in found.items():
        line: list[Any] = [name]
        for kind in ("wall", "CPU"):
            values = sorted(one[kind] for one in queries.values())
            line += [f"{statistics.median(values):.1f}", f"{values[int(len(values) * 0.95)]:.1f}"]
        lines.append([*line, f"{common.mean(one['hits'] for one in queries.values()):.1f}"])
    common.table(["", "wall p50", "wall p95", "CPU p50", "CPU p95", "hits"], lines)


def main() -> None:
    """Make the palaces, measure, print."""
    parser = common.options(__doc__ or "")
    parser.add_argument("--sizes", default=SIZES, help=f"chunks, parted by commas (default {SIZES})")
    arguments = parser.parse_args()
    if arguments.work is None:
        parser.error("--work DIR keeps the palaces: it is needed")
    arguments.work.mkdir(parents=True, exist_ok=True)
    told = common.facts("made up")
    common.headline(told, __doc__ or "")
    runs = {}
    for size in map(int, arguments.sizes.split(",")):
        folder, made = palace(arguments.work, size)
        print(made)
        runs[str(size)] = warm(folder)
        show(runs[str(size)])
        seconds = {"hybrid": cold(folder), "--fast": cold(folder, "--fast")}
        told[f"cold {size}"] = ", ".join(f"{name} {value:.2f} CPU s" for name, value in seconds.items())
        print(f"cold: {told[f'cold {size}']}\n", flush=True)
    told["load"] = f"load average {os.getloadavg()[0]:.1f} at the end" if hasattr(os, "getloadavg") else ""
    print(told["load"])
    common.write(arguments.json, "latency", told, runs)


if __name__ == "__main__":
    main()
