"""Input of the right shape and type, for measuring and comparing models."""

import torch
from torch import Tensor

from models.spec import Signature


def example_input(
    signature: Signature, *, batch: int, steps: int, generator: torch.Generator
) -> Tensor:
    """Normal numbers `[batch, steps, input_size]`, or tokens `[batch, steps]` drawn uniformly."""
    if signature.vocabulary is not None:
        return torch.randint(signature.vocabulary, (batch, steps), generator=generator)
    return torch.randn(batch, steps, signature.input_size, generator=generator)
