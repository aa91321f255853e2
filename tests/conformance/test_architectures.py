"""What every architecture promises with every parametrization that fits it."""

import math
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter
from torch import nn

from models import checkpoint
from models.architectures import ARCHITECTURES, AnyArchitecture, Architecture
from models.errors import InputError, SignatureError, SlotError
from models.kernels.library import library
from models.linear import StructuredLinear
from models.model import ModelSpec, parameter_groups
from models.network import GradientProbe, observed
from models.parametrizations import PARAMETRIZATIONS, Family
from models.quantization import Bits, round_
from models.report import model_totals, parameter_report
from models.spec import Signature, kind_of
from tests.conformance.model_specs import (
    EVERY,
    LAST,
    admitted,
    fitting,
    options,
    pair_name,
    pairs,
    small,
    spec_of,
    specs,
)
from tests.conformance.variants import Corner

Pair = tuple[type[Architecture], type[Family]]

pytestmark = pytest.mark.sampled


@pytest.fixture(params=pairs(), ids=pair_name)
def pair(request: pytest.FixtureRequest) -> Pair:
    return request.param


def test_every_architecture_and_every_parametrization_has_a_fitting_partner() -> None:
    assert {architecture for architecture, _ in pairs()} == set(ARCHITECTURES)
    assert {parametrization for _, parametrization in pairs()} == set(PARAMETRIZATIONS)


def test_a_pair_that_does_not_fit_is_refused_with_its_slot(
    architecture: type[Architecture],
) -> None:
    """At check, before anything is built; the sentence names architecture, slot and variant."""
    for parametrization in (p for p in PARAMETRIZATIONS if p not in fitting(architecture)):
        spec = spec_of(small(architecture), parametrization)
        slot = next(iter(spec.architecture.slots(LAST)))
        where = rf"^{kind_of(architecture)}\.{slot}: {kind_of(parametrization)}: \w+ .*\d+ x \d+"
        for attempt in (spec.check, spec.build, spec.shape_key):
            with pytest.raises(SlotError, match=where):
                attempt()


@pytest.mark.skipif(library() is None, reason="no C++ compiler here")
def test_it_says_whether_kernels_compute_it(architecture: type[Architecture]) -> None:
    specs = [spec_of(small(architecture), family) for family in fitting(architecture)]
    with torch.no_grad():
        found = [spec.build(seed=0).eval().backends() == ("cpp",) for spec in specs]
    assert any(found) == architecture.compiled


def test_a_member_that_is_too_large_is_refused_with_its_slot(pair: Pair) -> None:
    variant, parametrization = pair
    large = spec_of(small(variant, hidden_size=64), parametrization, share=1.0)
    spec = large.model_copy(update={"architecture": small(variant)})
    if admitted(spec):  # nothing is counted
        return
    slot = next(iter(spec.architecture.slots(LAST)))
    for attempt in (spec.check, spec.build, spec.shape_key):
        with pytest.raises(SlotError, match=rf"^{kind_of(variant)}\.{slot}: .* to \d+"):
            attempt()


def test_outputs_have_the_signatures_shape(pair: Pair) -> None:
    variant, _ = pair
    lengths = [5, 1, 11] if variant.any_length else [5]
    for signature in (LAST, EVERY, LAST.model_copy(update={"sequence_length": 1})):
        steps_of = lengths if variant.any_length else [signature.sequence_length]
        for spec in specs(*pair, signature):
            model = spec.build(seed=0).eval()
            for batch in (2, 1, 0):
                for steps in steps_of:
                    every = signature.output_steps == "every"
                    shape = (batch, steps, 4) if every else (batch, 4)
                    assert model(torch.randn(batch, steps, 3)).shape == shape


@pytest.mark.in_full
def test_a_batch_can_be_trained_on_whatever_its_size(pair: Pair) -> None:
    for spec in specs(*pair):
        for batch in (1, 2):
            model = spec.build(seed=0).train()
            output = model(torch.randn(batch, 5, 3))
            output.square().sum().backward()
            assert torch.isfinite(output).all()


def test_another_length_is_refused_where_the_architecture_has_one(pair: Pair) -> None:
    if pair[0].any_length:
        return
    model = next(specs(*pair)).build(seed=0)
    for steps in (1, 4, 6):
        with pytest.raises(InputError, match=rf"\[2, {steps}, 3\].*allowed is \[batch, 5, 3\]"):
            model(torch.zeros(2, steps, 3))


def test_unfit_input_is_refused_with_its_shape_or_type(pair: Pair) -> None:
    model = next(specs(*pair)).build(seed=0)
    for shape in [(2, 5), (2, 5, 4), (2, 0, 3)]:
        with pytest.raises(InputError, match=r"allowed is \[batch, .*3\]"):
            model(torch.zeros(shape))
    with pytest.raises(InputError, match="float64"):
        model(torch.zeros(2, 5, 3, dtype=torch.float64))


