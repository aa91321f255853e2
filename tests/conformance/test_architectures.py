"""What every architecture promises with every parametrization that fits it."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter

from models import checkpoint
from models.architectures import ARCHITECTURES, AnyArchitecture, Architecture
from models.errors import InputError, SlotError
from models.linear import StructuredLinear
from models.model import ModelSpec, after_step, parameter_groups
from models.parametrizations import PARAMETRIZATIONS, Parametrization
from models.report import parameter_report
from models.spec import Signature, SlotSize, kind_of
from tests.conformance.test_parametrizations import Corner

LAST = Signature(input_size=3, sequence_length=5, output_size=4)
EVERY = LAST.model_copy(update={"output_steps": "every"})

Pair = tuple[type[Architecture], type[Parametrization]]


def choices(variant: type[Architecture]) -> Iterator[Architecture]:
    """Small members of an architecture: every value of every field with a few values, once."""
    base = variant.model_validate({"hidden_size": 6})
    yield base
    for name, field in variant.model_json_schema()["properties"].items():
        options = field.get("enum", [True, False] if field.get("type") == "boolean" else [])
        for option in options:
            if option != getattr(base, name):
                yield variant.model_validate({**base.model_dump(), name: option})


def specs(pair: Pair, signature: Signature = LAST) -> Iterator[ModelSpec]:
    """Every small member of an architecture with a middling member of the parametrization."""
    variant, parametrization = pair
    for architecture in choices(variant):
        out_features, in_features = min(architecture.slots(signature).values())
        slot = SlotSize.fixed(in_features, out_features)
        yield ModelSpec.model_validate(
            {
                "architecture": architecture.model_dump(),
                "parametrization": parametrization.suggest(Corner(0.5), slot).model_dump(),
                "signature": signature,
            }
        )


@pytest.fixture(params=ARCHITECTURES, ids=kind_of)
def variant(request: pytest.FixtureRequest) -> type[Architecture]:
    return request.param


@pytest.fixture(params=PARAMETRIZATIONS, ids=kind_of)
def pair(request: pytest.FixtureRequest, variant: type[Architecture]) -> Pair:
    return variant, request.param


def test_outputs_have_the_signatures_shape_at_any_length_and_batch(pair: Pair) -> None:
    for last, every in zip(specs(pair, LAST), specs(pair, EVERY), strict=True):
        for batch, steps in [(2, 5), (1, 5), (2, 1), (0, 5), (3, 11)]:
            x = torch.randn(batch, steps, 3)
            assert last.build(seed=0)(x).shape == (batch, 4)
            assert every.build(seed=0)(x).shape == (batch, steps, 4)


def test_last_output_of_every_step_is_the_output_after_the_last_step(pair: Pair) -> None:
    x = torch.randn(2, 5, 3)
    for last, every in zip(specs(pair, LAST), specs(pair, EVERY), strict=True):
        torch.testing.assert_close(every.build(seed=0)(x)[:, -1], last.build(seed=0)(x))


def test_samples_of_a_batch_do_not_touch_each_other(pair: Pair) -> None:
    x = torch.randn(4, 5, 3, dtype=torch.float64)
    for spec in specs(pair):
        model = spec.build(seed=0).double()
        alone = torch.cat([model(sample[None]) for sample in x])
        torch.testing.assert_close(model(x), alone, atol=1e-13, rtol=0)


def test_formula_is_the_number_of_trainable_numbers(pair: Pair) -> None:
    for spec in specs(pair):
        model = spec.build(seed=0)
        assert spec.parameter_count() == sum(p.numel() for p in model.parameters())


def test_every_parameter_learns(pair: Pair) -> None:
    for spec in specs(pair):
        model = spec.build(seed=0).double()
        model(torch.randn(8, 5, 3, dtype=torch.float64)).square().sum().backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.abs().max() > 0, name


def test_training_reduces_the_loss(pair: Pair) -> None:
    x = torch.randn(32, 5, 3, generator=torch.Generator().manual_seed(0))
    y = x.sum((1, 2)).gt(0).long()
    for spec in specs(pair):
        model = spec.build(seed=0)
        optimizer = torch.optim.Adam(parameter_groups(model, 0.01))
        losses: list[float] = []
        for _ in range(30):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            after_step(model)
            losses.append(loss.item())
        assert losses[-1] < 0.7 * losses[0]


def test_groups_hold_every_trainable_parameter_once(pair: Pair) -> None:
    for spec in specs(pair):
        model = spec.build(seed=0)
        grouped = [p for group in parameter_groups(model, 0.1) for p in group["params"]]
        assert len(grouped) == len(set(grouped))
        assert set(grouped) == set(model.parameters())
        assert parameter_groups(model, 0.1)[0]["lr"] == 0.1


def test_structured_matrices_have_the_slots_sizes(pair: Pair) -> None:
    for spec in specs(pair):
        structured = [m for m in spec.build(seed=0).modules() if isinstance(m, StructuredLinear)]
        found = [(m.out_features, m.in_features) for m in structured for _ in range(m.copies)]
        assert sorted(found) == sorted(spec.architecture.slots(LAST).values())


def test_one_seed_gives_one_model_and_leaves_the_global_generator_alone(pair: Pair) -> None:
    for spec in specs(pair):
        before = torch.get_rng_state()
        one, same, other = spec.build(seed=3), spec.build(seed=3), spec.build(seed=4)
        assert torch.equal(torch.get_rng_state(), before)
        assert all(map(torch.equal, one.state_dict().values(), same.state_dict().values()))
        assert not all(map(torch.equal, one.state_dict().values(), other.state_dict().values()))


def test_unfit_input_is_refused_with_its_shape(pair: Pair) -> None:
    model = next(specs(pair)).build(seed=0)
    for shape in [(2, 5), (2, 5, 4), (2, 0, 3)]:
        with pytest.raises(InputError, match=r"allowed is \[batch, steps >= 1, 3\]"):
            model(torch.zeros(shape))
    with pytest.raises(InputError, match="float64"):
        model(torch.zeros(2, 5, 3, dtype=torch.float64))


def test_report_totals_are_those_of_the_built_model(pair: Pair) -> None:
    for spec in specs(pair):
        report = parameter_report(spec)
        model = spec.build(seed=0)
        assert report.totals.parameters == sum(p.numel() for p in model.parameters())
        assert report.totals.size_bytes == sum(
            tensor.numel() * tensor.element_size() for tensor in model.state_dict().values()
        )
        tensors = [row for row in report.rows if row.level == "tensor"]
        assert {row.name: row.shape for row in tensors} == spec.tensor_shapes()
        assert sum(row.parameters for row in tensors) == report.totals.parameters


def test_checkpoint_brings_back_the_parameters_and_outputs_bit_for_bit(pair: Pair) -> None:
    x = torch.randn(3, 5, 3)
    for spec in specs(pair):
        model = spec.build(seed=5)
        loaded = checkpoint.load(checkpoint.save_bytes(model, spec))
        assert loaded.spec == spec
        stored, found = model.state_dict(), loaded.module.state_dict()
        assert list(stored) == list(found)
        assert all(map(torch.equal, stored.values(), found.values()))
        assert torch.equal(model(x), loaded.module(x))


def test_model_spec_comes_back_from_json(pair: Pair) -> None:
    for spec in specs(pair):
        assert ModelSpec.model_validate_json(spec.model_dump_json()) == spec


def test_a_slot_that_does_not_hold_is_refused_with_its_name(pair: Pair) -> None:
    variant, parametrization = pair
    large = parametrization.suggest(Corner(1.0), SlotSize.fixed(64, 64))
    if not any(isinstance(value, int) for value in large.model_dump().values()):
        return
    spec = ModelSpec.model_validate(
        {
            "architecture": {"kind": kind_of(variant), "hidden_size": 6},
            "parametrization": large.model_dump(),
            "signature": LAST,
        }
    )
    slot = next(iter(spec.architecture.slots(LAST)))
    for attempt in (spec.check, spec.build, spec.shape_key):
        with pytest.raises(SlotError, match=rf"^{kind_of(variant)}\.{slot}: "):
            attempt()


def test_count_never_falls_when_the_hidden_size_grows(pair: Pair) -> None:
    variant, parametrization = pair
    held = parametrization.suggest(Corner(0.0), SlotSize.fixed(8, 8))
    counts = [
        variant.model_validate({"hidden_size": size}).parameter_count(LAST, held)
        for size in range(8, 60)
    ]
    assert counts == sorted(counts)


def test_ranges_are_the_same_for_every_task_and_reach_their_ends(
    variant: type[Architecture],
) -> None:
    low, high = Corner(0.0), Corner(1.0)
    smallest = variant.suggest(low, LAST)
    largest = variant.suggest(high, Signature(input_size=99, sequence_length=1, output_size=2))
    assert low.asked == high.asked
    assert (low.asked["hidden_size"][0], low.asked["hidden_size"][1]) == (16, 128)
    for name in low.asked:
        assert getattr(smallest, name) != getattr(largest, name)


def test_architecture_comes_back_from_json_through_the_union(variant: type[Architecture]) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(AnyArchitecture)
    for architecture in choices(variant):
        assert adapter.validate_json(architecture.model_dump_json()) == architecture


def test_every_variant_says_what_it_is(variant: type[Architecture]) -> None:
    assert variant.title
    assert variant.paper
    assert variant.__doc__
    for name, field in variant.model_fields.items():
        assert name == "kind" or field.description, name
