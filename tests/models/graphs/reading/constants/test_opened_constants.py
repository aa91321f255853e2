"""Constants behind nodes, and weights that are there several times."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper

from models.graphs.layers import find_layers
from models.graphs.reading import folded, read_graph
from models.graphs.reading.constants import opened, share_equal_weights
from tests.models.graphs.reading.graph_files import answers, model_of, port, tensor

SIZE = 37
"""No random input has as many columns, so that the runtime computes no constants."""

W = np.random.default_rng(0).standard_normal((SIZE, SIZE)) / 6


def node(operator: str, inputs: Sequence[str], output: str, **given: Any) -> NodeProto:
    return helper.make_node(operator, inputs, [output], **given)


def _model(
    nodes: Sequence[NodeProto], tensors: Sequence[TensorProto] | None = None
) -> onnx.ModelProto:
    made = model_of(
        nodes,
        inputs=[port("x", ("b", "n"))],
        outputs=[port("y", ("b", "n"))],
        tensors=[tensor("w", W)] if tensors is None else tensors,
    )
    return read_graph(made.SerializeToString())


def _same_answers(one: onnx.ModelProto, other: onnx.ModelProto) -> bool:
    feeds = {"x": np.random.default_rng(1).standard_normal((3, SIZE)).astype(np.float32)}
    return all(
        np.array_equal(*pair)
        for pair in zip(answers(one, feeds), answers(other, feeds), strict=True)
    )


WAYS: dict[str, tuple[list[NodeProto], list[TensorProto]]] = {
    "Constant": ([node("Constant", [], "t", value=tensor("w", W))], []),
    "Constant of another's name": (
        [node("Constant", [], "t", value=tensor("c", W))],
        [tensor("c", np.ones(SIZE))],
    ),
    "Identity": ([node("Identity", ["w"], "i"), node("Identity", ["i"], "t")], [tensor("w", W)]),
    "Transpose": ([node("Transpose", ["w"], "t")], [tensor("w", W)]),
    "Transpose twice": (
        [node("Transpose", ["w"], "s", perm=[1, 0]), node("Transpose", ["s"], "t", perm=[1, 0])],
        [tensor("w", W)],
    ),
    "Cast": (
        [node("Cast", ["w"], "t", to=TensorProto.FLOAT)],
        [tensor("w", W, np.float64)],
    ),
    "all": (
        [
            node("Constant", [], "c", value=tensor("", W, np.float64)),
            node("Cast", ["c"], "f", to=TensorProto.FLOAT),
            node("Identity", ["f"], "i"),
            node("Transpose", ["i"], "t"),
        ],
        [],
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_weight_behind_nodes_is_a_layer_where_the_runtime_computes_nothing(
    way: str, tmp_path: Path
) -> None:
    before, tensors = WAYS[way]
    bias = "c" if any(one.name == "c" for one in tensors) else "x"
    model = _model(
        [*before, node("MatMul", ["x", "t"], "h"), node("Add", ["h", bias], "y")], tensors
    )
    # Only an input of 37 columns runs, which none of the random ones has.
    made = folded(model, tmp_path)
    assert made.kept_because == "the model runs on none of the random inputs that were tried"
    (layer,) = find_layers(made.model)
    assert (layer.operator, layer.structured, layer.native) == ("MatMul", True, (SIZE, SIZE))
    assert [one.op_type for one in made.model.graph.node] == ["MatMul", "Add"]
    assert _same_answers(model, made.model)
    assert made.model.ByteSize() <= model.ByteSize()
    assert read_graph(made.model.SerializeToString()) == made.model


@pytest.mark.parametrize("way", WAYS)
def test_the_runtime_computes_such_constants_too(way: str, tmp_path: Path) -> None:
    before, tensors = WAYS[way]
    model = _model([*before, node("MatMul", ["x", "t"], "y")], tensors)
    feeds = [{"x": np.ones((3, SIZE), np.float32)}]
    made = folded(model, tmp_path, feeds=feeds)
    assert made.kept_because is None
    (layer,) = find_layers(made.model)
    assert (layer.operator, layer.structured) == ("MatMul", True)


def test_equal_nodes_of_all_steps_make_one_weight() -> None:
    nodes = [
        node("Transpose", ["w"], "t0", perm=[1, 0]),
        node("MatMul", ["x", "t0"], "h"),
        node("Transpose", ["w"], "t1", perm=[1, 0]),
        node("MatMul", ["h", "t1"], "y"),
    ]
    model = _model(nodes)
    made = opened(model)
    (layer,) = find_layers(made)
    assert (len(layer.readers), layer.structured) == (2, True)
    assert [one.name for one in made.graph.initializer] == ["t0"]
    assert _same_answers(model, made)


@pytest.mark.parametrize(
    "other",
    [
        node("MatMul", ["h", "w"], "y"),
        node("Gemm", ["h", "w"], "y", transB=1),
        node("Add", ["h", "turned"], "y"),
    ],
    ids=["product", "Gemm", "another order"],
)
def test_a_weight_that_is_read_as_it_is_too_stays_behind_its_node(other: NodeProto) -> None:
    more = [node("Transpose", ["w"], "turned", perm=[0, 1])] if "turned" in other.input else []
    nodes = [node("Transpose", ["w"], "t", perm=[1, 0]), *more, node("MatMul", ["x", "t"], "h")]
    model = _model([*nodes, other])
    made = opened(model)
    assert made == model


def test_halves_are_not_made_twice_as_large() -> None:
    nodes = [node("Cast", ["w"], "t", to=TensorProto.FLOAT), node("MatMul", ["x", "t"], "y")]
    model = _model(nodes, [tensor("w", W, np.float16)])
    assert opened(model) == model


def test_outputs_and_what_bodies_read_keep_their_names() -> None:
    def body(name: str) -> onnx.GraphProto:
        return helper.make_graph([node("MatMul", ["x", name], "out")], "b", [], [port("out")])

    nodes = [
        node("Identity", ["w"], "i"),
        node("Transpose", ["w"], "t"),
        helper.make_node("If", ["yes"], ["h"], then_branch=body("i"), else_branch=body("t")),
        node("Identity", ["h"], "y"),
    ]
    model = _model(nodes, [tensor("w", W), tensor("yes", True, np.bool_)])
    made = opened(model)
    assert [one.op_type for one in made.graph.node] == ["Transpose", "If", "Identity"]
    assert _same_answers(model, made)
    constant = _model([node("Identity", ["w"], "y"), node("Relu", ["x"], "r")])
    assert opened(constant) == constant


def test_what_no_runtime_would_turn_is_left_alone() -> None:
    nodes = [node("Transpose", ["w"], "t", perm=[0, 5]), node("MatMul", ["x", "t"], "y")]
    model = _model(nodes)
    assert opened(model) == model


def test_the_model_that_is_opened_stays_as_it_is() -> None:
    model = _model([node("Transpose", ["w"], "t"), node("MatMul", ["x", "t"], "y")])
    before = model.SerializeToString()
    opened(model)
    assert model.SerializeToString() == before


def test_equal_weights_are_one_layer(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["x", "w"], "h"), node("MatMul", ["h", "copy"], "y")]
    model = _model(nodes, [tensor("w", W), tensor("copy", W)])
    for feeds in (None, [{"x": np.ones((3, SIZE), np.float32)}]):
        made = folded(model, tmp_path, feeds=feeds).model
        (layer,) = find_layers(made)
        assert [reader.node for reader in layer.readers] == [0, 1]
        assert made.ByteSize() < 0.6 * model.ByteSize()
        assert _same_answers(model, made)


@pytest.mark.parametrize(
    ("nodes", "tensors"),
    [
        (
            [node("MatMul", ["x", "w"], "h"), node("Gemm", ["h", "copy"], "y", transB=1)],
            [tensor("w", W), tensor("copy", W)],
        ),
        (
            [node("MatMul", ["x", "w"], "h"), node("MatMul", ["h", "copy"], "y")],
            [tensor("w", W), tensor("copy", W + 1e-6)],
        ),
        (
            [node("MatMul", ["x", "w"], "h"), node("Add", ["h", "copy"], "y")],
            [tensor("w", np.zeros((SIZE, SIZE))), tensor("copy", np.zeros((SIZE, SIZE)))],
        ),
    ],
    ids=["read otherwise", "not equal", "other operator"],
)
def test_weights_that_are_not_the_same_stay_apart(
    nodes: Sequence[NodeProto], tensors: Sequence[TensorProto]
) -> None:
    model = _model(nodes, tensors)
    before = model.SerializeToString()
    share_equal_weights(model)
    assert model.SerializeToString() == before
