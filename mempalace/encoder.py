"""Texts -> sentence vectors of the bundled transformer, which puts the best candidates of a search in order.

It is a hundred times slower than the static vectors (about 20 chunks a CPU second), so it sees twenty
candidates of a search, not the palace. Each text runs alone: the int8 model scales its activations by what is
in a batch, and a vector must not depend on its neighbours.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from mempalace import models
from mempalace.chunk import WINDOW_TOKENS
from mempalace.errors import ModelError
from mempalace.wordpiece import WordPiece

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]

_MOST_THREADS = 4


class SentenceEncoder:
    """all-MiniLM-L6-v2, int8: 384 values of unit length, from the first 254 tokens of a text."""

    dimensions = 384

    def __init__(self) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        # The shipped graph is made of fused operators already: to look for more costs time and finds nothing.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            self._session: Any = onnxruntime.InferenceSession(
                models.read(models.ENCODER), options, providers=["CPUExecutionProvider"]
            )
        except RuntimeError as error:  # also onnxruntime's own errors
            raise ModelError(f"the sentence encoder cannot be loaded: {error}") from error
        vocabulary = models.vocabulary(models.ENCODER_TOKENIZER)
        self._tokenizer = WordPiece(vocabulary)
        self._first, self._last = vocabulary["[CLS]"], vocabulary["[SEP]"]

    @property
    def model_id(self) -> str:
        """Name and hash of the model."""
        return model_id()

    def embed(self, texts: Sequence[str]) -> Matrix:
        """One row of unit length per text, float32. Raises ModelError."""
        import numpy as np

        result = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        threads = min(_MOST_THREADS, os.cpu_count() or 1, len(texts))
        if threads > 1:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(threads) as pool:
                for index, row in enumerate(pool.map(self._embed, texts)):
                    result[index] = row
        else:
            for index, text in enumerate(texts):
                result[index] = self._embed(text)
        return result

    def _embed(self, text: str) -> Any:
        import numpy as np

        tokens = self._tokenizer.ids(text)[: WINDOW_TOKENS - 2]
        ids = np.array([[self._first, *tokens, self._last]], dtype=np.int64)
        try:
            (row,) = self._session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})
        except RuntimeError as error:
            raise ModelError(f"the sentence encoder failed: {error}") from error
        return row[0]


def model_id() -> str:
    """Name and hash of the bundled model, without loading it."""
    return f"all-MiniLM-L6-v2-int8@{models.SHA256[models.ENCODER][:12]}"


@cache
def default() -> SentenceEncoder:
    """The bundled encoder, loaded once."""
    return SentenceEncoder()
