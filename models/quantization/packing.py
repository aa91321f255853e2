"""Two integers of 4 bits in one byte."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def pack_halves(integers: Tensor) -> Tensor:
    """Integers of -8..7, of any shape, as bytes `[ceil(N / 2)]`, the first in the low half.

    They are two's complement, row after row; behind an odd number of them stands a 0.
    """
    flat = integers.flatten()
    pairs = F.pad(flat, (0, flat.numel() % 2)).view(torch.uint8).view(-1, 2)
    return (pairs[:, 0] & 15) | (pairs[:, 1] << 4)


def unpack_halves(packed: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Integers of this shape, int8, of what `pack_halves` made of them."""
    signed = packed.view(torch.int8)
    # A shift to the right keeps the sign of what was shifted to the top.
    both = torch.stack(((signed << 4) >> 4, signed >> 4), dim=-1)
    return both.flatten()[: math.prod(shape)].view(shape)
