import math

import numpy as np
import pytest
import scipy.linalg
import torch
from pydantic import ValidationError

from models.architectures import Rnn
from models.compression.fit.convert import convert_weight
from models.errors import SlotError
from models.math.orthogonal_maps import OrthogonalMapName
from models.model import ModelSpec, after_step, parameter_groups, spectral_margin
from models.parametrizations import FactorizedSvd
from models.parametrizations.factorized_svd import FactorizedSvdLinear
from models.spec import Signature, Slot
from tests.models.reference import skew

MAPS: tuple[OrthogonalMapName, ...] = ("cayley", "exponential")


def linear_of(spec: FactorizedSvd, size: int, *, num_matrices: int = 2) -> FactorizedSvdLinear:
    generator = torch.Generator().manual_seed(0)
    slot = Slot(out_features=size, in_features=size, gates=num_matrices)
    linear = spec.build(slot, generator=generator).double()
    assert isinstance(linear, FactorizedSvdLinear)
    return linear


def expected_rotation(packed: torch.Tensor, size: int, orthogonal_map: OrthogonalMapName) -> object:
    a = skew(packed.detach(), size).numpy()
    if orthogonal_map == "exponential":
        return scipy.linalg.expm(a)
    return scipy.linalg.inv(np.eye(size) + a) @ (np.eye(size) - a)


@pytest.mark.parametrize("orthogonal_map", MAPS)
@pytest.mark.parametrize("margin", [0.0, 0.3])
@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_weight_is_the_product_of_rotations_and_singular_values(
    orthogonal_map: OrthogonalMapName, margin: float, size: int
) -> None:
    linear = linear_of(FactorizedSvd(margin=margin, orthogonal_map=orthogonal_map), size)
    s = torch.ones(2, size, dtype=torch.float64)
    if linear.p is not None:
        with torch.no_grad():
            linear.p.copy_(torch.linspace(-2, 3, 2 * size).view(2, size))
        s = 2 * margin * linear.p.detach().sigmoid() + 1 - margin
    for copy, weight in enumerate(linear.dense_weight()):
        u, v = (
            torch.tensor(expected_rotation(side[copy], size, orthogonal_map))
            for side in (linear.u, linear.v)
        )
        torch.testing.assert_close(weight, u @ torch.diag(s[copy]) @ v.T, atol=1e-12, rtol=0)
        assert torch.linalg.det(weight) > 0


@pytest.mark.parametrize("orthogonal_map", MAPS)
@pytest.mark.parametrize("margin", [0.0, 0.2])
def test_gradients_are_exact(orthogonal_map: OrthogonalMapName, margin: float) -> None:
    linear = linear_of(FactorizedSvd(margin=margin, orthogonal_map=orthogonal_map), 4)
    names, values = zip(*linear.named_parameters(), strict=True)

    def weight(*parameters: torch.Tensor) -> torch.Tensor:
        state = dict(zip(names, parameters, strict=True))
        x = torch.eye(4, dtype=torch.float64)
        return torch.func.functional_call(Applied(linear), prefixed(state), (x,))

    assert torch.autograd.gradcheck(weight, values)


class Applied(torch.nn.Module):
    def __init__(self, linear: FactorizedSvdLinear) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear.apply_weight(x)


def prefixed(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"linear.{name}": tensor for name, tensor in state.items()}


