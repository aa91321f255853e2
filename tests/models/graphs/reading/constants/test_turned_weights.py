"""A table that a network looks up, and by which, turned, it gives its answers."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper

from models.graphs.fits import Dense, LayerFitter
from models.graphs.interpreter import GraphModule, trainable_names
from models.graphs.layers import find_layers
from models.graphs.network_facts import network_facts
from models.graphs.reading import folded, read_graph
from models.graphs.writing import written
from tests.models.graphs.reading.graph_files import answers, model_of, port, tensor

ROWS, SIZE = 60, 24
TABLE = np.random.default_rng(0).standard_normal((ROWS, SIZE)) / 5
FEED = {"tokens": np.arange(6).reshape(2, 3)}


def tied(*turning: NodeProto, kind: type[np.floating] = np.float32) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Gather", ["E", "tokens"], ["e"]),
        helper.make_node("Tanh", ["e"], ["h"]),
        *turning,
        helper.make_node("MatMul", ["h", "turned"], ["y"]),
    ]
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    model = model_of(
        nodes,
        inputs=[port("tokens", ("b", "t"), TensorProto.INT64)],
        outputs=[port("y", ("b", "t", ROWS), element)],
        tensors=[tensor("E", TABLE, kind)],
    )
    return read_graph(model.SerializeToString())


TURNING = helper.make_node("Transpose", ["E"], ["turned"], perm=[1, 0])


@pytest.mark.parametrize(
    "model",
    [
        tied(TURNING),
        tied(TURNING, kind=np.float16),
        tied(
            helper.make_node("Identity", ["E"], ["same"]),
            helper.make_node("Transpose", ["same"], ["turned"], perm=[1, 0]),
        ),
    ],
    ids=["single", "half", "under another name"],
)
def test_a_table_is_stored_once(model: onnx.ModelProto, tmp_path: Path) -> None:
    made = folded(model, tmp_path)
    assert made.kept_because is None
    assert [one.name for one in made.model.graph.initializer] == ["E"]
    assert network_facts(made.model, kept_because=None).parameters == ROWS * SIZE
    for found, expected in zip(answers(made.model, FEED), answers(model, FEED), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    assert read_graph(made.model.SerializeToString()) == made.model


def test_what_is_stored_otherwise_is_otherwise_for_both(tmp_path: Path) -> None:
    made = folded(tied(TURNING), tmp_path).model
    (layer,) = find_layers(made)
    assert (layer.name, [made.graph.node[one.node].op_type for one in layer.readers]) == (
        "E",
        ["Transpose", "Gather"],
    )
    fit = LayerFitter(layer).fit(Dense(bits=3))
    (found,) = answers(written(made, [layer], {"E": fit}), FEED)
    table = fit.matrices(layer)[0]
    assert np.abs(table - TABLE).max() > 0.01
    expected = np.tanh(table[FEED["tokens"]]) @ table.T
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_both_are_trained_as_one(tmp_path: Path) -> None:
    made = folded(tied(TURNING), tmp_path).model
    assert trainable_names(made) == ["E"]
    (parameter,) = GraphModule(made, ["E"]).parameters()
    assert list(parameter.shape) == [ROWS, SIZE]


def test_a_weight_that_is_read_turned_alone_stays_turned(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Transpose", ["E"], ["turned"]),
        helper.make_node("MatMul", ["x", "turned"], ["y"]),
    ]
    model = model_of(
        nodes,
        inputs=[port("x", ("b", SIZE))],
        outputs=[port("y", ("b", ROWS))],
        tensors=[tensor("E", TABLE)],
    )
    made = folded(model, tmp_path, feeds=[{"x": np.ones((2, SIZE), np.float32)}])
    assert made.kept_because is None
    assert [one.name for one in made.model.graph.initializer] == ["turned"]
    assert [node.op_type for node in made.model.graph.node] == ["MatMul"]
