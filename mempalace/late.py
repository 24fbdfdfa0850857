"""Late interaction over static word vectors: how well the words of a text stand for each word of a query.

For each token of the query the greatest cosine with any token of the text, averaged with the tokens' inverse
document frequencies as weights: BM25 for words that mean nearly the same, without a transformer. Half of a
score comes from the whole text, half from its best message, so that words that stand together count for more.
On LoCoMo that is better than either (benchmarks/README.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mempalace import embedding, wordpiece

_BORDER = 0xFFFF  # begins each segment; no token has this number


def pack(segments: Sequence[str]) -> bytes:
    """The distinct token ids of each segment of a text, as uint16 behind a border each.

    The first segment is what holds for all (the date), the others are its messages.
    """
    import numpy as np

    tokens = wordpiece.shared()
    ids: list[int] = []
    for segment in segments:
        ids.append(_BORDER)
        ids += sorted(set(tokens.ids(segment)))
    return np.array(ids, dtype="<u2").tobytes()


def is_packed(data: bytes) -> bool:
    """Whether these are bytes of `pack`; older palaces hold the ids of a whole text, without borders."""
    return data[:2] == b"\xff\xff"


def scores(query: Mapping[int, float], texts: Sequence[bytes]) -> list[float]:
    """A score between 0 and 1 for each packed text. `query` gives the weight of each of its token ids."""
    import numpy as np

    weights = np.array(list(query.values()), dtype=np.float32)
    if not texts or not weights.sum():
        return [0.0] * len(texts)
    ids = np.frombuffer(b"".join(texts), dtype="<u2")
    borders = np.flatnonzero(ids == _BORDER)
    sizes = np.array([len(text) // 2 for text in texts])
    first = np.searchsorted(borders, np.concatenate([[0], np.cumsum(sizes)[:-1]]))  # segment where a text begins
    present = np.zeros(_BORDER + 1, dtype=bool)
    present[ids] = True
    kinds = np.flatnonzero(present)
    places = (np.cumsum(present) - 1)[ids]
    model = embedding.bundled()
    similar = np.zeros((len(kinds), len(weights)), dtype=np.float32)  # a border's row stays zero
    similar[:-1] = np.maximum(model.word_cosines(kinds[:-1], list(query)), 0)
    by_segment = np.maximum.reduceat(similar[places], borders, axis=0)
    whole = np.maximum.reduceat(by_segment, first, axis=0) @ weights
    lengths = np.diff(np.append(first, len(borders)))
    with_date = np.maximum(by_segment, np.repeat(by_segment[first], lengths, axis=0))
    best = np.maximum.reduceat(with_date @ weights, first)
    found: list[float] = ((whole + best) / (2 * weights.sum())).tolist()
    return found
