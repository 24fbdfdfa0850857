"""Catalog -> indexes: what is queued is indexed, and either index can be made again. Always repeatable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from mempalace import embedders, late
from mempalace.chunk import joined
from mempalace.embedders import Spec
from mempalace.embedding import Embedder, pack, unpack
from mempalace.errors import StoreError
from mempalace.palace import folder, vectors
from mempalace.palace.catalog import Catalog
from mempalace.palace.entries import Entry
from mempalace.palace.lexical import LexicalIndex
from mempalace.palace.texts import CHUNK_COLUMNS, ChunkRow, first_chunks, seen_by_indexes

FEWEST_TO_STORE = 500  # opening Chroma costs more than a CPU second; fewer vectors are scored exactly
_EMBED_BATCH = 1_000
_PAGE = 2_000

# --- lexical ------------------------------------------------------------------------------------------------


def update_lexical(catalog: Catalog, palace: Path) -> int:
    """Index all chunks that are not yet, forget those that are gone; the number added."""
    path = palace / folder.LEXICAL
    done = int(catalog.get("lexical_through", "0") or 0)
    stale = [row[0] for row in catalog.rows("SELECT chunk FROM lexical_stale")]
    last = catalog.row("SELECT MAX(id) FROM chunks")[0] or 0
    if last <= done and not stale:
        return 0
    index = LexicalIndex.open(path) if done else _new_index(path)
    again = _entries_of(catalog, [chunk for chunk in stale if chunk <= done])
    added = index.write(chain(again, _entries(catalog, done)), stale, done)
    with catalog.transaction():
        catalog.set("lexical_through", max(last, done))
        catalog.add_many("DELETE FROM lexical_stale WHERE chunk = ?", [(chunk,) for chunk in stale])
        catalog.next_generation()
    return added


def _new_index(path: Path) -> LexicalIndex:
    folder.remove(path)
    return LexicalIndex.create(path)


def _entries(catalog: Catalog, after: int) -> Iterator[Entry]:
    """What is to be indexed of all chunks beyond a number."""
    while True:
        rows = catalog.rows(f"{CHUNK_COLUMNS} WHERE c.id > ? ORDER BY c.id LIMIT {_PAGE}", after)
        if not rows:
            return
        yield from _entries_of_rows(catalog, rows)
        after = rows[-1][0]


def _entries_of(catalog: Catalog, chunks: list[int]) -> Iterator[Entry]:
    """What is to be indexed of those chunks that are still there."""
    yield from _entries_of_rows(catalog, list(catalog.rows_in(f"{CHUNK_COLUMNS} WHERE c.id IN (?)", chunks)))


def _entries_of_rows(catalog: Catalog, rows: list[Any]) -> Iterator[Entry]:
    for row, (parts, chunk) in zip(map(ChunkRow._make, rows), seen_by_indexes(catalog, rows), strict=True):
        yield Entry(
            chunk=row.chunk,
            text=joined(parts),
            kind=row.kind,
            scope=row.scope,
            format=row.format,
            projects=tuple(sorted({name for name in (row.project, row.project_name) if name})),
            wing=row.wing,
            roles=tuple(sorted({str(span.role) for span in chunk.spans})),
            session=row.session,
            time=row.time,
            last=row.last,
        )


def rebuild_lexical(catalog: Catalog, palace: Path) -> int:
    """Make the lexical index again in a side folder, check it, and put it in place; the number of chunks."""
    path = palace / folder.LEXICAL
    side = palace / f"{folder.LEXICAL}.new"
    last = catalog.row("SELECT MAX(id) FROM chunks")[0] or 0
    index = _new_index(side)
    index.write(_entries(catalog, 0))
    count = index.count()
    del index
    _swap(side, path)
    with catalog.transaction():
        catalog.set("lexical_through", last)
        catalog.db.execute("DELETE FROM lexical_stale")
        catalog.next_generation()
    return count


def _swap(side: Path, path: Path) -> None:
    old = path.with_name(f"{path.name}.old")
    folder.remove(old)
    if path.exists():
        path.rename(old)
    side.rename(path)
    folder.remove(old)


# --- vectors ------------------------------------------------------------------------------------------------


def embedder_of(catalog: Catalog, wanted: Spec | None = None) -> Embedder:
    """What makes the palace's vectors: what made them so far, else what is wanted, else the bundled model.

    Raises StoreError if something else is wanted than what made them: vectors of two models are never mixed.
    """
    made_by = catalog.get("vector_model")
    spec = Spec.loads(catalog.get("vector_spec"))
    if made_by is None:
        return embedders.of(wanted or spec)
    if wanted is not None and not wanted.makes_the_same(spec):
        raise StoreError(
            f"the palace's vectors were made by {spec.model}, not by {wanted.model}",
            path=catalog.path,
            hint=f"make them again: mempalace rebuild --vectors --model {wanted.model}",
        )
    embedder = embedders.of(wanted or spec)
    if embedder.model_id != made_by:
        raise StoreError(
            f"the palace's vectors were made by {made_by}, and now it would be {embedder.model_id}",
            path=catalog.path,
            hint=f"make them again: mempalace rebuild --vectors --model {spec.model}",
        )
    return embedder


def embed_queued(catalog: Catalog, wanted: Spec | None = None, on_batch: Callable[[int], None] | None = None) -> int:
    """Embed every queued text, newest first; the number embedded. Can be stopped between batches."""
    embedder = embedder_of(catalog, wanted)
    if catalog.get("vector_model") is None:
        with catalog.transaction():
            _remember_model(catalog, embedder, wanted or Spec())
    total = 0
    while True:
        queued = [
            row[0] for row in catalog.rows(f"SELECT text FROM embed_queue ORDER BY time DESC LIMIT {_EMBED_BATCH}")
        ]
        if not queued:
            return total
        made = _embed(catalog, embedder, queued)
        with catalog.transaction():
            catalog.add_many("INSERT OR REPLACE INTO vectors VALUES (?, ?)", [(one[0], one[1]) for one in made])
            catalog.add_many("INSERT OR REPLACE INTO tokens VALUES (?, ?)", [(one[0], one[2]) for one in made])
            catalog.add_many("INSERT OR REPLACE INTO store_queue VALUES (?, 0)", [(one[0],) for one in made])
            catalog.add_many("DELETE FROM embed_queue WHERE text = ?", [(number,) for number in queued])
            catalog.next_generation()
        total += len(made)
        if on_batch is not None:
            on_batch(len(made))


def _embed(catalog: Catalog, embedder: Embedder, texts: list[int]) -> list[tuple[int, bytes, bytes]]:
    """Each text that some chunk still has, with its packed vector and its packed tokens."""
    rows = first_chunks(catalog, texts)
    parts = [parts for parts, _ in seen_by_indexes(catalog, rows)]
    packed = pack(embedder.embed([joined(one) for one in parts])) if parts else []
    return [(row.text, vector, late.pack(one)) for row, vector, one in zip(rows, packed, parts, strict=True)]


def _remember_model(catalog: Catalog, embedder: Embedder, spec: Spec) -> None:
    catalog.set("vector_model", embedder.model_id)
    catalog.set("vector_dimensions", embedder.dimensions)
    catalog.set("vector_spec", spec.dumps())


def texts_to_embed(catalog: Catalog) -> int:
    """How many texts `embed_again` is to embed."""
    return int(catalog.row("SELECT COUNT(DISTINCT text) FROM chunks WHERE kind = 'dialogue'")[0])


def embed_again(catalog: Catalog, palace: Path, spec: Spec, on_batch: Callable[[int], None] | None = None) -> int:
    """Make every vector again by another model; the number made. The old ones serve until all are there."""
    embedder = embedders.of(spec)
    texts = [row[0] for row in catalog.rows("SELECT DISTINCT text FROM chunks WHERE kind = 'dialogue' ORDER BY text")]
    with catalog.transaction():
        catalog.db.execute("DROP TABLE IF EXISTS vectors_next")
        catalog.db.execute("CREATE TABLE vectors_next (text INTEGER PRIMARY KEY, vector BLOB, ids BLOB)")
    for start in range(0, len(texts), _EMBED_BATCH):
        made = _embed(catalog, embedder, texts[start : start + _EMBED_BATCH])
        with catalog.transaction():
            catalog.add_many("INSERT INTO vectors_next VALUES (?, ?, ?)", made)
        if on_batch is not None:
            on_batch(len(made))
    with catalog.transaction():
        for table, column in (("vectors", "vector"), ("tokens", "ids")):
            catalog.db.execute(f"DELETE FROM {table}")
            catalog.db.execute(f"INSERT INTO {table} SELECT text, {column} FROM vectors_next")
        catalog.db.execute("DROP TABLE vectors_next")
        catalog.db.execute("DELETE FROM embed_queue")
        _remember_model(catalog, embedder, spec)
        catalog.next_generation()
    return rebuild_vectors(catalog, palace)


def store_queued(catalog: Catalog, palace: Path, *, fewest: int = FEWEST_TO_STORE) -> int:
    """Give Chroma what it does not have yet, if that is worth opening it; the number given.

    Checks the store afterwards and makes it again if it does not find what was written.
    """
    queue = catalog.rows("SELECT text, removed FROM store_queue ORDER BY text")
    if len(queue) < fewest:
        return 0
    model = catalog.get("vector_model") or ""
    index = vectors.ChromaIndex.open(palace / folder.VECTORS, model, create=True)
    index.delete([text for text, removed in queue if removed])
    added = [text for text, removed in queue if not removed]
    sample_texts: list[int] = []
    sample: Any = None
    for batch in vectors.batches(added):
        numbers, matrix = _matrix(catalog, batch)
        index.upsert(numbers, matrix)
        sample_texts, sample = numbers, matrix
    healthy = vectors.is_healthy(index, _stored(catalog), sample_texts, sample)
    if not healthy:
        del index
        return rebuild_vectors(catalog, palace)
    with catalog.transaction():
        catalog.db.execute("DELETE FROM store_queue")
        catalog.set("vector_store", "ok")
        catalog.next_generation()
    return len(added)


def _matrix(catalog: Catalog, texts: Any) -> tuple[list[int], Any]:
    rows = sorted(catalog.rows_in("SELECT text, vector FROM vectors WHERE text IN (?)", texts))
    dimensions = int(catalog.get("vector_dimensions") or 0)
    return [row[0] for row in rows], unpack([row[1] for row in rows], dimensions)


def _stored(catalog: Catalog) -> int:
    return catalog.count("vectors")


def rebuild_vectors(catalog: Catalog, palace: Path) -> int:
    """Make the vector store again from the catalog's vectors, in a side folder, and put it in place."""
    side = palace / f"{folder.VECTORS}.new"
    folder.remove(side)
    index = vectors.ChromaIndex.open(side, catalog.get("vector_model") or "", create=True)
    texts = [row[0] for row in catalog.rows("SELECT text FROM vectors ORDER BY text")]
    sample_texts: list[int] = []
    sample: Any = None
    for batch in vectors.batches(texts):
        sample_texts, sample = _matrix(catalog, batch)
        index.upsert(sample_texts, sample)
    healthy = vectors.is_healthy(index, len(texts), sample_texts, sample)
    del index
    vectors.ChromaIndex.forget_all()
    _swap(side, palace / folder.VECTORS)
    with catalog.transaction():
        catalog.db.execute("DELETE FROM store_queue")
        catalog.set("vector_store", "ok" if healthy else "damaged")
        catalog.next_generation()
    return len(texts)
