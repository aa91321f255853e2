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


@pytest.mark.parametrize("operator", ["Add", "Sub", "Max", "Min", "Sum"])
def test_what_is_only_added_is_no_layer(operator: str) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node(operator, ["h", "mask"], ["sum"]),
        helper.make_node("Softmax", ["sum"], ["y"]),
    ]
    weights = {"w": weight(37, 33), "mask": weight(33, 33)}
    assert [one.name for one in find_layers(_graph(nodes, weights, inputs={"x": [33, 37]}))] == [
        "w"
    ]


def test_a_table_that_is_added_to_activations_is_a_layer_and_a_bias_is_none() -> None:
    nodes = [
        helper.make_node("Add", ["x", "places"], ["a"]),
        helper.make_node("Add", ["b", "bias"], ["y"]),
    ]
    weights = {"places": weight(33, 37), "bias": weight(1, 2048)}
    given = {"x": [33, 37], "b": [5, 2048]}
    assert [one.name for one in find_layers(_graph(nodes, weights, inputs=given))] == ["places"]


def test_what_is_compared_or_selected_is_no_layer() -> None:
    nodes = [
        helper.make_node("Less", ["x", "bounds"], ["low"]),
        helper.make_node("Where", ["low", "filled", "x"], ["y"]),
    ]
    weights = {"bounds": weight(33, 37), "filled": weight(33, 37, seed=1)}
    assert not find_layers(_graph(nodes, weights, inputs={"x": [33, 37]}))


@pytest.mark.parametrize(
    ("node", "bias"),
    [
        (helper.make_node("Gemm", ["x", "w", "b"], ["y"]), (1025,)),
        (helper.make_node("LSTM", ["x", "w", "r", "b"], ["", "y"], hidden_size=130), (1, 1040)),
        (helper.make_node("Conv", ["x", "w", "b"], ["y"]), (1025,)),
    ],
    ids=lambda value: getattr(value, "op_type", None),
)
def test_a_long_bias_is_no_layer(node: onnx.NodeProto, bias: tuple[int, ...]) -> None:
    shapes = {
        "Gemm": {"w": (3, 1025), "b": bias},
        "LSTM": {"w": (1, 520, 3), "r": (1, 520, 130), "b": bias},
        "Conv": {"w": (1025, 3, 1), "b": bias},
    }[node.op_type]
    weights = {name: weight(*shape) for name, shape in shapes.items()}
    found = find_layers(_graph([node], weights, inputs={"x": [2, 3]}))
    assert [one.weight for one in found] == [name for name in weights if name != "b"]


def test_a_constant_that_is_cut_and_reshaped_before_it_is_added_is_no_layer() -> None:
    nodes = [
        helper.make_node("Slice", ["c", "zero", "count"], ["cut"]),
        helper.make_node("Unsqueeze", ["cut", "zero"], ["more"]),
        helper.make_node("Add", ["x", "more"], ["sum"]),
        helper.make_node("Softmax", ["sum"], ["y"]),
    ]
    given = {"x": [5, 33], "count": [1]}
    constants = {"c": weight(37, 33), "zero": np.array([0])}
    assert not find_layers(_graph(nodes, constants, inputs=given))
    # A product reads it as well.
    other = [*nodes, helper.make_node("MatMul", ["cut", "x"], ["z"])]
    assert [one.name for one in find_layers(_graph(other, constants, inputs=given))] == ["c"]


def test_a_weight_that_is_also_added_is_a_layer() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Add", ["h", "w"], ["y"]),
    ]
    (layer,) = find_layers(_graph(nodes, {"w": weight(35, 35)}, inputs={"x": [35, 35]}))
    assert (layer.role.kind, len(layer.readers)) == ("other", 2)


def test_rows_that_are_looked_up_and_added_are_a_layer() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["at"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "at"], ["rows"]),
        helper.make_node("Add", ["rows", "rows"], ["y"]),
    ]
    (layer,) = find_layers(_graph(nodes, {"table": weight(57, 21)}, inputs={"x": [5]}))
    assert layer.role.kind == "embedding"


def test_a_constant_with_infinities_is_no_layer() -> None:
    node = helper.make_node("Mul", ["x", "c"], ["y"])
    mask = np.triu(np.full((33, 33), -np.inf, np.float32), 1)
    assert not find_layers(_graph([node], {"c": mask}, inputs={"x": [33, 33]}))


def test_long_chains_of_reshapes_are_followed_to_their_end() -> None:
    views = [helper.make_node("Identity", [f"c{at}"], [f"c{at + 1}"]) for at in range(3000)]
    ends = {
        operator: helper.make_node(operator, ["x", "c3000"], ["y"]) for operator in ("Sub", "Mul")
    }
    for operator, end in ends.items():
        found = find_layers(_graph([*views, end], {"c0": weight(33, 33)}, inputs={"x": [33, 33]}))
        assert len(found) == (operator == "Mul")


def test_roles_have_kinds_of_their_own() -> None:
    assert len({role.kind for role in ROLES}) == len(ROLES)
