from collections.abc import Callable
from functools import partial

import pytest
import torch

from models.architectures.activations import modulus
from models.ops.factors import DenseFactors, Factors, LowRankFactors, factored_form_pays
from models.ops.recurrence import (
    Sequence,
    gru_sequence_reset_after,
    gru_sequence_reset_before,
    rnn_sequence,
)

STEPS, BATCH, SIZE = 5, 3, 6


def random(*shape: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def factors_of(kind: str, copies: int) -> tuple[Factors, torch.Tensor]:
    """Factors and the matrices that they stand for."""
    left, right = random(copies, SIZE, 2, seed=1), random(copies, 2, SIZE, seed=2)
    diagonal = random(copies, SIZE, seed=3)
    if kind == "dense":
        return DenseFactors(left @ right), left @ right
    if kind == "low_rank":
        return LowRankFactors(left, right), left @ right
    return LowRankFactors(left, right, diagonal), left @ right + torch.diag_embed(diagonal)


def gru_step(
    weight: torch.Tensor, x: torch.Tensor, h: torch.Tensor, *, before: bool
) -> torch.Tensor:
    """One step by the equations, gate by gate."""
    x_u, x_r, x_q = x.chunk(3, dim=-1)
    u = torch.sigmoid(h @ weight[0].T + x_u)
    r = torch.sigmoid(h @ weight[1].T + x_r)
    inner = (r * h) @ weight[2].T if before else r * (h @ weight[2].T)
    return u * h + (1 - u) * torch.tanh(inner + x_q)


@pytest.mark.parametrize("kind", ["dense", "low_rank", "low_rank_diagonal"])
@pytest.mark.parametrize("before", [True, False])
def test_gru_follows_its_equations_at_every_step(kind: str, before: bool) -> None:
    factors, weight = factors_of(kind, copies=3)
    projections, h = random(STEPS, BATCH, 3 * SIZE, seed=4), random(BATCH, SIZE, seed=5)
    sequence: Sequence = gru_sequence_reset_before if before else gru_sequence_reset_after
    for x, state in zip(projections, sequence(factors, projections, h), strict=True):
        h = gru_step(weight, x, h, before=before)
        torch.testing.assert_close(state, h, atol=1e-13, rtol=0)


@pytest.mark.parametrize("kind", ["dense", "low_rank", "low_rank_diagonal"])
@pytest.mark.parametrize("activation", [torch.tanh, modulus])
def test_rnn_follows_its_equation_at_every_step(
    kind: str, activation: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    factors, weight = factors_of(kind, copies=1)
    projections, h = random(STEPS, BATCH, SIZE, seed=4), random(BATCH, SIZE, seed=5)
    states = rnn_sequence(factors, projections, h, activation=activation)
    for x, state in zip(projections, states, strict=True):
        h = activation(h @ weight[0].T + x)
        torch.testing.assert_close(state, h, atol=1e-13, rtol=0)


def test_both_resets_agree_only_for_a_diagonal_candidate_matrix() -> None:
    projections, start = random(STEPS, BATCH, 3 * SIZE, seed=4), random(BATCH, SIZE, seed=5)
    weight = random(3, SIZE, SIZE, seed=6)

    def last(sequence: Sequence, weight: torch.Tensor) -> torch.Tensor:
        return list(sequence(DenseFactors(weight), projections, start))[-1]

    before, after = gru_sequence_reset_before, gru_sequence_reset_after
    assert (last(before, weight) - last(after, weight)).abs().max() > 1e-3
    weight[2] = torch.diag(weight[2].diagonal())
    torch.testing.assert_close(last(before, weight), last(after, weight))


@pytest.mark.parametrize("kind", ["dense", "low_rank", "low_rank_diagonal"])
@pytest.mark.parametrize(
    ("sequence", "copies"),
    [
        (partial(rnn_sequence, activation=torch.tanh), 1),
        (gru_sequence_reset_before, 3),
        (gru_sequence_reset_after, 3),
    ],
)
def test_gradients_through_time_are_exact(kind: str, sequence: Sequence, copies: int) -> None:
    left, right = random(copies, SIZE, 2, seed=1), random(copies, 2, SIZE, seed=2)
    diagonal = random(copies, SIZE, seed=3)
    projections = random(3, 2, copies * SIZE, seed=4)
    start = random(2, SIZE, seed=5)

    def last(*tensors: torch.Tensor) -> torch.Tensor:
        left, right, diagonal, projections, start = tensors
        factors: Factors = LowRankFactors(left, right, diagonal)
        if kind == "dense":
            factors = DenseFactors(left @ right)
        elif kind == "low_rank":
            factors = LowRankFactors(left, right)
        return list(sequence(factors, projections, start))[-1]

    inputs = tuple(t.requires_grad_() for t in (left, right, diagonal, projections, start))
    assert torch.autograd.gradcheck(last, inputs)


def test_modulus_has_slope_one_at_zero_where_abs_has_none() -> None:
    x = torch.tensor([-2.0, 0.0, 3.0], requires_grad=True)
    modulus(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [-1, 1, 1]


@pytest.mark.parametrize(
    ("rank", "size", "pays"), [(38, 96, True), (39, 96, False), (1, 95, False), (51, 128, True)]
)
def test_factored_form_is_taken_up_to_four_tenths_of_the_size_from_96_on(
    rank: int, size: int, pays: bool
) -> None:
    assert factored_form_pays(rank, size) is pays
