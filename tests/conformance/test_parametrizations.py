"""What every parametrization's document promises. A variant is tested by being in the union."""

from typing import Any

import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from models.errors import SlotError
from models.forms import DenseForm
from models.linear import cached_forms
from models.parametrizations import AnyParametrization, Family, Parametrization
from models.spec import Slot
from tests.conformance.variants import (
    SIZES,
    SLOTS,
    Corner,
    built,
    drawn,
    drawn_members,
    holds,
    home,
    members,
    name_of,
    square,
)

LARGEST = 128

Variant = type[Family]

pytestmark = pytest.mark.sampled


def counts_of(spec: Parametrization) -> dict[str, int]:
    """The fields that count something."""
    return {
        name: value
        for name, value in spec.model_dump().items()
        if isinstance(value, int) and not isinstance(value, bool)
    }


def lowest(variant: Variant, name: str) -> int:
    return variant.model_json_schema()["properties"][name]["minimum"]


@pytest.mark.parametrize("slot", SLOTS, ids=name_of)
def test_a_slot_is_held_or_refused_with_its_size_or_kind(
    parametrization: Variant, slot: Slot
) -> None:
    spec = drawn(parametrization, slot, 0.5)
    if holds(spec, slot):
        return
    with pytest.raises(SlotError, match=rf"{slot.out_features} x {slot.in_features}") as refusal:
        spec.check(slot)
    assert len(str(refusal.value).split()) > 4
    with pytest.raises(SlotError):
        built(spec, slot)


def test_every_variant_holds_square_slots_with_gates_and_layers(parametrization: Variant) -> None:
    for slot in (home(parametrization, 6), home(parametrization, 6, gates=3, layers=2)):
        assert len(list(drawn_members(parametrization, slot))) == 3


@pytest.mark.parametrize("slot", SLOTS, ids=name_of)
def test_formula_is_the_number_of_stored_trainable_numbers(
    parametrization: Variant, slot: Slot
) -> None:
    for spec in members(parametrization, slot):
        stored = sum(parameter.numel() for parameter in built(spec, slot).parameters())
        assert stored == spec.parameter_count(slot), spec
        assert spec.paper_count(slot) >= stored, spec


@pytest.mark.parametrize("slot", SLOTS, ids=name_of)
def test_layout_without_memory_has_the_built_shapes(parametrization: Variant, slot: Slot) -> None:
    for spec in members(parametrization, slot):
        with torch.device("meta"):
            laid_out = built(spec, slot).state_dict()
        found = built(spec, slot).state_dict()
        assert all(tensor.is_meta for tensor in laid_out.values())
        assert {name: tensor.shape for name, tensor in laid_out.items()} == {
            name: tensor.shape for name, tensor in found.items()
        }
        assert {tensor.dtype for tensor in found.values()} == {torch.float32}


def test_small_members_store_less_than_the_matrix(parametrization: Variant) -> None:
    slot = home(parametrization, 33)
    linear = built(next(members(parametrization, slot)), slot)
    stored = sum(tensor.numel() for tensor in linear.state_dict().values())
    matrix = 33 * 33 * (2 if slot.field == "complex" else 1)
    assert stored < matrix or (stored == matrix and isinstance(linear.form(), DenseForm))


def test_count_never_falls_when_a_hyperparameter_or_the_slot_grows(
    parametrization: Variant,
) -> None:
    slot = home(parametrization, 12)
    draw = Corner(0.0)
    base = parametrization.suggest(draw, slot, largest=12)
    for name, bounds in draw.asked.items():
        if isinstance(getattr(base, name), str):
            continue
        low, high = bounds[0], bounds[1]
        steps = [low + (high - low) * i / 10 for i in range(11)]
        values = [int(step) if isinstance(low, int) else step for step in steps]
        members = [base.model_copy(update={name: v}) for v in values]
        counts = [member.parameter_count(slot) for member in members]
        assert counts == sorted(counts), name
        working = [member.working_numbers(slot) for member in members]
        assert working == sorted(working), name
        assert working[0] >= 0
    by_size = [base.parameter_count(home(parametrization, size)) for size in range(2, 40)]
    assert by_size == sorted(by_size)
    by_copies = [
        base.parameter_count(home(parametrization, 12, gates=gates, layers=layers))
        for layers in (1, 2, 3)
        for gates in (1, 3, 4)
    ]
    assert by_copies[:3] == sorted(by_copies[:3])
    assert by_copies[3:6] == [2 * count for count in by_copies[:3]]
    assert by_copies[6:] == [3 * count for count in by_copies[:3]]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("field", ["real", "complex"])