def test_an_answer_after_every_step_is_given_or_refused(architecture: type[Architecture]) -> None:
    spec = spec_of(small(architecture), PARAMETRIZATIONS[0], EVERY)
    if admitted(spec):
        assert spec.build(seed=0)(torch.randn(2, 5, 3)).shape == (2, 5, 4)
        return
    for attempt in (spec.check, spec.build, spec.shape_key):
        with pytest.raises(SignatureError, match=rf"^{kind_of(architecture)} .*'every'.*'last'"):
            attempt()


def test_last_output_of_every_step_is_the_output_after_the_last_step(pair: Pair) -> None:
    x = torch.randn(2, 5, 3)
    for every in specs(*pair, EVERY):
        last = every.model_copy(update={"signature": LAST})
        found = every.build(seed=0).eval()(x)[:, -1]
        torch.testing.assert_close(found, last.build(seed=0).eval()(x))


def test_samples_of_a_batch_do_not_touch_each_other_in_evaluation(pair: Pair) -> None:
    x = torch.randn(4, 5, 3, dtype=torch.float64)
    for spec in specs(*pair):
        model = spec.build(seed=0).double().eval()
        alone = torch.cat([model(sample[None]) for sample in x])
        torch.testing.assert_close(model(x), alone, atol=1e-13, rtol=0)


def test_formula_is_the_number_of_trainable_numbers(pair: Pair) -> None:
    for spec in specs(*pair):
        model = spec.build(seed=0)
        assert spec.parameter_count() == sum(p.numel() for p in model.parameters())


@pytest.mark.in_full
def test_every_parameter_learns(pair: Pair) -> None:
    for spec in specs(*pair):
        model = spec.build(seed=0).double()
        model(torch.randn(16, 5, 3, dtype=torch.float64)).square().sum().backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, (spec, name)
            assert parameter.grad.abs().max() > 1e-12, (spec, name)


def test_groups_hold_every_trainable_parameter_once(pair: Pair) -> None:
    for spec in specs(*pair):
        model = spec.build(seed=0)
        grouped = [p for group in parameter_groups(model, 0.1) for p in group["params"]]
        assert len(grouped) == len(set(grouped))
        assert set(grouped) == set(model.parameters())
        assert parameter_groups(model, 0.1)[0]["lr"] == 0.1


def test_structured_matrices_are_those_of_the_slots(pair: Pair) -> None:
    for spec in specs(*pair):
        modules = spec.build(seed=0).modules()
        found = [module.slot for module in modules if isinstance(module, StructuredLinear)]
        slots = list(spec.architecture.slots(LAST).values())
        assert sorted(map(repr, found)) == sorted(map(repr, slots))


def test_one_seed_gives_one_model_and_leaves_the_global_generator_alone(pair: Pair) -> None:
    for spec in specs(*pair):
        before = torch.get_rng_state()
        one, same, other = spec.build(seed=3), spec.build(seed=3), spec.build(seed=4)
        assert torch.equal(torch.get_rng_state(), before)
        assert all(map(torch.equal, one.state_dict().values(), same.state_dict().values()))
        assert not all(map(torch.equal, one.state_dict().values(), other.state_dict().values()))


def test_report_totals_are_those_of_the_built_model(pair: Pair) -> None:
    for spec in specs(*pair):
        report = parameter_report(spec)
        model = spec.build(seed=0)
        assert report.totals.parameters == sum(p.numel() for p in model.parameters())
        assert report.totals.paper_parameters == spec.paper_count()
        assert report.totals.degrees_of_freedom <= report.totals.parameters
        assert report.totals.size_bytes == sum(
            tensor.numel() * tensor.element_size() for tensor in model.state_dict().values()
        )
        tensors = [row for row in report.rows if row.level == "tensor"]
        assert {row.name: row.shape for row in tensors} == spec.tensor_shapes()
        assert sum(row.parameters for row in tensors) == report.totals.parameters


def test_checkpoint_brings_back_the_parameters_and_outputs_bit_for_bit(pair: Pair) -> None:
    x = torch.randn(3, 5, 3)
    for spec in specs(*pair):
        model = spec.build(seed=5).eval()
        loaded = checkpoint.load(checkpoint.save_bytes(model, spec))
        assert loaded.spec == spec
        stored, found = model.state_dict(), loaded.module.state_dict()
        assert list(stored) == list(found)
        assert all(map(torch.equal, stored.values(), found.values()))
        assert torch.equal(model(x), loaded.module.eval()(x))


