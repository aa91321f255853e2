"""Small networks with samples, on which a search over layers takes a second."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from models.graphs.reading import graph_facts
from search.graphs.evaluator import Evaluator, probed_offers
from search.graphs.network_data import NetworkSamples, network_samples
from search.graphs.picks import LayerOffers, Objective

INPUTS, HIDDEN, CLASSES = 40, 48, 6
SAMPLES = 160


def classifier(*, seed: int = 0, kind: type[np.floating[Any]] = np.float32) -> onnx.ModelProto:
    """Three products; samples are the first axis of everything."""
    generator = np.random.default_rng(seed)

    def weight(rows: int, columns: int) -> NDArray[Any]:
        # Some directions matter more than others, as in trained networks.
        scales = np.geomspace(1, 0.1, rows)[:, None]
        values = generator.standard_normal((rows, columns)) * scales / np.sqrt(rows)
        return (3 * values).astype(kind)

    weights = {"w1": weight(INPUTS, HIDDEN), "w2": weight(HIDDEN, HIDDEN)}
    # Of fewer than 1,024 numbers: it is left as it is.
    weights["w3"] = weight(HIDDEN, CLASSES)
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w2"], ["c"]),
        helper.make_node("Tanh", ["c"], ["d"]),
        helper.make_node("MatMul", ["d", "w3"], ["e"]),
        helper.make_node("Softmax", ["e"], ["y"], axis=-1),
    ]
    return _model(nodes, weights, [["N", INPUTS]], [["N", CLASSES]])


def recurrent() -> onnx.ModelProto:
    """An LSTM over samples of [steps, 1, features] that are fed one by one, with first states."""
    generator = np.random.default_rng(3)
    weights = {
        "W": generator.standard_normal((1, 4 * 20, 14)).astype(np.float32) / 3,
        "R": generator.standard_normal((1, 4 * 20, 20)).astype(np.float32) / 4,
        "P": generator.standard_normal((20, 1)).astype(np.float32),
    }
    nodes = [
        helper.make_node("LSTM", ["x", "W", "R", "", "", "h", "c"], ["s"], hidden_size=20),
        helper.make_node("MatMul", ["s", "P"], ["p"]),
        helper.make_node("Sigmoid", ["p"], ["y"]),
    ]
    states = [1, "N", 20]
    return _model(
        nodes, weights, [["T", "N", 14], states, states], [["T", 1, "N", 1]], names=("x", "h", "c")
    )


def vectors(count: int = SAMPLES, *, seed: int = 1) -> NDArray[Any]:
    generator = np.random.default_rng(seed)
    mixing = np.random.default_rng(7).standard_normal((INPUTS, INPUTS))
    mixed = generator.standard_normal((count, INPUTS)) @ (mixing * np.geomspace(1, 0.05, INPUTS)).T
    return (mixed / np.sqrt(INPUTS)).astype(np.float32)


def classifier_samples(model: onnx.ModelProto, count: int = SAMPLES) -> NetworkSamples:
    facts = graph_facts(model)
    return network_samples(facts.inputs, {"x": vectors(count).astype(facts.inputs[0].type)})


@functools.cache
def evaluator(
    objectives: tuple[Objective, ...] = ("bytes",), kind: type[np.floating[Any]] = np.float32
) -> Evaluator:
    model = classifier(kind=kind)
    samples = classifier_samples(model)
    return Evaluator(model.SerializeToString(), model, samples, objectives=objectives)


@functools.cache
def offers(objectives: tuple[Objective, ...] = ("bytes",)) -> tuple[LayerOffers, ...]:
    return probed_offers(evaluator(objectives))


def _model(
    nodes: Sequence[onnx.NodeProto],
    weights: dict[str, NDArray[Any]],
    inputs: Sequence[Sequence[int | str]],
    outputs: Sequence[Sequence[int | str]],
    names: Sequence[str] = ("x",),
) -> onnx.ModelProto:
    (kind,) = {value.dtype for value in weights.values()}
    element = helper.np_dtype_to_tensor_dtype(kind)

    def port(name: str, shape: Sequence[int | str]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, element, list(shape))

    graph = helper.make_graph(
        nodes,
        "small",
        [port(name, shape) for name, shape in zip(names, inputs, strict=True)],
        [port("y", shape) for shape in outputs],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
