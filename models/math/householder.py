"""Products of Householder reflectors in WY form, and matrices with chosen singular values.

A stack of m reflectors of R^n is `rows` [..., m, n]: row j holds y_j, with j leading zeros (a
staircase), and stands for `Q = H(y_0) H(y_1) ... H(y_{m-1})` with `H(y) = I - 2 y y^T / (y^T y)`
and `H(0) = I`. Equation numbers refer to README.md.
"""

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.kernels.choice import kernels_take
from models.kernels.reflectors import svd_factors
from models.kernels.reflectors import svd_weight as kernel_weight
from models.math.linalg import row_norms, solve_unit_triangle


def staircase_entries(size: int, count: int) -> int:
    """`R(n, m) = m n - m (m - 1) / 2`, the numbers of m staircase reflectors of R^n (eq. 1)."""
    return count * size - count * (count - 1) // 2


def staircase_positions(size: int, count: int) -> Tensor:
    """Where the packed numbers stand in the flattened `[m, n]` rows, row after row: `[R(n, m)]`."""
    row, column = torch.triu_indices(count, size, device="cpu")
    return row * size + column


def staircase_rows(packed: Tensor, positions: Tensor, *, size: int, count: int) -> Tensor:
    """Spread packed numbers `[G, R(n, m)]` over rows `[G, m, n]`, zero left of the staircase."""
    num_matrices = packed.shape[0]
    places = positions.to(packed.device).expand(num_matrices, -1)
    flat = packed.new_zeros(num_matrices, count * size).scatter(1, places, packed)
    return flat.view(num_matrices, count, size)


def row_lengths(rows: Tensor) -> Tensor:
    """Euclidean lengths `[..., m, 1]`; a zero row has length 1, so that dividing by it is harmless.

    Squared in double precision, rows neither overflow nor vanish: in single precision all lengths
    are exact to rounding, in double those from 1e-150 to 1e150.
    """
    lengths = row_norms(rows, dtype=torch.float64)
    return lengths.masked_fill(lengths == 0, 1).to(rows.dtype)


class _RowsOfLengthRootTwo(torch.autograd.Function):
    """`z = sqrt(2) y / |y|`, with `z = 0` and no gradient where y = 0 (eq. 3 and 4).

    Gives z, and what its gradient needs: `y / |y|` and `|y|`, which have none.

    Written out, since the gradient through the naive quotient is NaN at 0 and where |y|^2 leaves
    the range.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride] -- without ctx
        lengths = row_lengths(rows)
        # Dividing before scaling keeps the quotient within [-1, 1] at every length.
        unit = rows / lengths
        return unit * math.sqrt(2), unit, lengths

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, ...]) -> None:  # noqa: ARG004
        _, *kept = output
        ctx.mark_non_differentiable(*kept)
        ctx.save_for_backward(*kept)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride] -- the decorator's signature
        ctx: Any, gradient: Tensor, *_: Tensor
    ) -> Tensor:
        unit: Tensor
        lengths: Tensor
        unit, lengths = ctx.saved_tensors
        tangent = gradient - unit * (gradient * unit).sum(-1, keepdim=True)
        dead = (unit == 0).all(-1, keepdim=True)
        return (tangent * (math.sqrt(2) / lengths)).masked_fill(dead, 0)


def rows_of_length_root_two(rows: Tensor) -> Tensor:
    """Scale every row to length sqrt(2), so that `H(y) = I - z z^T`; zero rows stay zero."""
    scale = cast(
        Callable[[Tensor], tuple[Tensor, ...]],
        _RowsOfLengthRootTwo.apply,  # pyright: ignore[reportUnknownMemberType] -- untyped
    )
    return scale(rows)[0]


def _scaled_sides(u_rows: Tensor, v_rows: Tensor) -> tuple[Tensor, Tensor]:
    """Both stacks scaled, in one go where they have one width."""
    if u_rows.shape[-1] != v_rows.shape[-1]:
        return rows_of_length_root_two(u_rows), rows_of_length_root_two(v_rows)
    both = rows_of_length_root_two(torch.cat((u_rows, v_rows), dim=-2))
    u, v = torch.split(both, [u_rows.shape[-2], v_rows.shape[-2]], dim=-2)
    return u, v


def apply_inverse_triangle(scaled: Tensor, right: Tensor, *, transposed: bool) -> Tensor:
    """`S^{-1} right`, or `S^{-T} right`, for `S = I + striu(Z Z^T)` with Z `scaled` (eq. 2).

    The Gram matrix is symmetric, so its upper half is S and its lower half S^T; the solver reads
    the half that is asked for, and takes the diagonal for ones.
    """
    return solve_unit_triangle(scaled @ scaled.mT, right, upper=not transposed)


def _kernel_makes(rows: Tensor, reflectors: int) -> bool:
    """Whether our kernel makes a square matrix of so many reflectors faster than torch.

    Measured, forward and backward: it takes 0.4 to 0.9 of the time where there are as many as this,
    and more than the time of the libraries' large products where there are more.
    """
    return reflectors <= max(rows.shape[-1], 256) and kernels_take(rows)


def reflector_weight(rows: Tensor, signs: Tensor) -> Tensor:
    """`W = Q diag(d)` `[G, n, n]` (eq. 9), with `signs` d `[G, n]`."""
    if _kernel_makes(rows, rows.shape[-2]):
        return kernel_weight(rows, rows[:, :0], signs)
    scaled = rows_of_length_root_two(rows)
    inner = apply_inverse_triangle(scaled, scaled * signs.unsqueeze(-2), transposed=False)
    return torch.baddbmm(torch.diag_embed(signs), scaled.mT, inner, alpha=-1)


def reflector_diagonal_low_rank(rows: Tensor, signs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same W as `diag(D) + L R` of rank m, without forming it (eq. 9).

    Gives D `[G, n]`, L `[G, n, m]` and R `[G, m, n]`.
    """
    if kernels_take(rows):
        none = rows[:, :0]
        return signs, *svd_factors(rows, none, signs)
    scaled = rows_of_length_root_two(rows)
    inner = apply_inverse_triangle(scaled, scaled * signs.unsqueeze(-2), transposed=False)
    return signs, scaled.mT.neg(), inner


