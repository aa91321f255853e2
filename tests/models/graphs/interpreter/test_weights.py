"""Weights that stand for initializers: what they store is what they compute with."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from models.graphs.interpreter import (
    CorrectedWeight,
    FullWeight,
    LowRankWeight,
    RoundedNumbers,
    RoundedWeight,
    ShapedWeight,
    Weight,
    WeightBits,
    weight_of,
)
from models.graphs.interpreter.rounded_weight import largest
from tests.models.graphs.interpreter.small_graphs import Array, normal

BITS: tuple[WeightBits, ...] = (8, 4, 3, 2)


def matrix(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.as_tensor(normal(rows, columns, seed=seed))


def values(weight: Weight, part: str = "weight") -> Array:
    numbers = weight.stored()[part]
    return numbers.values() if isinstance(numbers, RoundedNumbers) else numbers


@pytest.mark.parametrize("bits", BITS)
@given(rows=st.integers(1, 7), groups=st.integers(1, 3), size=st.integers(1, 9))
def test_what_is_stored_is_exactly_what_is_computed(
    bits: WeightBits, rows: int, groups: int, size: int
) -> None:
    weight = RoundedWeight.nearest(matrix(rows, groups * size), bits, size)
    numbers = weight.stored()["weight"]
    assert isinstance(numbers, RoundedNumbers)
    assert numbers.integers.shape == (rows, groups * size)
    assert numbers.scales.shape == (rows, groups)
    assert (numbers.integers.dtype, numbers.scales.dtype) == (np.int8, np.float16)
    assert np.abs(numbers.integers).max() <= largest(bits)
    np.testing.assert_array_equal(numbers.values(), weight().detach().numpy())


@pytest.mark.parametrize("bits", BITS)
def test_rounding_errs_by_half_a_step_where_nothing_is_cut_off(bits: WeightBits) -> None:
    given_ = matrix(5, 12)
    weight = RoundedWeight.nearest(given_, bits, 4)
    blocks, scales = given_.reshape(5, 3, 4), weight.scale.detach()
    inside = blocks.abs() <= largest(bits) * scales
    lost = (weight().detach().reshape(5, 3, 4) - blocks).abs()
    assert (lost <= 0.5001 * scales)[inside].all()
    # What is cut off is the largest number that there is.
    cut = (largest(bits) * scales).expand_as(blocks)[~inside]
    torch.testing.assert_close(weight().detach().reshape(5, 3, 4)[~inside].abs(), cut)


@pytest.mark.parametrize("bits", [4, 3, 2])
def test_the_best_scale_loses_no_more_than_that_of_the_largest_number(bits: WeightBits) -> None:
    given_ = matrix(6, 40)
    scales = (given_.abs().amax(-1, keepdim=True) / largest(bits)).half().float()
    plain = (given_ / scales).round() * scales
    best = RoundedWeight.nearest(given_, bits)().detach()
    assert (best - given_).square().sum() < (plain - given_).square().sum()


def test_training_begins_with_the_integers_that_were_given() -> None:
    """Compensated rounding takes integers that are not the nearest ones."""
    random = np.random.default_rng(0)
    integers = torch.as_tensor(random.integers(-7, 8, (3, 10)))
    scales = torch.full((3, 2), 0.125)
    for start in (None, matrix(3, 10)):
        weight = RoundedWeight(integers, scales, 4, start)
        numbers = weight.stored()["weight"]
        assert isinstance(numbers, RoundedNumbers)
        np.testing.assert_array_equal(numbers.integers, integers.numpy())


def test_gradients_are_those_of_learned_step_sizes() -> None:
    """Esser et al. (arXiv:1902.08153), equations 3 and 5, for two bits of which one is cut off."""
    weight = RoundedWeight(torch.zeros(1, 3), torch.tensor([[0.5]]), 2)
    with torch.no_grad():
        weight.weight.copy_(torch.tensor([[[0.2, -0.4, 0.9]]]))
    weight().backward(torch.tensor([[1.0, 10.0, 100.0]]))
    assert weight.weight.grad is not None
    assert weight.scale.grad is not None
    torch.testing.assert_close(weight.weight.grad, torch.tensor([[[1.0, 10.0, 0.0]]]))
    # round(v / s) - v / s inside, the largest integer beyond.
    expected = 1.0 * (0 - 0.4) + 10.0 * (-1 + 0.8) + 100.0 * 1
    torch.testing.assert_close(weight.scale.grad, torch.tensor([[[expected]]]))


def test_a_row_of_zeros_is_rounded_to_zeros() -> None:
    assert (RoundedWeight.nearest(torch.zeros(2, 4), 4)() == 0).all()


def test_a_group_that_does_not_divide_the_columns_is_the_row() -> None:
    assert RoundedWeight.nearest(matrix(2, 10), 4, 3).scale.shape == (2, 1, 1)


@pytest.mark.parametrize("bits", [None, 8])
def test_factors_are_stored_apart(bits: WeightBits | None) -> None:
    left, right = matrix(2, 5), matrix(2, 7, seed=1)
    weight = LowRankWeight.of(left, right, bits)
    product = values(weight, "left").T @ values(weight, "right")
    np.testing.assert_allclose(weight().detach().numpy(), product, atol=1e-6)
    near = 1e-6 if bits is None else 0.05
    torch.testing.assert_close(weight().detach(), left.T @ right, atol=near, rtol=0)


def test_directions_have_products_of_their_own() -> None:
    left, right = matrix(4, 5), matrix(4, 7, seed=1)
    both = LowRankWeight.of(left, right, directions=2)().detach()
    each = [left[:2].T @ right[:2], left[2:].T @ right[2:]]
    torch.testing.assert_close(both, torch.cat(each))


def test_a_correction_is_added() -> None:
    base = RoundedWeight.nearest(matrix(5, 7), 2)
    correction = LowRankWeight.of(matrix(1, 5), matrix(1, 7, seed=1), 8)
    weight = CorrectedWeight(base, correction)
    assert set(weight.stored()) == {"weight", "left", "right"}
    wanted = values(weight) + values(weight, "left").T @ values(weight, "right")
    np.testing.assert_allclose(weight().detach().numpy(), wanted, atol=1e-6)


WEIGHTS = {
    "full": FullWeight(matrix(5, 7)),
    "rounded": RoundedWeight.nearest(matrix(5, 7), 3),
    "factors": LowRankWeight.of(matrix(2, 5), matrix(2, 7), 8),
    "corrected": CorrectedWeight(
        RoundedWeight.nearest(matrix(5, 7), 2), LowRankWeight.of(matrix(1, 5), matrix(1, 7))
    ),
    "directions": LowRankWeight.of(matrix(4, 5), matrix(4, 7), 4, directions=2),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_weight_is_made_again_of_what_it_stores(name: str) -> None:
    weight = WEIGHTS[name]
    again = weight_of(weight.stored(), directions=2 if name == "directions" else 1)
    torch.testing.assert_close(again(), weight(), atol=0, rtol=0)
    assert type(again) is type(weight)


def test_training_of_rounded_parts_begins_near_what_was_rounded() -> None:
    weight = RoundedWeight.nearest(matrix(5, 7), 3)
    again = weight_of(weight.stored(), matrix=matrix(5, 7))
    assert isinstance(again, RoundedWeight)
    torch.testing.assert_close(again.weight, weight.weight)


def test_a_matrix_takes_the_shape_of_its_file() -> None:
    inner = matrix(6, 4)
    turned = ShapedWeight(FullWeight(inner), (4, 6), (1, 0))
    torch.testing.assert_close(turned().detach(), inner.T)
    # Axes of the file in an order that does not undo itself.
    native = inner.reshape(2, 3, 4)
    moved = native.permute(1, 2, 0).reshape(3, 8)
    restored = ShapedWeight(FullWeight(moved), (2, 3, 4), (1, 2, 0))
    torch.testing.assert_close(restored().detach(), native)
    kernel = ShapedWeight(FullWeight(inner), (6, 1, 2, 2))
    torch.testing.assert_close(kernel().detach(), inner.reshape(6, 1, 2, 2))
    np.testing.assert_array_equal(values(kernel), inner.numpy())
