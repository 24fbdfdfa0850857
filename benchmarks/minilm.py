"""The bundled sentence encoder alone, as a way to search that the product's must beat."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mempalace import models


class Encoder:
    """all-MiniLM-L6-v2 (int8, bundled) over a palace's dialogue chunks; vectors are kept in `work` by content."""

    _WINDOW = 256

    def __init__(self, chunks: Sequence[tuple[int, str]], work: Path | None) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        self._model = onnxruntime.InferenceSession(models.read(models.ENCODER), options, ["CPUExecutionProvider"])
        self._tokenizer = Tokenizer.from_str(models.read(models.ENCODER_TOKENIZER).decode())
        self._tokenizer.enable_truncation(self._WINDOW)
        self._tokenizer.no_padding()
        self.texts = np.array([text for text, _ in chunks], dtype=np.int64)
        words = [body for _, body in chunks]
        name = hashlib.sha256("\0".join([models.SHA256[models.ENCODER], *words]).encode()).hexdigest()[:16]
        kept = None if work is None else work / f"minilm-{name}.npy"
        if kept is not None and kept.exists():
            self.matrix = np.load(kept)
        else:
            self.matrix = self.embed(words)
            if kept is not None:
                kept.parent.mkdir(parents=True, exist_ok=True)
                np.save(kept, self.matrix)

    def embed(self, texts: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
        """One unit vector a text. Batches of eight of like length: the cheapest on this kind of machine."""
        result = np.zeros((len(texts), 384), dtype=np.float32)
        encodings = self._tokenizer.encode_batch(list(texts))
        order = sorted(range(len(texts)), key=lambda at: len(encodings[at].ids))
        for start in range(0, len(order), 8):
            batch = order[start : start + 8]
            width = max(len(encodings[at].ids) for at in batch)
            ids = np.zeros((len(batch), width), dtype=np.int64)
            mask = np.zeros_like(ids)
            for row, at in enumerate(batch):
                ids[row, : len(encodings[at].ids)] = encodings[at].ids
                mask[row, : len(encodings[at].ids)] = 1
            result[batch] = self._model.run(None, {"input_ids": ids, "attention_mask": mask})[0]
        return result

    def nearest(self, query: str, limit: int) -> dict[int, float]:
        """The nearest texts by cosine, nearest first."""
        scores = self.matrix @ self.embed([query])[0]
        best = np.argsort(-scores, kind="stable")[:limit]
        return {int(self.texts[at]): float(scores[at]) for at in best}