def svd_weight(u_rows: Tensor, v_rows: Tensor, sigma: Tensor) -> Tensor:
    """`W = Q_U S Q_V^T` `[G, out, in]` (eq. 5); S has `sigma` `[G, min(out, in)]` on its diagonal.

    Q_U is made of `u_rows` `[G, m1, out]`, Q_V of `v_rows` `[G, m2, in]`.
    """
    out_features, in_features = u_rows.shape[-1], v_rows.shape[-1]
    reflectors = u_rows.shape[-2] + v_rows.shape[-2]
    if out_features == in_features and _kernel_makes(u_rows, reflectors):
        return kernel_weight(u_rows, v_rows, sigma)
    shorter = sigma.shape[-1]
    u, v = _scaled_sides(u_rows, v_rows)
    scaled_v = sigma.unsqueeze(-1) * v.mT[..., :shorter, :]
    if out_features > shorter:
        scaled_v = torch.nn.functional.pad(scaled_v, (0, 0, 0, out_features - shorter))
    diagonal = sigma.new_zeros(sigma.shape[0], out_features, in_features).diagonal_scatter(
        sigma, dim1=-2, dim2=-1
    )
    inner = torch.baddbmm(
        diagonal, scaled_v, apply_inverse_triangle(v, v, transposed=True), alpha=-1
    )
    reflected = apply_inverse_triangle(u, u @ inner, transposed=False)
    return torch.baddbmm(inner, u.mT, reflected, alpha=-1)


def svd_diagonal_low_rank(
    u_rows: Tensor, v_rows: Tensor, sigma: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The same W, square, as `diag(D) + L R` of rank m1 + m2, without forming it (eq. 6).

    Gives D `[G, n]`, L `[G, n, m1 + m2]` and R `[G, m1 + m2, n]`.
    """
    if kernels_take(u_rows):
        left, right = svd_factors(u_rows, v_rows, sigma)
        return sigma, left, right
    u, v = _scaled_sides(u_rows, v_rows)
    scaled_v = sigma.unsqueeze(-1) * v.mT
    v_side = apply_inverse_triangle(v, v, transposed=True)
    u_inner = torch.baddbmm(u * sigma.unsqueeze(-2), u @ scaled_v, v_side, alpha=-1)
    u_side = apply_inverse_triangle(u, u_inner, transposed=False)
    return sigma, torch.cat((scaled_v, u.mT), -1).neg(), torch.cat((v_side, u_side), -2)
