"""Two result files against each other, question by question, with a paired bootstrap.

    python benchmarks/locomo.py --corpus DIR --json before.json      # and after.json with another version
    python benchmarks/compare.py before.json after.json
    python benchmarks/compare.py after.json --runs "lexical pooled" "hybrid pooled"    two runs of one file

Prints, for each run that both files have and each metric, the mean before and after, the mean difference with its
95 % interval (10,000 resamplings of the questions), and how many questions became better and worse: in all, and for
each half (or `--by class`, `--by category`). Files over different corpora are refused. Of LoCoMo's questions those of
category 5, which have no answer, are left out unless asked for.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import common
import orjson

GROUPS = ("half", "class", "conversation", "category")  # what a question has beside its metrics


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="one or two result files")
    parser.add_argument("--runs", nargs=2, metavar="RUN", help="compare these two runs, of one file or of both")
    parser.add_argument("--by", default="half", choices=GROUPS, help="compare these groups too (default half)")
    parser.add_argument("--category-5", action="store_true", help="LoCoMo: count questions without an answer as well")
    parser.add_argument("--metric", action="append", metavar="NAME", help="only these metrics")
    arguments = parser.parse_args()
    if len(arguments.files) > 2 or (len(arguments.files) == 1 and arguments.runs is None):
        parser.error("give two files, or one file and --runs")
    first, second = (orjson.loads(path.read_bytes()) for path in (arguments.files * 2)[:2])
    if first["facts"]["corpus"] != second["facts"]["corpus"]:
        parser.error(f"not the same corpus: {first['facts']['corpus']}; {second['facts']['corpus']}")
    print(f"{first['benchmark']}: {first['facts']['commit']} -> {second['facts']['commit']}")
    for before, after in pairs(first, second, arguments.runs):
        if before not in first["runs"] or after not in second["runs"]:
            parser.error(f"no such run; there are: {', '.join(sorted({*first['runs'], *second['runs']}))}")
        print(f"\n{before}" if before == after else f"\n{before} -> {after}")
        compare(first["runs"][before], second["runs"][after], arguments)


def pairs(first: Mapping[str, Any], second: Mapping[str, Any], wanted: list[str] | None) -> Iterator[tuple[str, str]]:
    """The runs to compare."""
    if wanted is not None:
        yield wanted[0], wanted[1]
    else:
        yield from ((name, name) for name in first["runs"] if name in second["runs"])


def compare(before: Mapping[str, Any], after: Mapping[str, Any], arguments: argparse.Namespace) -> None:
    """Print the lines of one pair of runs."""
    both = {
        name: one
        for name, one in before.items()
        if name in after and (arguments.category_5 or one.get("category") != 5)
    }
    metrics = [name for name in next(iter(both.values()), {}) if name not in GROUPS]
    groups = {str(one[arguments.by]) for one in both.values() if arguments.by in one}
    for group in ["all", *sorted(groups)]:
        kept = {name: one for name, one in both.items() if group in ("all", str(one.get(arguments.by)))}
        for metric in metrics:
            if arguments.metric is None or metric in arguments.metric:
                old = common.mean(float(one[metric]) for one in kept.values())
                new = common.mean(float(after[name][metric]) for name in kept)
                change = common.paired({name: after[name] for name in kept}, kept, metric)
                print(f"  {group:16} n {len(kept):5}  {metric:9} {old:.3f} -> {new:.3f}  {change}")


if __name__ == "__main__":
    main()
