"""What each way of rounding promises, for all shapes and values there are."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from models.math.householder import staircase_positions
from models.quantization import (
    Angles,
    Bits,
    Directions,
    Layout,
    Matrices,
    PackedDirections,
    Rows,
    Scheme,
    decode,
)
from models.quantization.packing import pack_halves, unpack_halves
from models.quantization.slices import largest_integer, round_slices

ALL = {"rows": Rows(), "matrices": Matrices(), "directions": Directions(), "angles": Angles()}
BITS: tuple[Bits, ...] = (8, 4)

LARGEST = torch.finfo(torch.float32).max
numbers = st.one_of(
    st.floats(-LARGEST, LARGEST, width=32),
    st.floats(-4, 4, width=32),
    st.sampled_from([0.0, -0.0, 1e-45, -1e-40, 2.0**-126, 1.5e-36, LARGEST, -LARGEST]),
)
shapes = st.one_of(
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 5)),
)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """Any numbers, or ones of one slice's usual spread; some slices are 0."""
    shape = draw(shapes)
    if draw(st.booleans()):
        values = draw(st.lists(numbers, min_size=math.prod(shape), max_size=math.prod(shape)))
        return torch.tensor(values).view(shape)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    found = torch.randn(shape, generator=generator) * 10.0 ** draw(st.integers(-36, 36))
    if draw(st.booleans()):
        found[..., 0, :] = 0
    return found


