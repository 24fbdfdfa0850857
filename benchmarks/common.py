"""What the search benchmarks share: the ways to search, facts about the run, tables, result files, the bootstrap.

A way to search is named on the command line (`--legs hybrid,lexical,vector,minilm`):

    hybrid      what `Palace.search` does by default
    lexical     the lexical leg alone (`--fast`)
    vector      the bundled static vectors alone, over all dialogue chunks
    minilm      the bundled sentence encoder alone, over all dialogue chunks: not a part of the product's search,
                computed here as the single leg to beat
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import random
import re
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from minilm import Encoder

import mempalace
from mempalace import embedding, ranking
from mempalace.search import Reader
from mempalace.transcript import unquote

LEGS = ("hybrid", "lexical", "vector")


@dataclass(frozen=True, slots=True)
class Found:
    """A hit as far as benchmarks look at it. `chunk` is its id, `text` its words as they stand in the transcript."""

    chunk: str
    session: str
    text: str


Search = Callable[..., list[Found]]


class Asked:
    """A palace open for searching, in any of the ways. `capped` is the default view: at most three a session."""

    def __init__(self, folder: Path, work: Path | None = None) -> None:
        self.folder = folder
        self._work = work
        self._palace = mempalace.Palace(folder)
        self._reader = Reader(folder)
        self._encoder: Encoder | None = None
        self.seconds: dict[str, list[float]] = {}

    def __enter__(self) -> Asked:
        return self

    def __exit__(self, *_: object) -> None:
        self._palace.close()
        self._reader.close()

    def search(
        self, query: str, limit: int, leg: str = "hybrid", *, capped: bool = False, **filters: Any
    ) -> list[Found]:
        """The hits, best first. CPU seconds are kept in `seconds`, by way."""
        start = time.process_time()
        if leg == "minilm":
            found = self._dense(query, limit, capped)
        elif leg == "vector":
            found = self._static(query, limit, capped)
        else:
            found = self._product(query, limit, leg, capped, filters)
        self.seconds.setdefault(leg, []).append(time.process_time() - start)
        return found

    def _product(self, query: str, limit: int, leg: str, capped: bool, filters: dict[str, Any]) -> list[Found]:
        view = {} if capped else {"per_session": None}
        hits = self._palace.search(query, limit, **filters, **options_of(leg), **view)
        return [Found(hit.chunk_id, hit.session_id, hit.text) for hit in hits]

    def _static(self, query: str, limit: int, capped: bool) -> list[Found]:
        vector = embedding.bundled().embed([query])[0]
        return self._of_texts(self._reader.nearest(vector, 4 * limit + 50), limit, capped)

    def _dense(self, query: str, limit: int, capped: bool) -> list[Found]:
        if self._encoder is None:
            self._encoder = Encoder(self._chunks, self._work)
        return self._of_texts(self._encoder.nearest(query, 4 * limit + 50), limit, capped)

    def _of_texts(self, scores: Mapping[int, float], limit: int, capped: bool) -> list[Found]:
        """The chunks of the best texts, as the product would list them: main sessions' dialogue, each text once."""
        kept: list[Found] = []
        taken: dict[str, int] = {}
        for text in scores:
            for one in self._by_text.get(text, [])[:1]:
                if not capped or taken.get(one.session, 0) < ranking.MOST_PER_SESSION:
                    taken[one.session] = taken.get(one.session, 0) + 1
                    kept.append(one)
            if len(kept) == limit:
                break
        return kept

    @property
    def _chunks(self) -> list[tuple[int, str]]:
        """Number and indexed words of each dialogue text of a main session."""
        return [
            (text, encoded(body, moment))
            for text, body, moment in rows(
                self.folder,
                "SELECT c.text, t.body, MIN(c.time) FROM chunks c JOIN texts t ON t.id = c.text"
                " JOIN sessions s ON s.id = c.session WHERE c.kind = 'dialogue' AND s.kind = 'main'"
                " GROUP BY c.text ORDER BY c.text",
            )
        ]

    @property
    def _by_text(self) -> dict[int, list[Found]]:
        found: dict[int, list[Found]] | None = self.__dict__.get("_texts")
        if found is None:
            found = self.__dict__["_texts"] = {}
            for text, uid, key, body in rows(
                self.folder,
                "SELECT c.text, c.uid, s.key, t.body FROM chunks c JOIN texts t ON t.id = c.text"
                " JOIN sessions s ON s.id = c.session WHERE c.kind = 'dialogue' AND s.kind = 'main' ORDER BY c.id",
            ):
                found.setdefault(text, []).append(Found(uid, key, body))
        return found


