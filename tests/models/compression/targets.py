"""Matrices to convert, and plain oracles."""

import torch
from torch import Tensor

from models.linear import StructuredLinear


def gaussian(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def orthogonal(size: int, *, seed: int = 0, determinant: int | None = None) -> Tensor:
    """Evenly drawn from all orthogonal matrices, or from those of one determinant."""
    q, r = torch.linalg.qr(gaussian(size, size, seed=seed))
    q = q * r.diagonal().sign()
    if determinant is not None and round(float(torch.linalg.det(q))) != determinant:
        q[:, 0].neg_()
    return q


def with_values(values: Tensor, *, seed: int = 0) -> Tensor:
    """A square matrix of given singular values."""
    size = len(values)
    return orthogonal(size, seed=seed) @ torch.diag(values) @ orthogonal(size, seed=seed + 1).mT


def dense(linear: StructuredLinear) -> Tensor:
    """The first matrix."""
    return linear.dense_weight().detach().double()[0]


def relative_error(weight: Tensor, linear: StructuredLinear) -> float:
    found = linear.dense_weight().detach().double()
    return float((found - weight).norm() / weight.norm())


def tail(weight: Tensor, rank: int) -> float:
    """The relative error of the truncated SVD."""
    values = torch.linalg.svdvals(weight)
    return float(values[rank:].norm() / values.norm())


SPECTRA: dict[str, Tensor] = {
    "flat": torch.ones(12, dtype=torch.float64),
    "near one": torch.linspace(0.9, 1.1, 12, dtype=torch.float64),
    "decaying": 0.7 ** torch.arange(12, dtype=torch.float64),
    "of rank 4": torch.tensor([3.0, 2, 1, 0.5] + [0.0] * 8, dtype=torch.float64),
}
