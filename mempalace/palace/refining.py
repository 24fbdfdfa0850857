"""The slow vectors, made beforehand: what the sentence encoder says of each dialogue text.

A search computes those it needs and finds missing, so nothing depends on this but its time. The work is done
outside of the palace's lock, which is held for a moment per batch: mining goes on beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mempalace.chunk import joined
from mempalace.embedding import pack
from mempalace.encoder import SentenceEncoder
from mempalace.palace import lock
from mempalace.palace.catalog import Catalog
from mempalace.palace.texts import first_chunks, seen_by_indexes

_BATCH = 64

# Main sessions first, newest first.
_LEFT = (
    "SELECT c.text FROM chunks c JOIN sessions s ON s.id = c.session"
    " WHERE c.kind = 'dialogue' AND c.text NOT IN (SELECT text FROM refined)"
    " GROUP BY c.text ORDER BY MIN(s.kind <> 'main'), MAX(c.last) DESC, c.text DESC"
)


def left(catalog: Catalog) -> list[int]:
    """The dialogue texts that have no vector of the encoder yet, in the order in which they are to get one."""
    return [int(row[0]) for row in catalog.rows(_LEFT)]


def refine(
    palace: Path,
    encoder: SentenceEncoder,
    most: int | None = None,
    on_batch: Callable[[int, int], None] | None = None,
) -> tuple[int, int]:
    """Encode what is left, at most so many texts; how many were, and how many are left.

    `on_batch` is told how many of how many are done. May be stopped at any moment: what is done stays.
    Raises PalaceLocked if the palace cannot be written for as long as another mine runs.
    """
    with lock.writing(palace, wait=True), Catalog.open_for_writing(palace) as catalog:
        if catalog.get("refine_model") != encoder.model_id:
            with catalog.transaction():
                catalog.db.execute("DELETE FROM refined")
                catalog.set("refine_model", encoder.model_id)
        texts = left(catalog)
    wanted = texts if most is None else texts[:most]
    done = 0
    for start in range(0, len(wanted), _BATCH):
        with Catalog.open(palace) as catalog:
            rows = first_chunks(catalog, wanted[start : start + _BATCH])
            seen = [joined(parts) for parts, _ in seen_by_indexes(catalog, rows)]
        vectors = pack(encoder.embed(seen)) if seen else []
        with lock.writing(palace, wait=True), Catalog.open_for_writing(palace) as catalog, catalog.transaction():
            # A text may have gone meanwhile.
            catalog.add_many(
                "INSERT OR REPLACE INTO refined SELECT id, ? FROM texts WHERE id = ?",
                [(vector, row.text) for vector, row in zip(vectors, rows, strict=True)],
            )
        done += len(wanted[start : start + _BATCH])
        if on_batch is not None:
            on_batch(done, len(wanted))
    return done, len(texts) - done
