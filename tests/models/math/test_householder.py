import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from models.math.householder import (
    row_lengths,
    rows_of_length_root_two,
    staircase_entries,
    staircase_positions,
    staircase_rows,
    svd_diagonal_low_rank,
    svd_weight,
)
from tests.models.reference import reflector_product, staircase


def random_rows(size: int, count: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    packed = torch.randn(staircase_entries(size, count), generator=generator, dtype=torch.float64)
    return staircase(packed, size)


@pytest.mark.parametrize(("size", "count"), [(1, 1), (5, 1), (5, 3), (5, 5), (8, 0), (7, 6)])
def test_packed_entries_spread_to_rows_with_rising_zeros(size: int, count: int) -> None:
    packed = torch.arange(1.0, staircase_entries(size, count) + 1).expand(2, -1)
    rows = staircase_rows(packed, staircase_positions(size, count), size=size, count=count)
    assert torch.equal(rows[1], staircase(packed[1], size))


@pytest.mark.parametrize(
    ("out_features", "in_features", "m1", "m2"),
    [
        (6, 6, 1, 1),
        (6, 6, 2, 5),
        (7, 7, 6, 6),
        (4, 9, 3, 4),
        (9, 4, 4, 3),
        (1, 7, 0, 1),
        (7, 1, 1, 0),
    ],
)
def test_wy_form_is_the_product_of_sequential_reflectors(
    out_features: int, in_features: int, m1: int, m2: int
) -> None:
    u, v = random_rows(out_features, m1, 1), random_rows(in_features, m2, 2)
    sigma = torch.rand(min(out_features, in_features), dtype=torch.float64) + 0.5
    middle = torch.zeros(out_features, in_features, dtype=torch.float64)
    middle.diagonal().copy_(sigma)
    expected = reflector_product(u) @ middle @ reflector_product(v).T
    found = svd_weight(u[None], v[None], sigma[None])[0]
    torch.testing.assert_close(found, expected, atol=1e-13, rtol=0)


@pytest.mark.parametrize(("size", "m1", "m2"), [(6, 1, 1), (9, 4, 2), (7, 6, 6)])
def test_diagonal_plus_low_rank_is_the_same_matrix(size: int, m1: int, m2: int) -> None:
    u = torch.stack([random_rows(size, m1, seed) for seed in (1, 2, 3)])
    v = torch.stack([random_rows(size, m2, seed) for seed in (4, 5, 6)])
    sigma = torch.rand(3, size, dtype=torch.float64) + 0.5
    diagonal, left, right = svd_diagonal_low_rank(u, v, sigma)
    assert left.shape == (3, size, m1 + m2)
    torch.testing.assert_close(
        torch.diag_embed(diagonal) + left @ right, svd_weight(u, v, sigma), atol=1e-13, rtol=0
    )


@pytest.mark.parametrize("form", [svd_weight, svd_diagonal_low_rank])
def test_gradients_are_exact_in_both_forms(form: Callable[..., Any]) -> None:
    u = random_rows(5, 3, 1)[None].requires_grad_()
    v = random_rows(5, 2, 2)[None].requires_grad_()
    sigma = (torch.rand(1, 5, dtype=torch.float64) + 0.5).requires_grad_()
    assert torch.autograd.gradcheck(form, (u, v, sigma))


def test_gradient_of_a_reflector_is_orthogonal_to_it() -> None:
    u = random_rows(6, 3, 1)[None].requires_grad_()
    v = random_rows(6, 3, 2)[None]
    weight = svd_weight(u, v, torch.rand(1, 6, dtype=torch.float64) + 0.5)
    (weight * torch.randn(6, 6, dtype=torch.float64)).sum().backward()
    assert u.grad is not None
    assert u.grad.abs().max() > 0.1
    assert (u.grad * u).sum(-1).abs().max() < 1e-13


def test_gradient_agrees_with_the_papers_formula_for_one_reflector() -> None:
    """dL/du = -alpha g - beta h + alpha beta u with alpha = 2 u.h/|u|^2, beta = 2 u.g/|u|^2."""
    u, h, g = torch.randn(3, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rows = u.clone().requires_grad_()
    none = torch.zeros(1, 0, 7, dtype=torch.float64)
    weight = svd_weight(rows[None, None], none, torch.ones(1, 7, dtype=torch.float64))[0]
    ((weight @ h) @ g).backward()
    alpha, beta = 2 * (u @ h) / (u @ u), 2 * (u @ g) / (u @ u)
    expected = -alpha * g - beta * h + alpha * beta * u
    assert rows.grad is not None
    torch.testing.assert_close(rows.grad, expected, atol=1e-13, rtol=0)


def test_zero_vector_is_the_identity_with_zero_gradient() -> None:
    u = random_rows(5, 3)[None]
    u[0, 1] = 0
    v = torch.zeros(1, 2, 5, dtype=torch.float64)
    u.requires_grad_()
    v.requires_grad_()
    sigma = torch.ones(1, 5, dtype=torch.float64)
    weight = svd_weight(u, v, sigma)
    torch.testing.assert_close(weight[0], reflector_product(u[0].detach()))
    (weight * torch.randn(5, 5, dtype=torch.float64)).sum().backward()
    assert u.grad is not None
    assert v.grad is not None
    assert torch.equal(u.grad[0, 1], torch.zeros(5, dtype=torch.float64))
    assert torch.equal(v.grad, torch.zeros_like(v))
    assert u.grad[0, 0].abs().max() > 0


@pytest.mark.parametrize("length", [1e-30, 1e-10, 1.0, 1e10, 1e25])
def test_lengths_from_1e_minus_30_to_1e25_give_the_same_matrix_in_single_precision(
    length: float,
) -> None:
    rows = torch.randn(1, 4, 9, generator=torch.Generator().manual_seed(3)).triu()
    sigma = torch.ones(1, 9)
    expected = svd_weight(rows.double(), rows.double(), sigma.double())
    scaled = (rows * length).requires_grad_()
    weight = svd_weight(scaled, rows, sigma)
    torch.testing.assert_close(weight.double(), expected, atol=2e-6, rtol=0)
    weight[0, 0, 3].backward()
    assert scaled.grad is not None
    unscaled = rows.clone().requires_grad_()
    svd_weight(unscaled, rows, sigma)[0, 0, 3].backward()
    assert unscaled.grad is not None
    torch.testing.assert_close(scaled.grad * length, unscaled.grad, atol=2e-6, rtol=1e-4)


def test_rows_have_length_root_two_and_zero_rows_stay_zero() -> None:
    rows = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    assert torch.allclose(rows_of_length_root_two(rows).square().sum(-1), torch.tensor([2.0, 0.0]))
    assert torch.equal(row_lengths(rows), torch.tensor([[5.0], [1.0]]))


@pytest.mark.parametrize("length", [1e-45, 1e-30, 1.0, 1e25])
def test_lengths_in_single_precision_are_those_in_double_but_for_rounding(length: float) -> None:
    rows = torch.randn(3, 40, generator=torch.Generator().manual_seed(6)) * length
    expected = torch.tensor([[math.hypot(*row)] for row in rows.double().tolist()])
    assert torch.equal(row_lengths(rows), expected)
    assert (row_lengths(rows) > 0).all()


def test_nearly_parallel_reflectors_stay_orthogonal_in_single_precision() -> None:
    generator = torch.Generator().manual_seed(0)
    one = torch.randn(64, generator=generator)
    rows = (one + 1e-3 * torch.randn(40, 64, generator=generator)).triu()[None]
    weight = svd_weight(rows, rows[:, :1], torch.ones(1, 64))[0].double()
    error = weight @ weight.T - torch.eye(64, dtype=torch.float64)
    assert error.abs().max() < 1e-4
