"""Graphs of one node or a few, run by torch and by onnxruntime."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import helper, numpy_helper

from models.graphs.interpreter import GraphModule, feed_tensors

Array = np.ndarray[Any, Any]


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def positive(*shape: int, seed: int = 0) -> Array:
    return (np.abs(normal(*shape, seed=seed)) + 0.1).astype(np.float32)


def whole(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def real(*numbers: float) -> Array:
    return np.array(numbers, np.float32)


@dataclass(frozen=True)
class Case:
    """One node: what it is fed, what it has as initializers (by place), and its attributes."""

    operator: str
    inputs: Sequence[Array | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    opset: int = 17
    outputs: int = 1
    held: Sequence[int] = ()
    """Places of inputs that are initializers."""
    note: str = ""
    domain: str = ""
    ir: int | None = None

    def __str__(self) -> str:
        return f"{self.operator}-{self.opset}{'-' if self.note else ''}{self.note}"

    def names(self) -> list[str]:
        return ["" if x is None else f"x{place}" for place, x in enumerate(self.inputs)]

    def feeds(self) -> dict[str, Array]:
        pairs = enumerate(self.inputs)
        return {f"x{at}": x for at, x in pairs if x is not None and at not in self.held}

    def model(self) -> onnx.ModelProto:
        outputs = [f"y{place}" for place in range(self.outputs)]
        node = helper.make_node(
            self.operator, self.names(), outputs, domain=self.domain, **self.attributes
        )
        weights = [
            numpy_helper.from_array(x, f"x{at}")
            for at, x in enumerate(self.inputs)
            if x is not None and at in self.held
        ]
        return model_of([node], self.feeds(), outputs, weights, opset=self.opset)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    feeds: Mapping[str, Array],
    outputs: Sequence[str],
    weights: Sequence[onnx.TensorProto] = (),
    *,
    opset: int = 17,
) -> onnx.ModelProto:
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in feeds.items()
    ]
    graph = helper.make_graph(
        list(nodes),
        "small",
        inputs,
        [onnx.ValueInfoProto(name=name) for name in outputs],
        initializer=list(weights),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def in_runtime(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return [np.asarray(found) for found in session.run(None, dict(feeds))]


@torch.no_grad()
def in_torch(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    module = GraphModule(model)
    found = module(feed_tensors(feeds, module.device))
    return [found[name].numpy() for name in module.outputs]


def assert_same(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> None:
    """Same shapes and types, and numbers but for what float32 loses in sums of another order."""
    for wanted, found in zip(in_runtime(model, feeds), in_torch(model, feeds), strict=True):
        assert found.shape == wanted.shape
        # Half precision is computed in single.
        assert found.dtype == (np.float32 if wanted.dtype == np.float16 else wanted.dtype)
        np.testing.assert_allclose(found, wanted, atol=2e-5, rtol=2e-5)
