"""Windows, slices and pads of any size are where the runtime has them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.models.graphs.interpreter.small_graphs import Case, assert_same, normal

# Each example builds a session, which takes some milliseconds.
many = settings(
    max_examples=30, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


@st.composite
def windows(draw: st.DrawFn) -> dict[str, Any]:
    """Kernel, strides, dilations and pads of two axes."""
    two = st.lists(st.integers(1, 3), min_size=2, max_size=2)
    kernel = draw(two)
    strides, dilations = draw(two), draw(two)
    given_: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": strides,
        "dilations": dilations,
    }
    way = draw(st.sampled_from(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    given_["auto_pad"] = way
    if way.startswith("SAME"):
        # The runtime refuses dilations here, and cuts places off where strides are larger.
        given_["dilations"] = [1, 1]
        given_["strides"] = [min(pair) for pair in zip(kernel, strides, strict=True)]
    if way == "NOTSET":
        # Pooling refuses pads that are as large as the kernel.
        given_["pads"] = [draw(st.integers(0, kernel[place % 2] - 1)) for place in range(4)]
    return given_


def plane(channels: int = 2) -> st.SearchStrategy[Any]:
    # No smaller than the widest window: three places, two apart.
    sizes = st.tuples(st.integers(7, 10), st.integers(7, 10))
    return sizes.map(lambda size: normal(1, channels, *size))


@many
@given(x=plane(), window=windows(), groups=st.sampled_from([1, 2]))
def test_convolutions(x: Any, window: dict[str, Any], groups: int) -> None:
    weight = normal(4, 2 // groups, *window["kernel_shape"])
    case = Case("Conv", [x, weight], {**window, "group": groups})
    assert_same(case.model(), case.feeds())


@many
@given(
    x=plane(),
    window=windows(),
    groups=st.sampled_from([1, 2]),
    added=st.lists(st.integers(0, 2), min_size=2, max_size=2),
)
def test_transposed_convolutions(
    x: Any, window: dict[str, Any], groups: int, added: list[int]
) -> None:
    weight, bias = normal(2, 4 // groups, *window["kernel_shape"]), normal(4)
    # More places than a stride are never asked for.
    added = [min(one, stride - 1) for one, stride in zip(added, window["strides"], strict=True)]
    given_ = {**window, "group": groups, "output_padding": added}
    case = Case("ConvTranspose", [x, weight, bias], given_)
    assert_same(case.model(), case.feeds())


@many
@given(x=plane(), window=windows(), ceil=st.booleans())
def test_largest_numbers(x: Any, window: dict[str, Any], ceil: bool) -> None:
    case = Case("MaxPool", [x], {**window, "ceil_mode": int(ceil)})
    assert_same(case.model(), case.feeds())


@many
@given(x=plane(), window=windows(), ceil=st.booleans(), counted=st.booleans())
def test_means(x: Any, window: dict[str, Any], ceil: bool, counted: bool) -> None:
    given_ = {**window, "ceil_mode": int(ceil), "count_include_pad": int(counted)}
    case = Case("AveragePool", [x], given_, opset=19)
    assert_same(case.model(), case.feeds())


@many
@given(
    bounds=st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=3, max_size=3),
    steps=st.lists(st.sampled_from([-3, -2, -1, 1, 2, 3]), min_size=3, max_size=3),
)
def test_slices(bounds: list[tuple[int, int]], steps: list[int]) -> None:
    starts, ends = (np.array(one, np.int64) for one in zip(*bounds, strict=True))
    axes = np.array([0, -1, 1], np.int64)
    case = Case("Slice", [normal(5, 6, 7), starts, ends, axes, np.array(steps, np.int64)])
    assert_same(case.model(), case.feeds())


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@many
@given(amounts=st.lists(st.integers(-2, 3), min_size=4, max_size=4))
def test_pads(mode: str, amounts: list[int]) -> None:
    pads = np.array(amounts if mode == "constant" else np.abs(amounts), np.int64)
    case = Case("Pad", [normal(5, 6), pads], {"mode": mode}, opset=19)
    assert_same(case.model(), case.feeds())
