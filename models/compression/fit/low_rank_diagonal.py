"""Dense to `low_rank_diagonal`: factors and diagonal in turn, each the best for the other."""

from collections.abc import Callable

import torch
from torch import Tensor

from models.compression.fit.low_rank import (
    best_factors,
    right_weighting,
    write_factors_,
)
from models.compression.target import Target
from models.math.linalg import qr, svd
from models.parametrizations.low_rank_diagonal import LowRankDiagonalLinear

MOST_STEPS = 500
RANDOM_STARTS = 2
"""Symmetric starts may all be saddles: [[1, 2], [3, -1]] is left only from others."""
LEAST_GAIN = 1e-5
"""The share of the squared error by which a step has to lower it for another to follow."""
EXACT = 1e-14
"""The relative error from which on a target counts as met."""


def fit_low_rank_diagonal_(linear: LowRankDiagonalLinear, target: Target) -> None:
    """Alternate from D = 0, diag(W), the mean of diag(W) and around it; keep the best, in place.

    No step makes the error larger. The earlier solution's D is a start too: with a larger d the
    first step is at least as near as that solution was.
    """
    weight = target.weight
    weighting = right_weighting(linear, target)
    own = weight.diagonal(dim1=-2, dim2=-1)
    starts = [torch.zeros_like(own), own, own.mean(-1, keepdim=True).expand_as(own)]
    spread = weight.square().mean((-2, -1)).sqrt().unsqueeze(-1)
    generator = torch.Generator().manual_seed(0)
    for _ in range(RANDOM_STARTS):
        noise = torch.randn(own.shape, generator=generator, dtype=own.dtype)
        starts.append(own + spread * noise)
    if isinstance(target.earlier, LowRankDiagonalLinear):
        starts.append(target.earlier.diagonal.detach().double())
    diagonal = alternate(
        weight, torch.stack(starts), linear.rank, weighting=weighting, num_right=linear.num_right
    )
    left, right = best_factors(
        weight - torch.diag_embed(diagonal),
        linear.rank,
        weighting=weighting,
        num_right=linear.num_right,
    )
    write_factors_(linear, left, right)
    with torch.no_grad():
        linear.diagonal.copy_(diagonal)


def alternate(
    weight: Tensor,
    starts: Tensor,
    rank: int,
    *,
    weighting: tuple[Tensor, Tensor] | None,
    num_right: int,
) -> Tensor:
    """The best D `[G, n]` of all starts `[k, G, n]`; matrices behind one R choose together.

    From each start the factors are only bettered between two diagonals, which takes a fraction of
    the time that the best ones take, and from the best D so found they are made anew every time.
    """
    root, back = weighting or (None, None)
    scale = _squares(weight, root, num_right)
    best, least = starts[0], torch.full_like(scale, torch.inf)

    def go_on(diagonal: Tensor, factors: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        before = torch.full_like(scale, torch.inf)
        errors = before
        for _ in range(MOST_STEPS):
            rest = weight - torch.diag_embed(diagonal)
            seen = rest if root is None else rest @ root
            products = factors(seen)
            errors = _squares(seen - products, None, num_right)
            if bool(
                ((before - errors <= LEAST_GAIN * errors) | (errors <= EXACT**2 * scale)).all()
            ):
                break
            before = errors
            low_rank = products if back is None else products @ back
            diagonal = _best_diagonal(weight - low_rank, root)
        return diagonal, errors

    for start in starts:
        diagonal, errors = go_on(start, _Subspace(rank, num_right))
        better = (errors < least).repeat_interleave(weight.shape[0] // num_right, 0)
        best = torch.where(better.unsqueeze(-1), diagonal, best)
        least = torch.minimum(errors, least)
    return go_on(best, lambda seen: _Subspace(rank, num_right)(seen))[0]


class _Subspace:
    """Products `L_g R` `[G, out, in]` of rank d near to matrices that change little between calls.

    The first are the nearest there are. Later ones are a step of subspace iteration from the last R
    and never farther than that R allows: alternating least squares.
    """

    def __init__(self, rank: int, num_right: int) -> None:
        self._rank = rank
        self._num_right = num_right
        self._basis: Tensor | None = None
        """Of the rows of R, `[num_right, in, d]`."""

    def __call__(self, seen: Tensor) -> Tensor:
        tall = seen.reshape(self._num_right, -1, seen.shape[-1])
        if self._basis is None:
            self._basis = svd(tall)[2][:, : self._rank].mT
        columns, _ = qr(tall @ self._basis)
        rows = columns.mT @ tall
        self._basis, _ = qr(rows.mT)
        return (columns @ rows).view_as(seen)


def _best_diagonal(rest: Tensor, root: Tensor | None) -> Tensor:
    """D for which `(rest - diag(D)) C^{1/2}` is least: entry by entry."""
    if root is None:
        return rest.diagonal(dim1=-2, dim2=-1)
    moments = root @ root
    return (rest * moments).sum(-1) / moments.diagonal(dim1=-2, dim2=-1)


def _squares(matrices: Tensor, root: Tensor | None, num_right: int) -> Tensor:
    """Squared errors `[num_right]`, added up over the matrices behind one R."""
    seen = matrices if root is None else matrices @ root
    return seen.square().sum((-2, -1)).view(num_right, -1).sum(1)
