"""Dense to `low_rank_diagonal`: factors and diagonal in turn, each the best for the other."""

import torch
from torch import Tensor

from models.compression.low_rank import (
    best_factors,
    read_together,
    reader_weighting,
    write_factors_,
)
from models.compression.target import Target
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
    weighting = reader_weighting(linear, target)
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
        weight, torch.stack(starts), linear.rank, weighting=weighting, readers=linear.readers
    )
    left, right = best_factors(
        weight - torch.diag_embed(diagonal),
        linear.rank,
        weighting=weighting,
        readers=linear.readers,
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
    readers: int,
) -> Tensor:
    """The best D `[G, n]` of all starts `[k, G, n]`; matrices behind one R choose together."""
    root = None if weighting is None else weighting[0]
    scale = _squares(weight, root, readers)
    best, least = starts[0], torch.full_like(scale, torch.inf)
    for start in starts:
        diagonal, before = start, torch.full_like(scale, torch.inf)
        errors = before
        for _ in range(MOST_STEPS):
            rest = weight - torch.diag_embed(diagonal)
            left, right = best_factors(rest, rank, weighting=weighting, readers=readers)
            products = read_together(left, right)
            errors = _squares(rest - products, root, readers)
            if bool(
                ((before - errors <= LEAST_GAIN * errors) | (errors <= EXACT**2 * scale)).all()
            ):
                break
            before = errors
            next_diagonal = _best_diagonal(weight - products, root)
            diagonal = next_diagonal
        better = (errors < least).repeat_interleave(weight.shape[0] // readers, 0)
        best = torch.where(better.unsqueeze(-1), diagonal, best)
        least = torch.minimum(errors, least)
    return best


def _best_diagonal(rest: Tensor, root: Tensor | None) -> Tensor:
    """D for which `(rest - diag(D)) C^{1/2}` is least: entry by entry."""
    if root is None:
        return rest.diagonal(dim1=-2, dim2=-1)
    moments = root @ root
    return (rest * moments).sum(-1) / moments.diagonal(dim1=-2, dim2=-1)


def _squares(matrices: Tensor, root: Tensor | None, readers: int) -> Tensor:
    """Squared errors `[readers]`, added up over the matrices behind one R."""
    seen = matrices if root is None else matrices @ root
    return seen.square().sum((-2, -1)).view(readers, -1).sum(1)
