"""Low rank, with and without a diagonal, shared and weighted: optimal, or never worse by a step."""

import itertools

import pytest
import torch

from models.compression import convert_path, convert_weight
from models.forms import LowRankForm
from models.parametrizations import LowRank, LowRankDiagonal
from models.spec import Slot
from tests.models.compression.targets import (
    SPECTRA,
    dense,
    gaussian,
    relative_error,
    tail,
    with_values,
)

GATES = Slot(out_features=6, in_features=6, gates=3, layers=2)


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("weight_norm", [False, True])
def test_rank_d_is_the_truncated_svd(name: str, weight_norm: bool) -> None:
    weight = with_values(SPECTRA[name], seed=1)
    for d in (1, 3, 6, 12):
        linear = convert_weight(weight, LowRank(d=d, weight_norm=weight_norm))
        assert relative_error(weight, linear) == pytest.approx(tail(weight, d), abs=1e-10)


@pytest.mark.parametrize("shape", [(3, 8), (8, 3), (1, 5)])
def test_rectangles_are_approximated_alike(shape: tuple[int, int]) -> None:
    weight = gaussian(*shape)
    linear = convert_weight(weight, LowRank(d=1))
    assert relative_error(weight, linear) == pytest.approx(tail(weight, 1), abs=1e-10)


def test_factors_of_a_matrix_of_lower_rank_can_still_learn() -> None:
    linear = convert_weight(with_values(SPECTRA["of rank 4"]), LowRank(d=8)).double()
    (linear.dense_weight() * gaussian(12, 12)).sum().backward()
    left, right = linear.get_parameter("left"), linear.get_parameter("right")
    assert left.grad is not None
    assert right.grad is not None
    moved = left.grad.abs().amax((0, 1)) + right.grad.abs().amax((0, 2))
    assert bool((moved > 1e-6).all())


@pytest.mark.parametrize("weight_norm", [False, True])
def test_one_projection_for_all_gates_is_the_best_there_is(weight_norm: bool) -> None:
    weight = gaussian(6, 6, 6, seed=3)
    spec = LowRank(d=2, tied=True, weight_norm=weight_norm)
    linear = convert_weight(weight, spec, slot=GATES)
    factors = linear.form()
    assert isinstance(factors, LowRankForm)
    assert factors.right.shape[0] == 2
    for layer in range(2):
        part = slice(3 * layer, 3 * layer + 3)
        stack, found = weight[part].reshape(-1, 6), linear.dense_weight().detach()[part]
        best = float((found - weight[part]).norm())
        assert best == pytest.approx(float(torch.linalg.svdvals(stack)[2:].norm()), abs=1e-10)
        right = factors.right[layer].detach()
        for seed in range(200):
            tried = right + 0.1 * gaussian(2, 6, seed=seed)
            # The best L for a given R is the least squares solution.
            left = stack @ torch.linalg.pinv(tried)
            assert float((left @ tried - stack).norm()) >= best - 1e-12


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", [LowRank, LowRankDiagonal])
def test_with_calibration_outputs_are_nearer_and_weights_are_not(
    family: type[LowRank | LowRankDiagonal], tied: bool
) -> None:
    weight = gaussian(6, 6, 6, seed=4)
    seen = gaussian(500, 6, seed=5) * torch.tensor([5.0, 3, 1, 0.5, 0.1, 0.01]).double()
    moments = (seen.mT @ seen / 500).expand(6, 6, 6)
    spec = family(d=2, tied=tied)
    plain = convert_weight(weight, spec, slot=GATES).dense_weight().detach()
    aware = convert_weight(weight, spec, slot=GATES, moments=moments).dense_weight().detach()
    outputs = [float((seen @ (found - weight).mT).norm()) for found in (plain, aware)]
    weights = [float((found - weight).norm()) for found in (plain, aware)]
    assert outputs[1] < 0.9 * outputs[0]
    assert weights[0] < weights[1]


def test_with_calibration_rank_d_is_the_best_there_is_for_what_was_seen() -> None:
    weight, seen = gaussian(5, 5, seed=6), gaussian(400, 5, seed=7) @ gaussian(5, 5, seed=8)
    moments = (seen.mT @ seen / 400).unsqueeze(0)
    linear = convert_weight(weight, LowRank(d=2), moments=moments)
    best = float((seen @ (dense(linear) - weight).mT).norm())
    outputs = seen @ weight.mT
    assert best == pytest.approx(float(torch.linalg.svdvals(outputs)[2:].norm()), rel=1e-4)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("d", [1, 2])
def test_low_rank_plus_a_diagonal_is_found_again(d: int, tied: bool) -> None:
    slot = Slot(out_features=12, in_features=12, gates=2)
    right = gaussian(1, d, 12, seed=2).expand(2, d, 12) if tied else gaussian(2, d, 12, seed=2)
    weight = gaussian(2, 12, d, seed=1) @ right + torch.diag_embed(gaussian(2, 12, seed=3))
    linear = convert_weight(weight, LowRankDiagonal(d=d, tied=tied), slot=slot)
    assert relative_error(weight, linear) < 1e-10


@pytest.mark.parametrize("name", SPECTRA)
def test_a_diagonal_never_hurts_and_neither_does_a_higher_rank(name: str) -> None:
    weight = with_values(SPECTRA[name], seed=9)
    counts = [LowRankDiagonal(d=d) for d in range(1, 13)]
    errors = [relative_error(weight, linear) for linear in convert_path(weight, counts)]
    assert all(b <= a + 1e-12 for a, b in itertools.pairwise(errors))
    assert all(error <= tail(weight, d) + 1e-12 for d, error in enumerate(errors, start=1))


def test_two_by_two_with_a_diagonal_is_no_worse_than_a_fine_grid() -> None:
    weight = torch.tensor([[1.0, 2.0], [3.0, -1.0]]).double()
    # Off the diagonal rank 1 meets both entries, and D all the rest: the best error is 0.
    assert relative_error(weight, convert_weight(weight, LowRankDiagonal(d=1))) < 1e-6
    three = gaussian(3, 3, seed=12)
    best = float((dense(convert_weight(three, LowRankDiagonal(d=1))) - three).norm())
    grid = torch.cartesian_prod(*[torch.linspace(-3, 3, 25).double()] * 3)
    errors = torch.linalg.svdvals(three - torch.diag_embed(grid))[:, 1:].norm(dim=-1)
    assert best <= float(errors.min()) + 1e-9
