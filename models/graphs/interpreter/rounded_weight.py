"""Weights that stand for an initializer: full, or as integers with scales."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

WeightBits: TypeAlias = Literal[8, 4, 3, 2]

WEIGHT, LEFT, RIGHT = "weight", "left", "right"

SMALLEST_SCALE = 1e-7
"""Rounds to the second of the positive numbers that float16 has."""
_SHRUNK = tuple(float(one) for one in np.linspace(0.4, 1, 13))
"""Shares of the largest number that scales are tried for: what is above it is cut off."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RoundedNumbers:
    """A matrix as a file stores it: integers times scales."""

    integers: np.ndarray[Any, Any]
    """int8 `[rows, columns]`, from -t to t with `t = 2^(bits - 1) - 1`."""
    scales: np.ndarray[Any, Any]
    """float16 `[rows, groups]`, each for equally many columns."""
    bits: WeightBits

    def values(self) -> np.ndarray[Any, Any]:
        """The matrix `[rows, columns]` in single precision."""
        scales = self.scales.astype(np.float32)
        width = self.integers.shape[1] // scales.shape[1]
        return self.integers.astype(np.float32) * np.repeat(scales, width, axis=1)


Numbers: TypeAlias = RoundedNumbers | np.ndarray[Any, Any]


class Weight(nn.Module, ABC):
    """A matrix that is made of parameters at every call, and what a file stores of it."""

    @abstractmethod
    def forward(self) -> Tensor:
        """The matrix, differentiable in the parameters."""

    @abstractmethod
    def stored(self) -> Mapping[str, Numbers]:
        """Its parts by name: `weight` the whole, `left` and `right` the factors `[rank, ...]`."""


class FullWeight(Weight):
    """A matrix in single precision."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(matrix.detach().clone())

    def forward(self) -> Tensor:
        """The parameter itself."""
        return self.weight

    def stored(self) -> Mapping[str, Numbers]:
        """The whole."""
        return {WEIGHT: self.weight.detach().cpu().numpy().copy()}


class RoundedWeight(Weight):
    """Integers times float16 scales, of each row or of each group of columns within it.

    What is trained are numbers of full precision that are rounded at every call, and the scales.
    Rounding counts as the identity in the gradient (the straight-through estimator, Bengio,
    Leonard, Courville, arXiv:1308.3432), and numbers that are cut off have none. Gradients of
    scales follow from that, and are those of learned step sizes (Esser et al., arXiv:1902.08153,
    equation 3).
    """

    def __init__(
        self, integers: Tensor, scales: Tensor, bits: WeightBits, matrix: Tensor | None = None
    ) -> None:
        """Begin with integers `[rows, columns]` and scales `[rows, groups]`.

        With the matrix that they were rounded from `[rows, columns]`, training begins as near
        to it as rounding to these integers allows; compensated rounding took others than the
        nearest.
        """
        super().__init__()
        self.bits: WeightBits = bits
        scales = scales.detach().float().unsqueeze(-1)
        rows, groups = scales.shape[:2]
        weight = integers.detach().float().reshape(rows, groups, -1) * scales
        if matrix is not None:
            # A little less than half a step, for numbers at the edge round either way.
            reach = 0.49 * scales
            near = matrix.detach().float().reshape(weight.shape)
            weight = torch.minimum(torch.maximum(near, weight - reach), weight + reach)
        self.weight = nn.Parameter(weight.clone())
        self.scale = nn.Parameter(scales.clone())

    @classmethod
    def nearest(cls, matrix: Tensor, bits: WeightBits, group: int = 0) -> "RoundedWeight":
        """The matrix `[rows, columns]` by nearest integers, with the scales that lose least.

        A group of 0, or one that does not divide the columns, is the whole row.
        """
        rows, columns = matrix.shape
        size = group if group and columns % group == 0 else columns
        blocks = matrix.detach().float().reshape(rows, columns // size, size)
        scales = best_scales(blocks, bits)
        top = largest(bits)
        integers = (blocks / scales).round().clamp(-top, top).flatten(1)
        return cls(integers, scales.squeeze(-1), bits, matrix)

    def forward(self) -> Tensor:
        """The rounded matrix `[rows, columns]`, exactly the integers times the scales."""
        scale = self._scale()
        top = largest(self.bits)
        exact = (self.weight / scale).clamp(-top, top)
        # The difference is 0, and has the gradient of what was rounded.
        integers = exact.detach().round() + (exact - exact.detach())
        return (integers * scale).flatten(1)

    def _scale(self) -> Tensor:
        positive = self.scale.abs().clamp_min(SMALLEST_SCALE)
        return positive.detach().half().float() + (positive - positive.detach())

    @torch.no_grad()
    def stored(self) -> Mapping[str, Numbers]:
        """The whole, rounded."""
        scale, top = self._scale(), largest(self.bits)
        integers = (self.weight / scale).clamp(-top, top).round()
        numbers = RoundedNumbers(
            integers=integers.flatten(1).to(torch.int8).cpu().numpy(),
            scales=scale.squeeze(-1).half().cpu().numpy(),
            bits=self.bits,
        )
        return {WEIGHT: numbers}


def largest(bits: WeightBits) -> int:
    """The largest integer; the smallest is its negative, so that 0 is in the middle."""
    return 2 ** (bits - 1) - 1


@torch.no_grad()
def best_scales(blocks: Tensor, bits: WeightBits) -> Tensor:
    """The scale of each block `[..., 1]` that loses the least squares, exact in float16.

    With 8 bits it is that of the largest number.
    """
    top = largest(bits)
    peak = blocks.abs().amax(-1, keepdim=True)
    best, least = peak, torch.full_like(peak, torch.inf)
    for share in (1.0,) if bits == 8 else _SHRUNK:
        scale = (peak * (share / top)).clamp_min(SMALLEST_SCALE).half().float()
        kept = (blocks / scale).round().clamp(-top, top) * scale
        lost = (kept - blocks).square().sum(-1, keepdim=True)
        best, least = torch.where(lost < least, scale, best), torch.minimum(lost, least)
    return best
