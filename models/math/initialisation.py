"""Random starts that never touch the global generator."""

import math

import torch
from torch import Tensor

from models.math.linalg import qr


def generator_of(seed: int | None) -> torch.Generator:
    """A CPU generator of its own; without a seed it starts from the system's entropy."""
    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    return generator


@torch.no_grad()
def uniform_(tensor: Tensor, low: float, high: float, *, generator: torch.Generator) -> Tensor:
    """Fill with U(low, high) in place."""
    # Without memory there is nothing to fill, and torch takes long to find that out.
    return tensor if tensor.is_meta else tensor.uniform_(low, high, generator=generator)


def glorot_uniform_(tensor: Tensor, *, generator: torch.Generator) -> Tensor:
    """Fill a stack `[..., fan_out, fan_in]` with U(±sqrt(6 / (fan_in + fan_out))) in place."""
    limit = glorot_limit(tensor.shape[-1], tensor.shape[-2])
    return uniform_(tensor, -limit, limit, generator=generator)


def glorot_limit(fan_in: int, fan_out: int) -> float:
    """The bound of Glorot's uniform start of a `[fan_out, fan_in]` matrix."""
    return math.sqrt(6 / (fan_in + fan_out))


@torch.no_grad()
def normal_(tensor: Tensor, deviation: float, *, generator: torch.Generator) -> Tensor:
    """Fill with N(0, deviation^2) in place."""
    return tensor if tensor.is_meta else tensor.normal_(0, deviation, generator=generator)


def he_normal_(tensor: Tensor, *, generator: torch.Generator) -> Tensor:
    """Fill a stack `[..., out, in]` with N(0, 2 / in) in place."""
    return normal_(tensor, math.sqrt(2 / tensor.shape[-1]), generator=generator)


@torch.no_grad()
def orthogonal_(tensor: Tensor, *, generator: torch.Generator) -> Tensor:
    """Fill a stack `[..., out, in]` with orthonormal rows, or columns if these are fewer.

    Square matrices are drawn evenly from all orthogonal ones (Mezzadri, math-ph/0609050).
    """
    if tensor.is_meta:
        return tensor
    out_features, in_features = tensor.shape[-2:]
    shape = (*tensor.shape[:-2], max(out_features, in_features), min(out_features, in_features))
    gaussian = normal_(tensor.new_empty(shape), 1.0, generator=generator)
    q, r = qr(gaussian)
    # QR leaves the signs open; fixed by the diagonal of R they are those of the Gaussian.
    q = q * torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).unsqueeze(-2)
    return tensor.copy_(q if out_features >= in_features else q.mT)


@torch.no_grad()
def identity_(tensor: Tensor, *, generator: torch.Generator) -> Tensor:  # noqa: ARG001 -- no chance
    """Fill a stack `[..., out, in]` with ones on the diagonal and zeros elsewhere."""
    tensor.zero_().diagonal(dim1=-2, dim2=-1).fill_(1)
    return tensor
