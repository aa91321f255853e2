import json
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from models.errors import ExportError
from models.graphs.fits import Dense, Fit, LayerFitter, LowRank
from models.graphs.layers import find_layers
from models.graphs.sessions import GraphSession
from models.graphs.writing import LOWEST_OPSET, predicted_bytes, written
from tests.models.graphs.layer_graphs import GRAPHS, Small, node, weight


def _fits(model: onnx.ModelProto, bits: int = 4) -> dict[str, Fit]:
    choice = Dense.model_validate({"bits": bits})
    return {layer.name: LayerFitter(layer).fit(choice) for layer in find_layers(model)}


def test_the_model_stays_as_it_was() -> None:
    model = GRAPHS["convolution"]().model()
    before = model.SerializeToString()
    written(model, find_layers(model), _fits(model), metadata={"trial": "3"})
    assert model.SerializeToString() == before


def test_layers_without_a_fit_stay_as_they_are() -> None:
    model = GRAPHS["lstm"]().model()
    layers = find_layers(model)
    unchanged = LayerFitter(layers[0]).fit(Dense())
    made = written(model, layers, {layers[0].name: unchanged})
    assert list(made.graph.initializer) == list(model.graph.initializer)
    assert list(made.graph.node) == list(model.graph.node)
    assert predicted_bytes(model, layers, {layers[0].name: Dense()}) == pytest.approx(
        made.ByteSize(), abs=30
    )


def test_a_file_says_what_was_chosen() -> None:
    model = GRAPHS["matmul"]().model()
    layers = find_layers(model)
    fit = LayerFitter(layers[0]).fit(LowRank(rank=5, bits=8, run=True))
    made = written(model, layers, {"w": fit}, metadata={"study": "s1"})
    found = {entry.key: entry.value for entry in made.metadata_props}
    assert json.loads(found["reflectory.choices"]) == {
        "w": {"kind": "low_rank", "rank": 5, "bits": 8, "run": True}
    }
    assert found["reflectory.study"] == "s1"


def test_a_lower_operator_set_is_refused() -> None:
    model = GRAPHS["matmul"]().model()
    model.opset_import[0].version = LOWEST_OPSET - 1
    with pytest.raises(ExportError, match="operator set is 10; allowed is 11"):
        written(model, find_layers(model), {})


def test_a_file_of_an_old_version_needs_its_weights_as_inputs_no_more() -> None:
    small = GRAPHS["gemm"]()
    model = small.model(11)
    model.ir_version = 3
    for tensor in model.graph.initializer:
        model.graph.input.append(
            helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        )
    made = written(model, find_layers(model), _fits(model))
    onnx.checker.check_model(made, full_check=True)
    assert [entry.name for entry in made.graph.input] == ["x"]
    feed = small.feeds(1)[0]
    wanted = GraphSession(model.SerializeToString()).run(feed)["y"]
    found = GraphSession(made.SerializeToString()).run(feed)["y"]
    assert 0 < np.abs(found - wanted).max() < 0.5 * np.abs(wanted).max()


def test_bodies_read_the_weight_by_its_name() -> None:
    body = helper.make_graph(
        [node("MatMul", "x", "w", outputs=["z"])],
        "body",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
    )
    nodes = [
        node("MatMul", "x", "w", outputs=["h"]),
        helper.make_node("If", ["yes"], ["i"], then_branch=body, else_branch=body),
        node("Sub", "h", "i"),
    ]
    weights = {"w": weight(37, 33), "yes": np.array(True)}
    small = Small("product", nodes, weights, (5, 37))
    model = small.model()
    made = written(model, find_layers(model), _fits(model, 2))
    answer = GraphSession(made.SerializeToString()).run(small.feeds(1)[0])["y"]
    assert not np.abs(answer).max() > 1e-6


