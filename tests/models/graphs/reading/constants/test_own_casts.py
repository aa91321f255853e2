"""Networks in half precision whose inputs, or some of whose nodes, have single precision."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import GraphProto, NodeProto, TensorProto, helper

from models.graphs.layers import find_layers
from models.graphs.reading import folded, read_graph
from tests.models.graphs.reading.graph_files import answers, model_of, port, tensor

SIZE = 40
DRAWN = np.random.default_rng(0).standard_normal((2, SIZE, SIZE)) / 6


def cast(read: str, made: str, to: int) -> NodeProto:
    return helper.make_node("Cast", [read], [made], to=to)


def half(read: str, made: str) -> NodeProto:
    return cast(read, made, TensorProto.FLOAT16)


def single(read: str, made: str) -> NodeProto:
    return cast(read, made, TensorProto.FLOAT)


def product(read: str, made: str) -> NodeProto:
    """With a matrix in half precision."""
    return helper.make_node("MatMul", [read, "V"], [made])


def branch(*nodes: NodeProto) -> GraphProto:
    return helper.make_graph(nodes, "b", [], [port(nodes[-1].output[0], None)])


WIDE_SOFTMAX = [
    half("x", "a"),
    product("a", "b"),
    single("b", "c"),
    helper.make_node("Softmax", ["c"], ["d"]),
    half("d", "e"),
    product("e", "f"),
    single("f", "y"),
]
NETWORKS: dict[str, list[NodeProto]] = {
    "inputs and outputs": [
        half("x", "a"),
        product("a", "b"),
        helper.make_node("Relu", ["b"], ["c"]),
        product("c", "d"),
        single("d", "y"),
    ],
    "the first half": [
        half("x", "a"),
        product("a", "b"),
        single("b", "c"),
        helper.make_node("MatMul", ["c", "W"], ["y"]),
    ],
    "all but a softmax": WIDE_SOFTMAX,
    # The runtime makes several nodes of one that it has for single precision alone.
    "a softmax first": [
        half("x", "a"),
        helper.make_node("Softmax", ["a"], ["b"]),
        product("b", "c"),
        single("c", "y"),
    ],
    "a cast that others read as it is": [
        half("x", "a"),
        product("a", "b"),
        helper.make_node("Transpose", ["a"], ["s"]),
        helper.make_node("Transpose", ["s"], ["t"]),
        helper.make_node("Reshape", ["a", "same"], ["r"]),
        helper.make_node("Concat", ["b", "r", "t"], ["c"], axis=0),
        single("c", "y"),
    ],
    "a comparison in half": [
        half("x", "a"),
        product("a", "b"),
        helper.make_node("Greater", ["b", "limit"], ["is_high"]),
        single("b", "c"),
        helper.make_node("Where", ["is_high", "c", "x"], ["y"]),
    ],
    "in a branch": [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["is_high"]),
        half("x", "a"),
        helper.make_node(
            "If",
            ["is_high"],
            ["y"],
            then_branch=branch(product("a", "b"), single("b", "c")),
            else_branch=branch(half("x", "d"), product("d", "e"), single("e", "f")),
        ),
    ],
}


def network(nodes: list[NodeProto]) -> onnx.ModelProto:
    read = {name for node in nodes for name in node.input}
    read |= {"V"} if any(node.op_type == "If" for node in nodes) else set()
    tensors = [
        tensor("W", DRAWN[0]),
        tensor("V", DRAWN[1], np.float16),
        tensor("U", DRAWN[0], np.float16),
        tensor("limit", 0.1, np.float16),
        tensor("zero", 0),
        tensor("same", [-1, SIZE], np.int64),
    ]
    model = model_of(
        nodes,
        inputs=[port("x", ("b", SIZE))],
        outputs=[port("y", None)],
        tensors=[one for one in tensors if one.name in read],
        opset=13,
    )
    return read_graph(model.SerializeToString())


@pytest.mark.parametrize("name", NETWORKS)
def test_casts_that_the_runtime_merged_with_its_own_are_brought_back(
    name: str, tmp_path: Path
) -> None:
    model = network(NETWORKS[name])
    drawn = np.random.default_rng(1).standard_normal((3, SIZE)).astype(np.float32)
    made = folded(model, tmp_path, feeds=[{"x": drawn}])
    assert made.kept_because is None
    assert {layer.weight for layer in find_layers(made.model)} == {
        one.name for one in model.graph.initializer if one.name in "VW"
    }
    for feed in (drawn, -drawn):
        (expected,), (found,) = (answers(one, {"x": feed}) for one in (model, made.model))
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    kinds = {one.name: one.data_type for one in made.model.graph.initializer}
    assert kinds["V"] == TensorProto.FLOAT16


@pytest.mark.parametrize("name", ["inputs and outputs", "the first half", "all but a softmax"])
def test_nodes_are_those_that_they_were(name: str, tmp_path: Path) -> None:
    model = network(NETWORKS[name])
    drawn = np.random.default_rng(1).standard_normal((3, SIZE)).astype(np.float32)
    made = folded(model, tmp_path, feeds=[{"x": drawn}]).model
    found, expected = (
        [(node.op_type, [*node.input], [*node.output]) for node in one.graph.node]
        for one in (made, model)
    )
    assert found == expected


def test_a_weight_that_is_assembled_of_halves_is_one_layer(tmp_path: Path) -> None:
    nodes = [
        half("x", "a"),
        helper.make_node("Concat", ["V", "U"], ["VU"], axis=1),
        helper.make_node("MatMul", ["a", "VU"], ["b"]),
        single("b", "y"),
    ]
    model = network(nodes)
    drawn = np.random.default_rng(1).standard_normal((3, SIZE)).astype(np.float32)
    (layer,) = find_layers(folded(model, tmp_path, feeds=[{"x": drawn}]).model)
    assert (layer.weight, layer.native, layer.element) == ("VU", (SIZE, 2 * SIZE), "float16")
