"""Weights that are made of others: products, sums, and other shapes."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from models.graphs.interpreter.rounded_weight import (
    FullWeight,
    Numbers,
    RoundedWeight,
    Weight,
    WeightBits,
)


class LowRankWeight(Weight):
    """`Lᵀ R` of factors `L [rank, rows]` and `R [rank, columns]`."""

    def __init__(self, left: Weight, right: Weight) -> None:
        super().__init__()
        self.left = left
        self.right = right

    @classmethod
    def of(
        cls, left: Tensor, right: Tensor, bits: WeightBits | None = None, group: int = 0
    ) -> "LowRankWeight":
        """Factors of full precision, or rounded to the nearest integers of some bits."""
        if bits is None:
            return cls(FullWeight(left), FullWeight(right))
        return cls(
            RoundedWeight.nearest(left, bits, group), RoundedWeight.nearest(right, bits, group)
        )

    def forward(self) -> Tensor:
        """The product `[rows, columns]`."""
        return self.left().T @ self.right()

    def stored(self) -> Mapping[str, Numbers]:
        """Both factors."""
        return {"l": self.left.stored()["w"], "r": self.right.stored()["w"]}


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
    """A matrix `[out, in]` in the shape that an initializer has in its file."""

    def __init__(self, matrix: Weight, shape: Sequence[int], *, transposed: bool = False) -> None:
        """With `transposed` the file has it as `[in, out]`, as of `MatMul`."""
        super().__init__()
        self.matrix = matrix
        self.shape = tuple(shape)
        self.transposed = transposed

    def forward(self) -> Tensor:
        """The tensor of that shape."""
        matrix = self.matrix()
        return (matrix.T if self.transposed else matrix).reshape(self.shape)

    def stored(self) -> Mapping[str, Numbers]:
        """The parts of the matrix `[out, in]`, as they are."""
        return self.matrix.stored()