def test_names_of_the_graph_are_not_given_again() -> None:
    small = Small(
        "product",
        [node("MatMul", "x", "w", outputs=["~a"]), node("Add", "~a", "~b")],
        {"w": weight(37, 33), "~b": weight(33)},
        (5, 37),
    )
    model = small.model()
    made = written(model, find_layers(model), _fits(model))
    onnx.checker.check_model(made, full_check=True)
    feed = small.feeds(1)[0]
    wanted = GraphSession(model.SerializeToString()).run(feed)["y"]
    found = GraphSession(made.SerializeToString()).run(feed)["y"]
    assert np.abs(found - wanted).max() < 0.5 * np.abs(wanted).max()


def test_two_layers_of_factors_run_in_their_places() -> None:
    nodes = [
        node("MatMul", "x", "v", outputs=["h"]),
        node("Relu", "h", outputs=["r"]),
        node("Gemm", "r", "w", "b", transB=1, alpha=0.5),
    ]
    weights = {"v": weight(37, 41), "w": weight(33, 41), "b": weight(33)}
    small = Small("product", nodes, weights, (5, 37))
    model = small.model()
    layers = find_layers(model)
    fits = {
        layer.name: LayerFitter(layer).fit(LowRank(rank=min(layer.rows, layer.columns), run=True))
        for layer in layers
    }
    made = written(model, layers, fits)
    kinds = [one.op_type for one in made.graph.node]
    assert kinds.count("MatMul") + kinds.count("Gemm") == 4
    kept = {tensor.name for tensor in made.graph.initializer}
    assert not {"v", "w"} & kept
    feed = small.feeds(1)[0]
    wanted = GraphSession(model.SerializeToString()).run(feed)["y"]
    found = GraphSession(made.SerializeToString()).run(feed)["y"]
    assert found == pytest.approx(wanted, abs=1e-5 * float(np.abs(wanted).max()))


def test_bytes_of_many_layers_are_predicted() -> None:
    names = [f"w{place}" for place in range(12)]
    values = ["x", *(f"h{place}" for place in range(11)), "y"]
    nodes = [
        node("MatMul", values[place], name, outputs=[values[place + 1]])
        for place, name in enumerate(names)
    ]
    small = Small("product", nodes, {name: weight(64, 64, seed=3) for name in names}, (2, 64))
    model = small.model()
    layers = find_layers(model)
    for choice in (Dense(bits=2, group=32), Dense(bits=3), LowRank(rank=9, bits=8), Dense(bits=8)):
        fits = {layer.name: LayerFitter(layer).fit(choice) for layer in layers}
        real = written(model, layers, fits).ByteSize()
        predicted = predicted_bytes(model, layers, dict.fromkeys(names, choice))
        assert abs(predicted - real) < 0.02 * real + 512 * len(layers)
        # Most of what is left is what nodes are named.
        assert abs(predicted - real) < 200 * len(layers)


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_bytes_of_one_layer_of_packed_factors_are_predicted(
    kind: type[np.floating[Any]],
) -> None:
    weights = {"w": weight(64, 32, 3, 3).astype(kind)}
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    nodes = [node("Conv", "x", "w")]
    model = Small("convolution", nodes, weights, (2, 32, 9, 9), element=element).model()
    layers = find_layers(model)
    for run in (False, True):
        choice = LowRank(rank=6, bits=3, group=32, run=run)
        fits = {"w": LayerFitter(layers[0]).fit(choice)}
        real = written(model, layers, fits).ByteSize()
        assert abs(predicted_bytes(model, layers, {"w": choice}) - real) < 0.02 * real + 512


def test_constants_are_stored_as_small_as_they_are_counted() -> None:
    model = GRAPHS["matmul"]().model()
    (layer,) = find_layers(model)
    made = written(model, [layer], _fits(model, 3))
    arrays = [numpy_helper.to_array(tensor) for tensor in made.graph.initializer]
    assert sum(array.nbytes for array in arrays if array.size > 30) == Dense(bits=3).bytes(layer)