@pytest.mark.parametrize("orthogonal_map", MAPS)
@pytest.mark.parametrize("margin", [0.0, 1e-3, 0.5])
def test_training_keeps_singular_values_within_the_margin(
    orthogonal_map: OrthogonalMapName, margin: float
) -> None:
    linear = linear_of(FactorizedSvd(margin=margin, orthogonal_map=orthogonal_map), 7)
    start = linear.dense_weight().detach()
    generator = torch.Generator().manual_seed(1)
    target = 3 * torch.randn(2, 7, 7, generator=generator, dtype=torch.float64)
    optimizer = torch.optim.Adam(parameter_groups(linear, 0.002))
    for _ in range(20):
        optimizer.zero_grad()
        (linear.dense_weight() - target).square().sum().backward()
        optimizer.step()
        after_step(linear)
    weight = linear.dense_weight().detach()
    assert (weight - start).abs().max() > 0.01
    found = torch.linalg.svdvals(weight)
    claimed = linear.singular_values().detach().sort(descending=True).values
    torch.testing.assert_close(found, claimed, atol=1e-12, rtol=0)
    distance = (found - 1).abs().max().item()
    assert spectral_margin(linear) == pytest.approx(distance, abs=1e-12)
    if margin:
        # Adam moves s by a quarter of the learning rate a step, whatever the margin.
        assert 0.5 * min(margin, 20 * 0.002 / 4) < distance < margin
    else:
        assert distance < 1e-13
    assert (torch.linalg.det(weight) > 0).all()


def rotation_by(linear: FactorizedSvdLinear, number: float) -> torch.Tensor:
    with torch.no_grad():
        linear.u.fill_(number)
        linear.v.zero_()
    return linear.dense_weight()[0].detach()


def test_the_cayley_transform_comes_close_to_minus_one_and_the_exponential_reaches_it() -> None:
    half_turn = -torch.eye(2, dtype=torch.float64)
    cayley = linear_of(FactorizedSvd(), 2)
    for number in (1.0, 50.0, 1e6):
        found = math.atan2(*rotation_by(cayley, number)[[1, 0], [0, 0]].tolist())
        assert found == pytest.approx(2 * math.atan(number), abs=1e-12)
        assert found < math.pi
    exponential = linear_of(FactorizedSvd(orthogonal_map="exponential"), 2)
    torch.testing.assert_close(rotation_by(exponential, math.pi), half_turn, atol=1e-14, rtol=0)


# Means of cos(phase) over Wigner's semicircle of radius R: sqrt(5) - 2 of the Cayley transform with
# R = 2, and 2 J_1(pi) / pi of the exponential with R = pi.
@pytest.mark.parametrize(
    ("orthogonal_map", "mean", "largest"),
    [("cayley", math.sqrt(5) - 2, 2 * math.atan(2)), ("exponential", 0.1812, math.pi)],
)
def test_phases_of_both_sides_start_well_spread(
    orthogonal_map: OrthogonalMapName, mean: float, largest: float
) -> None:
    size = 150
    linear = linear_of(FactorizedSvd(orthogonal_map=orthogonal_map), size, num_matrices=1)
    for side in (linear.u, linear.v):
        q = torch.tensor(expected_rotation(side[0], size, orthogonal_map))
        phases = torch.linalg.eigvals(q).angle().abs()
        assert phases.cos().mean().item() == pytest.approx(mean, abs=0.03)
        assert 0.9 * largest < phases.max().item() < 1.05 * largest
    weight = linear.dense_weight()[0].detach()
    assert torch.linalg.eigvals(weight).real.mean().abs() < 0.1
    # Rows are spread over all coordinates: 3 / n is the mean fourth power of random unit vectors.
    assert weight.pow(4).sum(-1).mean().item() == pytest.approx(3 / size, rel=0.3)


@pytest.mark.parametrize(("margin", "each", "free"), [(0.0, 42, 21), (0.1, 49, 49)])
def test_counts(margin: float, each: int, free: int) -> None:
    slot = Slot(out_features=7, in_features=7, gates=2, layers=3)
    spec = FactorizedSvd(margin=margin)
    assert spec.parameter_count(slot) == 6 * each
    assert spec.paper_count(slot) == 6 * (2 * 49 + 7)
    linear = linear_of(spec, 7)
    assert sum(parameter.numel() for parameter in linear.parameters()) == 2 * each
    assert linear.degrees_of_freedom() == 2 * free


