"""Nodes that round on the way compute what onnxruntime computes, and pass gradients."""

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from models.graphs.interpreter import GraphModule, equal_to_runtime
from tests.models.graphs.interpreter.small_graphs import (
    Array,
    assert_same,
    in_torch,
    model_of,
    normal,
    real,
)


def rounding(kind: type[np.int8] | type[np.uint8]) -> onnx.ModelProto:
    """Through 8 bits and back, by channel."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"], axis=1),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"], axis=1),
    ]
    weights = [
        numpy_helper.from_array(real(0.02, 0.1, 0.01), "scale"),
        numpy_helper.from_array(np.array([3, 0, 7], kind), "zero"),
    ]
    return model_of(nodes, {"x": normal(4, 3)}, ["y"], weights, opset=13)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_rounding_on_the_way_is_the_runtimes(kind: type[np.int8] | type[np.uint8]) -> None:
    assert_same(rounding(kind), {"x": normal(4, 3)})


def test_gradients_pass_rounding_but_not_its_bounds() -> None:
    module = GraphModule(rounding(np.int8))
    x = torch.tensor([[0.5, 0.5, 0.5], [100.0, 100.0, 100.0]], requires_grad=True)
    module({"x": x})["y"].sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]))


def test_rounding_without_a_zero_point_is_of_bytes() -> None:
    found: list[Array] = in_torch(
        model_of(
            [helper.make_node("QuantizeLinear", ["x", "scale"], ["q"])],
            {"x": real(-1, 0.4, 300)},
            ["q"],
            [numpy_helper.from_array(np.array(1, np.float32), "scale")],
        ),
        {"x": real(-1, 0.4, 300)},
    )
    np.testing.assert_array_equal(found[0], [0, 0, 255])


def integer_layer(operator: str, weight: Array, zero: Array, x: Array) -> onnx.ModelProto:
    """A layer as `quantize_dynamic` writes it, in whose sums all numbers are whole."""
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        helper.make_node(operator, ["q", "w", "zero", "w_zero"], ["sum"]),
        helper.make_node("Cast", ["sum"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["real", "scale"], ["y"]),
    ]
    weights = [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(zero, "w_zero")]
    return model_of(nodes, {"x": x}, ["y"], weights)


def integers(*shape: int) -> Array:
    """Of 7 bits: on processors without VNNI the runtime adds pairs of larger ones in 16 bits."""
    return np.random.default_rng(0).integers(-63, 64, shape).astype(np.int8)


MATRIX, KERNEL = normal(3, 6), normal(2, 3, 5, 5)
ZERO, COLUMNS = np.array(0, np.int8), np.array([1, -2, 0, 3], np.int8)


@pytest.mark.parametrize(
    ("operator", "weight", "zero", "x"),
    [
        ("MatMulInteger", integers(6, 4), ZERO, MATRIX),
        ("MatMulInteger", integers(6, 4), COLUMNS, MATRIX),
        ("MatMulInteger", integers(6, 4), ZERO, MATRIX * 0),
        ("ConvInteger", integers(4, 3, 3, 3), ZERO, KERNEL),
    ],
)
def test_a_layer_of_integers_is_the_runtimes(
    operator: str, weight: Array, zero: Array, x: Array
) -> None:
    assert_same(integer_layer(operator, weight, zero, x), {"x": x})


def test_gradients_pass_a_layer_of_integers() -> None:
    weight = integers(6, 4)
    module = GraphModule(integer_layer("MatMulInteger", weight, ZERO, MATRIX))
    x = torch.as_tensor(MATRIX).requires_grad_()
    module({"x": x})["y"].sum().backward()
    expected = torch.as_tensor(weight).float().sum(1).expand(3, 6)
    torch.testing.assert_close(x.grad, expected, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("element", [TensorProto.INT8, TensorProto.INT4])
def test_a_product_with_stored_integers_is_equal_to_the_runtimes(element: int) -> None:
    """All of its optimizations would make one node of both, which rounds what it reads."""
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "scales"], ["w"], axis=1),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    drawn = np.random.default_rng(0).integers(-7, 8, (40, 32))
    weights = [
        helper.make_tensor("q", element, drawn.shape, drawn.reshape(-1)),
        numpy_helper.from_array(np.geomspace(0.01, 0.1, 32).astype(np.float32), "scales"),
    ]
    feeds = {"x": normal(5, 40)}
    model = model_of(nodes, feeds, ["y"], weights, opset=21)
    assert equal_to_runtime(model, GraphModule(model), [feeds]).equal
