"""Small graphs, at least one for each way in which an operator reads a weight."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]
OPSETS = (11, 13, 17, 21)
_MOST_MIXED = 64
_IR_VERSIONS = {11: 6, 13: 7, 17: 8, 21: 10}


@dataclass(frozen=True)
class Small:
    """A graph of an operator or two between `x` and `y`."""

    kind: str
    """Of the role that its layers have."""
    nodes: Sequence[onnx.NodeProto]
    weights: Mapping[str, Array]
    shape: tuple[int, ...]
    """Of `x`."""
    integers: int = 0
    """`x` holds whole numbers below this, or floats if it is 0."""
    element: int = TensorProto.FLOAT
    outputs: Sequence[str] = ("y",)

    def model(self, opset: int = 17) -> onnx.ModelProto:
        element = TensorProto.INT64 if self.integers else self.element
        graph = helper.make_graph(
            self.nodes,
            "small",
            [helper.make_tensor_value_info("x", element, [None, *self.shape[1:]])],
            [helper.make_tensor_value_info(name, self.element, None) for name in self.outputs],
            [numpy_helper.from_array(value, name) for name, value in self.weights.items()],
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", opset)],
            ir_version=_IR_VERSIONS[opset],
            producer_name="tests",
        )
        helper.set_model_props(model, {"labels": "a,b"})
        # The checker asks for the outputs' shapes.
        return onnx.shape_inference.infer_shapes(model, strict_mode=True)

    def feeds(self, count: int = 6, *, seed: int = 1) -> list[dict[str, Array]]:
        """Samples whose features depend on each other."""
        generator = np.random.default_rng(seed)
        return [{"x": self._sample(generator)} for _ in range(count)]

    def _sample(self, generator: np.random.Generator) -> Array:
        if self.integers:
            skewed = generator.random(self.shape) ** 3 * self.integers
            return skewed.astype(np.int64)
        value = generator.standard_normal(self.shape)
        size = self.shape[-1]
        if size <= _MOST_MIXED:
            mixing = np.random.default_rng(7).standard_normal((size, size))
            value = value @ (mixing * np.geomspace(1, 0.05, size)).T / np.sqrt(size)
        return value.astype(np.float16 if self.element == TensorProto.FLOAT16 else np.float32)


def weight(*shape: int, seed: int = 0) -> Array:
    """Normal numbers whose outputs are about as large as what is read."""
    generator = np.random.default_rng([seed, *shape])
    fan_in = max(1, int(np.prod(shape)) // max(shape))
    return (generator.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32)


def node(operator: str, *inputs: str, outputs: Sequence[str] = ("y",), **given: Any) -> Any:
    return helper.make_node(operator, inputs, outputs, **given)


def _recurrent(
    operator: str, gates: int, direction: str, *, size: int = 19, state: bool = False
) -> Small:
    directions = 2 if direction == "bidirectional" else 1
    weights = {
        "W": weight(directions, gates * size, 17),
        "R": weight(directions, gates * size, size, seed=1),
        "B": 0.1 * weight(directions, 2 * gates * size),
    }
    inputs = ["x", "W", "R", "B"]
    if state:
        weights["h0"] = weight(directions, 3, size)
        inputs += ["", "h0"]
    cell = node(operator, *inputs, direction=direction, hidden_size=size)
    return Small("recurrent_input", [cell], weights, (9, 3, 17))


def _quantized() -> Small:
    integers = np.random.default_rng(0).integers(-127, 128, (37, 33)).astype(np.int8)
    nodes = [
        node("DequantizeLinear", "q", "scale", "zero", outputs=["w"]),
        node("MatMul", "x", "w"),
    ]
    weights = {"q": integers, "scale": np.array(0.01, np.float32), "zero": np.array(0, np.int8)}
    return Small("already quantized", nodes, weights, (5, 37))


def _shared() -> Small:
    nodes = [
        node("MatMul", "x", "w", outputs=["h"]),
        node("Tanh", "h", outputs=["t"]),
        node("MatMul", "t", "w", outputs=["y"]),
    ]
    return Small("product", nodes, {"w": weight(35, 35)}, (5, 35))


GRAPHS: Mapping[str, Callable[[], Small]] = {
    "matmul": lambda: Small(
        "product", [node("MatMul", "x", "w")], {"w": weight(37, 33)}, (4, 3, 37)
    ),
    "matmul to a bias": lambda: Small(
        "product",
        [node("MatMul", "x", "w", outputs=["h"]), node("Add", "h", "b")],
        {"w": weight(33, 37), "b": weight(37)},
        (5, 33),
    ),
    "gemm": lambda: Small(
        "product",
        [node("Gemm", "x", "w", "b", alpha=0.7, beta=0.3)],
        {"w": weight(37, 33), "b": weight(33)},
        (5, 37),
    ),
    "gemm with transB": lambda: Small(
        "product",
        [node("Gemm", "x", "w", "b", transB=1, alpha=0.5)],
        {"w": weight(33, 37), "b": weight(33)},
        (5, 37),
    ),
    "gemm with transA": lambda: Small(
        "product", [node("Gemm", "x", "w", transA=1)], {"w": weight(37, 33)}, (37, 6)
    ),
    "float16": lambda: Small(
        "product",
        [node("MatMul", "x", "w")],
        {"w": weight(37, 33).astype(np.float16)},
        (5, 37),
        element=TensorProto.FLOAT16,
    ),
    "shared": _shared,
    "batched matmul": lambda: Small(
        "batched_product", [node("MatMul", "x", "w")], {"w": weight(3, 19, 21)}, (3, 5, 19)
    ),
    "convolution": lambda: Small(
        "convolution",
        [node("Conv", "x", "w", "b", strides=[2, 1], dilations=[1, 2], pads=[1, 0, 2, 3])],
        {"w": weight(19, 7, 3, 3), "b": weight(19)},
        (2, 7, 13, 11),
    ),
    "convolution SAME_UPPER": lambda: Small(
        "convolution",
        [node("Conv", "x", "w", strides=[2], auto_pad="SAME_UPPER")],
        {"w": weight(21, 11, 5)},
        (3, 11, 16),
    ),
    "convolution SAME_LOWER": lambda: Small(
        "convolution",
        [node("Conv", "x", "w", auto_pad="SAME_LOWER")],
        {"w": weight(21, 13, 4)},
        (3, 13, 15),
    ),
    "grouped convolution": lambda: Small(
        "grouped_convolution",
        [node("Conv", "x", "w", "b", group=3, pads=[1, 1])],
        {"w": weight(33, 13, 3), "b": weight(33)},
        (2, 39, 12),
    ),
    "depthwise convolution": lambda: Small(
        "grouped_convolution",
        [node("Conv", "x", "w", group=45)],
        {"w": weight(45, 1, 5, 5)},
        (2, 45, 9, 8),
    ),
    "transposed convolution": lambda: Small(
        "transposed_convolution",
        [node("ConvTranspose", "x", "w", strides=[2, 2])],
        {"w": weight(9, 13, 3, 3)},
        (2, 9, 5, 6),
    ),
    "grouped transposed convolution": lambda: Small(
        "transposed_convolution",
        [node("ConvTranspose", "x", "w", group=3)],
        {"w": weight(33, 11, 3)},
        (2, 33, 7),
    ),
    "lstm": lambda: _recurrent("LSTM", 4, "forward"),
    "lstm in both directions": lambda: _recurrent("LSTM", 4, "bidirectional"),
    "gru from the end": lambda: _recurrent("GRU", 3, "reverse", state=True),
    "rnn in both directions": lambda: _recurrent("RNN", 1, "bidirectional", size=33, state=True),
    "embedding": lambda: Small(
        "embedding", [node("Gather", "w", "x")], {"w": weight(57, 21)}, (4, 9), integers=57
    ),
    "columns of a table": lambda: Small(
        "other", [node("Gather", "w", "x", axis=1)], {"w": weight(31, 37)}, (4,), integers=37
    ),
    "weights at the left": lambda: Small(
        "other", [node("MatMul", "w", "x")], {"w": weight(33, 37)}, (37, 5)
    ),
    "a vector": lambda: Small("other", [node("Mul", "x", "w")], {"w": weight(1025)}, (2, 1025)),
    "quantized already": _quantized,
}
