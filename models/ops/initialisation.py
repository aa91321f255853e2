"""Random starts that never touch the global generator."""

import math

import torch
from torch import Tensor


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
    return tensor.uniform_(low, high, generator=generator)


def glorot_uniform_(tensor: Tensor, *, generator: torch.Generator) -> Tensor:
    """Fill a stack `[..., fan_out, fan_in]` with U(±sqrt(6 / (fan_in + fan_out))) in place."""
    limit = glorot_limit(tensor.shape[-1], tensor.shape[-2])
    return uniform_(tensor, -limit, limit, generator=generator)


def glorot_limit(fan_in: int, fan_out: int) -> float:
    """The bound of Glorot's uniform start of a `[fan_out, fan_in]` matrix."""
    return math.sqrt(6 / (fan_in + fan_out))