def same_bits(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(
        one.contiguous().view(torch.int32), other.contiguous().view(torch.int32)
    )


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("name", ALL)
@given(tensor=tensors())
@settings(max_examples=150, deadline=None)
def test_rounding_again_changes_no_bit(name: str, bits: Bits, tensor: Tensor) -> None:
    scheme = ALL[name]
    once = scheme.encode(tensor, bits)
    again = scheme.encode(once.values(), bits)
    assert torch.isfinite(once.values()).all()
    assert torch.equal(again.integers, once.integers)
    assert same_bits(again.values(), once.values())
    if once.scale is None:
        assert again.scale is None
    else:
        assert again.scale is not None
        assert torch.equal(again.scale, once.scale)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("name", ALL)
@given(tensor=tensors())
@settings(max_examples=60, deadline=None)
def test_what_is_stored_has_the_layout_and_comes_back(
    name: str, bits: Bits, tensor: Tensor
) -> None:
    scheme = ALL[name]
    found = scheme.encode(tensor, bits)
    layout = scheme.layout(tuple(tensor.shape), bits)
    assert found.layout == layout
    assert (found.stored().dtype, tuple(found.stored().shape)) == (
        layout.stored_type,
        layout.stored_shape,
    )
    held = found.stored().numel() * found.stored().element_size()
    if found.scale is not None:
        assert tuple(found.scale.shape) == layout.scale_shape
        held += found.scale.numel() * found.scale.element_size()
    assert held == layout.size_bytes == found.size_bytes
    assert same_bits(decode(layout, found.stored(), found.scale), found.values())


@pytest.mark.parametrize("bits", BITS)
@given(tensor=tensors())
@settings(max_examples=150, deadline=None)
def test_the_largest_of_a_slice_has_the_largest_integer(bits: Bits, tensor: Tensor) -> None:
    integers, scale = round_slices(tensor, bits, dim=-1)
    most = integers.abs().amax(-1)
    zero = most == 0
    assert (most[~zero] == largest_integer(bits)).all()
    assert (scale.squeeze(-1)[zero] == 1).all()
    # What became 0 was so near to it that no product shows it.
    assert (tensor.abs().amax(-1)[zero] <= largest_integer(bits) * 2.0**-126).all()


def test_eight_bits_are_off_by_half_a_step_of_the_largest() -> None:
    numbers = torch.randn(50, 64, generator=torch.Generator().manual_seed(0))
    error = (Rows().encode(numbers, 8).values() - numbers).abs()
    step = numbers.abs().amax(-1, keepdim=True) / 127
    assert (error <= step * 0.51).all()


def test_four_bits_take_the_end_of_the_grid_that_loses_least() -> None:
    """Against each row's own search over all shares that are tried, in double precision."""
    numbers = torch.randn(40, 96, generator=torch.Generator().manual_seed(1))
    rounded = Rows().encode(numbers, 4).values()
    found = (rounded - numbers).double().square().sum(-1)
    shortest = torch.full((40,), math.inf, dtype=torch.float64)
    for cut in range(9):
        scale = ((1 - cut / 16) * numbers.abs().amax(-1, keepdim=True) / 7).to(torch.bfloat16)
        grid = (numbers / scale.float()).round().clamp(-7, 7) * scale.float()
        shortest = torch.minimum(shortest, (grid - numbers).double().square().sum(-1))
    torch.testing.assert_close(found, shortest, rtol=1e-5, atol=0)
    plain = numbers.abs().amax(-1, keepdim=True) / 7
    whole = ((numbers / plain).round() * plain - numbers).double().square().sum(-1)
    assert found.sum() < 0.9 * whole.sum()


def test_thin_factors_have_as_many_scales_as_their_inner_size() -> None:
    assert Matrices().layout((3, 64, 8), 8).scale_shape == (3, 1, 8)
    assert Matrices().layout((1, 8, 64), 8).scale_shape == (1, 8, 1)
    assert Matrices().layout((10, 64), 4).scale_shape == (10, 1)
    assert Matrices().layout((6, 6), 8).scale_shape == (6, 1)
    assert Matrices().layout((3, 64, 8), 4).size_bytes == 3 * 64 * 8 // 2 + 2 * 3 * 8


@pytest.mark.parametrize("bits", BITS)
def test_directions_do_not_depend_on_their_lengths(bits: Bits) -> None:
    rows = torch.randn(20, 33, generator=torch.Generator().manual_seed(2))
    found = Directions().encode(rows, bits)
    for factor in (2.0**-40, 2.0**50):
        assert torch.equal(Directions().encode(rows * factor, bits).integers, found.integers)
    assert found.scale is None
    cosines = torch.cosine_similarity(found.values(), rows)
    assert (cosines > (0.9999 if bits == 8 else 0.985)).all()


@pytest.mark.parametrize("bits", BITS)
def test_directions_keep_their_lengths_for_a_step(bits: Bits) -> None:
    rows = torch.randn(6, 12, generator=torch.Generator().manual_seed(3))
    rows[2] = 0
    stepped, stored = Directions().for_a_step(rows, bits), Directions().encode(rows, bits).values()
    torch.testing.assert_close(stepped.norm(dim=-1), rows.norm(dim=-1))
    whole = [0, 1, 3, 4, 5]
    torch.testing.assert_close(
        torch.cosine_similarity(stepped[whole], stored[whole]), torch.ones(5)
    )
    assert not stepped[2].any()


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize(("size", "count"), [(5, 3), (7, 6), (2, 1), (4, 0)])
def test_packed_directions_are_those_of_their_rows(bits: Bits, size: int, count: int) -> None:
    positions = staircase_positions(size, count)
    generator = torch.Generator().manual_seed(4)
    packed = torch.randn(3, len(positions), generator=generator)
    scheme: Scheme = PackedDirections(positions, rows=count, columns=size)
    found = scheme.encode(packed, bits).values()
    rows = torch.zeros(3, count * size)
    rows[:, positions] = packed
    by_rows = Directions().encode(rows.view(3, count, size), bits).values()
    assert torch.equal(found, by_rows.flatten(1)[:, positions])
    assert torch.equal(scheme.encode(found, bits).values(), found)


@pytest.mark.parametrize(("bits", "places"), [(8, 2**16), (4, 2**8)])
def test_angles_are_on_a_grid_of_the_circle(bits: Bits, places: int) -> None:
    angles = torch.linspace(-20, 20, 4001)
    found = Angles().encode(angles, bits)
    step = 2 * math.pi / places
    turned = (found.values() - angles).double()
    away = torch.remainder(turned + math.pi, 2 * math.pi) - math.pi
    assert away.abs().max() <= step / 2 * 1.001 + 2e-6
    assert found.values().abs().max() <= torch.tensor(math.pi)
    every = torch.arange(-places // 2, places // 2, dtype=found.integers.dtype)
    grid = decode(Angles().layout((places,), bits), every, None)
    assert torch.equal(Angles().encode(grid, bits).integers, every)


@given(st.lists(st.integers(-8, 7), max_size=20))
def test_halves_of_bytes_come_back(values: list[int]) -> None:
    integers = torch.tensor(values, dtype=torch.int8)
    packed = pack_halves(integers)
    assert packed.shape == (math.ceil(len(values) / 2),)
    assert torch.equal(unpack_halves(packed, (len(values),)), integers)
    for place, value in enumerate(values):
        # As a program without this library finds them.
        half = int(packed[place // 2]) >> (4 * (place % 2)) & 15
        assert (half ^ 8) - 8 == value


def test_a_layout_says_what_it_takes() -> None:
    odd = Layout(shape=(3, 5), bits=4, scale_shape=(3, 1))
    assert (odd.size_bytes, odd.stored_shape) == (8 + 6, (8,))
    wide = Layout(shape=(7,), bits=16, scale_shape=None, unit=0.5)
    assert (wide.size_bytes, wide.stored_shape, wide.stored_type) == (14, (7,), torch.int16)
