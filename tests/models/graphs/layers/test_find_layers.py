import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from models.graphs.layers import ROLES, Layer, find_layers
from tests.models.graphs.layer_graphs import GRAPHS, Array, Small, weight


def _only(small: Small) -> Layer:
    (layer,) = find_layers(small.model())
    return layer


def _graph(
    nodes: list[onnx.NodeProto], weights: dict[str, Array], *, inputs: dict[str, list[int]]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, None])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("name", GRAPHS)
def test_matrices_hold_the_weight_and_give_it_back(name: str) -> None:
    model = GRAPHS[name]().model()
    values = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    layers = find_layers(model)
    assert layers
    for layer in layers:
        value = values[layer.weight]
        assert layer.native == value.shape
        assert layer.stored_bytes == value.nbytes
        assert np.array_equal(layer.role.arrangement.restored(layer.matrices), value)
        assert layer.matrices.shape == (layer.directions, layer.rows, layer.columns)


@pytest.mark.parametrize("name", ["matmul", "gemm with transA", "gemm with transB", "gemm"])
def test_a_product_is_one_of_rows_with_the_matrix(name: str) -> None:
    small = GRAPHS[name]()
    layer = _only(small)
    stored = small.weights["w"]
    wanted = stored if name == "gemm with transB" else stored.T
    assert np.array_equal(layer.matrices[0], wanted)
    assert (layer.structured, layer.runs) == (True, True)


def test_a_convolution_is_a_matrix_of_patches_with_its_window() -> None:
    layer = _only(GRAPHS["convolution"]())
    assert layer.matrices.shape == (1, 19, 63)
    assert layer.spatial is not None
    assert (layer.spatial.kernel, layer.spatial.strides) == ((3, 3), (2, 1))
    assert (layer.spatial.dilations, layer.spatial.pads) == ((1, 2), (1, 0, 2, 3))


@pytest.mark.parametrize("name", ["grouped convolution", "depthwise convolution", "batched matmul"])
def test_groups_and_batches_have_bits_alone(name: str) -> None:
    layer = _only(GRAPHS[name]())
    assert (layer.structured, layer.runs, layer.quantized) == (False, False, False)


def test_a_transposed_convolution_has_a_row_for_each_output() -> None:
    small = GRAPHS["transposed convolution"]()
    matrices = _only(small).matrices
    assert matrices.shape == (1, 13, 81)
    assert np.array_equal(matrices[0, 4], small.weights["w"][:, 4].reshape(-1))


def test_directions_are_matrices_of_their_own_and_are_never_run_as_factors() -> None:
    layers = find_layers(GRAPHS["lstm in both directions"]().model())
    assert [(layer.name, layer.matrices.shape) for layer in layers] == [
        ("W", (2, 76, 17)),
        ("R", (2, 76, 19)),
    ]
    assert all(layer.structured and not layer.runs for layer in layers)


def test_a_shared_weight_is_one_layer_whose_factors_are_not_run() -> None:
    layer = _only(GRAPHS["shared"]())
    assert [reader.node for reader in layer.readers] == [0, 2]
    assert (layer.structured, layer.runs) == (True, False)


def test_a_weight_that_is_read_in_two_ways_has_bits_alone() -> None:
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["h"]),
        helper.make_node("Gemm", ["h", "w"], ["y"], transB=1),
    ]
    (layer,) = find_layers(_graph(nodes, {"w": weight(33, 37)}, inputs={"x": [5, 33]}))
    assert (layer.role.kind, layer.structured, len(layer.readers)) == ("other", False, 2)


def test_integers_are_listed_and_their_scales_are_not() -> None:
    integers = np.zeros((1500, 3), np.int8)
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "scale"], ["w"], axis=0),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    scales = np.ones(1500, np.float32)
    model = _graph(nodes, {"q": integers, "scale": scales}, inputs={"x": [2, 1500]})
    (layer,) = find_layers(model)
    assert (layer.weight, layer.quantized, layer.element) == ("q", True, None)
    assert layer.matrices.dtype == np.int8


def test_names_that_tools_made_up_become_those_of_the_operator() -> None:
    small = GRAPHS["lstm"]()
    model = small.model()
    for tensor, name in zip(model.graph.initializer, ("onnx::LSTM_12", "13", "B"), strict=True):
        tensor.name = name
    model.graph.node[0].input[1:3] = ["onnx::LSTM_12", "13"]
    layers = find_layers(model)
    assert [(layer.name, layer.weight) for layer in layers] == [
        ("LSTM.0.W", "onnx::LSTM_12"),
        ("LSTM.0.R", "13"),
    ]


@pytest.mark.parametrize("name", ["encoder.layers.0.weight", "W1", "conv2d_160.w_0"])
def test_names_that_say_something_stay(name: str) -> None:
    node = helper.make_node("MatMul", ["x", name], ["y"])
    (layer,) = find_layers(_graph([node], {name: weight(37, 33)}, inputs={"x": [5, 37]}))
    assert layer.name == name


def test_names_are_unique() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "MatMul.1"], ["h"]),
        helper.make_node("MatMul", ["h", "onnx::MatMul_7"], ["y"]),
    ]
    weights = {"MatMul.1": weight(35, 35), "onnx::MatMul_7": weight(35, 35)}
    layers = find_layers(_graph(nodes, weights, inputs={"x": [5, 35]}))
    assert len({layer.name for layer in layers}) == len(layers) == 2


def test_small_weights_and_those_that_are_inputs_are_left_alone() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "small"], ["h"]),
        helper.make_node("MatMul", ["h", "given"], ["y"]),
    ]
    weights = {"small": weight(33, 31), "given": weight(31, 37)}
    assert not find_layers(_graph(nodes, weights, inputs={"x": [5, 33], "given": [31, 37]}))


def test_weights_of_old_files_are_inputs_and_layers() -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = _graph([node], {"w": weight(37, 33)}, inputs={"x": [5, 37], "w": [37, 33]})
    model.ir_version = 3
    assert [layer.name for layer in find_layers(model)] == ["w"]


def test_a_weight_that_a_body_reads_too_keeps_its_factors_together() -> None:
    body = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["z"])],
        "body",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("If", ["yes"], ["i"], then_branch=body, else_branch=body),
        helper.make_node("Add", ["h", "i"], ["y"]),
    ]
    weights = {"w": weight(37, 33), "yes": np.array(True)}
    (layer,) = find_layers(_graph(nodes, weights, inputs={"x": [5, 37]}))
    assert (layer.structured, layer.runs, len(layer.readers)) == (True, False, 1)
    (alone,) = find_layers(_graph(nodes[1:], weights, inputs={"x": [5, 37], "h": [5, 33]}))
    assert (alone.role.kind, alone.structured) == ("other", False)


def test_roles_have_kinds_of_their_own() -> None:
    assert len({role.kind for role in ROLES}) == len(ROLES)