def test_whatever_is_drawn_fits_and_ranges_do_not_follow_the_slot(
    parametrization: Variant, size: int, share: float, field: str
) -> None:
    largest, here = square(LARGEST, field=field), square(size, field=field, gates=3)
    draw, reference = Corner(share), Corner(0.0)
    parametrization.suggest(reference, largest, largest=LARGEST)
    spec = parametrization.suggest(draw, here, largest=LARGEST)
    assert draw.asked == reference.asked
    try:
        parametrization.check_slot(here)
    except SlotError:
        with pytest.raises(SlotError):
            spec.check(here)
    else:
        spec.check(here)


def test_a_range_reaches_its_upper_end_on_the_largest_slot(parametrization: Variant) -> None:
    draw = Corner(1.0)
    spec = parametrization.suggest(draw, home(parametrization, LARGEST), largest=LARGEST)
    for name, bounds in draw.asked.items():
        value = getattr(spec, name)
        assert value == (bounds[-1] if isinstance(value, str) else bounds[1]), name


def test_a_hyperparameter_beyond_the_slot_is_refused_with_value_and_range(
    parametrization: Variant,
) -> None:
    large = drawn(parametrization, home(parametrization, LARGEST), 1.0)
    counts = counts_of(large)
    for name, value in counts.items():
        others = {other: lowest(parametrization, other) for other in counts if other != name}
        small = large.model_copy(update=others)
        with pytest.raises(SlotError, match=rf"{name} = {value} .* [01] to \d+"):
            small.check(home(parametrization, 6))
        with pytest.raises(SlotError):
            built(small, home(parametrization, 6))


def test_an_auxiliary_slot_gets_what_it_holds(parametrization: Variant) -> None:
    """Input matrices take the main slots' parametrization, cut to their own size."""
    large = drawn(parametrization, home(parametrization, 33), 1.0)
    main, beside = home(parametrization, 6), home(parametrization, 6, auxiliary=True)
    assert large.for_slot(main) == large
    stored = large.for_slot(beside)
    stored.check(beside)
    assert type(stored) is type(large)
    uncounted = dict.fromkeys(counts_of(large), 1)
    assert stored.model_copy(update=uncounted) == large.model_copy(update=uncounted)


def test_unknown_fields_and_counts_below_their_range_are_refused(parametrization: Variant) -> None:
    spec = drawn(parametrization, home(parametrization, 8), 0.5)
    document = spec.model_dump()
    with pytest.raises(ValidationError):
        parametrization.model_validate({**document, "rank": 3})
    for name in counts_of(spec):
        below = lowest(parametrization, name) - 1
        assert below in (-1, 0)
        with pytest.raises(ValidationError):
            parametrization.model_validate({**document, name: below})


def test_spec_comes_back_from_json_through_the_union(parametrization: Variant) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(AnyParametrization)
    for spec in members(parametrization, home(parametrization, 9)):
        assert adapter.validate_json(spec.model_dump_json()) == spec


def test_equal_generators_give_equal_numbers_and_the_global_one_is_left_alone(
    parametrization: Variant,
) -> None:
    slot = home(parametrization, 7, gates=2)
    for spec in members(parametrization, slot):
        before = torch.get_rng_state()
        one, same = built(spec, slot), built(spec, slot)
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.equal(one.dense_weight(), same.dense_weight())
    # An option may ask for a start without chance; what is drawn by default has one.
    for spec in drawn_members(parametrization, slot):
        one, other = built(spec, slot).dense_weight(), built(spec, slot, seed=1).dense_weight()
        assert not torch.equal(one, other)


def test_cached_factors_give_the_same_numbers_and_end_with_the_context(
    parametrization: Variant,
) -> None:
    slot = home(parametrization, 7, gates=3)
    for spec in members(parametrization, slot):
        linear = built(spec, slot)
        x = torch.randn(3, linear.in_features)
        expected = linear.apply_weight(x)
        with cached_forms(linear):
            assert linear.form() is linear.form()
            assert torch.equal(linear.apply_weight(x), expected)
        assert linear.form() is not linear.form()
        assert linear.apply_weight(x).requires_grad


def test_every_variant_says_what_it_is(parametrization: Variant) -> None:
    assert parametrization.title
    assert parametrization.paper
    assert parametrization.__doc__
    for name, field in parametrization.model_fields.items():
        assert name == "kind" or field.description, name
