"""A palace open for reading: its catalog, its indexes, and what they hold. Nothing is ever written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Self

from mempalace import embedders, embedding, encoder, late
from mempalace.embedders import Spec
from mempalace.embedding import Embedder
from mempalace.errors import AmbiguousId, NotFound
from mempalace.palace import folder
from mempalace.palace.catalog import Catalog
from mempalace.palace.lexical import LexicalIndex
from mempalace.palace.vectors import ChromaIndex, DialogueTable, VectorTable, greatest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Up to here all vectors are scored exactly (0.02 CPU seconds a 100,000); beyond, Chroma is asked for candidates.
EXACT_LIMIT = 200_000
_MOST_REMEMBERED = 20_000  # vectors of the sentence encoder, 400 bytes each
_FEW_SESSIONS = 50  # whose chunks are rather looked up
_FEW = 2_000  # vectors that are rather looked up than all loaded


class PalaceReader:
    """A palace open for reading. Long-lived ones notice what others write."""

    def __init__(self, palace: Path) -> None:
        folder.require(palace)
        self.palace = palace
        self._remembered: dict[int, bytes] = {}
        self._lock = RLock()
        self.catalog = Catalog.open(palace)
        self._version = self._generation = -1  # nothing was looked at yet

    def close(self) -> None:
        """Release the files."""
        self.catalog.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def at_one_moment(self) -> Iterator[None]:
        """What is read within is of one moment, whatever others write meanwhile. One thread at a time."""
        with self._lock:
            self._follow()
            with self.catalog.at_one_moment():
                self._refresh()
                yield

    def _follow(self) -> None:
        """Open the palace anew if it was replaced. Raises NoPalace if it was removed."""
        folder.require(self.palace)
        if self.catalog.is_current():
            return
        self.close()
        self.catalog = Catalog.open(self.palace)
        self._version = self._generation = -1
        self._remembered.clear()

    def _refresh(self) -> None:
        """See what was written since."""
        version = self.catalog.version
        if version == self._version:
            return
        self._version = version
        for name in ("embedded", "behind"):
            self.__dict__.pop(name, None)
        generation = self.catalog.generation
        if generation != self._generation:
            self._generation = generation
            for name in ("lexical", "has_vectors", "vectors", "dialogue", "store", "embedder"):
                self.__dict__.pop(name, None)

    @cached_property
    def lexical(self) -> LexicalIndex | None:
        """The lexical index; None while nothing has been indexed."""
        if not int(self.catalog.get("lexical_through", "0") or 0):
            return None
        return LexicalIndex.open(self.palace / folder.LEXICAL)

    @cached_property
    def has_vectors(self) -> bool:
        """Whether there are vectors, of the model that queries are embedded with."""
        made_by = self.catalog.get("vector_model")
        if made_by is None or self.catalog.row("SELECT 1 FROM vectors LIMIT 1") is None:
            return False
        # What another model than the bundled one is like cannot be told without asking it.
        return self.embedder is not embedding.bundled() or made_by == self.embedder.model_id

    @cached_property
    def embedded(self) -> float:
        """What share of the texts that are embedded has its vector already."""
        queued = self.catalog.count("embed_queue")
        return 1 - queued / (queued + self.catalog.count("vectors")) if queued else 1.0

    @cached_property
    def behind(self) -> int:
        """How many chunks the lexical index does not have yet."""
        last = self.catalog.row("SELECT MAX(id) FROM chunks")[0] or 0
        return max(0, last - int(self.catalog.get("lexical_through", "0") or 0))

    @cached_property
    def vectors(self) -> VectorTable:
        """All vectors, in memory."""
        return VectorTable.load(self.catalog)

    @cached_property
    def dialogue(self) -> DialogueTable:
        """All dialogue chunks, in memory."""
        return DialogueTable.load(self.catalog)

    def dialogue_of(self, sessions: Sequence[int]) -> DialogueTable:
        """The dialogue chunks of some sessions, and perhaps of others."""
        if "dialogue" in self.__dict__ or len(sessions) > _FEW_SESSIONS:
            return self.dialogue
        return DialogueTable.load(self.catalog, sessions)

    @cached_property
    def store(self) -> ChromaIndex | None:
        """The vector store, if the palace is too large to score every vector and the store is sound."""
        if self.catalog.get("vector_store") != "ok" or self.catalog.count("vectors") <= EXACT_LIMIT:
            return None
        last = self.catalog.row("SELECT COALESCE(MAX(text), 0) FROM vectors")[0]
        return ChromaIndex.open(self.palace / folder.VECTORS, self.catalog.get("vector_model") or "", through=last)

    def nearest(self, query: NDArray[np.float32], limit: int) -> dict[int, float]:
        """The texts nearest to a query (a unit vector), with exact cosines, nearest first."""
        store = self.store
        if store is not None:
            # What was written since this process opened the store is unknown to it, and scored here.
            later = self.catalog.rows(
                "SELECT text FROM vectors WHERE text > ? UNION SELECT text FROM store_queue WHERE removed = 0",
                store.through,
            )
            scores = self.cosines([*store.nearest(query, limit), *(row[0] for row in later)], query)
            return dict(sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:limit])
        table = self.vectors
        found = table.scores(query)
        return {int(table.texts[at]): float(found[at]) for at in greatest(found, limit)}

    def nearest_of(
        self, query: NDArray[np.float32], chunks: NDArray[np.int64], texts: NDArray[np.int64], limit: int
    ) -> dict[int, float]:
        """Of some chunks, each with its text, those whose texts are nearest to a query, with exact cosines."""
        table = self._vectors_of(texts.tolist())
        there, places = table.places(texts)
        found = table.scores(query)[places]
        return {int(chunks[there][at]): float(found[at]) for at in greatest(found, limit)}

    def cosines(self, texts: Sequence[int], query: NDArray[np.float32]) -> dict[int, float]:
        """The exact cosine of each of some texts that has a vector."""
        import numpy as np

        table = self._vectors_of(texts)
        wanted = np.array(texts, dtype=np.int64)
        there, places = table.places(wanted)
        return dict(zip(wanted[there].tolist(), table.scores(query)[places].tolist(), strict=True))

    def _vectors_of(self, texts: Sequence[int]) -> VectorTable:
        """The vectors of some texts, and perhaps of others."""
        if "vectors" not in self.__dict__ and len(texts) <= _FEW:
            return VectorTable.load(self.catalog, texts)
        return self.vectors

    def tokens(self, texts: Iterable[int]) -> dict[int, bytes]:
        """The token ids of each of some texts that has been embedded, as `late.pack` gives them."""
        rows = self.catalog.rows_in("SELECT text, ids FROM tokens WHERE text IN (?)", texts)
        return {text: bytes(ids) for text, ids in rows if late.is_packed(ids)}

    def encoded(self, texts: Iterable[int]) -> dict[int, bytes]:
        """The vectors of the sentence encoder, packed, of each of some texts whose vector is kept or remembered."""
        found = {text: self._remembered[text] for text in texts if text in self._remembered}
        if self.catalog.get("refine_model") == encoder.model_id():
            left = [text for text in texts if text not in found]
            rows = self.catalog.rows_in("SELECT text, vector FROM refined WHERE text IN (?)", left)
            found.update({text: bytes(vector) for text, vector in rows})
        return found

    def remember(self, vectors: dict[int, bytes]) -> None:
        """Keep vectors of the sentence encoder for as long as this reader lives: a search writes nothing."""
        self._remembered.update(vectors)
        while len(self._remembered) > _MOST_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]

    @cached_property
    def embedder(self) -> Embedder:
        """What made the palace's vectors."""
        return embedders.of(Spec.loads(self.catalog.get("vector_spec")))

    def find_session(self, prefix: str) -> int:
        """The number of the session whose id begins like that. Raises NotFound or AmbiguousId."""
        found = self.catalog.rows("SELECT id, key FROM sessions WHERE key = ?", prefix)
        if len(found) != 1:
            pattern = prefix.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
            found = found or self.catalog.rows(
                "SELECT id, key FROM sessions WHERE key LIKE ? ESCAPE '\\'"
                " AND (kind <> 'subagent' OR instr(?, '/') > 0) ORDER BY key LIMIT 20",
                pattern,
                prefix,
            )
        if not found:
            raise NotFound(f"no session's id begins with {prefix!r}", hint="find one: mempalace search ...")
        if len(found) > 1:
            ids = [str(key) for _, key in found]
            raise AmbiguousId(f"{prefix!r} fits several sessions: {', '.join(ids)}", ids, hint="give more of the id")
        return int(found[0][0])
