"""Embedders by configuration: an endpoint on the network or a library that is installed beside mempalace.

A model is named `kind:name`: `ollama:nomic-embed-text`, `openai:text-embedding-3-small` (any server that speaks
that protocol), `fastembed:...`, `sentence-transformers:...`, `chroma:default`, or just `bundled`. A palace keeps
which one made its vectors, and never mixes two.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import orjson

from mempalace import embedding
from mempalace.embedding import Embedder
from mempalace.errors import ModelError, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]

KEY_VARIABLE = "MEMPALACE_EMBEDDING_KEY"
BUNDLED = "bundled"
_OLLAMA = "http://localhost:11434"
_BATCH = 64
_SECONDS = 120
_PACKAGES = {"fastembed": "fastembed", "sentence-transformers": "sentence-transformers", "chroma": "chromadb"}


@dataclass(frozen=True, slots=True)
class Spec:
    """Which embedder. Some models want a prefix before texts or queries; a key is never part of it."""

    model: str = BUNDLED
    url: str | None = None
    text_prefix: str = ""
    query_prefix: str = ""

    def __post_init__(self) -> None:
        kind, _, name = self.model.partition(":")
        kinds = ["ollama", "openai", *_PACKAGES]
        if self.model != BUNDLED and (kind not in kinds or not name):
            raise UsageError(
                f"there is no embedder {self.model!r}", hint=f"{BUNDLED}, or one of {', '.join(kinds)}:NAME"
            )
        if kind == "openai" and not self.url:
            raise UsageError(
                "an openai endpoint needs its address", hint="give its url, such as http://localhost:8080/v1"
            )
        if self.url is not None and not re.fullmatch(r"https?://[!-~]+", self.url):
            raise UsageError(
                f"not the address of an endpoint: {self.url!r}",
                hint="it begins with http:// or https://",
            )

    def dumps(self) -> str:
        """As text for the catalog."""
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def loads(cls, text: str | None) -> Spec:
        """What `dumps` made; nothing means the bundled model."""
        return cls(**orjson.loads(text)) if text else cls()

    def makes_the_same(self, other: Spec) -> bool:
        """Whether the vectors of two are comparable: wherever the endpoint is."""
        return replace(self, url=other.url) == other


@cache
def of(spec: Spec) -> Embedder:
    """The embedder of a name. Raises ModelError if its package is not installed."""
    kind, _, name = spec.model.partition(":")
    if spec.model == BUNDLED:
        return embedding.bundled()
    if kind in ("ollama", "openai"):
        return _Foreign(spec, _endpoint(kind, name, (spec.url or _OLLAMA).rstrip("/")))
    try:
        return _Foreign(spec, _library(kind, name))
    except ImportError as error:
        package = _PACKAGES[kind]
        raise ModelError(f"{spec.model} needs {package}: {error}", hint=f"python -m pip install {package}") from error
    except (ValueError, OSError, RuntimeError) as error:  # what the packages raise for a model they cannot load
        raise ModelError(f"{spec.model} cannot be loaded: {error}") from error


class _Foreign:
    """An embedder made of a function from texts to rows of numbers."""

    is_reranked = False

    def __init__(self, spec: Spec, rows: Callable[[list[str]], Any]) -> None:
        self._spec = spec
        self._rows = rows
        self._known = 0

    @property
    def model_id(self) -> str:
        return f"{self._spec.model}#{self.dimensions}"

    @property
    def dimensions(self) -> int:
        if not self._known:
            self.embed(["dimensions"])
        return self._known

    def embed(self, texts: Sequence[str]) -> Matrix:
        return self._embed([self._spec.text_prefix + text for text in texts])

    def embed_query(self, text: str) -> NDArray[np.float32]:
        row: NDArray[np.float32] = self._embed([self._spec.query_prefix + text])[0]
        return row

    def _embed(self, texts: list[str]) -> Matrix:
        import numpy as np

        parts = []
        for start in range(0, len(texts), _BATCH):
            batch = texts[start : start + _BATCH]
            try:
                rows = np.asarray(self._rows(batch), dtype=np.float32)
            except (TypeError, ValueError) as error:
                raise self._failed(f"no vectors: {error}") from error
            if rows.ndim != 2 or not rows.shape[1] or len(rows) != len(batch) or not np.isfinite(rows).all():
                raise self._failed(f"{len(batch)} texts gave an array of shape {rows.shape}")
            if self._known and rows.shape[1] != self._known:
                raise self._failed(f"vectors of {rows.shape[1]} values, where there were {self._known}")
            self._known = rows.shape[1]
            parts.append(rows)
        return embedding.normalise(np.concatenate(parts)) if parts else np.zeros((0, self.dimensions), np.float32)

    def _failed(self, what: str) -> ModelError:
        return ModelError(f"{self._spec.model} gave {what}", hint="search by words alone: mempalace search --fast")


def _endpoint(kind: str, name: str, url: str) -> Callable[[list[str]], Any]:
    """A function that asks an endpoint for the vectors of texts."""

    def ask(texts: list[str]) -> Any:
        address = f"{url}/api/embed" if kind == "ollama" else f"{url}/embeddings"
        answer = _post(address, {"model": name, "input": texts})
        try:
            if kind == "ollama":
                return answer["embeddings"]
            return [item["embedding"] for item in sorted(answer["data"], key=lambda item: item["index"])]
        except (KeyError, TypeError) as error:
            raise ModelError(f"{address} gave no vectors: {str(answer)[:200]}") from error

    return ask


def _post(address: str, body: dict[str, Any]) -> Any:
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import Request, urlopen

    headers = {"Content-Type": "application/json"}
    key = os.environ.get(KEY_VARIABLE)
    if key:
        headers["Authorization"] = f"Bearer {key}"
    hint = "is the server running? Search by words alone: mempalace search --fast"
    try:
        request = Request(address, orjson.dumps(body), headers)  # noqa: S310 - Spec takes http and https only
        with urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
            return orjson.loads(answer.read())
    except HTTPError as error:
        told = error.read(300).decode("utf-8", "replace")
        raise ModelError(f"{address} answered {error.code}: {told}", hint=hint) from error
    except (URLError, OSError, HTTPException, orjson.JSONDecodeError) as error:
        raise ModelError(f"{address} cannot be asked: {getattr(error, 'reason', error)}", hint=hint) from error


def _library(kind: str, name: str) -> Callable[[list[str]], Any]:
    """A function that asks an installed library. Raises ImportError."""
    if kind == "fastembed":
        from fastembed import TextEmbedding

        model = TextEmbedding(name)
        return lambda texts: list(model.embed(texts))
    if kind == "sentence-transformers":
        from sentence_transformers import SentenceTransformer

        encoder = SentenceTransformer(name)
        return lambda texts: encoder.encode(texts)
    from chromadb.utils import embedding_functions

    if name == "default":
        return embedding_functions.DefaultEmbeddingFunction()
    known = embedding_functions.known_embedding_functions
    if name not in known:
        raise UsageError(f"Chroma has no embedder {name!r}", hint=f"one of: {', '.join(sorted(known))}")
    made: Callable[[list[str]], Any] = known[name]()
    return made