def options_of(leg: str) -> dict[str, Any]:
    """What `Palace.search` is given to search in a way of the product's own."""
    if leg not in ("hybrid", "lexical"):
        raise SystemExit(f"there is no way to search named {leg}: {', '.join(LEGS)}, minilm")
    return {"lexical_only": True} if leg == "lexical" else {}


def takes_filters(leg: str) -> bool:
    """Whether a way to search is the product's own, which knows filters."""
    return leg in ("hybrid", "lexical")


def rows(palace: Path, sql: str, *values: Any) -> list[Any]:
    """Rows of a palace's catalog, opened for reading only."""
    with closing(sqlite3.connect(f"{(palace / 'catalog.sqlite3').resolve().as_uri()}?mode=ro", uri=True)) as catalog:
        return catalog.execute(sql, values).fetchall()


def words_of(hit: Found) -> str:
    """The hit's words without the marks of a person's lines."""
    return unquote(hit.text).replace("\n\n> ", "\n\n")


def encoded(body: str, moment: float | None) -> str:
    """A chunk as it is given to the sentence encoder: `[date] Speaker: words`, as the product's indexes see it."""
    words = re.sub(r"(?m)^> ?", "", body)
    words = re.sub(r"(?m)^\[([^\]\n]{1,40})\] ", r"\1: ", words)
    return words if moment is None else f"[{datetime.fromtimestamp(moment, UTC):%Y-%m-%d}] {words}"


# --- facts, tables, result files ----------------------------------------------------------------------------


def facts(corpus: str) -> dict[str, Any]:
    """What makes a run repeatable: the corpus, the machine, the code."""
    return {
        "corpus": corpus,
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "commit": commit(),
    }


