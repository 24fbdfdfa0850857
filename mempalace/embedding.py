"""Texts -> vectors. One protocol, and the bundled default: static word vectors, no transformer.

A text's vector is the mean of its tokens' vectors, of unit length. It is kept as int8 with one scale (260
bytes); on LoCoMo that ranks as float32 does.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Protocol

from mempalace import models, wordpiece

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]


class Embedder(Protocol):
    """What makes vectors. `model_id` names the model and its weights: vectors of two ids are never mixed."""

    @property
    def model_id(self) -> str:
        """Name and hash of the model."""
        ...

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        ...

    @property
    def is_reranked(self) -> bool:
        """Whether the bundled sentence encoder knows better than this model."""
        ...

    def embed(self, texts: Sequence[str]) -> Matrix:
        """One row of unit length per text (zeros for a text without known words), float32."""
        ...

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The vector of a query, of unit length."""
        ...


class StaticEmbedder:
    """potion-base-8M: 29,528 word vectors of 256 dimensions, int8 with one scale per row."""

    is_reranked = True

    def __init__(self) -> None:
        import numpy as np

        with np.load(io.BytesIO(models.read(models.STATIC_WEIGHTS)), allow_pickle=False) as weights:
            self._rows: NDArray[np.int8] = weights["q"]
            self._scales: Matrix = weights["s"].astype(np.float32)
        self._unknown = 1  # [UNK] has no meaning of its own
        self._tokenizer = wordpiece.shared()

    @property
    def model_id(self) -> str:
        return f"potion-base-8M-int8@{models.SHA256[models.STATIC_WEIGHTS][:12]}"

    @property
    def dimensions(self) -> int:
        return int(self._rows.shape[1])

    def embed(self, texts: Sequence[str]) -> Matrix:
        import numpy as np

        result = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for index, text in enumerate(texts):
            ids = [token for token in self._tokenizer.ids(text) if token != self._unknown]
            if ids:
                rows = self._rows[ids].astype(np.float32)
                result[index] = self._scales[ids] @ rows
        return normalise(result)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        row: NDArray[np.float32] = self.embed([text])[0]
        return row

    def word_cosines(self, ids: NDArray[np.int64], others: Sequence[int]) -> Matrix:
        """The cosine of each token with each of some others, zero for the unknown one: shape (ids, others)."""
        tokens = self._rows[ids].astype(self._scales.dtype)
        cosines: Matrix = tokens @ self._rows[list(others)].astype(self._scales.dtype).T
        cosines *= self._inverse_norms[ids][:, None]
        cosines *= self._inverse_norms[list(others)]
        return cosines

    @cached_property
    def _inverse_norms(self) -> NDArray[np.float32]:
        import numpy as np

        squares = np.einsum("ij,ij->i", self._rows, self._rows, dtype=np.int32)
        norms: NDArray[np.float32] = (1 / np.sqrt(np.maximum(squares, 1))).astype(np.float32)
        norms[self._unknown] = 0
        return norms


def normalise(matrix: Matrix) -> Matrix:
    """Rows scaled to unit length; zero rows stay zero."""
    import numpy as np

    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    scaled: Matrix = matrix / np.maximum(lengths, 1e-12)
    return scaled


def pack(matrix: Matrix) -> list[bytes]:
    """Each row as int8 values behind one float32 scale: 4 + dimensions bytes."""
    import numpy as np

    scales = np.maximum(np.abs(matrix).max(axis=1), 1e-12).astype(np.float32) / 127
    values = np.rint(matrix / scales[:, None]).astype(np.int8)
    return [scale.tobytes() + row.tobytes() for scale, row in zip(scales, values, strict=True)]


def unpack(rows: Sequence[bytes], dimensions: int) -> Matrix:
    """The matrix that `pack` made rows of, up to rounding."""
    import numpy as np

    packed = np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), 4 + dimensions)
    scales = packed[:, :4].copy().view(np.float32)
    matrix: Matrix = packed[:, 4:].view(np.int8).astype(np.float32) * scales
    return matrix


@cache
def bundled() -> StaticEmbedder:
    """The bundled embedder, loaded once."""
    return StaticEmbedder()


def text_hash(text: str) -> bytes:
    """A 16-byte content hash: what makes two texts the same for the stores."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
