import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from models.graphs.layers import Spatial
from models.graphs.layers.patches import patches
from models.graphs.sessions import GraphSession
from tests.models.graphs.layer_graphs import Array, node


@st.composite
def windows(draw: st.DrawFn) -> tuple[Spatial, tuple[int, ...]]:
    """A window, and sizes into which it fits."""
    axes = draw(st.integers(1, 2))

    def numbers(low: int, high: int, count: int = axes) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(count))

    auto = draw(st.sampled_from(("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")))
    kernel, dilations, strides = numbers(1, 4), numbers(1, 2), numbers(1, 3)
    if auto.startswith("SAME"):
        # ONNX defines these for dilations of 1 alone.
        dilations = (1,) * axes
    pairs = zip(kernel, dilations, strict=True)
    sizes = tuple((k - 1) * d + 1 + draw(st.integers(0, 5)) for k, d in pairs)
    pads = numbers(0, 2, 2 * axes) if auto == "NOTSET" else (0,) * 2 * axes
    return Spatial(kernel, strides, dilations, pads, auto), sizes


def _convolved(value: Array, weight: Array, window: Spatial) -> Array:
    """What onnxruntime makes of it `[positions, out]`."""
    given = {name: getattr(window, name) for name in ("strides", "dilations", "auto_pad")}
    if window.auto_pad == "NOTSET":
        given["pads"] = window.pads
    graph = helper.make_graph(
        [node("Conv", "x", "w", **given)],
        "conv",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, value.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    answer = GraphSession(model.SerializeToString()).run({"x": value})["y"]
    return np.moveaxis(answer, 1, -1).reshape(-1, len(weight))


@given(windows(), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=60)
def test_a_convolution_multiplies_patches(
    drawn: tuple[Spatial, tuple[int, ...]], seed: int
) -> None:
    window, sizes = drawn
    generator = np.random.default_rng(seed)
    value = generator.standard_normal((2, 3, *sizes)).astype(np.float32)
    weight = generator.standard_normal((4, 3, *window.kernel)).astype(np.float32)
    wanted = _convolved(value, weight, window)
    found, count = patches(value, window, np.random.default_rng(0), most=10**6)
    assert count == len(wanted) == len(found)
    # Patches come in an order that is drawn.
    order = np.random.default_rng(0).permutation(count)
    made = found @ weight.reshape(4, -1).T
    assert np.allclose(made, wanted[order], atol=1e-4)


def test_fewer_patches_are_drawn_without_repetition() -> None:
    value = np.arange(40, dtype=np.float32).reshape(1, 1, 40)
    window = Spatial((1,), (1,), (1,), (0, 0))
    found, count = patches(value, window, np.random.default_rng(3), most=25)
    assert (count, found.shape) == (40, (25, 1))
    assert len(np.unique(found)) == 25


def test_a_window_that_does_not_fit_reads_nothing() -> None:
    window = Spatial((5,), (1,), (1,), (0, 0))
    found, count = patches(np.zeros((2, 3, 4), np.float32), window, np.random.default_rng(0), 9)
    assert (count, found.shape) == (0, (0, 15))


@pytest.mark.parametrize(("auto", "before"), [("SAME_UPPER", 0), ("SAME_LOWER", 1)])
def test_an_odd_zero_stands_behind_or_before(auto: str, before: int) -> None:
    window = Spatial((2,), (1,), (1,), (0, 0), auto)
    found, count = patches(np.ones((1, 1, 3), np.float32), window, np.random.default_rng(0), 9)
    assert count == 3
    padded = found[(found == 0).any(1)]
    assert padded.tolist() == [[0.0, 1.0] if before else [1.0, 0.0]]
