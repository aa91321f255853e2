"""Nodes with graphs within them."""

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from models.graphs.interpreter import GraphModule, missing_operators
from tests.models.graphs.interpreter.small_graphs import (
    assert_same,
    model_of,
    normal,
    real,
)

FLOAT, INTEGER, TRUTH = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def body(
    nodes: list[onnx.NodeProto],
    inputs: list[tuple[str, int]],
    outputs: list[tuple[str, int]],
    weights: list[onnx.TensorProto] | None = None,
) -> onnx.GraphProto:
    def described(values: list[tuple[str, int]]) -> list[Any]:
        # The runtime wants to know that turns and conditions are single values.
        return [
            helper.make_tensor_value_info(name, kind, None if kind == FLOAT else [])
            for name, kind in values
        ]

    return helper.make_graph(
        nodes, "body", described(inputs), described(outputs), initializer=weights or []
    )


def conditional(weights: list[onnx.TensorProto]) -> onnx.ModelProto:
    """A product with a weight that lies outside the branches, or twice the input."""
    then = body([helper.make_node("MatMul", ["x", "w"], ["a"])], [], [("a", FLOAT)])
    two = [numpy_helper.from_array(real(2.0), "two")]
    other = body([helper.make_node("Mul", ["x", "two"], ["b"])], [], [("b", FLOAT)], two)
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    last = helper.make_node("Neg", ["y"], ["z"])
    fed = {"x": normal(3, 3), "c": np.array([True])}
    return model_of([node, last], fed, ["z"], weights)


def weight() -> list[onnx.TensorProto]:
    return [numpy_helper.from_array(normal(3, 3, seed=1), "w")]


@pytest.mark.parametrize("condition", [True, False])
def test_a_branch_is_taken(condition: bool) -> None:
    assert_same(conditional(weight()), {"x": normal(3, 3), "c": np.array([condition])})


def test_a_gradient_reaches_a_weight_that_a_branch_reads() -> None:
    module = GraphModule(conditional(weight()), ["w"])
    x = torch.as_tensor(normal(3, 3))
    module({"x": x, "c": torch.tensor([True])})["z"].sum().backward()
    (parameter,) = module.parameters()
    torch.testing.assert_close(parameter.grad, -x.sum(0)[:, None].expand(3, 3))


@pytest.mark.parametrize("most", [1, 4, 9])
def test_a_loop_carries_and_stacks(most: int) -> None:
    """Doubles until a sum is above 10, and gives what it had on the way."""
    inner = body(
        [
            helper.make_node("Add", ["h", "h"], ["next"]),
            helper.make_node("Add", ["h", "x"], ["seen"]),
            helper.make_node("Less", ["next", "limit"], ["again"]),
        ],
        [("turn", INTEGER), ("goes_on", TRUTH), ("h", FLOAT)],
        [("again", TRUTH), ("next", FLOAT), ("seen", FLOAT)],
    )
    node = helper.make_node("Loop", ["most", "", "start"], ["end", "all"], body=inner)
    feeds = {
        "most": np.array(most, np.int64),
        "start": np.array(1, np.float32),
        "x": real(0.5, 1.5),
    }
    weights = [numpy_helper.from_array(np.array(10, np.float32), "limit")]
    assert_same(model_of([node], feeds, ["end", "all"], weights), feeds)


@pytest.mark.parametrize("backwards", [0, 1])
def test_a_scan_goes_through_slices(backwards: int) -> None:
    inner = body(
        [
            helper.make_node("MatMul", ["h", "w"], ["product"]),
            helper.make_node("Add", ["product", "part"], ["next"]),
            helper.make_node("Relu", ["next"], ["seen"]),
        ],
        [("h", FLOAT), ("part", FLOAT)],
        [("next", FLOAT), ("seen", FLOAT)],
    )
    node = helper.make_node(
        "Scan",
        ["h0", "x"],
        ["end", "all"],
        body=inner,
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_input_directions=[backwards],
        scan_output_axes=[1],
        scan_output_directions=[backwards],
    )
    feeds = {"h0": normal(2, 3), "x": normal(2, 5, 3)}
    assert_same(model_of([node], feeds, ["end", "all"], weight()), feeds)


def test_what_a_body_lacks_is_missing() -> None:
    then = body([helper.make_node("Multinomial", ["x"], ["a"])], [], [("a", INTEGER)])
    other = body([helper.make_node("Unknown", ["x"], ["b"])], [], [("b", INTEGER)])
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    feeds = {"x": normal(3, 3), "c": np.array([True])}
    assert missing_operators(model_of([node], feeds, ["y"])) == ["Multinomial", "Unknown"]
