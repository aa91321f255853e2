"""A matrix of low rank, stored as its two factors."""

from typing import ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import nn

from models.draw import Draw
from models.linear import StructuredLinear
from models.ops.factors import LowRankFactors
from models.ops.initialisation import glorot_uniform_
from models.parametrizations.parametrization import Parametrization, refuse_outside
from models.spec import Slot


def largest_saving_rank(smaller_side: int) -> int:
    """The largest rank below half the size, where two factors are less than the matrix."""
    return max(1, (smaller_side - 1) // 2)


class LowRank(Parametrization):
    """`W = L R` with inner dimension d: R reads the input, L writes the output."""

    title: ClassVar[str] = "Low rank"
    paper: ClassVar[str] = (
        "Miceli Barone: Low-rank passthrough neural networks (2016, arXiv:1603.03116)"
    )

    kind: Literal["low_rank"] = "low_rank"
    d: int = Field(ge=1, description="inner dimension, at most the shorter side")

    @classmethod
    def suggest(cls, draw: Draw, slot: Slot, *, largest: int) -> Self:
        """Rank d log-uniform from 1 to just below half the size: there the factors are the less."""
        return cls(d=draw.integer("d", 1, largest_saving_rank(largest), log=True)).cut(slot)

    def check(self, slot: Slot) -> None:
        """Rank d is at most the shorter side."""
        self.check_slot(slot)
        refuse_outside("d", self.d, slot, most=slot.smaller_side)

    def cut(self, slot: Slot) -> Self:
        """Rank d below half the shorter side."""
        return self.model_copy(update={"d": min(self.d, largest_saving_rank(slot.smaller_side))})

    def parameter_count(self, slot: Slot) -> int:
        """`(out + in) d` per matrix."""
        return slot.copies * (slot.out_features + slot.in_features) * self.d

    def build(self, slot: Slot, *, generator: torch.Generator) -> StructuredLinear:
        """Glorot-uniform factors."""
        self.check(slot)
        return LowRankLinear(slot, d=self.d, generator=generator)


class LowRankLinear(StructuredLinear):
    """Stores L `[G, out, d]` and R `[G, d, in]`."""

    def __init__(self, slot: Slot, *, d: int, generator: torch.Generator) -> None:
        super().__init__(slot)
        self.rank = d
        self.left = nn.Parameter(torch.empty(slot.copies, slot.out_features, d))
        self.right = nn.Parameter(torch.empty(slot.copies, d, slot.in_features))
        glorot_uniform_(self.left, generator=generator)
        glorot_uniform_(self.right, generator=generator)

    @property
    def inner_size(self) -> int:
        """Rank d."""
        return self.rank

    def make_factors(self) -> LowRankFactors:
        """L and R themselves."""
        return LowRankFactors(self.left, self.right)

    def multiply_adds(self) -> int:
        """One per entry of both factors."""
        return self.left.numel() + self.right.numel()

    def degrees_of_freedom(self) -> int:
        """`(out + in) d - d^2` per matrix: L S^-1 and S R give one W for every invertible S."""
        return self.left.numel() + self.right.numel() - self.copies * self.rank**2
