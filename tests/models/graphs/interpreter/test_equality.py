"""Where torch and onnxruntime differ is said by node."""

import math

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from models.errors import GraphRefused
from models.graphs.interpreter import GraphModule, equal_to_runtime
from models.graphs.interpreter.equality import difference
from tests.models.graphs.interpreter.small_graphs import Array, model_of, normal, real

DEPTH = 150
"""More nodes than are compared at once."""


def chain(factor_at: int | None = None) -> onnx.ModelProto:
    """Products with 1, of which one may have another factor."""
    nodes = [
        helper.make_node("Mul", [f"v{place}", f"w{place}"], [f"v{place + 1}"], name=f"n{place}")
        for place in range(DEPTH)
    ]
    weights = [
        numpy_helper.from_array(real(1.5 if place == factor_at else 1.0), f"w{place}")
        for place in range(DEPTH)
    ]
    return model_of(nodes, {"v0": normal(4)}, [f"v{DEPTH}"], weights)


FEED = {"v0": normal(4)}


def test_the_same_numbers_are_equal() -> None:
    found = equal_to_runtime(chain(), GraphModule(chain()), [FEED])
    assert found.equal
    assert (found.operator, found.node) == (None, None)


@pytest.mark.parametrize("place", [0, 63, 64, 149])
def test_the_first_node_that_differs_is_named(place: int) -> None:
    found = equal_to_runtime(chain(), GraphModule(chain(place)), [FEED])
    assert not found.equal
    assert (found.operator, found.node, found.value) == ("Mul", f"n{place}", f"v{place + 1}")
    assert found.output == f"v{DEPTH}"
    assert f"Mul (n{place})" in found.sentence()


def amplified(factor: float, weight: float = 1.0) -> onnx.ModelProto:
    """A difference of two numbers that are nearly equal, times a factor."""
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["a"], name="product"),
        helper.make_node("Sub", ["a", "one"], ["b"]),
        helper.make_node("Mul", ["b", "factor"], ["y"]),
    ]
    weights = {"w": weight, "one": 1.0, "factor": factor}
    held = [numpy_helper.from_array(real(value), name) for name, value in weights.items()]
    return model_of(nodes, {"x": real(1, 1.005)}, ["y"], held)


def test_rounding_that_grows_on_its_way_is_let_pass() -> None:
    """The product is off by eight of its last places, 1e-6; of the output that is 1.9e-4."""
    feeds = [{"x": real(1, 1.005)}]
    found = equal_to_runtime(amplified(1000), GraphModule(amplified(1000, 1 + 2**-20)), feeds)
    # The largest answer is 1000 times 0.005.
    assert found.difference == pytest.approx(1000 * 2**-20 / 5, rel=0.05)
    assert found.rounding is not None
    assert found.tolerance < found.difference < found.allowed
    assert (found.equal, found.operator) == (True, None)
    assert found.sentence().startswith("torch and onnxruntime differ by 1.9e-04")


def test_what_is_more_than_rounding_is_said_to_be_no_operators_fault() -> None:
    """The product is off by half of the tolerance, hundreds of last places."""
    feeds = [{"x": real(1, 1.005)}]
    found = equal_to_runtime(amplified(100), GraphModule(amplified(100, 1.00005)), feeds)
    assert (found.equal, found.operator) == (False, None)
    assert "more than 32 times what a rounding of weights does" in found.sentence()


def test_a_fault_that_ends_near_enough_to_be_rounding_is_a_fault() -> None:
    """By three times the tolerance, at a node that does so by itself."""
    feeds = [{"x": real(1, 1.005)}]
    found = equal_to_runtime(amplified(1), GraphModule(amplified(1, 1.0003)), feeds)
    assert found.difference == pytest.approx(3e-4, rel=0.01)
    assert (found.equal, found.node) == (False, "product")


def test_only_the_feed_that_differs_is_needed_to_find_it() -> None:
    feeds = [{"v0": np.zeros(4, np.float32)}, FEED]
    assert not equal_to_runtime(chain(), GraphModule(chain(7)), feeds).equal


def test_a_feed_that_does_not_fit_is_refused() -> None:
    with pytest.raises(GraphRefused, match="onnxruntime does not run the graph"):
        equal_to_runtime(chain(), GraphModule(chain()), [{"v0": normal(2, 2, 2)}])


@pytest.mark.parametrize(
    ("expected", "found", "wanted"),
    [
        (real(1, 2), real(1, 2.5), 0.25),
        (real(0.1, 0.2), real(0.1, 0.3), 0.1),
        (real(-math.inf, 4), real(-math.inf, 4), 0.0),
        (real(-math.inf, 4), real(-1e9, 4), math.inf),
        (real(math.nan), real(math.nan), 0.0),
        (real(1), real(math.nan), math.inf),
        (real(1, 2), real(1, 2)[None], math.inf),
        (real(), real(), 0.0),
    ],
)
def test_differences_are_shares_of_the_largest_number(
    expected: Array, found: Array, wanted: float
) -> None:
    assert difference(expected, found) == pytest.approx(wanted)


def in_halves(weight: Array) -> onnx.ModelProto:
    """A product and a softmax of numbers in half precision."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="product"),
        helper.make_node("Softmax", ["a"], ["y"], axis=-1),
    ]
    held = [numpy_helper.from_array(weight.astype(np.float16), "w")]
    return model_of(nodes, {"x": normal(7, 20).astype(np.float16)}, ["y"], held)


def test_half_precision_is_computed_in_single_and_held_to_its_own_roundings() -> None:
    weight = normal(20, 30)
    model = in_halves(weight)
    feeds = [{"x": normal(7, 20).astype(np.float16)}]
    module = GraphModule(model, ["w"])
    assert module.trained()["w"].dtype == np.float32
    found = equal_to_runtime(model, module, feeds)
    assert found.equal
    assert found.tolerance == 2**-9
    other = equal_to_runtime(model, GraphModule(in_halves(1.01 * weight)), feeds)
    assert (other.equal, other.node) == (False, "product")
