"""The product over real files: needs --corpus=DIR, a folder with samples/ and data/."""

from __future__ import annotations

import random
import re
import tarfile
from pathlib import Path

import pytest

import mempalace
from mempalace.miner import Summary

SEED = 20261130
_SENTENCE = re.compile(r"[^.!?\n]{41,300}[.!?](?=\s|$)")


@pytest.fixture(scope="module")
def logs(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    with tarfile.open(corpus / "data" / "real-logs.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def mined(logs: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Summary]:
    palace = tmp_path_factory.mktemp("real") / "palace"
    with mempalace.Palace(palace) as opened:
        return palace, opened.mine([logs])


def test_every_record_of_the_real_logs_is_accounted_for(mined: tuple[Path, Summary]) -> None:
    _, summary = mined
    assert summary.states == {"new": 66}
    assert summary.damaged == 0
    assert summary.read == summary.stored + summary.duplicate + sum(summary.skipped.values())
    # 20,343 lines, two of which are two records glued together.
    assert summary.read == 20_345
    assert sorted(problem.line for problem in summary.problems if problem.kind == "glued") == [183, 196]


def test_a_second_run_finds_nothing_new(logs: Path, mined: tuple[Path, Summary]) -> None:
    palace, _ = mined
    with mempalace.Palace(palace) as opened:
        again = opened.mine([logs])
    assert again.states == {"unchanged": 66}
    assert (again.read, again.stored, again.chunks_new, again.vectors_new) == (0, 0, 0, 0)


def spoken_sentences(logs: Path) -> dict[str, set[str]]:
    """Every sentence of a person or an assistant, and the sessions that have it."""
    found: dict[str, set[str]] = {}
    for path in sorted(logs.rglob("*.jsonl")):
        for session in mempalace.parse(path):
            for message in session.messages:
                if message.origin in ("person", "assistant"):
                    for sentence in _SENTENCE.findall(message.text):
                        if re.search(r"[A-Za-z]{3}", sentence):
                            found.setdefault(" ".join(sentence.split()), set()).add(str(session.key))
    return found


@pytest.mark.parametrize("count", [60, pytest.param(200, marks=pytest.mark.slow)])
def test_exact_sentences_find_their_session(logs: Path, mined: tuple[Path, Summary], count: int) -> None:
    palace, _ = mined
    spoken = spoken_sentences(logs)
    chosen = random.Random(SEED).sample(sorted(spoken), count)
    first = 0
    missed = []
    with mempalace.Palace(palace) as opened:
        for sentence in chosen:
            hits = [hit.session_id for hit in opened.search(sentence, limit=3)]
            first += bool(hits) and hits[0] in spoken[sentence]
            if len(spoken[sentence]) == 1 and not spoken[sentence] & set(hits):
                missed.append(sentence)
    assert not missed
    assert first >= 0.98 * count


def test_a_later_snapshot_adds_only_what_is_new(logs: Path, tmp_path: Path) -> None:
    pairs = [sorted(folder.glob("*.jsonl")) for folder in sorted((logs / "projects").iterdir())]
    earlier, later = next(
        sorted(files, key=lambda path: path.stat().st_size)[-2:]
        for files in pairs
        if len(files) > 1 and files[0].read_bytes()[:4096] == files[1].read_bytes()[:4096]
    )
    with mempalace.Palace(tmp_path / "palace") as palace:
        palace.mine([earlier])
        summary = palace.mine([later])
    before = sum(session.message_count for session in mempalace.parse(earlier))
    after = sum(session.message_count for session in mempalace.parse(later))
    assert summary.sessions_new == 0
    assert summary.duplicate >= before
    assert summary.stored > 0
    with mempalace.Palace(tmp_path / "whole") as palace:
        assert palace.mine([later]).chunks_total >= summary.chunks_total
    assert after > before
