"""Dense to `low_rank`: truncated singular value decompositions."""

import torch
from torch import Tensor

from models.compression.target import Target, roots
from models.math.householder import row_lengths
from models.math.linalg import svd
from models.math.weight_norm import NormalisedRows
from models.parametrizations.parts.low_rank_factors import LowRankLinear

_SMALLEST_BALANCE = 1e-3


def fit_low_rank_(linear: LowRankLinear, target: Target) -> None:
    """The best matrices of rank d, in place: optimal, and so monotone in d.

    With moments of what the matrices read, best is what changes their outputs least.
    """
    left, right = best_factors(
        target.weight,
        linear.rank,
        weighting=right_weighting(linear, target),
        num_right=linear.num_right,
    )
    write_factors_(linear, left, right)


def right_weighting(linear: LowRankLinear, target: Target) -> tuple[Tensor, Tensor] | None:
    """`C^{1/2}` and `C^{-1/2}` `[G, n, n]`, the same for all matrices behind one R.

    One R serves what its matrices read on average.
    """
    if target.moments is None:
        return None
    shared = linear.num_matrices // linear.num_right
    size = linear.in_features
    mean = target.moments.view(linear.num_right, shared, size, size).mean(1)
    root, inverse = roots(mean)
    return root.repeat_interleave(shared, 0), inverse.repeat_interleave(shared, 0)


def best_factors(
    weight: Tensor, rank: int, *, weighting: tuple[Tensor, Tensor] | None, num_right: int
) -> tuple[Tensor, Tensor]:
    """L `[G, out, d]` and R `[num_right, d, in]` with `L_g R` nearest to W `[G, out, in]`.

    Matrices behind one R are decomposed as one tall matrix; see `reader_weighting` for nearness.
    """
    seen = weight if weighting is None else weight @ weighting[0]
    num_matrices, rows, columns = seen.shape
    u, s, v = svd(seen.reshape(num_right, num_matrices // num_right * rows, columns))
    u, s, v = u[..., :rank], s[..., :rank], v[..., :rank, :]
    # Both factors share the singular values, but no row of R is zero: with L zero as well neither
    # would ever get a gradient.
    balance = s.sqrt()
    balance = balance.clamp_min(_SMALLEST_BALANCE)
    left = (u * (s / balance).unsqueeze(-2)).reshape(num_matrices, rows, rank)
    right = balance.unsqueeze(-1) * v
    if weighting is not None:
        right = right @ weighting[1][:: num_matrices // num_right]
    return left, right


@torch.no_grad()
def write_factors_(linear: LowRankLinear, left: Tensor, right: Tensor) -> None:
    """Store factors in a module, in place; rows of R at length 1 hand their lengths to L."""
    if isinstance(linear.right, NormalisedRows):
        lengths = row_lengths(right)
        right = right / lengths
        left = left * lengths.mT.repeat_interleave(left.shape[0] // right.shape[0], 0)
    for part, value in ((linear.left, left), (linear.right, right)):
        if isinstance(part, NormalisedRows):
            part.start_from_(value)
        else:
            part.copy_(value)
