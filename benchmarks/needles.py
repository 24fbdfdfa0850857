"""Needles: questions of which we know the answer, over conversations of eight formats that are made up here.

    python benchmarks/needles.py [--json FILE] [--haystack N] [--corpus DIR]

The corpus is made from committed templates (needle_corpus.py says how), the same on every machine: files -> Palace.mine
-> Palace.search. With --corpus the real logs of DIR/data/real-logs.tar.xz lie around them too. A hit is right if it
holds the words that answer. R@k: share of the questions with a right hit among the first k; MRR over the first ten. The
default view is measured: at most three hits a session. Halves by the hash of the answer's name: both questions to one
answer, the dates of one series and the languages of one fact are in the same half.
"""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import common
import needle_corpus
from needle_corpus import Needle

import mempalace

METRICS = ("R@1", "R@5", "MRR")
LIMIT = 10
_LANGUAGES = {
    "en": "English",
    "de": "German",
    "ru": "Russian",
    "zh": "Chinese",
    "ja": "Japanese",
    "th": "Thai",
    "ko": "Korean",
}


def squeeze(text: str) -> str:
    """A text with single spaces and without the marks of a person's lines."""
    return " ".join(text.replace("\n> ", "\n").split())


def mine(palace: Path, corpus: needle_corpus.Corpus, folder: Path, more: Path | None = None) -> str:
    """A palace of the corpus; the sha256 of its files. Every answer must be in it."""
    digest = needle_corpus.write(corpus, folder)
    summary = mempalace.Palace(palace).mine([folder, *([] if more is None else [more])])
    kept = squeeze("\n".join(row[0] for row in common.rows(palace, "SELECT body FROM texts ORDER BY id")))
    lost = [one.name for one in corpus.needles if squeeze(one.proof) not in kept]
    if lost or summary.damaged:
        raise SystemExit(f"not all of the corpus is in the palace: {lost[:5]}, {summary.damaged} damaged")
    return digest


def ask(asked: common.Asked, needles: Iterable[Needle], leg: str) -> dict[str, dict[str, Any]]:
    """The figures by question."""
    found = {}
    for one in needles:
        hits = asked.search(one.question, LIMIT, leg, capped=True, **one.filters)
        proof = squeeze(one.proof)
        rank = next((rank for rank, hit in enumerate(hits, 1) if proof in squeeze(common.words_of(hit))), None)
        found[one.name] = {"half": one.half, "class": one.kind, **figures(rank)}
    return found


def figures(rank: int | None) -> dict[str, float]:
    """The metrics of a right hit's rank; None if there is none."""
    first, fifth = float(rank == 1), float(rank is not None and rank <= 5)
    return {"R@1": first, "R@5": fifth, "MRR": 1 / rank if rank else 0.0}


def show(runs: Mapping[str, dict[str, dict[str, Any]]], needles: list[Needle]) -> None:
    """Print the tables by class and half, and which of these questions the first run misses."""
    kinds = list(dict.fromkeys(one["class"] for values in runs.values() for one in values.values()))
    for leg, values in runs.items():
        print(leg)
        lines = []
        for kind in kinds:
            kept = [one for one in values.values() if one["class"] == kind]
            halves = [common.mean(one["R@5"] for one in kept if one["half"] == half) for half in ("tuned", "held-out")]
            lines.append([_named(kind), *common.means(kept, METRICS), *halves])
        lines.append(["all", *common.means(values.values(), METRICS), "", ""])
        common.table(["", "n", *METRICS, "R@5 tuned", "R@5 held out"], lines)
    if not needles:
        return
    leg, values = next(iter(runs.items()))
    missed = [one for one in needles if one.name in values and not values[one.name][_wanted(one)]]
    print(f"{leg}: not found (identifiers: not first; others: not among five)")
    for one in missed:
        rank = round(1 / values[one.name]["MRR"]) if values[one.name]["MRR"] else "-"
        print(f"  {one.name:14} rank {rank:>2}  {one.question}")
    print()


def _wanted(needle: Needle) -> str:
    return "R@1" if needle.kind == "identifiers" else "R@5"


def _named(kind: str) -> str:
    language = kind.removeprefix("language ")
    return _LANGUAGES.get(language, kind)


def main() -> None:
    """Make, mine, ask, print."""
    parser = common.options(__doc__ or "")
    parser.add_argument("--haystack", type=int, default=420, metavar="N", help="conversations around them (420)")
    parser.add_argument("--corpus", type=Path, metavar="DIR", help="holds data/real-logs.tar.xz, mined as well")
    arguments = parser.parse_args()
    corpus = needle_corpus.build(arguments.haystack)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        more = None
        if arguments.corpus is not None:
            more = folder / "real"
            with tarfile.open(arguments.corpus / "data" / "real-logs.tar.xz") as members:
                members.extractall(more, filter="data")
        start = common.cpu()
        digest = mine(folder / "palace", corpus, folder / "files", more)
        told = common.facts(f"made up, sha256 {digest}" + (" and real-logs.tar.xz" if more else ""))
        told["sessions"] = f"{len(corpus.talks)} of our own, {len(corpus.needles)} questions"
        told["palace"] = f"{common.chunks(folder / 'palace')} chunks, {common.cpu() - start:.1f} CPU s to make and mine"
        runs = {}
        with common.Asked(folder / "palace", arguments.work) as asked:
            for leg in arguments.legs.split(","):
                fitting = [one for one in corpus.needles if common.takes_filters(leg) or not one.filters]
                runs[leg] = ask(asked, fitting, leg)
                common.progress(f"{leg}: done")
            told["cost"] = common.costs(asked.seconds)
    common.headline(told, __doc__ or "")
    show(runs, corpus.needles)
    common.write(arguments.json, "needles", told, runs)


if __name__ == "__main__":
    main()