def environment() -> dict[str, str]:
    """The variables for a process that uses this checkout, with its modules compiled, as they are when installed."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(Path(mempalace.__file__).parent.parent)}


def commit() -> str:
    """The commit that is measured, with `+` if the package differs from it."""
    root = Path(mempalace.__file__).parent.parent

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+" if git("status", "-s", "mempalace") else "")


def _processor() -> str:
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1] if found else platform.processor() or "unknown processor"


def digest(files: Iterable[Path]) -> str:
    """One sha256 over the names and bytes of files, in the order of their names."""
    whole = hashlib.sha256()
    for path in sorted(files):
        whole.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()


def headline(told: Mapping[str, Any], method: str) -> None:
    """Print the method and the facts."""
    print(method.strip())
    for name, value in told.items():
        print(f"{name:12} {value}")
    print()


def table(columns: Sequence[str], lines: Iterable[Sequence[Any]]) -> None:
    """Print lines of a name and figures under their columns."""
    lines = [[_shown(value) for value in line] for line in lines]
    widths = [max(len(row[at]) for row in [list(columns), *lines]) for at in range(len(columns))]
    for row in [list(columns), *lines]:
        print(
            "  ".join(
                value.ljust(width) if at == 0 else value.rjust(width)
                for at, (value, width) in enumerate(zip(row, widths, strict=True))
            )
        )
    print()


def _shown(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def mean(values: Iterable[float]) -> float:
    """The mean; 0 of nothing."""
    found = list(values)
    return statistics.fmean(found) if found else 0.0


def means(questions: Iterable[Mapping[str, Any]], metrics: Sequence[str]) -> list[Any]:
    """How many questions there are, and the mean of each metric."""
    found = list(questions)
    return [len(found), *(mean(float(one[metric]) for one in found) for metric in metrics)]


def bootstrap(differences: Sequence[float], rounds: int = 10_000, seed: int = 1) -> tuple[float, float, float]:
    """The mean of paired differences with its 95 % interval (percentiles of resampled means)."""
    values = np.array(differences, dtype=np.float64)
    if not len(values):
        return 0.0, 0.0, 0.0
    generator = np.random.default_rng(seed)
    sums = np.array([generator.choice(values, len(values)).mean() for _ in range(rounds)])
    low, high = np.percentile(sums, [2.5, 97.5])
    return float(values.mean()), float(low), float(high)


def paired(first: Mapping[str, Any], second: Mapping[str, Any], metric: str) -> str:
    """`first - second` over the questions that both have, as +0.012 [+0.001, +0.023], with wins and losses."""
    both = [name for name in first if name in second and metric in first[name] and metric in second[name]]
    differences = [float(first[name][metric]) - float(second[name][metric]) for name in both]
    middle, low, high = bootstrap(differences)
    won, lost = sum(one > 0 for one in differences), sum(one < 0 for one in differences)
    return f"{middle:+.3f} [{low:+.3f}, {high:+.3f}]  better {won}, worse {lost}, equal {len(both) - won - lost}"


def write(path: Path | None, benchmark: str, told: Mapping[str, Any], runs: Mapping[str, Any]) -> None:
    """Write a result file: facts, and for each run its figures by question. `compare.py` reads it."""
    if path is not None:
        data = {"schema_version": 1, "benchmark": benchmark, "facts": told, "runs": runs}
        path.write_bytes(orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def options(text: str, legs: str = ",".join(LEGS)) -> argparse.ArgumentParser:
    """The options that every search benchmark has."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--legs", default=legs, help=f"ways to search, parted by commas (default {legs})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write figures of every question to FILE")
    parser.add_argument("--work", type=Path, metavar="DIR", help="keep palaces and vectors here for the next run")
    return parser


def progress(text: str) -> None:
    """Tell on stderr how far it is."""
    print(text, file=sys.stderr, flush=True)


def stable(*parts: object) -> random.Random:
    """A source of chance that is the same on every machine for the same parts."""
    return random.Random(hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest())  # noqa: S311


def half_of(name: str) -> str:
    """`tuned` or `held-out`, by the hash of a name."""
    return "tuned" if hashlib.sha256(name.encode()).digest()[0] % 2 == 0 else "held-out"


def cpu() -> float:
    """CPU seconds of this process so far."""
    return time.process_time()


def chunks(palace: Path) -> int:
    """The number of chunks in a palace."""
    return int(rows(palace, "SELECT COUNT(*) FROM chunks")[0][0])


def costs(seconds: Mapping[str, Sequence[float]]) -> str:
    """Median CPU milliseconds a query, by way."""
    return ", ".join(f"{leg} {1000 * statistics.median(times):.1f}" for leg, times in seconds.items()) + " CPU ms (p50)"


_STOP_TEXT = """
    about above after again all also and any are around because been before being below between both but can cannot
    come could did does doing done down during each either else even ever every few for from further get gets give
    goes going gone got had has have having her here him his how however into its itself just keep let lets like made
    make many may maybe might more most much must need nor not now off okay one only other our out over own please put
    really same see seem she should some something still such sure take than that the their them then there these they
    thing things think this those through too under until use used using very want was way well were what when where
    whether which while who whom whose why will with within without would yes yet you your
"""
_STOP_WORDS = frozenset(_STOP_TEXT.split())


def content_words(text: str) -> set[str]:
    """The distinct words of three letters or more that are no stop words, lower case."""
    return set(re.findall(r"[^\W\d_]{3,}", text.casefold())) - _STOP_WORDS
