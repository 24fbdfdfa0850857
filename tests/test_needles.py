"""The needle benchmark in a small form: the corpus is the same everywhere, and what search owes to identifiers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))

import common
import needle_corpus
import needles

HAYSTACK = 60
SHA256 = "1b853a4ef7c4fdd650e717bbd43125cf832fed40b5866e7ef2cc672f97e5ffc0"


@pytest.fixture(scope="module")
def corpus() -> needle_corpus.Corpus:
    return needle_corpus.build(HAYSTACK)


@pytest.fixture(scope="module")
def asked(corpus: needle_corpus.Corpus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[common.Asked]:
    folder = tmp_path_factory.mktemp("needles")
    digest = needles.mine(folder / "palace", corpus, folder / "files")
    assert digest == SHA256, "the needles are not those that search was measured with"
    with common.Asked(folder / "palace") as opened:
        yield opened


# What each class owes: the least share of its questions whose answer is among the first five, and every how many-th
# question is asked here. Questions in other words are for the benchmark.
OWED = {"identifiers": (1.0, 1), "dialogue": (0.9, 4), "tool output": (0.85, 1), "dates": (0.9, 2)}
OWED |= {f"language {language}": (0.9, 2) for language in needle_corpus.LANGUAGES}


@pytest.mark.parametrize("kind", OWED)
def test_what_is_asked_for_is_found(corpus: needle_corpus.Corpus, asked: common.Asked, kind: str) -> None:
    least, step = OWED[kind]
    chosen = [one for one in corpus.needles if one.kind == kind][::step]
    found = needles.ask(asked, chosen, "hybrid")
    assert len(found) >= 10
    assert common.mean(one["R@5"] for one in found.values()) >= least
    if kind == "identifiers":
        assert len(found) == 50
        assert [name for name, one in found.items() if not one["R@1"]] == []


def test_the_questions_keep_to_the_rules(corpus: needle_corpus.Corpus) -> None:
    counts = {kind: sum(one.kind == kind for one in corpus.needles) for kind in {one.kind for one in corpus.needles}}
    assert counts["dialogue"] >= 60
    assert counts["tool output"] >= 40
    assert all(counts[f"language {language}"] >= 20 for language in needle_corpus.LANGUAGES)
    assert len({one.name for one in corpus.needles}) == len(corpus.needles)
    assert {one.half for one in corpus.needles} == {"tuned", "held-out"}
