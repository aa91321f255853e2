"""Weights are trained; bounds, masks, scales and statistics are not."""

import math

import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from models.errors import InterpreterError
from models.graphs.interpreter import GraphModule, trainable_names
from tests.models.graphs.interpreter.small_graphs import (
    model_of,
    normal,
    positive,
    real,
    whole,
)
from tests.models.graphs.interpreter.torch_networks import NETWORKS, exported, made

NODES = [
    helper.make_node("Conv", ["x", "kernel", "bias"], ["a"]),
    helper.make_node("BatchNormalization", ["a", "scale", "shift", "mean", "variance"], ["b"]),
    helper.make_node("Clip", ["b", "low", "high"], ["c"]),
    helper.make_node("Add", ["c", "mask"], ["d"]),
    helper.make_node("Mul", ["d", "factor"], ["e"]),
    helper.make_node("Resize", ["e", "", "scales"], ["f"]),
    helper.make_node("Reshape", ["f", "size"], ["y"]),
]
WEIGHTS = {
    "kernel": normal(2, 1, 3, 3),
    "bias": normal(2),
    "scale": normal(2),
    "shift": normal(2),
    "mean": normal(2),
    "variance": positive(2),
    "low": real(-1.0).reshape(()),
    "high": real(1.0).reshape(()),
    "mask": real(0, 0, -math.inf),
    "factor": real(0.5),
    "scales": real(1, 1, 2, 2),
    "size": whole(-1),
}
MODEL = model_of(
    NODES,
    {"x": normal(1, 1, 5, 5)},
    ["y"],
    [numpy_helper.from_array(value, name) for name, value in WEIGHTS.items()],
)


def test_weights_biases_and_means_are_named() -> None:
    assert trainable_names(MODEL) == ["kernel", "bias", "scale", "shift", "mean"]


def test_numbers_that_are_not_finite_cannot_be_trained() -> None:
    with pytest.raises(InterpreterError, match="mask has numbers that are not finite"):
        GraphModule(MODEL, ["mask"])


@pytest.mark.parametrize("name", NETWORKS)
def test_all_that_a_network_learned_is_named(name: str) -> None:
    """Folding, and what torch joins, may make fewer numbers of them, but no more and not half."""
    make, shape = NETWORKS[name]
    network = made(make)
    model = exported(network, torch.zeros(shape))
    named = set(trainable_names(model))
    kept = [one for one in model.graph.initializer if one.name in named]
    assert {one.data_type for one in kept} == {TensorProto.FLOAT}
    count = sum(math.prod(one.dims) for one in kept)
    learned = sum(one.numel() for one in network.parameters())
    assert 0.9 * learned <= count <= learned
