"""Vectors: exact scoring of those that the catalog keeps, and Chroma for candidates in large palaces.

Chroma holds ids (numbers of texts) and vectors, nothing else: text and filters live in the catalog. Everything
that it returns is scored again exactly, so that the same query gives the same order through every face.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from mempalace.errors import PalaceDamaged, StoreError
from mempalace.model import Role
from mempalace.palace.catalog import Catalog

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

COLLECTION = "conversations"
_BATCH = 5_000  # Chroma refuses more than 5,461
_BLOCK = 16_384
_MOST_FLOATS = 100_000  # vectors that a process which goes on searching holds as floats: 100 MB, five times as fast
_DIGITS = 6
_PROBES = 50
# A healthy HNSW index of 60,000 rows misses its own row for 3 of 1,500 probes.
_TOLERANCE = 0.02


class VectorTable:
    """Every vector of a palace in memory, 260 bytes each, with exact cosine scores."""

    def __init__(self, texts: NDArray[np.int64], scales: NDArray[np.float32], values: NDArray[np.int8]) -> None:
        self.texts = texts
        self._scales = scales
        self._values = values
        self._floats: NDArray[np.float32] | None = None
        self._asked: list[NDArray[np.float32]] = []  # the last query and its scores, once there was one

    @classmethod
    def load(cls, catalog: Catalog, texts: Sequence[int] | None = None) -> VectorTable:
        """The vectors of all texts, or of some."""
        import numpy as np

        if texts is None:
            rows: Any = catalog.rows("SELECT text, vector FROM vectors ORDER BY text")
        else:
            rows = sorted(catalog.rows_in("SELECT text, vector FROM vectors WHERE text IN (?)", set(texts)))
        ids, vectors = zip(*rows, strict=True) if rows else ((), ())
        width = len(vectors[0]) if vectors else 4
        packed = np.frombuffer(b"".join(vectors), dtype=np.uint8).reshape(len(vectors), width)
        scales = packed[:, :4].copy().view(np.float32).reshape(-1)
        return cls(np.array(ids, dtype=np.int64), scales, packed[:, 4:].view(np.int8))

    def __len__(self) -> int:
        return len(self.texts)

    def places(self, texts: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Which of some texts have a vector, and the places of those vectors."""
        import numpy as np

        places = np.searchsorted(self.texts, texts)
        there = places < len(self.texts)
        there[there] = self.texts[places[there]] == texts[there]
        return there, places[there]

    def scores(self, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """The cosine of each vector with the query (a unit vector), in the order of `texts`."""
        import numpy as np

        asked = self._asked
        if asked and np.array_equal(asked[0], query):
            return asked[1]
        if self._floats is None and asked and len(self) <= _MOST_FLOATS:
            self._floats = self._values.astype(np.float32)  # a process that asks twice asks again
        if self._floats is not None:
            result: NDArray[np.float32] = (self._floats @ query) * self._scales
        else:
            result = np.empty(len(self), dtype=np.float32)
            for start in range(0, len(self), _BLOCK):
                block = self._values[start : start + _BLOCK].astype(np.float32)
                result[start : start + _BLOCK] = (block @ query) * self._scales[start : start + _BLOCK]
        # The last bits depend on how many vectors are scored together; the order of hits must not.
        rounded: NDArray[np.float32] = np.round(result, _DIGITS)
        self._asked = [query, rounded]
        return rounded


def greatest(scores: NDArray[np.float32], limit: int) -> NDArray[np.int64]:
    """The places of the greatest scores, greatest first; of equals the first places."""
    import numpy as np

    places: NDArray[np.int64] = np.arange(len(scores))
    if limit < len(scores):
        places = np.flatnonzero(scores >= np.partition(scores, -limit)[-limit])
    order: NDArray[np.int64] = places[np.argsort(-scores[places], kind="stable")][:limit]
    return order


class DialogueTable:
    """Every dialogue chunk in memory, 32 bytes each, so that a filter costs a few array operations."""

    def __init__(self, rows: Sequence[tuple[int, int, int, float, float, int]]) -> None:
        import numpy as np

        columns = list(zip(*rows, strict=True)) or [()] * 6
        self.chunks, self.texts, self._sessions = (np.array(column, dtype=np.int64) for column in columns[:3])
        self._times, self._lasts = (np.array(column, dtype=np.float64) for column in columns[3:5])
        self._roles = np.array(columns[5], dtype=np.int8)

    @classmethod
    def load(cls, catalog: Catalog, sessions: Sequence[int] | None = None) -> DialogueTable:
        """The dialogue chunks of some sessions, or of all."""
        roles = " + ".join(f"{1 << at} * (instr(spans, '\"{role}\"') > 0)" for at, role in enumerate(Role))
        # A chunk without a time is in no span of time: infinity fails both comparisons.
        sql = (
            f"SELECT id, text, session, COALESCE(time, 9e999), COALESCE(last, -9e999), {roles} FROM chunks"
            " WHERE kind = 'dialogue'"
        )
        if sessions is None:
            return cls(catalog.rows(f"{sql} ORDER BY id"))
        return cls(sorted(catalog.rows_in(f"{sql} AND session IN (?)", sessions)))

    def allowed(
        self, sessions: Sequence[int], roles: Sequence[str], since: float | None, until: float | None
    ) -> NDArray[np.bool_]:
        """Which chunks are of some sessions, have a part of some role (if any is given), and fall in a span of time."""
        import numpy as np

        found: NDArray[np.bool_] = np.isin(self._sessions, np.array(sessions, dtype=np.int64))
        if roles:
            names = [str(role) for role in Role]
            found &= (self._roles & sum(1 << names.index(role) for role in roles)) != 0
        if since is not None:
            found &= self._lasts >= since
        if until is not None:
            found &= self._times < until
        return found


class ChromaIndex:
    """An embedded Chroma store. Only a holder of the palace's lock may write to it."""

    # Chroma keeps one client per folder in a process, and it never sees what other processes write: up to which
    # text each was known to be complete when it was opened.
    _through: ClassVar[dict[str, int]] = {}

    def __init__(self, collection: Any, path: Path, through: int) -> None:
        self._collection = collection
        self.path = path
        self.through = through

    @classmethod
    def open(cls, path: Path, model_id: str, *, create: bool = False, through: int = 0) -> ChromaIndex:
        """The store in a folder, for vectors of one model. Raises PalaceDamaged or StoreError.

        `through` is the last text that the catalog has a vector of.
        """
        if not create and not (path / "chroma.sqlite3").exists():
            raise PalaceDamaged("the vector store is missing", path=path, hint="make it again: mempalace rebuild")
        os.environ.setdefault("ANONYMIZED_TELEMETRY", "False")
        import chromadb
        from chromadb.config import Settings
        from chromadb.errors import ChromaError

        path.mkdir(parents=True, exist_ok=True)
        try:
            client = chromadb.PersistentClient(str(path), settings=Settings(anonymized_telemetry=False))
            collection = client.get_or_create_collection(
                COLLECTION,
                metadata={"model": model_id},
                configuration={"hnsw": {"space": "cosine"}},
                embedding_function=None,
            )
        except (ChromaError, ValueError, OSError, RuntimeError) as error:
            raise PalaceDamaged(
                f"the vector store cannot be opened: {error}", path=path, hint="make it again: mempalace rebuild"
            ) from error
        found = (collection.metadata or {}).get("model")
        if found != model_id:
            raise StoreError(
                f"the vectors were made by {found}, not by {model_id}",
                path=path,
                hint="make them again: mempalace rebuild",
            )
        return cls(collection, path, cls._through.setdefault(str(path.resolve()), through))

    @classmethod
    def forget_all(cls) -> None:
        """Close what Chroma keeps open in this process: it knows a store by its path, also when that is another one."""
        from chromadb.api.shared_system_client import SharedSystemClient

        SharedSystemClient.clear_system_cache()
        cls._through.clear()

    def count(self) -> int:
        """The number of vectors that Chroma says it has."""
        with self._told():
            return int(self._collection.count())

    @contextmanager
    def _told(self) -> Iterator[None]:
        from chromadb.errors import ChromaError

        try:
            yield
        except (ChromaError, OSError, RuntimeError) as error:
            raise StoreError(
                f"the vector store failed: {error}", path=self.path, hint="make it again: mempalace rebuild --vectors"
            ) from error

    def upsert(self, texts: Sequence[int], vectors: NDArray[np.float32]) -> None:
        """Add or replace vectors."""
        with self._told():
            for start in range(0, len(texts), _BATCH):
                ids = [str(text) for text in texts[start : start + _BATCH]]
                self._collection.upsert(ids=ids, embeddings=vectors[start : start + _BATCH])

    def delete(self, texts: Sequence[int]) -> None:
        """Remove vectors."""
        with self._told():
            for start in range(0, len(texts), _BATCH):
                self._collection.delete(ids=[str(text) for text in texts[start : start + _BATCH]])

    def nearest(self, query: NDArray[np.float32], limit: int) -> list[int]:
        """The texts whose vectors are nearest, nearest first."""
        if limit < 1 or self.count() == 0:
            return []
        with self._told():
            found = self._collection.query(query_embeddings=[query], n_results=limit, include=[])
        return [int(text) for text in found["ids"][0]]

    def misses(self, texts: Sequence[int], vectors: NDArray[np.float32]) -> int:
        """How many of these vectors do not find themselves: `count` proves nothing."""
        if not len(texts):
            return 0
        with self._told():
            found = self._collection.query(query_embeddings=vectors, n_results=10, include=["distances"])
        missed = 0
        for text, ids, distances in zip(texts, found["ids"], found["distances"], strict=True):
            # Equal vectors crowd each other out: any at distance 0 is as good.
            if str(text) not in ids and not (distances and distances[0] < 1e-3):
                missed += 1
        return missed


def is_healthy(index: ChromaIndex, expected: int, texts: Sequence[int], vectors: NDArray[np.float32]) -> bool:
    """Whether the store holds as many vectors as it should and finds a sample of what was written."""
    if index.count() != expected:
        return False
    step = max(len(texts) // _PROBES, 1)
    sample = list(range(0, len(texts), step))
    if not sample:
        return True
    missed = index.misses([texts[at] for at in sample], vectors[sample])
    return missed <= max(1, _TOLERANCE * len(sample))


def batches(texts: Sequence[int], size: int = _BATCH) -> Iterator[Sequence[int]]:
    """A sequence in pieces."""
    for start in range(0, len(texts), size):
        yield texts[start : start + size]
