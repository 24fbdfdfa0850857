"""Code sessions: real prompts as queries; the answers are indexed, the prompts are not.

    python benchmarks/code_sessions.py --corpus DIR [--json FILE]     unpacks DIR/data/real-logs.tar.xz
    python benchmarks/code_sessions.py --logs DIR                     or logs that are unpacked already

A prompt is the best real question that there is to its answer, but it stands beside the answer in the log, and in
the same chunk. So the logs are written anew: in every record that is not the assistant's, a text that is a
person's prompt becomes "…", which is no word. The copies are parsed again and refused if a person still says
anything else in them. (Filtering by role would not do: chunks hold both speakers.) Then they are mined and searched
through `Palace`.

Queries: prompts of main sessions that have an answer, of at least 4 distinct content words (letters, 3 or more, no
stop words) and at most 2,000 characters (longer ones are pastes), and that were typed once only (a repeated prompt
has several answers). Commands and injected texts are no prompts: the product tells them apart. Target: a
chunk with words of the assistant between the prompt and the next one. MRR over the first 50 hits, hit@k: target
among the first k, session@1: the first hit is of the right session. Halves by the hash of the session's id.
"""

from __future__ import annotations

import json
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
import orjson

import mempalace
from mempalace.errors import MempalaceError
from mempalace.model import Origin

METRICS = ("MRR", "hit@1", "hit@5", "session@1")
LEGS = "hybrid,lexical,vector,minilm"
LIMIT = 50
SILENCE = "…"
FEWEST_WORDS = 4
LONGEST = 2_000


@dataclass(frozen=True, slots=True)
class Query:
    """A prompt, and the chunks that hold its answer."""

    name: str
    session: str
    text: str
    chunks: frozenset[str]


# --- logs without prompts -----------------------------------------------------------------------------------


def reduce(logs: Path, folder: Path) -> dict[str, str]:
    """Write the logs anew without the prompts; the prompts by the id of their message."""
    prompts: dict[str, str] = {}
    for path in sorted(logs.rglob("*.jsonl")):
        here = dict(_prompts(path))
        prompts.update(here)
        copy = folder / path.relative_to(logs)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(b"".join(_lines(path, {_plain(text) for text in here.values()})))
        left = {identity: text for identity, text in _prompts(copy) if text.strip() != SILENCE}
        if left:
            raise SystemExit(f"{path.name}: a prompt is still there: {next(iter(left.items()))}")
    return prompts


def _prompts(path: Path) -> Iterator[tuple[str, str]]:
    """Id and text of every prompt in a log. Those typed while a tool ran have no id: file and line stand for it."""
    try:
        sessions = mempalace.parse(path)
    except MempalaceError as error:
        common.progress(f"left out: {error}")
        return
    for session in sessions:
        for message in session.messages:
            if message.origin == Origin.PERSON:
                yield message.id or f"{path.name}:{message.line}", message.text


def _lines(path: Path, said: set[str]) -> Iterator[bytes]:
    """The lines of a log, silenced; of lines that are no JSON (two records glued together) nothing is kept."""
    for line in path.read_bytes().splitlines():
        try:
            record = orjson.loads(line)
        except ValueError:
            yield b"\n"
            continue
        if not isinstance(record, dict) or record.get("type") == "assistant":
            yield line + b"\n"
        else:
            yield orjson.dumps(_silenced(record, said)) + b"\n"


def _silenced(value: Any, said: set[str]) -> Any:
    if isinstance(value, dict):
        return {name: _silenced(one, said) for name, one in value.items()}
    if isinstance(value, list):
        return [_silenced(one, said) for one in value]
    if isinstance(value, str) and _plain(value) in said:
        return SILENCE
    return value


def _plain(text: str) -> str:
    return " ".join(text.split())


# --- queries ------------------------------------------------------------------------------------------------


def queries(palace: Path, prompts: Mapping[str, str]) -> tuple[list[Query], Counter[str]]:
    """What is asked, and why the other prompts are not."""
    chunks: dict[tuple[int, int], set[str]] = {}
    for uid, session, spans in common.rows(palace, "SELECT uid, session, spans FROM chunks WHERE kind = 'dialogue'"):
        for _, _, seq, _, origin in json.loads(spans):
            if origin == Origin.ASSISTANT:
                chunks.setdefault((session, seq), set()).add(uid)
    typed = Counter(_plain(text).casefold() for text in prompts.values())
    asked: list[Query] = []
    out: Counter[str] = Counter()
    for session, key, exchange in _exchanges(palace):
        identity, *answers = exchange
        text = prompts.get(identity[0], "")
        found = frozenset(uid for _, seq in answers for uid in chunks.get((session, seq), ()))
        if not text:
            out["not a prompt of the logs"] += 1
        elif not found:
            out["no answer in words"] += 1
        elif len(common.content_words(text)) < FEWEST_WORDS:
            out[f"fewer than {FEWEST_WORDS} content words"] += 1
        elif len(text) > LONGEST:
            out[f"longer than {LONGEST} characters"] += 1
        elif typed[_plain(text).casefold()] > 1:
            out["typed more than once"] += 1
        else:
            asked.append(Query(f"{key}/{identity[0]}", key, text, found))
    return asked, out


