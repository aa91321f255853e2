"""Orthogonal and unitary matrices as images of skew ones.

Equation numbers refer to README.md.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from models.math.complex_matrices import real_form
from models.math.linalg import matrix_exp, solve


def skew_positions(size: int) -> Tensor:
    """Where `n (n - 1) / 2` packed numbers stand in the flattened `[n, n]`: above the diagonal."""
    row, column = torch.triu_indices(size, size, offset=1, device="cpu")
    return row * size + column


def skew_matrix(packed: Tensor, positions: Tensor, *, size: int) -> Tensor:
    """`[G, n, n]` with `packed` `[G, n (n - 1) / 2]` above the diagonal, and its negative below."""
    num_matrices = packed.shape[0]
    upper = packed.new_zeros(num_matrices, size * size).index_copy(
        1, positions.to(packed.device), packed
    )
    upper = upper.view(num_matrices, size, size)
    return upper - upper.mT


def skew_hermitian_form(packed: Tensor) -> Tensor:
    """The real form `[G, 2n, 2n]` of `K + iS`, K skew and S symmetric (eq. 14), from `[G, n, n]`.

    K is packed strictly below the diagonal, S on it and above; the real form is skew itself.
    """
    below, above = packed.tril(-1), packed.triu()
    return real_form(below - below.mT, above + packed.triu(1).mT)


def cayley(skew: Tensor) -> Tensor:
    """`(I + A)^{-1} (I - A)` `[..., n, n]` (eq. 11): orthogonal, and never of eigenvalue -1.

    `I + A` is invertible for every skew A, whose eigenvalues are imaginary.
    """
    identity = torch.eye(skew.shape[-1], dtype=skew.dtype, device=skew.device)
    return solve(identity + skew, identity - skew)


@dataclass(frozen=True)
class OrthogonalMap:
    """A map from skew matrices to orthogonal ones, and how far its start reaches."""

    matrix: Callable[[Tensor], Tensor]
    """`[..., n, n]` skew -> orthogonal."""
    start_radius: float
    """The largest |eigenvalue| of the skew matrix at the start, for large n."""

    def start_deviation(self, size: int) -> float:
        """Deviation of the n x n skew matrix' normal entries that gives the radius (eq. 13)."""
        return self.start_radius / (2 * math.sqrt(size))


CAYLEY = OrthogonalMap(cayley, start_radius=2.0)
"""At the start phases lie within ±127 degrees, up to 125 at least as densely as if they were spread
evenly round the circle, and where they move with A at a fifth of the full speed or more."""

EXPONENTIAL = OrthogonalMap(matrix_exp, start_radius=math.pi)
"""At the start phases reach round the whole circle once."""

OrthogonalMapName = Literal["cayley", "exponential"]

ORTHOGONAL_MAPS: Mapping[OrthogonalMapName, OrthogonalMap] = {
    "cayley": CAYLEY,
    "exponential": EXPONENTIAL,
}
