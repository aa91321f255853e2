"""Small ONNX files, sound and unsound, for the tests of what reads them."""

import io
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import DTypeLike
from onnx import TensorProto, helper, numpy_helper
from torch import nn

FLOAT = TensorProto.FLOAT


def port(name: str, shape: Sequence[int | str | None] | None = ("b", 4), element: int = FLOAT):
    return helper.make_tensor_value_info(name, element, shape)


def tensor(name: str, values: Any, dtype: DTypeLike = np.float32) -> TensorProto:
    return numpy_helper.from_array(np.asarray(values, dtype=dtype), name)


def model_of(
    nodes,
    *,
    inputs=None,
    outputs=None,
    tensors=(),
    opset: int = 17,
    ir_version: int = 8,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [port("x")] if inputs is None else inputs,
        [port("y")] if outputs is None else outputs,
        initializer=list(tensors),
    )
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=ir_version,
        producer_name="tests",
    )


def small(**how) -> onnx.ModelProto:
    """y = relu(x W), W `[4, 4]`."""
    weights = np.arange(16).reshape(4, 4) / 16 - 0.3
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["h"], name="product"),
        helper.make_node("Relu", ["h"], ["y"], name="relu"),
    ]
    return model_of(nodes, tensors=[tensor("W", weights)], **how)


def chosen_by_rate() -> onnx.ModelProto:
    """y = x times one of two matrices, by whether `sr` is 16000; both are inside of the `If`."""

    def branch(title: str, scale: float) -> onnx.GraphProto:
        return helper.make_graph(
            [
                helper.make_node("Mul", ["W", "scale"], ["scaled"], name="scale"),
                helper.make_node("MatMul", ["x", "scaled"], ["out"], name="product"),
            ],
            title,
            [],
            [port("out")],
            initializer=[tensor("W", np.eye(4)), tensor("scale", scale)],
        )

    nodes = [
        helper.make_node("Constant", [], ["rate"], value=tensor("", 16000, np.int64)),
        helper.make_node("Equal", ["sr", "rate"], ["is_wide"]),
        helper.make_node("Relu", ["x"], ["product"], name="product"),
        helper.make_node(
            "If", ["is_wide"], ["picked"], then_branch=branch("a", 2), else_branch=branch("b", 3)
        ),
        helper.make_node("Add", ["picked", "product"], ["y"]),
    ]
    return model_of(nodes, inputs=[port("x"), port("sr", (), TensorProto.INT64)])


def endless() -> onnx.ModelProto:
    """A Loop of 2**62 rounds, in few bytes."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["goes"]),
            helper.make_node("Add", ["state", "state"], ["next"]),
        ],
        "body",
        [port("i", (), TensorProto.INT64), port("go", (), TensorProto.BOOL), port("state")],
        [port("goes", (), TensorProto.BOOL), port("next")],
    )
    loop = helper.make_node("Loop", ["rounds", "", "x"], ["y"], body=body)
    return model_of([loop], tensors=[tensor("rounds", 2**62, np.int64)])


def large_constant() -> onnx.ModelProto:
    """40 GB by a `ConstantOfShape`, in a hundred bytes."""
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["c"]),
        helper.make_node("ReduceMax", ["c"], ["m"], keepdims=0),
        helper.make_node("Add", ["x", "m"], ["y"]),
    ]
    return model_of(nodes, tensors=[tensor("s", [100_000, 100_000], np.int64)])


def answers(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """All outputs by onnxruntime as users run it."""
    runtime: Any = onnxruntime
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, dict(feeds))


def exported(network: nn.Module, *args: torch.Tensor, **how) -> bytes:
    """What torch's own exporter writes."""
    stream: Any = io.BytesIO()
    with warnings.catch_warnings():
        # The exporter by tracing says that there is a newer one.
        warnings.simplefilter("ignore")
        torch.onnx.export(network.eval(), args, stream, dynamo=False, **how)
    return stream.getvalue()


class Classifier(nn.Module):
    """Convolutions, a batch norm, and a product."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, groups=8),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Dropout(0.5),
            nn.Linear(8, 5),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.body(x), -1)


class Tagger(nn.Module):
    """A bidirectional GRU over tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.gru = nn.GRU(8, 16, batch_first=True, bidirectional=True, num_layers=2)
        self.head = nn.Linear(32, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.gru(self.embedding(tokens))[0])


class Encoder(nn.Module):
    """Two layers of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.encoder(x)
