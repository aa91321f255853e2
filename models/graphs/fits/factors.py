"""Low rank by what a matrix reads."""

import numpy as np

from models.graphs.fits.second_moments import Double, SecondMoments
from models.graphs.layers import AnyArray


def best_factors(matrix: AnyArray, moments: SecondMoments) -> tuple[Double, Double]:
    """All of L `[out, k]` and R `[k, in]` with `L R = W`, k the smaller dimension, best first.

    The first d columns of L and rows of R minimise `tr(E C E^T)`, `E = W - L R`, among all of rank
    d, with C the moments of what W `[out, in]` reads: one decomposition serves all ranks. L R is
    `W C^(1/2)` truncated, times `C^(-1/2)` (Eckart and Young). With `out <= in` no root is needed:
    with U the eigenvectors of `W C W^T`, `L = U` and `R = U^T W`.
    """
    weight = matrix.astype(np.float64)
    rows, columns = weight.shape
    if rows <= columns:
        left = np.linalg.eigh(moments.times(weight) @ weight.T)[1][:, ::-1]
        return left, left.T @ weight
    seen = moments.times_root(weight)
    right = np.linalg.eigh(seen.T @ seen)[1][:, ::-1]
    return seen @ right, moments.times_inverse_root(right.T)


def balanced(left: Double, right: Double) -> tuple[Double, Double]:
    """The same product with rows of R of length 1, so that one scale suits each of them."""
    lengths = np.linalg.norm(right, axis=1, keepdims=True)
    lengths = np.where(lengths > 0, lengths, 1.0)
    return left * lengths.T, right / lengths
