"""LoCoMo through the product: its conversations as a Slack export -> Palace.mine -> Palace.search.

    python benchmarks/locomo.py --corpus DIR [--json FILE]

DIR holds data/locomo10.json (snap-research/locomo, not part of this project). Every conversation is a channel of
one workspace export, every session of it a thread, every turn a message with its speaker and its time (that of the
session, a minute a turn); a photo's caption stands behind the words as [photo: ...]. One palace holds all ten
(pooled), and one palace each (per conversation).

A question counts if its evidence names turns that exist. sR@k: share of the evidence's sessions among the first k
sessions, a session being as good as its best hit; tR@k: share of the evidence's turns whole inside the first k
hits; MRR: of the first hit with a turn of the evidence; NDCG@10: a hit gains 1 if it has evidence that none
before it had, the ideal is as many hits as there are turns of evidence. Conversations 0-4 are there to tune on, 5-9
are held out. Categories: 1 several facts, 2 time, 3 open knowledge, 4 one fact, 5 not answerable.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import common

import mempalace
from mempalace.transcript import unquote

METRICS = ("sR@5", "sR@10", "tR@5", "tR@10", "MRR", "NDCG@10")
LIMIT = 50  # hits asked for: ten different sessions are nearly always among them
CAPPED_LIMIT = 30  # ten sessions of at most three hits
TUNED = 5  # the first five conversations


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the turns (D3:12) that hold its answer."""

    name: str
    conversation: int
    category: int
    text: str
    evidence: frozenset[str]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation's turns: session key -> turn -> the line that stands in the transcript."""

    number: int
    turns: dict[str, dict[str, str]]
    files: dict[str, str]
    people: dict[str, str]

    @property
    def channel(self) -> str:
        return f"locomo-{self.number}"


def read(path: Path) -> tuple[list[Conversation], list[Question]]:
    """All conversations, and all questions that have evidence."""
    conversations, questions = [], []
    for number, sample in enumerate(json.loads(path.read_text(encoding="utf-8"))):
        conversation = _conversation(number, sample["conversation"])
        conversations.append(conversation)
        known = {turn for turns in conversation.turns.values() for turn in turns}
        for at, item in enumerate(sample["qa"]):
            named = re.findall(r"D\d+:\d+", " ".join(item.get("evidence") or []))
            evidence = frozenset(named) & known
            if evidence:
                questions.append(Question(f"{number}/{at}", number, item["category"], item["question"], evidence))
    return conversations, questions