def test_rounded_models_come_back_bit_for_bit_and_are_smaller(pair: Pair) -> None:
    """One spec after the other at 8 and at 4 bits."""
    x = torch.randn(3, 5, 3)
    widths: tuple[Bits, ...] = (8, 4)
    for place, spec in enumerate(specs(*pair)):
        bits = widths[place % 2]
        few = ModelSpec.model_validate({**spec.model_dump(), "bits": bits})
        model = few.build(seed=5).eval()
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        round_(model, bits)
        assert all(map(torch.equal, model.state_dict().values(), before.values()))
        assert torch.isfinite(model(x)).all()
        content = checkpoint.save_bytes(model, few)
        loaded = checkpoint.load(content)
        assert loaded.spec == few
        found = loaded.module.state_dict()
        assert list(before) == list(found)
        assert all(map(torch.equal, before.values(), found.values()))
        assert checkpoint.save_bytes(loaded.module, few) == content
        layouts = few.layouts()
        held = sum(layout.size_bytes for layout in layouts.values())
        assert held < 4 * sum(math.prod(layout.shape) for layout in layouts.values())
        kept = sum(tensor.numel() for name, tensor in before.items() if name not in layouts)
        totals = model_totals(few)
        assert totals.stored_bytes == held + 4 * kept < totals.size_bytes


def test_model_spec_comes_back_from_json(pair: Pair) -> None:
    for spec in specs(*pair):
        assert ModelSpec.model_validate_json(spec.model_dump_json()) == spec


def test_count_never_falls_when_size_or_depth_grow(pair: Pair) -> None:
    variant, parametrization = pair
    held = spec_of(small(variant, hidden_size=8), parametrization, share=0.0).parametrization
    for members in (
        [small(variant, hidden_size=size) for size in range(8, 60)],
        [small(variant, hidden_size=8, depth=depth) for depth in range(1, 9)],
    ):
        counts = [member.parameter_count(LAST, held) for member in members]
        assert counts == sorted(set(counts))
        for batch_size in (1, 1000):
            saved = [member.saved_numbers(LAST, batch_size=batch_size) for member in members]
            assert saved == sorted(set(saved))
            assert saved[0] > 0


class Ends(GradientProbe):
    """Keeps the states that a network shows."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[torch.Tensor] = []

    def watch_first(self, state: torch.Tensor) -> torch.Tensor:
        self.seen.append(state if state.requires_grad else state.clone().requires_grad_())
        return self.seen[-1]

    def watch_last(self, state: torch.Tensor) -> torch.Tensor:
        self.seen.append(state)
        return state


@pytest.mark.in_full
def test_gradient_probe_reads_what_autograd_gives(pair: Pair) -> None:
    """The sum over the samples of the norms at both ends, found without the probe's hooks."""
    x = torch.randn(3, 5, 3, dtype=torch.float64)
    for signature in (LAST, EVERY):
        for spec in specs(*pair, signature):
            model = spec.build(seed=0).double().eval()
            ends = Ends()
            model.probe = ends
            output = model(x)
            model.probe = None
            first, last = ends.seen
            expected = torch.autograd.grad(output.square().sum(), [first, last])
            if signature is LAST:
                assert torch.equal(_readout(model)(last), output)
            with observed(model) as probe:
                assert (probe.first, probe.last) == (None, None)
                model(x).square().sum().backward()
            assert model.probe is None
            for found, gradient in zip((probe.first, probe.last), expected, strict=True):
                assert found is not None
                assert found == pytest.approx(gradient.norm(dim=-1).sum().item(), rel=1e-10)
                assert found > 0


def _readout(model: nn.Module) -> nn.Module:
    return model.get_submodule("readout")


def test_ranges_are_the_same_for_every_task_and_reach_their_ends(
    architecture: type[Architecture],
) -> None:
    low, high = Corner(0.0), Corner(1.0)
    smallest = architecture.suggest(low, LAST)
    largest = architecture.suggest(high, Signature(input_size=99, sequence_length=1, output_size=2))
    assert low.asked == high.asked
    assert low.asked["hidden_size"][:2] == (16, 128)
    for name in low.asked:
        assert getattr(smallest, name) != getattr(largest, name)


def test_architecture_comes_back_from_json_through_the_union(
    architecture: type[Architecture],
) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(AnyArchitecture)
    for member in options(architecture):
        assert adapter.validate_json(member.model_dump_json()) == member


def test_every_variant_says_what_it_is(architecture: type[Architecture]) -> None:
    assert architecture.title
    assert architecture.paper
    assert architecture.__doc__
    for name, field in architecture.model_fields.items():
        assert name == "kind" or field.description, name
