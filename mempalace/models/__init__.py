"""The bundled model files, checked before use. NOTICE.md beside this file names sources and licences."""

from __future__ import annotations

import hashlib
from pathlib import Path

from mempalace.errors import ModelError

FOLDER = Path(__file__).parent

STATIC_WEIGHTS = "potion-base-8M-int8.npz"
STATIC_TOKENIZER = "potion-base-8M-tokenizer.json"
ENCODER = "all-MiniLM-L6-v2-int8.onnx"
ENCODER_TOKENIZER = "all-MiniLM-L6-v2-tokenizer.json"

SHA256 = {
    STATIC_WEIGHTS: "a286c0597bbe7a031ed49cb0fa4af4d4c430dcfad8f96088a2a89440afdcc19a",
    STATIC_TOKENIZER: "e67e803f624fb4d67dea1c730d06e1067e1b14d830e2c2202569e3ef0f70bb50",
    ENCODER: "9079f2ecfe9be7140154b361503fd3e56ab163b8ee684972893dce229ad57e55",
    ENCODER_TOKENIZER: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}


def read(name: str) -> bytes:
    """The bytes of a bundled file. Raises ModelError if it is missing or is not the file that was shipped."""
    path = FOLDER / name
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(
            f"the model file cannot be read: {error.strerror or error}",
            path=path,
            hint="install mempalace again: python -m pip install --force-reinstall --no-deps mempalace",
        ) from error
    found = hashlib.sha256(data).hexdigest()
    if found != SHA256[name]:
        raise ModelError(
            f"the model file is damaged: sha256 {found}, expected {SHA256[name]}",
            path=path,
            hint="install mempalace again: python -m pip install --force-reinstall --no-deps mempalace",
        )
    return data


def vocabulary(name: str) -> dict[str, int]:
    """Token -> id of a bundled tokenizer file."""
    import orjson

    known: dict[str, int] = orjson.loads(read(name))["model"]["vocab"]
    return known