def _exchanges(palace: Path) -> Iterator[tuple[int, str, list[tuple[str, int]]]]:
    """Session, its key, and (id, seq) of a prompt and of the assistant's messages up to the next prompt."""
    exchange: list[tuple[str, int]] = []
    before: tuple[int, str] | None = None
    for session, key, seq, identity, origin, path, line in common.rows(
        palace,
        "SELECT s.id, s.key, m.seq, m.id, m.origin, f.path, m.line FROM messages m"
        " JOIN sessions s ON s.id = m.session JOIN sources f ON f.id = m.source WHERE s.kind = 'main'"
        " AND m.origin IN ('person', 'assistant') ORDER BY s.id, m.seq",
    ):
        identity = identity or f"{Path(path).name}:{line}"
        if origin == Origin.PERSON or before != (session, key):
            if before is not None and exchange:
                yield *before, exchange
            exchange = [(identity, seq)] if origin == Origin.PERSON else []
            before = session, key
        elif exchange:
            exchange.append((identity, seq))
    if before is not None and exchange:
        yield *before, exchange


def run(asked: common.Asked, wanted: Iterable[Query], leg: str, capped: bool) -> dict[str, dict[str, Any]]:
    """The figures by query."""
    found = {}
    for one in wanted:
        hits = asked.search(one.text, LIMIT, leg, capped=capped)
        rank = next((rank for rank, hit in enumerate(hits, 1) if hit.chunk in one.chunks), None)
        found[one.name] = {
            "half": common.half_of(one.session),
            "MRR": 1 / rank if rank else 0.0,
            "hit@1": float(rank == 1),
            "hit@5": float(rank is not None and rank <= 5),
            "session@1": float(bool(hits) and hits[0].session == one.session),
        }
    return found


def show(runs: Mapping[str, dict[str, dict[str, Any]]]) -> None:
    """Print the tables, and hybrid against the others."""
    for half in ("all", "tuned", "held-out"):
        print(half)
        lines = []
        for name, values in runs.items():
            kept = [one for one in values.values() if half in ("all", one["half"])]
            lines.append([name, *common.means(kept, METRICS)])
        common.table(["", "n", *METRICS], lines)
    for half in ("all", "tuned", "held-out"):
        for name in runs:
            if "hybrid" in runs and not name.startswith("hybrid"):
                part = {key: one for key, one in runs["hybrid"].items() if half in ("all", one["half"])}
                print(f"{half:8} hybrid - {name}, MRR {common.paired(part, runs[name], 'MRR')}")
    print()


def unpacked(arguments: Any, folder: Path) -> tuple[Path, str]:
    """The folder of the logs, and what they are."""
    if arguments.logs is not None:
        found = sorted(arguments.logs.rglob("*.jsonl"))
        return arguments.logs, f"{len(found)} files of {arguments.logs.name}, sha256 {common.digest(found)}"
    archive = arguments.corpus / "data" / "real-logs.tar.xz"
    with tarfile.open(archive) as members:
        members.extractall(folder, filter="data")
    return folder, f"{archive.name} sha256 {common.digest([archive])}"


def main() -> None:
    """Reduce, mine, ask, print."""
    parser = common.options(__doc__ or "", LEGS)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--corpus", type=Path, metavar="DIR", help="holds data/real-logs.tar.xz")
    where.add_argument("--logs", type=Path, metavar="DIR", help="a folder with Claude Code logs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "logs").mkdir()
        logs, corpus = unpacked(arguments, folder / "logs")
        told = common.facts(corpus)
        prompts = reduce(logs, folder / "reduced")
        palace = folder / "palace"
        mempalace.Palace(palace).mine([folder / "reduced"])
        wanted, out = queries(palace, prompts)
        told["queries"] = f"{len(wanted)} of {len({one.session for one in wanted})} sessions"
        told["left out"] = ", ".join(f"{count} {why}" for why, count in out.most_common())
        told["palace"] = f"{common.chunks(palace)} chunks, {common.rows(palace, _DIALOGUE)[0][0]} of dialogue"
        runs = {}
        with common.Asked(palace, arguments.work) as asked:
            for leg in arguments.legs.split(","):
                runs[leg] = run(asked, wanted, leg, capped=False)
                common.progress(f"{leg}: done")
            runs["hybrid, default view"] = run(asked, wanted, "hybrid", capped=True)
            told["cost"] = common.costs(asked.seconds)
    common.headline(told, __doc__ or "")
    show(runs)
    common.write(arguments.json, "code", told, runs)


_DIALOGUE = "SELECT COUNT(*) FROM chunks WHERE kind = 'dialogue'"


if __name__ == "__main__":
    main()