def _conversation(number: int, value: dict[str, Any]) -> Conversation:
    people = {value[name]: f"U{number}{name[-1].upper()}" for name in ("speaker_a", "speaker_b")}
    made = Conversation(number, {}, {}, people)
    numbers = sorted(int(key[8:]) for key, turns in value.items() if re.fullmatch(r"session_\d+", key) and turns)
    days: dict[str, list[dict[str, Any]]] = {}
    for session in numbers:
        start = datetime.strptime(value[f"session_{session}_date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        # Sessions may share their minute: the microseconds keep threads and messages apart.
        thread = f"{int(start.timestamp())}.{session:06}"
        turns = made.turns.setdefault(f"C{number}/{thread}", {})
        for at, turn in enumerate(value[f"session_{session}"]):
            words = turn["text"] + (f" [photo: {turn['blip_caption']}]" if turn.get("blip_caption") else "")
            turns[turn["dia_id"]] = f"[{turn['speaker']}] {words}"
            days.setdefault(f"{start:%Y-%m-%d}", []).append(
                {
                    "type": "message",
                    "user": people[turn["speaker"]],
                    "text": words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"),
                    "ts": f"{int(start.timestamp()) + 60 * at}.{session:06}",
                    "thread_ts": thread,
                }
            )
    made.files.update({f"{made.channel}/{day}.json": json.dumps(items) for day, items in days.items()})
    return made


def day_of(session: str) -> str:
    """The day of a session, by its key."""
    return f"{datetime.fromtimestamp(float(session.partition('/')[2]), UTC):%Y-%m-%d}"


def export(folder: Path, conversations: Iterable[Conversation]) -> Path:
    """Write a Slack export with a channel for each conversation."""
    channels, users = [], []
    for one in conversations:
        channels.append({"id": f"C{one.number}", "name": one.channel})
        users += [{"id": key, "name": name, "profile": {"display_name": name}} for name, key in one.people.items()]
        for name, text in one.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
    (folder / "channels.json").write_text(json.dumps(channels))
    (folder / "users.json").write_text(json.dumps(users))
    return folder


def mine(palace: Path, conversations: list[Conversation]) -> None:
    """A palace of these conversations; every turn must be found in it again, with its id and its speaker."""
    with tempfile.TemporaryDirectory() as folder:
        mempalace.Palace(palace).mine([export(Path(folder), conversations)])
    kept = {(key, name, words) for key, name, words in _kept(palace)}
    wanted = {
        (key, line[1 : line.index("]")], line)
        for one in conversations
        for key, turns in one.turns.items()
        for line in turns.values()
    }
    if kept != wanted:
        missing = sorted(wanted - kept)[:3]
        raise SystemExit(f"{len(wanted - kept)} turns are not in the palace as they were written: {missing}")


def _kept(palace: Path) -> Iterable[tuple[str, str, str]]:
    """Session, speaker and line of every message that the palace has."""
    speakers = dict(common.rows(palace, "SELECT session * 1000000 + seq, name FROM messages"))
    found = common.rows(
        palace,
        "SELECT s.id, s.key, c.spans, t.body FROM chunks c JOIN sessions s ON s.id = c.session"
        " JOIN texts t ON t.id = c.text",
    )
    for session, key, spans, body in found:
        for start, end, message, *_ in json.loads(spans):
            yield key, speakers[session * 1_000_000 + message], unquote(body[start:end])


def ranked(hits: list[common.Found], question: Question, conversations: Mapping[int, Conversation]) -> dict[str, Any]:
    """The figures of one question."""
    own = conversations[question.conversation].turns
    wanted_sessions = {key for key, turns in own.items() if question.evidence & turns.keys()}
    sessions = list(dict.fromkeys(hit.session for hit in hits))
    covered = [_covers(hit, own, question.evidence) for hit in hits]
    seen: set[str] = set()
    gain = 0.0
    for rank, turns in enumerate(covered[:10]):
        gain += bool(turns - seen) / math.log2(rank + 2)
        seen |= turns
    ideal = sum(1 / math.log2(rank + 2) for rank in range(min(10, len(question.evidence))))
    first = next((rank for rank, turns in enumerate(covered, 1) if turns), None)
    half = "tuned" if question.conversation < TUNED else "held-out"
    figures: dict[str, Any] = {"category": question.category, "conversation": question.conversation, "half": half}
    for k in (5, 10):
        figures[f"sR@{k}"] = len(wanted_sessions & set(sessions[:k])) / len(wanted_sessions)
        figures[f"tR@{k}"] = len(set().union(*covered[:k])) / len(question.evidence)
    return {**figures, "MRR": 1 / first if first else 0.0, "NDCG@10": gain / ideal}


def _covers(hit: common.Found, own: Mapping[str, Mapping[str, str]], evidence: frozenset[str]) -> set[str]:
    """The turns of the evidence that stand whole in a hit. No turn is longer than a chunk, so none is cut."""
    turns = own.get(hit.session, {})
    wanted = {turn: turns[turn] for turn in evidence & turns.keys()}
    if not wanted:
        return set()
    lines = {unquote(part) for part in hit.text.split("\n\n")}
    words = common.words_of(hit)
    return {turn for turn, line in wanted.items() if line in lines or line in words}


def run(
    palaces: Mapping[int | None, common.Asked],
    questions: Iterable[Question],
    conversations: Mapping[int, Conversation],
    leg: str,
    capped: bool,
) -> dict[str, dict[str, Any]]:
    """The figures by question. `palaces` holds one under None (pooled), or one for each conversation."""
    found = {}
    for one in questions:
        asked = palaces[None] if None in palaces else palaces[one.conversation]
        hits = asked.search(one.text, CAPPED_LIMIT if capped else LIMIT, leg, capped=capped)
        found[one.name] = ranked(hits, one, conversations)
    return found


def show(runs: Mapping[str, dict[str, dict[str, Any]]]) -> None:
    """Print the tables: all runs, halves, categories, legs against each other."""

    def select(name: str, keep: Any) -> list[Any]:
        return common.means((one for one in runs[name].values() if keep(one)), METRICS)

    parts = {
        "categories 1-4": lambda one: one["category"] < 5,
        "  tuned on (conversations 0-4)": lambda one: one["category"] < 5 and one["half"] == "tuned",
        "  held out (conversations 5-9)": lambda one: one["category"] < 5 and one["half"] == "held-out",
        "category 5": lambda one: one["category"] == 5,
        "all questions": lambda one: True,
    }
    for part, keep in parts.items():
        print(part)
        common.table(["", "n", *METRICS], [[name, *select(name, keep)] for name in runs])
    main = next(iter(runs))
    print(f"{main}, by category")
    common.table(
        ["", "n", *METRICS],
        [
            [f"category {number}", *select(main, lambda one, number=number: one["category"] == number)]
            for number in range(1, 6)
        ],
    )


def differences(runs: Mapping[str, dict[str, dict[str, Any]]]) -> None:
    """Print hybrid against every single leg, by question (categories 1-4, paired bootstrap, 95 %)."""
    for view in ("pooled", "per conversation"):
        best = runs.get(f"hybrid {view}")
        for name, values in runs.items():
            if best is None or not name.endswith(f" {view}") or name.startswith("hybrid"):
                continue
            for metric in ("sR@5", "tR@10", "MRR"):
                kept = {key: one for key, one in best.items() if one["category"] < 5}
                print(f"hybrid - {name}, {metric:6} {common.paired(kept, values, metric)}")
    print()


def main() -> None:
    """Mine, ask, print."""
    parser = common.options(__doc__ or "")
    parser.add_argument("--corpus", type=Path, required=True, metavar="DIR", help="holds data/locomo10.json")
    parser.add_argument("--pooled-only", action="store_true", help="leave out the palaces of one conversation each")
    arguments = parser.parse_args()
    data = arguments.corpus / "data" / "locomo10.json"
    conversations, questions = read(data)
    told = common.facts(f"{data.name} sha256 {common.digest([data])}")
    counted = sum(one.category < 5 for one in questions)
    turns = sum(len(turns) for one in conversations for turns in one.turns.values())
    told["questions"] = f"{counted} of categories 1-4 with evidence, {len(questions)} in all, {turns} turns"
    by_number = {one.number: one for one in conversations}
    runs: dict[str, dict[str, dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        start = common.cpu()
        pooled = Path(folder) / "pooled"
        mine(pooled, conversations)
        told["mining"] = f"{common.cpu() - start:.1f} CPU s pooled, {common.chunks(pooled)} chunks"
        with common.Asked(pooled, arguments.work) as asked:
            for leg in arguments.legs.split(","):
                runs[f"{leg} pooled"] = run({None: asked}, questions, by_number, leg, capped=False)
                common.progress(f"{leg} pooled: done")
            runs["hybrid pooled, default view"] = run({None: asked}, questions, by_number, "hybrid", capped=True)
            told["queries"] = common.costs(asked.seconds)
        if not arguments.pooled_only:
            palaces: dict[int | None, common.Asked] = {}
            for one in conversations:
                mine(Path(folder) / one.channel, [one])
                palaces[one.number] = common.Asked(Path(folder) / one.channel, arguments.work)
            for leg in arguments.legs.split(","):
                runs[f"{leg} per conversation"] = run(palaces, questions, by_number, leg, capped=False)
                common.progress(f"{leg} per conversation: done")
    common.headline(told, __doc__ or "")
    show(runs)
    differences(runs)
    common.write(arguments.json, "locomo", told, runs)


if __name__ == "__main__":
    main()
