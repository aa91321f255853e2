"""Diagonal plus low rank of reflectors, by the kernels, against products of reflectors."""

import pytest
import torch
from torch import Tensor

from models.kernels.library import library
from models.kernels.reflectors import svd_factors, svd_weight
from tests.models.reference import reflector_product

pytestmark = pytest.mark.skipif(library() is None, reason="no C++ compiler here")

SIZES = [(1, 1, 1, 1), (2, 7, 3, 2), (3, 33, 8, 5), (1, 128, 16, 16), (2, 100, 1, 40)]


def random_sides(sizes: tuple[int, int, int, int], *, seed: int = 0) -> list[Tensor]:
    """Staircases u and v of any length, one row of 0, and sigma; double precision."""
    num_matrices, size, m1, m2 = sizes
    generator = torch.Generator().manual_seed(seed)

    def rows(count: int) -> Tensor:
        return torch.randn(
            num_matrices, count, size, generator=generator, dtype=torch.float64
        ).triu()

    u, v = rows(m1), rows(m2)
    u[0, m1 // 2] = 0
    sigma = 1 + 0.3 * torch.randn(num_matrices, size, generator=generator, dtype=torch.float64)
    return [u, v, sigma]


def whole(u: Tensor, v: Tensor, sigma: Tensor) -> Tensor:
    """W, one reflector after the other."""
    sides = [torch.stack([reflector_product(rows) for rows in side]) for side in (u, v)]
    return sides[0] @ torch.diag_embed(sigma) @ sides[1].mT


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_diagonal_and_factors_are_the_product_of_the_reflectors(
    sizes: tuple[int, int, int, int], threads: int
) -> None:
    exact = random_sides(sizes)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        left, right = svd_factors(*(tensor.float() for tensor in exact))
    finally:
        torch.set_num_threads(before)
    found = torch.diag_embed(exact[2]) + left.double() @ right.double()
    # A handful of roundings of 6e-8 per reflector.
    torch.testing.assert_close(found, whole(*exact), atol=3e-6, rtol=0)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_gradients_are_those_of_the_factors_in_torch(sizes: tuple[int, int, int, int]) -> None:
    """The same equations in torch's operations and double precision, differentiated by autograd."""
    exact = [tensor.requires_grad_() for tensor in random_sides(sizes)]
    given = [tensor.detach().float().requires_grad_() for tensor in exact]
    generator = torch.Generator().manual_seed(1)
    results = svd_factors(*given), factors_in_torch(*exact)
    upstream = [torch.randn(tensor.shape, generator=generator) for tensor in results[0]]
    ours, theirs = (
        torch.autograd.grad(
            sum(
                ((part * up).sum() for part, up in zip(parts, upstream, strict=True)),
                start=0.0 * parts[0].sum(),
            ),
            leaves,
        )
        for parts, leaves in zip(results, (given, exact), strict=True)
    )
    for one, other in zip(ours, theirs, strict=True):
        scale = max(other.abs().max().item(), 1)
        assert (one.double() - other).abs().max().item() <= 5e-6 * scale


def factors_in_torch(u: Tensor, v: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
    """Eq. (6) with inverses written out."""

    def scaled_rows(rows: Tensor) -> Tensor:
        lengths = rows.norm(dim=-1, keepdim=True)
        dead = lengths == 0
        return torch.where(dead, 0, 2**0.5 * rows / torch.where(dead, 1, lengths))

    u, v = scaled_rows(u), scaled_rows(v)

    def inverse(rows: Tensor) -> Tensor:
        identity = torch.eye(rows.shape[1], dtype=rows.dtype)
        return torch.linalg.inv(identity + (rows @ rows.mT).triu(1))

    scaled = v * sigma.unsqueeze(-2)
    a = inverse(v).mT @ v
    c = inverse(u) @ (u * sigma.unsqueeze(-2) - u @ scaled.mT @ a)
    return torch.cat((-scaled, -u), 1).mT, torch.cat((a, c), 1)


@pytest.mark.parametrize("sizes", [*SIZES, (2, 40, 0, 9)], ids=str)
def test_the_matrix_as_a_whole_is_made_of_the_factors(sizes: tuple[int, int, int, int]) -> None:
    num_matrices, size, m1, m2 = sizes
    exact = random_sides((num_matrices, size, max(m1, 1), m2))
    exact[0] = exact[0][:, :m1]
    given = [tensor.float().requires_grad_() for tensor in exact]
    left, right = svd_factors(*given)
    made = svd_weight(*given), torch.diag_embed(given[2]) + left @ right
    torch.testing.assert_close(*made, atol=3e-6, rtol=0)
    upstream = torch.randn(made[0].shape, generator=torch.Generator().manual_seed(1))
    ours, theirs = (torch.autograd.grad(weight, given, upstream) for weight in made)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["svd_factors", "svd_weight"])
@pytest.mark.parametrize("sizes", SIZES[:3], ids=str)
def test_the_operators_keep_torchs_rules(sizes: tuple[int, int, int, int], name: str) -> None:
    given = [tensor.float().requires_grad_() for tensor in random_sides(sizes)]
    operator = getattr(torch.ops.reflectory, name).default
    results = torch.library.opcheck(operator, tuple(given))
    assert set(results.values()) == {"SUCCESS"}


@pytest.mark.parametrize("length", [1e-30, 1e-3, 1e25])
def test_the_length_of_a_reflector_changes_nothing_but_its_own_gradient(length: float) -> None:
    exact = random_sides((2, 9, 4, 3))
    given = [tensor.float().requires_grad_() for tensor in exact]
    scaled = [(part * length).detach().requires_grad_() for part in given[:2]]
    results = [svd_factors(*given), svd_factors(scaled[0], scaled[1], given[2])]
    torch.testing.assert_close(results[0], results[1], atol=1e-5, rtol=1e-5)
    ours, theirs = (
        torch.autograd.grad(left.square().sum() + right.sum(), leaves)
        for (left, right), leaves in zip(results, (given[:2], scaled), strict=True)
    )
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other * length, atol=1e-4, rtol=1e-4)
