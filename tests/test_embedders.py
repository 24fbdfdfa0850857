"""Other models by configuration: asked over the network or as a library, recorded, never mixed."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from logs import find, first, write_claude

from mempalace import miner
from mempalace.cli import group
from mempalace.embedders import Spec, of
from mempalace.errors import ModelError, StoreError, UsageError
from mempalace.palace.catalog import Catalog

WORDS = ("kiln", "oven", "glaze", "boat", "ship")
MEANING = {"kiln": 0, "oven": 0, "glaze": 1, "boat": 2, "ship": 2}


def vector(text: str) -> list[float]:
    """Words that mean the same fall on one axis; every text has a little of the last."""
    row = [0.0, 0.0, 0.0, 0.1]
    for word in WORDS:
        row[MEANING[word]] += text.lower().count(word)
    return row


@dataclass
class Endpoint:
    """A server that speaks both protocols. `change` alters its answers."""

    url: str
    asked: list[tuple[str, dict[str, Any], str | None]] = field(default_factory=list)
    change: Callable[[Any], Any] = lambda answer: answer
    status: int = 200


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            served.asked.append((self.path, body, self.headers.get("Authorization")))
            rows = [vector(text) for text in body["input"]]
            if self.path == "/api/embed":
                answer: Any = {"embeddings": rows}
            else:
                answer = {"data": [{"index": at, "embedding": row} for at, row in reversed(list(enumerate(rows)))]}
            data = json.dumps(served.change(answer)).encode()
            self.send_response(served.status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = Endpoint(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    with closing(server.socket):
        yield served
        server.shutdown()
        thread.join()


def mined(folder: Path, spec: Spec | None) -> Path:
    write_claude(folder / "in" / "a.jsonl", ["the kiln is hot", "indeed it is"], "hot")
    write_claude(folder / "in" / "b.jsonl", ["the boat is slow", "so they say"], "slow")
    miner.mine(folder / "palace", [folder / "in"], miner.Options(embedding=spec))
    return folder / "palace"


@pytest.mark.parametrize(("model", "path"), [("ollama:tiny", "/api/embed"), ("openai:tiny", "/embeddings")])
def test_an_endpoint_makes_the_vectors_and_finds_by_them(
    endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, path: str
) -> None:
    monkeypatch.setenv("MEMPALACE_EMBEDDING_KEY", "secret-key")
    palace = mined(tmp_path, Spec(model, endpoint.url, text_prefix="text: ", query_prefix="query: "))
    hit = first(palace, "ship")
    assert hit.session_id == "slow"
    assert (hit.scores["vector"] or 0) > 0.9
    assert {asked for asked, _, _ in endpoint.asked} == {path}
    assert {key for _, _, key in endpoint.asked} == {"Bearer secret-key"}
    assert endpoint.asked[-1][1] == {"model": "tiny", "input": ["query: ship"]}
    assert all(text.startswith("text: ") for _, body, _ in endpoint.asked[:-1] for text in body["input"])
    with closing(Catalog.open(palace).db) as db:
        meta = dict(db.execute("SELECT key, value FROM meta").fetchall())
    assert meta["vector_model"] == f"{model}#4"
    assert "secret-key" not in json.dumps(meta)


def test_models_are_never_mixed(endpoint: Endpoint, tmp_path: Path) -> None:
    palace = mined(tmp_path, None)
    write_claude(tmp_path / "in" / "c.jsonl", ["another kiln", "fine"], "more")
    with pytest.raises(StoreError, match=r"made by bundled, not by ollama:tiny") as caught:
        miner.mine(palace, [tmp_path / "in"], miner.Options(embedding=Spec("ollama:tiny", endpoint.url)))
    assert "rebuild --vectors --model ollama:tiny" in (caught.value.hint or "")
    assert "more" in {hit.session_id for hit in find(palace, "kiln")}, "what was read is kept and found by its words"


def test_an_endpoint_may_move(endpoint: Endpoint, tmp_path: Path) -> None:
    palace = mined(tmp_path, Spec("ollama:tiny", endpoint.url))
    write_claude(tmp_path / "in" / "c.jsonl", ["another kiln", "fine"], "more")
    moved = Spec("ollama:tiny", endpoint.url.replace("127.0.0.1", "localhost"))
    assert miner.mine(palace, [tmp_path / "in"], miner.Options(embedding=moved)).vectors_new == 1


def run(*args: str, code: int = 0) -> str:
    done = CliRunner().invoke(group, [str(arg) for arg in args], catch_exceptions=True)
    if isinstance(done.exception, Exception) and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done.output


def test_rebuild_switches_the_model_and_back(endpoint: Endpoint, tmp_path: Path) -> None:
    palace = str(mined(tmp_path, None))
    before = find(Path(palace), "ship").results
    switched = json.loads(
        run("rebuild", "--palace", palace, "--vectors", "--model", "ollama:tiny", "--url", endpoint.url, "--json")
    )
    assert switched["rebuilt"] == {"vectors": 2}
    assert json.loads(run("status", "--palace", palace, "--json"))["models"]["vectors"] == "ollama:tiny#4"
    assert find(Path(palace), "ship").results[0].session_id == "slow"
    run("rebuild", "--palace", palace, "--vectors", "--model", "bundled")
    assert find(Path(palace), "ship").results == before


def test_a_rebuild_that_fails_leaves_what_was(endpoint: Endpoint, tmp_path: Path) -> None:
    palace = mined(tmp_path, None)
    before = find(palace, "hot oven").results
    endpoint.status = 500
    with pytest.raises(ModelError, match="answered 500"):
        run("rebuild", "--palace", str(palace), "--vectors", "--model", "ollama:tiny", "--url", endpoint.url)
    assert find(palace, "hot oven").results == before


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda _: {"embeddings": [[1.0]]}, "values, where there were 4"),
        (lambda answer: {"embeddings": answer["embeddings"] * 2}, "an array of shape"),
        (lambda _: {"embeddings": [["a", "b"]]}, "no vectors"),
        (lambda _: {"error": "no such model"}, "no such model"),
        (lambda _: [], "gave no vectors"),
        (lambda answer: {"embeddings": [[] for _ in answer["embeddings"]]}, "an array of shape"),
    ],
)
def test_answers_that_are_no_vectors(
    endpoint: Endpoint, tmp_path: Path, change: Callable[[Any], Any], told: str
) -> None:
    palace = mined(tmp_path, Spec("ollama:tiny", endpoint.url))
    endpoint.change = change
    with pytest.raises(ModelError, match=told):
        find(palace, "ship")
    assert first(palace, "boat", lexical_only=True).session_id == "slow"


def test_an_endpoint_that_is_gone(tmp_path: Path) -> None:
    embedder = of(Spec("ollama:tiny", "http://127.0.0.1:9"))
    with pytest.raises(ModelError, match="cannot be asked") as caught:
        embedder.embed(["a"])
    assert "--fast" in (caught.value.hint or "")


@pytest.mark.parametrize("bytes_sent", [b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{", b""])
def test_an_endpoint_that_speaks_something_else(tmp_path: Path, bytes_sent: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as caller:
                caller.recv(65_536)
                caller.sendall(bytes_sent)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        embedder = of(Spec("ollama:tiny", f"http://127.0.0.1:{server.getsockname()[1]}"))
        with pytest.raises(ModelError, match="cannot be asked"):
            embedder.embed(["a"])
        thread.join()


def test_a_model_of_other_dimensions_than_the_palace_keeps(endpoint: Endpoint, tmp_path: Path) -> None:
    palace = mined(tmp_path, Spec("ollama:tiny", endpoint.url))
    endpoint.change = lambda answer: {"embeddings": [[*row, 1.0] for row in answer["embeddings"]]}
    of.cache_clear()  # as in another process
    with pytest.raises(ModelError, match="vectors of 5 values, and the palace keeps 4") as caught:
        find(palace, "ship")
    assert "rebuild --vectors" in (caught.value.hint or "")
    assert first(palace, "boat", lexical_only=True).session_id == "slow"


@pytest.mark.parametrize(
    "values",
    [
        ("nope:x",),
        ("ollama:",),
        ("openai:x",),
        ("ollama:x", "file:///etc/passwd"),
        ("ollama:x", "http://localhost:1/a b"),
        ("",),
    ],
)
def test_names_that_mean_nothing(values: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        Spec(*values)


def test_a_library_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fastembed", None)
    with pytest.raises(ModelError, match="needs fastembed") as caught:
        of(Spec("fastembed:not-there"))
    assert caught.value.hint == "python -m pip install fastembed"


def test_the_config_file_names_the_model(endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config.toml"
    monkeypatch.setenv("MEMPALACE_CONFIG", str(config))
    config.write_text(f'[embedding]\nmodel = "ollama:tiny"\nurl = "{endpoint.url}"\n')
    write_claude(tmp_path / "in" / "a.jsonl", ["the kiln is hot", "indeed it is"], "hot")
    run("mine", "--palace", str(tmp_path / "palace"), str(tmp_path / "in"))
    assert (
        json.loads(run("status", "--palace", str(tmp_path / "palace"), "--json"))["models"]["vectors"]
        == "ollama:tiny#4"
    )
    config.write_text('[embedding]\nmodle = "ollama:tiny"\n')
    with pytest.raises(UsageError, match="not known"):
        run("mine", "--palace", str(tmp_path / "palace"), str(tmp_path / "in"))
