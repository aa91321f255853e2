"""What every parametrization's module promises: one linear map, exact gradients, its structure."""

import pytest
import torch
from torch import nn
from torch.func import functional_call

from models.forms import MaskedForm
from models.linear import StructuredLinear
from models.model import after_step, parameter_groups, spectral_margin
from models.parametrizations import Family, Parametrization
from models.spec import Slot
from tests.conformance.variants import (
    SLOTS,
    built,
    drawn_members,
    home,
    members,
    moved_,
    name_of,
)

Variant = type[Family]

pytestmark = pytest.mark.sampled

GATED = [slot for slot in SLOTS if slot.num_matrices > 1]


class Applied(nn.Module):
    """A structured weight as a module that can be called."""

    def __init__(self, linear: StructuredLinear) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear.apply_weight(x)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("slot", SLOTS, ids=name_of)
def test_apply_equals_dense_in_double_precision(parametrization: Variant, slot: Slot) -> None:
    parts = 2 if slot.field == "complex" else 1
    for spec in members(parametrization, slot):
        linear = moved_(built(spec, slot).double())
        weight = linear.dense_weight()
        assert weight.shape == (
            slot.num_matrices,
            parts * slot.out_features,
            parts * slot.in_features,
        )
        x = random(4, 5, linear.in_features)
        expected = torch.cat([x @ matrix.T for matrix in weight], dim=-1)
        torch.testing.assert_close(linear.apply_weight(x), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("slot", [s for s in SLOTS if s.field == "complex"], ids=name_of)
def test_a_complex_matrix_acts_as_one(parametrization: Variant, slot: Slot) -> None:
    """The real form is `[[A, -B], [B, A]]`, so that a factor i may be taken out."""
    for spec in members(parametrization, slot):
        weight = moved_(built(spec, slot).double()).dense_weight()
        (a, minus_b), (b, a_again) = (half.chunk(2, dim=-1) for half in weight.chunk(2, dim=-2))
        torch.testing.assert_close(a, a_again, atol=1e-13, rtol=0)
        torch.testing.assert_close(minus_b, -b, atol=1e-13, rtol=0)


@pytest.mark.in_full
@pytest.mark.parametrize(
    "slot", [s for s in SLOTS if s.num_matrices * s.in_features * s.out_features <= 25], ids=name_of
)
def test_gradients_are_exact(parametrization: Variant, slot: Slot) -> None:
    for spec in members(parametrization, slot):
        module = Applied(moved_(built(spec, slot).double(), 1e-3))
        names = [name for name, _ in module.named_parameters()]
        values = [value for _, value in module.named_parameters()]

        def apply(
            x: torch.Tensor,
            *parameters: torch.Tensor,
            names: list[str] = names,
            module: Applied = module,
        ) -> torch.Tensor:
            return functional_call(module, dict(zip(names, parameters, strict=True)), (x,))

        x = random(2, module.linear.in_features).requires_grad_()
        assert torch.autograd.gradcheck(apply, (x, *values)), spec


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("leading", [(), (0,), (1,), (2, 0), (2, 3)], ids=str)
def test_shape_and_type_are_kept(
    parametrization: Variant, dtype: torch.dtype, leading: tuple[int, ...]
) -> None:
    slot = home(parametrization, 7, gates=2)
    for spec in members(parametrization, slot):
        linear = built(spec, slot).to(dtype)
        y = linear.apply_weight(torch.zeros(*leading, linear.in_features, dtype=dtype))
        assert y.shape == (*leading, 2 * linear.out_features)
        assert y.dtype == dtype
        assert linear.dense_weight().dtype == dtype


@pytest.mark.parametrize("slot", SLOTS, ids=name_of)
def test_half_precision_differs_by_rounding_alone(parametrization: Variant, slot: Slot) -> None:
    """Against single precision with the same rounded parameters, which are what is stored."""
    for spec in members(parametrization, slot):
        half = built(spec, slot).bfloat16()
        single = built(spec, slot).bfloat16().float()
        x = random(16, half.in_features).bfloat16()
        found, expected = half.apply_weight(x), single.apply_weight(x.float())
        error = (found.float() - expected).norm() / expected.norm()
        assert found.dtype == torch.bfloat16
        # One rounding of each factor, product and sum, each by at most 2^-9 of the number.
        assert error < 0.02, spec


@pytest.mark.parametrize(
    "slot",
    [s for s in SLOTS if s.num_matrices * s.in_features * s.out_features <= 110],
    ids=name_of,
)
def test_degrees_of_freedom_are_the_rank_of_the_jacobian(
    parametrization: Variant, slot: Slot
) -> None:
    for spec in members(parametrization, slot):
        # The rank is largest at generic points; the start may be a special one, and far from it
        # a bounded number may be at its bound.
        ranks: list[int] = []
        for scale in (1.0, 1e-4):
            linear = moved_(built(spec, slot).double(), scale)
            parameters = list(linear.parameters())
            rows: list[torch.Tensor] = []
            for entry in linear.dense_weight().flatten():
                gradients = torch.autograd.grad(
                    entry,
                    parameters,
                    retain_graph=True,
                    allow_unused=True,
                    materialize_grads=True,
                )
                rows.append(torch.cat([gradient.flatten() for gradient in gradients]))
            ranks.append(int(torch.linalg.matrix_rank(torch.stack(rows), rtol=1e-10)))
        assert linear.degrees_of_freedom() == max(ranks), spec


@pytest.mark.parametrize("slot", GATED, ids=name_of)
def test_copies_differ_and_layers_share_no_number(parametrization: Variant, slot: Slot) -> None:
    for spec in drawn_members(parametrization, slot):
        linear = built(spec, slot)
        weights = linear.dense_weight()
        for one in range(slot.num_matrices):
            assert all(not torch.equal(weights[one], other) for other in weights[one + 1 :])
        parameters = list(linear.parameters())
        reached = torch.zeros(sum(parameter.numel() for parameter in parameters))
        for layer in weights.chunk(slot.layers):
            gradients = torch.autograd.grad(
                (layer * torch.randn_like(layer)).sum(), parameters, retain_graph=True
            )
            reached += torch.cat([gradient.flatten() for gradient in gradients]) != 0
        assert reached.max() == 1, spec


@pytest.mark.parametrize("slot", SLOTS, ids=name_of)
def test_factors_advance_as_the_matrices_do(parametrization: Variant, slot: Slot) -> None:
    for spec in members(parametrization, slot):
        linear = moved_(built(spec, slot).double())
        factors, weights = linear.form(), linear.dense_weight()
        num_matrices, rows, columns = weights.shape
        state, states = random(3, columns), random(num_matrices, 3, columns, seed=1)
        projections = random(2, 3, num_matrices * rows, seed=2)
        for addend, projection in zip(factors.addends(projections), projections, strict=True):
            by_copy = projection.view(3, num_matrices, rows).unbind(1)
            together = factors.matmul(state, addend)
            each = factors.matmul_each(states, torch.stack(by_copy))
            for copy, own in enumerate(by_copy):
                (alone,) = factors.select(copy, copy + 1).matmul(states[copy])
                expected = state @ weights[copy].T + own
                torch.testing.assert_close(together[copy], expected, atol=1e-12, rtol=0)
                torch.testing.assert_close(each[copy], alone + own, atol=1e-12, rtol=0)


@pytest.mark.parametrize("slot", GATED, ids=name_of)
@pytest.mark.parametrize("tied", [True, False])
def test_masked_matrices_see_the_masked_state(
    parametrization: Variant, slot: Slot, tied: bool
) -> None:
    for spec in members(parametrization, slot):
        linear = built(spec, slot).double()
        gates = linear.dense_weight()[-slot.gates :]
        own = linear.form().select(slot.num_matrices - slot.gates, slot.num_matrices)
        _, rows, columns = gates.shape
        mask = random(1 if tied else slot.gates, 3, columns, seed=3).gt(0) * 2.0
        state, projections = random(3, columns), random(2, 3, slot.gates * rows, seed=2)
        masked = MaskedForm(own, mask)
        last = projections[-1].view(3, slot.gates, rows)
        found = masked.matmul(state, masked.addends(projections)[-1])
        bare = masked.matmul(state)
        states = random(slot.gates, 3, columns, seed=4)
        each = masked.matmul_each(states, last.transpose(0, 1))
        for gate in range(slot.gates):
            kept = mask[0 if tied else gate]
            expected = (kept * state) @ gates[gate].T
            torch.testing.assert_close(bare[gate], expected, atol=1e-12, rtol=0)
            torch.testing.assert_close(found[gate], expected + last[:, gate], atol=1e-12, rtol=0)
            expected = (kept * states[gate]) @ gates[gate].T + last[:, gate]
            torch.testing.assert_close(each[gate], expected, atol=1e-12, rtol=0)
            (alone,) = masked.select(gate, gate + 1).matmul(state)
            torch.testing.assert_close(alone, bare[gate], atol=1e-12, rtol=0)


def test_a_penalty_is_a_differentiable_number_that_is_not_negative(
    parametrization: Variant,
) -> None:
    slot = home(parametrization, 6, gates=3)
    for spec in members(parametrization, slot):
        linear = moved_(built(spec, slot).double())
        penalty = linear.penalty()
        if penalty is None:
            continue
        assert penalty.shape == ()
        assert penalty.item() >= 0
        gradients = torch.autograd.grad(penalty, list(linear.parameters()), allow_unused=True)
        pulls = any(gradient is not None and bool(gradient.any()) for gradient in gradients)
        assert pulls is (penalty.item() > 0)


def trained(spec: Parametrization, slot: Slot, steps: int = 20) -> StructuredLinear:
    """A module after some optimizer steps towards a random matrix."""
    linear = built(spec, slot).double()
    target = random(*linear.dense_weight().shape)
    optimizer = torch.optim.Adam(parameter_groups(linear, 0.01))
    for _ in range(steps):
        optimizer.zero_grad()
        (linear.dense_weight() - target).square().sum().backward()
        optimizer.step()
        after_step(linear)
    return linear


@pytest.mark.parametrize(
    "slot", [s for s in SLOTS if s.smaller_side > 1 and s.in_features <= 12], ids=name_of
)
def test_training_moves_the_matrix_and_keeps_its_structure(
    parametrization: Variant, slot: Slot
) -> None:
    for spec in members(parametrization, slot):
        start = built(spec, slot).double()
        linear = trained(spec, slot)
        weight = linear.dense_weight().detach()
        assert not torch.equal(weight, start.dense_weight())
        before, claimed = start.singular_values(), linear.singular_values()
        if before is None or claimed is None:
            values = torch.linalg.svdvals(weight)
            assert spectral_margin(linear) == pytest.approx(
                (values - float(not slot.residual)).abs().max().item()
            )
            continue
        found = torch.linalg.svdvals(weight)
        sorted_claim = claimed.detach().abs().sort(descending=True).values
        torch.testing.assert_close(found, sorted_claim, atol=1e-12, rtol=0)
        margin = spectral_margin(linear)
        centre = getattr(spec, "sigma_star", 1.0)
        assert margin == pytest.approx((claimed.detach().abs() - centre).abs().max().item())
        if weight.shape[-1] != weight.shape[-2]:
            continue
        # The orthogonal sides keep the sign of their determinants; singular values may change it.
        signs = [
            torch.linalg.det(module.dense_weight()).sign() * values.sign().prod(-1)
            for module, values in ((start, before), (linear, claimed))
        ]
        assert torch.equal(*signs)


@pytest.mark.parametrize("slot", SLOTS, ids=name_of)
def test_settling_changes_no_matrix(parametrization: Variant, slot: Slot) -> None:
    for spec in members(parametrization, slot):
        # A small step, after which bounded numbers are still within their bounds.
        linear = moved_(built(spec, slot).double(), 1e-4)
        before = linear.dense_weight()
        after_step(linear)
        torch.testing.assert_close(linear.dense_weight(), before, atol=1e-14, rtol=0)