@pytest.mark.parametrize("orthogonal_map", MAPS)
@pytest.mark.parametrize("margin", [0.0, 0.1])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_degrees_of_freedom_are_the_rank_of_the_jacobian(
    orthogonal_map: OrthogonalMapName, margin: float, size: int
) -> None:
    spec = FactorizedSvd(margin=margin, orthogonal_map=orthogonal_map)
    linear = linear_of(spec, size, num_matrices=1)
    if linear.p is not None:
        # Equal singular values leave U and V undetermined.
        torch.nn.init.normal_(linear.p, generator=torch.Generator().manual_seed(2))
    parameters = list(linear.parameters())
    rows = [
        torch.cat(
            [
                gradient.flatten()
                for gradient in torch.autograd.grad(entry, parameters, retain_graph=True)
            ]
        )
        for entry in linear.dense_weight().flatten()
    ]
    rank = int(torch.linalg.matrix_rank(torch.stack(rows), rtol=1e-9))
    assert linear.degrees_of_freedom() == rank


def test_factorized_rnn_of_the_pixel_mnist_table() -> None:
    """n = 128: 34,570, which the table prints, as 35k, in the row of the plain RNN."""
    spec = ModelSpec(
        architecture=Rnn(hidden_size=128),
        parametrization=FactorizedSvd(),
        signature=Signature(input_size=1, sequence_length=784, output_size=10),
    )
    assert spec.paper_count() == 34_570
    stored = sum(parameter.numel() for parameter in spec.build(seed=0).parameters())
    assert stored == spec.parameter_count() == 34_570 - 2 * 128**2 - 128 + 128 * 127


def test_singular_values_learn_at_the_learning_rate_over_twice_the_margin() -> None:
    linear = linear_of(FactorizedSvd(margin=0.05), 4)
    plain, sigma = parameter_groups(linear, 0.01)
    assert plain["lr"] == 0.01
    assert sigma["lr"] == pytest.approx(0.1)
    assert sigma["params"] == [linear.p]
    assert len(parameter_groups(linear_of(FactorizedSvd(), 4), 0.01)) == 1


def test_what_cannot_be_held_is_refused() -> None:
    with pytest.raises(SlotError, match="square matrices only, not for 3 x 4"):
        FactorizedSvd().check(Slot(out_features=3, in_features=4))
    with pytest.raises(SlotError, match="real matrices only"):
        FactorizedSvd().check(Slot(out_features=3, in_features=3, field="complex"))
    for margin in (-0.1, 1.1):
        with pytest.raises(ValidationError):
            FactorizedSvd(margin=margin)


@pytest.mark.parametrize("orthogonal_map", MAPS)
@pytest.mark.parametrize("margin", [0.0, 0.2])
def test_half_precision_factors_are_made_in_single_precision(
    orthogonal_map: OrthogonalMapName, margin: float
) -> None:
    spec = FactorizedSvd(margin=margin, orthogonal_map=orthogonal_map)
    half, exact = linear_of(spec, 20).bfloat16(), linear_of(spec, 20)
    with torch.no_grad():
        for one, other in zip(exact.parameters(), half.parameters(), strict=True):
            one.copy_(other)
    weight = half.dense_weight()
    assert weight.dtype == torch.bfloat16
    # One rounding, to 8 bits.
    torch.testing.assert_close(weight.double(), exact.dense_weight(), atol=1e-5, rtol=2**-8)
    weight.float().square().sum().backward()


@pytest.mark.parametrize("size", [2, 3, 8, 16])
@pytest.mark.parametrize("kind", ["diagonal", "permutation"])
def test_matrices_of_axes_are_converted_whatever_their_signs(kind: str, size: int) -> None:
    """Their singular vectors are axes: many orders of them have the eigenvalue -1."""
    generator = torch.Generator().manual_seed(size)
    for _ in range(20):
        signs = torch.randint(0, 2, (size,), generator=generator) * 2.0 - 1
        values = 0.6 + 0.8 * torch.rand(size, generator=generator)
        order = torch.randperm(size, generator=generator)
        if kind == "diagonal":
            order = torch.arange(size)
        matrix = torch.diag(signs * values)[order]
        found = convert_weight(matrix, FactorizedSvd(margin=0.9)).dense_weight()[0]
        assert found.isfinite().all()
        if torch.linalg.det(matrix) > 0:
            torch.testing.assert_close(found, matrix.double(), rtol=1e-6, atol=1e-6)
