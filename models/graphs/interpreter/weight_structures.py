"""Weights that are made of others: products, sums, and other shapes."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from models.graphs.interpreter.rounded_weight import (
    LEFT,
    RIGHT,
    WEIGHT,
    FullWeight,
    Numbers,
    RoundedNumbers,
    RoundedWeight,
    Weight,
    WeightBits,
)


class LowRankWeight(Weight):
    """`Lᵀ R` of factors `L [rank, rows]` and `R [rank, columns]`.

    With several directions, as a recurrent node has, factors and products of all of them lie under
    each other: `[G rank, rows]`, `[G rank, columns]`, `[G rows, columns]`.
    """

    def __init__(self, left: Weight, right: Weight, directions: int = 1) -> None:
        super().__init__()
        self.left = left
        self.right = right
        self.directions = directions

    @classmethod
    def of(
        cls,
        left: Tensor,
        right: Tensor,
        bits: WeightBits | None = None,
        group: int = 0,
        directions: int = 1,
    ) -> "LowRankWeight":
        """Factors of full precision, or rounded to the nearest integers of some bits."""
        if bits is None:
            return cls(FullWeight(left), FullWeight(right), directions)
        return cls(
            RoundedWeight.nearest(left, bits, group),
            RoundedWeight.nearest(right, bits, group),
            directions,
        )

    def forward(self) -> Tensor:
        """The products `[G rows, columns]`."""
        left, right = self.left(), self.right()
        rows, columns = left.shape[1], right.shape[1]
        each = left.reshape(self.directions, -1, rows).transpose(1, 2)
        return (each @ right.reshape(self.directions, -1, columns)).flatten(0, 1)

    def stored(self) -> Mapping[str, Numbers]:
        """Both factors."""
        return {LEFT: self.left.stored()[WEIGHT], RIGHT: self.right.stored()[WEIGHT]}


class CorrectedWeight(Weight):
    """A matrix of few bits, and a product of low rank that makes up for what it lost."""

    def __init__(self, base: Weight, correction: LowRankWeight) -> None:
        super().__init__()
        self.base = base
        self.correction = correction

    def forward(self) -> Tensor:
        """The sum `[rows, columns]`."""
        return self.base() + self.correction()

    def stored(self) -> Mapping[str, Numbers]:
        """The matrix and both factors."""
        return {**self.base.stored(), **self.correction.stored()}


class ShapedWeight(Weight):
    """Matrices `[G out, in]`, those of G directions under each other, in the shape of a file."""

    def __init__(
        self, matrix: Weight, shape: Sequence[int], permutation: Sequence[int] = ()
    ) -> None:
        """With a permutation the matrices have the file's axes in that order.

        `MatMul` reads `[in, out]`, whose axes are `(1, 0)` in the matrix; without one the numbers
        are in the order of the file.
        """
        super().__init__()
        self.matrix = matrix
        self.shape = tuple(shape)
        self.permutation = tuple(permutation) or tuple(range(len(self.shape)))

    def forward(self) -> Tensor:
        """The tensor of that shape."""
        turned = self.matrix().reshape([self.shape[axis] for axis in self.permutation])
        places = sorted(range(len(self.shape)), key=self.permutation.__getitem__)
        return turned.permute(places)

    def stored(self) -> Mapping[str, Numbers]:
        """The parts of the matrices, as they are."""
        return self.matrix.stored()


def weight_of(
    parts: Mapping[str, Numbers], *, matrix: Tensor | None = None, directions: int = 1
) -> Weight:
    """The weight that stores these parts: the whole, both factors, or all three.

    With the matrix that was rounded `[G rows, columns]`, training of the whole begins near it; see
    `RoundedWeight`.
    """
    whole = parts.get(WEIGHT)
    if LEFT not in parts:
        return _part(parts[WEIGHT], matrix)
    factors = LowRankWeight(_part(parts[LEFT]), _part(parts[RIGHT]), directions)
    # What the factors add, the whole was not rounded from.
    return factors if whole is None else CorrectedWeight(_part(whole), factors)


def _part(numbers: Numbers, matrix: Tensor | None = None) -> Weight:
    if not isinstance(numbers, RoundedNumbers):
        return FullWeight(torch.as_tensor(numbers))
    integers, scales = torch.as_tensor(numbers.integers), torch.as_tensor(numbers.scales)
    return RoundedWeight(integers, scales, numbers.bits, matrix)
