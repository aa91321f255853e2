"""torch.linalg with types: torch 2.13 ships these functions without any."""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

_linalg = cast(Any, torch.linalg)

qr: Callable[[Tensor], tuple[Tensor, Tensor]] = _linalg.qr
"""Q and R of `[..., m, n]`, reduced."""

matrix_exp: Callable[[Tensor], Tensor] = _linalg.matrix_exp
"""`e^A` for `[..., n, n]`."""

singular_values: Callable[[Tensor], Tensor] = _linalg.svdvals
"""Singular values `[..., min(m, n)]` of `[..., m, n]`, falling."""


def solve(matrix: Tensor, right: Tensor) -> Tensor:
    """`A^{-1} B` for `[..., n, n]` and `[..., n, k]`, where A is known to be invertible.

    Nothing is checked, and so no GPU is waited for.
    """
    return _linalg.solve_ex(matrix, right, check_errors=False)[0]


def solve_unit_triangle(matrix: Tensor, right: Tensor, *, upper: bool) -> Tensor:
    """`T^{-1} right`, where T is one half of `matrix` with ones on the diagonal."""
    return _linalg.solve_triangular(matrix, right, upper=upper, unitriangular=True)


def row_norms(rows: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    """Euclidean lengths `[..., m, 1]` of `[..., m, n]`, computed in `dtype`; null: that of rows."""
    return _linalg.vector_norm(rows, dim=-1, keepdim=True, dtype=dtype)


determinant: Callable[[Tensor], Tensor] = _linalg.det
"""`det A` `[...]` of `[..., n, n]`."""

symmetric_eigen: Callable[[Tensor], tuple[Tensor, Tensor]] = _linalg.eigh
"""Eigenvalues `[..., n]`, rising, and eigenvectors `[..., n, n]` as columns, of symmetric ones."""

hermitian_eigen: Callable[[Tensor], tuple[Tensor, Tensor]] = _linalg.eigh
"""The same of complex Hermitian matrices; the eigenvalues are real."""


def svd(matrix: Tensor, *, full: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """U, s falling, and V^T of `[..., m, n]`; square U and V^T only if `full`."""
    return _linalg.svd(matrix, full_matrices=full)
