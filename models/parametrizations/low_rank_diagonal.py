"""A low-rank matrix plus a diagonal."""

from typing import ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import nn

from models.draw import Draw
from models.linear import StructuredLinear
from models.ops.factors import LowRankFactors
from models.ops.initialisation import uniform_
from models.parametrizations.low_rank import LowRankLinear, largest_saving_rank
from models.parametrizations.parametrization import (
    Parametrization,
    refuse_outside,
    refuse_rectangle,
)
from models.spec import Slot


class LowRankDiagonal(Parametrization):
    """`W = L R + diag(D)`: full rank at the price of one more number per row."""

    title: ClassVar[str] = "Low rank plus diagonal"
    paper: ClassVar[str] = (
        "Miceli Barone: Low-rank passthrough neural networks (2016, arXiv:1603.03116)"
    )

    kind: Literal["low_rank_diagonal"] = "low_rank_diagonal"
    d: int = Field(ge=1, description="inner dimension of the low-rank part, at most the size")

    @classmethod
    def suggest(cls, draw: Draw, slot: Slot, *, largest: int) -> Self:
        """Rank d log-uniform from 1 to just below half the size: there the factors are the less."""
        return cls(d=draw.integer("d", 1, largest_saving_rank(largest), log=True)).cut(slot)

    @classmethod
    def check_slot(cls, slot: Slot) -> None:
        """The matrix is square."""
        super().check_slot(slot)
        refuse_rectangle(slot)

    def check(self, slot: Slot) -> None:
        """The matrix is square and d at most its size."""
        self.check_slot(slot)
        refuse_outside("d", self.d, slot, most=slot.smaller_side)

    def cut(self, slot: Slot) -> Self:
        """Rank d below half the shorter side."""
        return self.model_copy(update={"d": min(self.d, largest_saving_rank(slot.smaller_side))})

    def parameter_count(self, slot: Slot) -> int:
        """`2 n d + n` per matrix."""
        return slot.copies * slot.out_features * (2 * self.d + 1)

    def build(self, slot: Slot, *, generator: torch.Generator) -> StructuredLinear:
        """Glorot-uniform factors and a diagonal of U(-0.01, 0.01)."""
        self.check(slot)
        return LowRankDiagonalLinear(slot, d=self.d, generator=generator)


class LowRankDiagonalLinear(LowRankLinear):
    """Stores L, R and D `[G, n]`."""

    def __init__(self, slot: Slot, *, d: int, generator: torch.Generator) -> None:
        super().__init__(slot, d=d, generator=generator)
        self.diagonal = nn.Parameter(torch.empty(slot.copies, slot.out_features))
        uniform_(self.diagonal, -0.01, 0.01, generator=generator)

    def make_factors(self) -> LowRankFactors:
        """L, R and D themselves."""
        return LowRankFactors(self.left, self.right, self.diagonal)

    def multiply_adds(self) -> int:
        """One per number stored."""
        return super().multiply_adds() + self.diagonal.numel()

    def degrees_of_freedom(self) -> int:
        """`min(n^2, 2 n d - d^2 + n)` per matrix."""
        free = super().degrees_of_freedom() + self.diagonal.numel()
        return min(free, self.copies * self.in_features * self.out_features)
