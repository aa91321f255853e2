from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch

from models.backends.loops import (
    State,
    gru_sequence_reset_after,
    gru_sequence_reset_before,
    lstm_sequence,
    rnn_sequence,
    urnn_sequence,
)
from models.forms import DenseForm, Form, LowRankForm, factored_form_pays
from models.math.activations import modulus

STEPS, BATCH, SIZE = 5, 3, 6

FORMS = ["dense", "low_rank", "low_rank_diagonal", "shared"]

Sequence = Callable[[Form, torch.Tensor, State], Iterator[State]]


def random(*shape: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def factors_of(form: str, *tensors: torch.Tensor) -> tuple[Form, torch.Tensor]:
    """Factors of L, R and D, and the matrices that they stand for."""
    left, right, diagonal = tensors
    if form == "dense":
        return DenseForm(left @ right), left @ right
    if form == "low_rank":
        return LowRankForm(left, right), left @ right
    if form == "shared":
        right = right[:1]
    return LowRankForm(left, right, diagonal), left @ right + torch.diag_embed(diagonal)


def made(form: str, num_matrices: int) -> tuple[Form, torch.Tensor]:
    left, right = random(num_matrices, SIZE, 2, seed=1), random(num_matrices, 2, SIZE, seed=2)
    return factors_of(form, left, right, random(num_matrices, SIZE, seed=3))


def gru_step(
    weight: torch.Tensor, x: torch.Tensor, h: torch.Tensor, *, before: bool
) -> torch.Tensor:
    """One step by the equations, gate by gate."""
    x_u, x_r, x_q = x.chunk(3, dim=-1)
    u = torch.sigmoid(h @ weight[0].T + x_u)
    r = torch.sigmoid(h @ weight[1].T + x_r)
    inner = (r * h) @ weight[2].T if before else r * (h @ weight[2].T)
    return u * h + (1 - u) * torch.tanh(inner + x_q)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("before", [True, False])
def test_gru_follows_its_equations_at_every_step(form: str, before: bool) -> None:
    factors, weight = made(form, num_matrices=3)
    projections, h = random(STEPS, BATCH, 3 * SIZE, seed=4), random(BATCH, SIZE, seed=5)
    sequence: Sequence = gru_sequence_reset_before if before else gru_sequence_reset_after
    for x, (state,) in zip(projections, sequence(factors, projections, (h,)), strict=True):
        h = gru_step(weight, x, h, before=before)
        torch.testing.assert_close(state, h, atol=1e-13, rtol=0)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("activation", [torch.tanh, modulus])
def test_rnn_follows_its_equation_at_every_step(
    form: str, activation: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    factors, weight = made(form, num_matrices=1)
    projections, h = random(STEPS, BATCH, SIZE, seed=4), random(BATCH, SIZE, seed=5)
    states = rnn_sequence(factors, projections, (h,), activation=activation)
    for x, (state,) in zip(projections, states, strict=True):
        h = activation(h @ weight[0].T + x)
        torch.testing.assert_close(state, h, atol=1e-13, rtol=0)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("with_peephole", [True, False])
def test_lstm_follows_its_equations_at_every_step(form: str, with_peephole: bool) -> None:
    factors, weight = made(form, num_matrices=4)
    projections = random(STEPS, BATCH, 4 * SIZE, seed=4)
    h, c, peephole = (random(*s, seed=5) for s in ((BATCH, SIZE), (BATCH, SIZE), (SIZE, SIZE)))
    see = partial(torch.nn.functional.linear, weight=peephole) if with_peephole else None
    states = lstm_sequence(factors, projections, (h, c), peephole=see)
    for x, (state, cell) in zip(projections, states, strict=True):
        x_i, x_f, x_z, x_o = x.chunk(4, dim=-1)
        i = torch.sigmoid(h @ weight[0].T + x_i)
        f = torch.sigmoid(h @ weight[1].T + x_f)
        z = torch.tanh(h @ weight[2].T + x_z)
        c = f * c + i * z
        seen = c @ peephole.T if with_peephole else 0
        h = torch.sigmoid(h @ weight[3].T + x_o + seen) * torch.tanh(c)
        torch.testing.assert_close(state, h, atol=1e-13, rtol=0)
        torch.testing.assert_close(cell, c, atol=1e-13, rtol=0)


def test_urnn_follows_its_equation_in_complex_numbers() -> None:
    """`z_t = rescale(W z_{t-1} + V x_t)`, with z as one complex array and W as one matrix."""
    half = SIZE // 2
    a, b = (random(half, half, seed=seed) for seed in (1, 2))
    w = torch.complex(a, b)
    real = torch.cat((torch.cat((a, -b), dim=1), torch.cat((b, a), dim=1)))
    factors = DenseForm(real[None])
    projections, start = random(STEPS, BATCH, SIZE, seed=4), random(BATCH, SIZE, seed=5)
    bias = torch.tensor([-0.9, 0.2, -50.0], dtype=torch.float64)
    z = torch.complex(start[:, :half], start[:, half:])
    states = [h for (h,) in urnn_sequence(factors, projections, (start,), bias=bias)]
    for x, state in zip(projections, states, strict=True):
        z = z @ w.T + torch.complex(x[:, :half], x[:, half:])
        modulus = z.abs()
        z = z * (modulus + bias).clamp(min=0) / (modulus + 1e-5)
        expected = torch.cat((z.real, z.imag), dim=1)
        torch.testing.assert_close(state, expected, atol=1e-12, rtol=0)
    # The last bias is below every modulus.
    assert not states[-1][:, [half - 1, SIZE - 1]].any()


def test_a_complex_state_of_zero_has_a_gradient() -> None:
    """The modulus has none at 0; the state's is that of the projection it would be without W."""
    weight = torch.eye(SIZE, dtype=torch.float64)[None].requires_grad_()
    projections = torch.zeros(2, BATCH, SIZE, dtype=torch.float64, requires_grad=True)
    bias = torch.full((SIZE // 2,), 0.1, dtype=torch.float64, requires_grad=True)
    start = torch.zeros(BATCH, SIZE, dtype=torch.float64)
    *_, (last,) = urnn_sequence(DenseForm(weight), projections, (start,), bias=bias)
    assert not last.any()
    last.sum().backward()
    for tensor in (weight, projections, bias):
        assert tensor.grad is not None
        assert torch.isfinite(tensor.grad).all()


def test_both_resets_agree_only_for_a_diagonal_candidate_matrix() -> None:
    projections, start = random(STEPS, BATCH, 3 * SIZE, seed=4), random(BATCH, SIZE, seed=5)
    weight = random(3, SIZE, SIZE, seed=6)

    def last(sequence: Sequence, weight: torch.Tensor) -> torch.Tensor:
        return list(sequence(DenseForm(weight), projections, (start,)))[-1][0]

    before, after = gru_sequence_reset_before, gru_sequence_reset_after
    assert (last(before, weight) - last(after, weight)).abs().max() > 1e-3
    weight[2] = torch.diag(weight[2].diagonal())
    torch.testing.assert_close(last(before, weight), last(after, weight))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("sequence", "num_matrices", "parts"),
    [
        (partial(rnn_sequence, activation=torch.tanh), 1, 1),
        (gru_sequence_reset_before, 3, 1),
        (gru_sequence_reset_after, 3, 1),
        (lstm_sequence, 4, 2),
        (partial(lstm_sequence, peephole=torch.sin), 4, 2),
        (partial(urnn_sequence, bias=torch.full((SIZE // 2,), 0.1)), 1, 1),
    ],
    ids=["rnn", "gru_before", "gru_after", "lstm", "lstm_peephole", "urnn"],
)
def test_gradients_through_time_are_exact(
    form: str, sequence: Sequence, num_matrices: int, parts: int
) -> None:
    left, right = random(num_matrices, SIZE, 2, seed=1), random(num_matrices, 2, SIZE, seed=2)
    diagonal = random(num_matrices, SIZE, seed=3)
    projections = random(3, 2, num_matrices * SIZE, seed=4)
    start = random(parts, 2, SIZE, seed=5)

    def last(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        *matrices, projections, start = tensors
        factors, _ = factors_of(form, *matrices)
        return list(sequence(factors, projections, start.unbind(0)))[-1]

    inputs = tuple(t.requires_grad_() for t in (left, right, diagonal, projections, start))
    assert torch.autograd.gradcheck(last, inputs)


@pytest.mark.parametrize(
    ("rank", "size", "pays"),
    [(32, 96, True), (33, 96, False), (1, 33, False), (1, 34, True), (48, 128, True)],
)
def test_factored_form_is_taken_while_it_is_32_columns_narrower(
    rank: int, size: int, pays: bool
) -> None:
    assert factored_form_pays(rank, size) is pays
