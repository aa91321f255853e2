"""ONNX files that users might upload: good ones, and ones that are wrong or hostile in one way."""

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.models.graphs.reading.graph_files import (
    endless,
    large_constant,
    model_of,
    port,
    small,
    tensor,
)

WEIGHT_BYTES = 4 * (32 * 64 + 64 * 5)


def network() -> onnx.ModelProto:
    """Two products; the first weight, `[32, 64]`, is large enough to be a layer."""
    generator = np.random.default_rng(3)
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "V"], ["y"], name="second"),
    ]
    return model_of(
        nodes,
        inputs=[port("x", ("batch", 32))],
        outputs=[port("y", ("batch", 5))],
        tensors=[
            tensor("W", generator.standard_normal((32, 64))),
            tensor("V", generator.standard_normal((64, 5))),
        ],
    )


def in_branches() -> onnx.ModelProto:
    """All weights are in the bodies of an `If`, which an input decides."""

    def branch(title: str, scale: float) -> onnx.GraphProto:
        weight = tensor("W", scale * np.ones((32, 64)))
        product = helper.make_node("MatMul", ["x", "W"], ["out"])
        out = port("out", ("batch", 64))
        return helper.make_graph([product], title, [], [out], initializer=[weight])

    nodes = [
        helper.make_node(
            "If", ["wide"], ["y"], then_branch=branch("a", 1), else_branch=branch("b", 2)
        )
    ]
    return model_of(
        nodes,
        inputs=[port("x", ("batch", 32)), port("wide", (), TensorProto.BOOL)],
        outputs=[port("y", ("batch", 64))],
    )


def _elsewhere() -> onnx.ModelProto:
    model = network()
    model.graph.initializer[0].ClearField("raw_data")
    model.graph.initializer[0].data_location = TensorProto.EXTERNAL
    model.graph.initializer[0].external_data.add(key="location", value="/etc/passwd")
    return model


def _not_a_number() -> onnx.ModelProto:
    model = network()
    weight = np.ones((32, 64))
    weight[0, 7] = np.nan
    model.graph.initializer[0].CopyFrom(tensor("W", weight))
    return model


def _wrong_dims() -> onnx.ModelProto:
    model = network()
    model.graph.initializer[0].dims[1] = 2**40
    return model


def _custom() -> onnx.ModelProto:
    model = network()
    model.graph.node[1].domain = "com.mine"
    model.graph.node[1].op_type = "Secret"
    return model


HOSTILE: Mapping[str, tuple[bytes, str]] = {
    name: (content if isinstance(content, bytes) else content.SerializeToString(), sentence)
    for name, content, sentence in (
        ("40 GB", large_constant(), "needs more memory than its limit of"),
        ("a loop for ever", endless(), "took longer than its limit of"),
        ("external data", _elsewhere(), "'W' is in another file; save the model as one file"),
        ("NaN", _not_a_number(), "'W' holds nan at place 7 (from 0)"),
        ("wrong dims", _wrong_dims(), "has the shape [32, 1099511627776] of float32"),
        ("custom operators", _custom(), "'com.mine.Secret'"),
        ("truncated", network().SerializeToString()[:-40], "damaged or cut off"),
        ("not ONNX", b"hello, this is no network", "no ONNX model"),
        ("empty", b"", "no ONNX model"),
        ("nothing to compress", small(), "nothing in the network can be compressed"),
    )
}
"""Bytes and a part of the sentence that refuses them, by what is wrong."""
