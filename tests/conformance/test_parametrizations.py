"""What every parametrization promises. A variant is tested here by being in the union."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from torch import nn
from torch.func import functional_call

from models.errors import SlotError
from models.linear import StructuredLinear, cached_factors
from models.model import after_step, parameter_groups, spectral_margin
from models.ops.factors import DenseFactors
from models.parametrizations import PARAMETRIZATIONS, AnyParametrization, Parametrization
from models.spec import SlotSize, kind_of

SIZES = [1, 2, 3, 7, 12, 33]
RECTANGLES = [(3, 8), (8, 3), (1, 5), (5, 1)]
LARGEST = 128

Variant = type[Parametrization]


class Corner:
    """Answers with the lowest, the middle or the highest value, and notes what was asked."""

    def __init__(self, share: float) -> None:
        self.share = share
        self.asked: dict[str, tuple[Any, ...]] = {}

    def integer(self, name: str, low: int, high: int, *, log: bool = False, step: int = 1) -> int:
        assert low <= high
        self.asked[name] = (low, high, log, step)
        return low + round((high - low) * self.share)

    def real(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        assert low < high
        self.asked[name] = (low, high, log)
        return low + (high - low) * self.share

    def choice(self, name: str, options: tuple[str, ...]) -> str:
        self.asked[name] = options
        return options[round((len(options) - 1) * self.share)]


class Applied(nn.Module):
    """A structured weight as a module that can be called."""

    def __init__(self, linear: StructuredLinear) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear.apply_weight(x)


def members(variant: Variant, in_features: int, out_features: int) -> Iterator[Parametrization]:
    """Small, middling and largest specs that fit the slot; none where the variant does not."""
    slot = SlotSize.fixed(in_features, out_features)
    for share in (0.0, 0.5, 1.0):
        spec = variant.suggest(Corner(share), slot)
        try:
            spec.check(in_features, out_features)
        except SlotError:
            continue
        yield spec


def built(spec: Parametrization, size: int, *, copies: int = 2, seed: int = 0) -> StructuredLinear:
    generator = torch.Generator().manual_seed(seed)
    return spec.build(size, size, copies=copies, generator=generator)


@pytest.fixture(params=PARAMETRIZATIONS, ids=kind_of)
def variant(request: pytest.FixtureRequest) -> Variant:
    return request.param


def slots() -> list[tuple[int, int]]:
    return [*((size, size) for size in SIZES), *RECTANGLES]


@pytest.mark.parametrize("slot", slots(), ids=str)
def test_apply_equals_dense_in_double_precision(variant: Variant, slot: tuple[int, int]) -> None:
    out_features, in_features = slot
    for spec in members(variant, in_features, out_features):
        linear = spec.build(in_features, out_features, copies=3).double()
        x = torch.randn(4, 5, in_features, dtype=torch.float64)
        weight = linear.dense_weight()
        assert weight.shape == (3, out_features, in_features)
        expected = torch.cat([x @ matrix.T for matrix in weight], dim=-1)
        torch.testing.assert_close(linear.apply_weight(x), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("slot", [(5, 5), (6, 6), (3, 5)], ids=str)
def test_gradients_are_exact(variant: Variant, slot: tuple[int, int]) -> None:
    out_features, in_features = slot
    for spec in members(variant, in_features, out_features):
        linear = spec.build(in_features, out_features, copies=2).double()
        module = Applied(linear)
        names, values = zip(*module.named_parameters(), strict=True)

        def apply(
            x: torch.Tensor,
            *parameters: torch.Tensor,
            names: tuple[str, ...] = names,
            module: Applied = module,
        ) -> torch.Tensor:
            return functional_call(module, dict(zip(names, parameters, strict=True)), (x,))

        x = torch.randn(2, in_features, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(apply, (x, *values))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("leading", [(), (0,), (1,), (2, 0), (2, 3)], ids=str)
def test_shape_and_type_are_kept(
    variant: Variant, dtype: torch.dtype, leading: tuple[int, ...]
) -> None:
    for spec in members(variant, 7, 7):
        linear = spec.build(7, 7, copies=2).to(dtype)
        y = linear.apply_weight(torch.zeros(*leading, 7, dtype=dtype))
        assert y.shape == (*leading, 14)
        assert y.dtype == dtype
        assert linear.dense_weight().dtype == dtype


@pytest.mark.parametrize("slot", slots(), ids=str)
@pytest.mark.parametrize("copies", [1, 3])
def test_formula_is_the_number_of_stored_trainable_numbers(
    variant: Variant, slot: tuple[int, int], copies: int
) -> None:
    out_features, in_features = slot
    for spec in members(variant, in_features, out_features):
        linear = spec.build(in_features, out_features, copies=copies)
        stored = sum(parameter.numel() for parameter in linear.parameters())
        assert stored == copies * spec.parameter_count(in_features, out_features)
        assert spec.paper_count(in_features, out_features) >= stored // copies


def test_small_members_store_less_than_the_matrix(variant: Variant) -> None:
    smallest = next(members(variant, 33, 33))
    stored = sum(tensor.numel() for tensor in built(smallest, 33, copies=1).state_dict().values())
    assert stored <= 33 * 33
    assert stored < 33 * 33 or isinstance(built(smallest, 33).factors(), DenseFactors)


@pytest.mark.parametrize("size", [1, 2, 3, 6, 7])
def test_degrees_of_freedom_are_the_rank_of_the_jacobian(variant: Variant, size: int) -> None:
    for spec in members(variant, size, size):
        linear = built(spec, size, copies=1).double()
        # A generic point, since the start may be special.
        with torch.no_grad():
            for parameter in linear.parameters():
                parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64))
        parameters = list(linear.parameters())
        rows: list[torch.Tensor] = []
        for entry in linear.dense_weight().flatten():
            gradients = torch.autograd.grad(
                entry, parameters, retain_graph=True, materialize_grads=True
            )
            rows.append(torch.cat([gradient.flatten() for gradient in gradients]))
        rank = int(torch.linalg.matrix_rank(torch.stack(rows), rtol=1e-9))
        assert linear.degrees_of_freedom() == rank


def test_count_never_falls_when_a_hyperparameter_or_a_side_grows(variant: Variant) -> None:
    slot = SlotSize.fixed(12, 12)
    draw = Corner(0.0)
    base = variant.suggest(draw, slot)
    for name, bounds in draw.asked.items():
        if not isinstance(getattr(base, name), int | float):
            continue
        low, high = bounds[0], bounds[1]
        steps = [low + (high - low) * i // 10 for i in range(11)]
        if isinstance(low, float):
            steps = [low + (high - low) * i / 10 for i in range(11)]
        counts = [base.model_copy(update={name: value}).parameter_count(12, 12) for value in steps]
        assert counts == sorted(counts), name
    by_size = [base.parameter_count(size, size) for size in range(2, 40)]
    assert by_size == sorted(by_size)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 1.0])
def test_whatever_is_drawn_fits_and_ranges_do_not_follow_the_layer(
    variant: Variant, size: int, share: float
) -> None:
    largest = SlotSize.fixed(LARGEST, LARGEST)
    here = SlotSize(size, size, LARGEST, LARGEST)
    draw, reference = Corner(share), Corner(0.0)
    variant.suggest(reference, largest)
    spec = variant.suggest(draw, here)
    assert draw.asked == reference.asked
    if size > 1:
        spec.check(size, size)


def test_a_range_reaches_its_upper_end_on_the_largest_layer(variant: Variant) -> None:
    draw = Corner(1.0)
    spec = variant.suggest(draw, SlotSize.fixed(LARGEST, LARGEST))
    for name, bounds in draw.asked.items():
        assert getattr(spec, name) == bounds[1]


def test_a_hyperparameter_beyond_the_slot_is_refused_with_value_and_range(
    variant: Variant,
) -> None:
    large = variant.suggest(Corner(1.0), SlotSize.fixed(LARGEST, LARGEST))
    counts = {name: value for name, value in large.model_dump().items() if isinstance(value, int)}
    for name, value in counts.items():
        small = large.model_copy(update={other: 1 for other in counts if other != name})
        with pytest.raises(SlotError, match=rf"{name} = {value} .* 1 to \d+"):
            small.check(6, 6)
        with pytest.raises(SlotError):
            small.build(6, 6)


def test_unknown_fields_and_counts_below_one_are_refused(variant: Variant) -> None:
    spec = variant.suggest(Corner(0.5), SlotSize.fixed(8, 8))
    document = spec.model_dump()
    with pytest.raises(ValidationError):
        variant.model_validate({**document, "rank": 3})
    for name, value in document.items():
        if isinstance(value, int):
            with pytest.raises(ValidationError):
                variant.model_validate({**document, name: 0})


def test_spec_comes_back_from_json_through_the_union(variant: Variant) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(AnyParametrization)
    for spec in members(variant, 9, 9):
        assert adapter.validate_json(spec.model_dump_json()) == spec


def test_equal_generators_give_equal_numbers_and_the_global_one_is_left_alone(
    variant: Variant,
) -> None:
    for spec in members(variant, 7, 7):
        before = torch.get_rng_state()
        one, same, other = built(spec, 7), built(spec, 7), built(spec, 7, seed=1)
        free = spec.build(7, 7), spec.build(7, 7)
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.equal(one.dense_weight(), same.dense_weight())
        assert not torch.equal(one.dense_weight(), other.dense_weight())
        assert not torch.equal(free[0].dense_weight(), free[1].dense_weight())


def test_copies_are_independent(variant: Variant) -> None:
    for spec in members(variant, 7, 7):
        one, other = built(spec, 7).dense_weight()
        assert not torch.equal(one, other)


def trained(spec: Parametrization, size: int, steps: int = 20) -> StructuredLinear:
    """A module after some optimizer steps towards a random matrix."""
    linear = built(spec, size).double()
    target = torch.randn(2, size, size, dtype=torch.float64)
    optimizer = torch.optim.Adam(parameter_groups(linear, 0.01))
    for _ in range(steps):
        optimizer.zero_grad()
        (linear.dense_weight() - target).square().sum().backward()
        optimizer.step()
        after_step(linear)
    return linear


@pytest.mark.parametrize("size", [2, 7, 12])
def test_training_moves_the_matrix_and_keeps_its_structure(variant: Variant, size: int) -> None:
    for spec in members(variant, size, size):
        start = built(spec, size).double()
        linear = trained(spec, size)
        weight = linear.dense_weight().detach()
        assert not torch.equal(weight, start.dense_weight())
        claimed = linear.singular_values()
        if claimed is None:
            assert spectral_margin(linear) is None
            continue
        found = torch.linalg.svdvals(weight)
        sorted_claim = claimed.detach().abs().sort(descending=True).values
        torch.testing.assert_close(found, sorted_claim, atol=1e-12, rtol=0)
        margin = spectral_margin(linear)
        assert margin == pytest.approx((claimed.detach() - 1).abs().max().item())
        before, after = torch.linalg.det(start.dense_weight()), torch.linalg.det(weight)
        assert torch.equal(before.sign(), after.sign())


def test_renormalising_changes_no_matrix(variant: Variant) -> None:
    for spec in members(variant, 7, 7):
        linear = built(spec, 7).double()
        before = linear.dense_weight()
        after_step(linear)
        torch.testing.assert_close(linear.dense_weight(), before, atol=1e-14, rtol=0)


def test_cached_factors_give_the_same_numbers_and_end_with_the_context(variant: Variant) -> None:
    for spec in members(variant, 7, 7):
        linear = built(spec, 7)
        x = torch.randn(3, 7)
        expected = linear.apply_weight(x)
        with cached_factors(linear):
            assert linear.factors() is linear.factors()
            assert torch.equal(linear.apply_weight(x), expected)
        assert linear.factors() is not linear.factors()
        assert linear.apply_weight(x).requires_grad


def test_every_variant_says_what_it_is(variant: Variant) -> None:
    assert variant.title
    assert variant.paper
    assert variant.__doc__
    for name, field in variant.model_fields.items():
        assert name == "kind" or field.description, name
