"""The benchmarks measure what they say: figures that were worked out by hand, over real palaces."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from logs import write_claude

import mempalace

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))

import code_sessions
import common
import locomo

SAMPLE: dict[str, Any] = {
    "conversation": {
        "speaker_a": "Ana",
        "speaker_b": "Bob",
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            {"speaker": "Ana", "dia_id": "D1:1", "text": "I adopted a <tabby> kitten & named it Pixel."},
            {"speaker": "Bob", "dia_id": "D1:2", "text": "Look at it", "blip_caption": "a cat in a teapot"},
        ],
        "session_2_date_time": "1:56 pm on 8 May, 2023",
        "session_2": [{"speaker": "Bob", "dia_id": "D2:1", "text": "My marathon is in October.\nWish me luck."}],
    },
    "qa": [
        {"question": "What is the kitten called?", "evidence": ["D1:1"], "category": 4},
        {"question": "What do both care for?", "evidence": ["D1:2 D2:1", "D9:9"], "category": 1},
        {"question": "Nothing names its evidence", "evidence": ["D"], "category": 4},
    ],
}


def test_locomo_through_the_product(tmp_path: Path) -> None:
    (tmp_path / "locomo10.json").write_text(json.dumps([SAMPLE]))
    conversations, questions = locomo.read(tmp_path / "locomo10.json")
    assert [one.evidence for one in questions] == [{"D1:1"}, {"D1:2", "D2:1"}]
    locomo.mine(tmp_path / "palace", conversations)  # stops if a turn, its id's session or its speaker is lost
    with common.Asked(tmp_path / "palace") as asked:
        found = locomo.run({None: asked}, questions, {0: conversations[0]}, "lexical", capped=False)
    assert found["0/0"]["MRR"] == found["0/0"]["tR@5"] == found["0/0"]["sR@5"] == found["0/0"]["NDCG@10"] == 1.0


def test_the_figures_of_a_ranking() -> None:
    turns = {"C0/1": {"D1:1": "[Ana] first", "D1:2": "[Bob] second"}, "C0/2": {"D2:1": "[Ana] third"}}
    conversation = locomo.Conversation(0, turns, {}, {})
    question = locomo.Question("0/0", 0, 1, "?", frozenset({"D1:2", "D2:1"}))
    texts = [("C0/1", "> [Ana] first"), ("C0/9", "> [Bob] second"), ("C0/1", "> [Ana] first\n\n> [Bob] second")]
    hits = [common.Found(str(at), session, text) for at, (session, text) in enumerate(texts)]
    found = locomo.ranked(hits, question, {0: conversation})
    assert found["sR@5"] == found["tR@5"] == 0.5  # the same words in another session are no evidence
    assert found["MRR"] == pytest.approx(1 / 3)
    assert found["NDCG@10"] == pytest.approx((1 / math.log2(4)) / (1 + 1 / math.log2(3)))


def test_code_sessions_hide_the_prompts(tmp_path: Path) -> None:
    prompts = ["Why does the flux capacitor overheat during startup?", "Rename the warp coils according to the manual"]
    answers = ["The capacitor lacks a heat sink.", "The coils are called alpha and beta now."]
    write_claude(tmp_path / "logs" / "a.jsonl", [prompts[0], answers[0], prompts[1], answers[1]])
    kept = code_sessions.reduce(tmp_path / "logs", tmp_path / "reduced")
    assert sorted(kept.values()) == sorted(prompts)
    assert not any(word in (tmp_path / "reduced" / "a.jsonl").read_text() for word in ("flux", "warp"))
    mempalace.Palace(tmp_path / "palace").mine([tmp_path / "reduced"])
    wanted, left_out = code_sessions.queries(tmp_path / "palace", kept)
    assert [one.text for one in wanted] == prompts
    assert not left_out
    bodies = dict(common.rows(tmp_path / "palace", "SELECT c.uid, t.body FROM chunks c JOIN texts t ON t.id = c.text"))
    for one, answer in zip(wanted, answers, strict=True):
        assert all(answer in bodies[chunk] for chunk in one.chunks)


def test_the_bootstrap_of_a_plain_difference() -> None:
    assert common.bootstrap([0.5] * 20) == (0.5, 0.5, 0.5)
    middle, low, high = common.bootstrap([1.0] * 50 + [-1.0] * 50)
    assert middle == 0.0
    assert low == pytest.approx(-0.196, abs=0.03)  # 1.96 / sqrt(100)
    assert high == pytest.approx(0.196, abs=0.03)
