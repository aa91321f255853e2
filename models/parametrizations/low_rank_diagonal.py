"""A low-rank matrix plus a diagonal."""

from typing import ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import nn

from models.draw import Draw
from models.linear import StructuredLinear
from models.ops.factors import LowRankFactors
from models.ops.initialisation import generator_of, uniform_
from models.parametrizations.low_rank import LowRankLinear, largest_saving_rank
from models.parametrizations.parametrization import (
    Parametrization,
    refuse_outside,
    refuse_rectangle,
)
from models.spec import SlotSize


class LowRankDiagonal(Parametrization):
    """`W = L R + diag(D)`: full rank at the price of one more number per row."""

    title: ClassVar[str] = "Low rank plus diagonal"
    paper: ClassVar[str] = (
        "Miceli Barone: Low-rank passthrough neural networks (2016, arXiv:1603.03116)"
    )

    kind: Literal["low_rank_diagonal"] = "low_rank_diagonal"
    d: int = Field(ge=1, description="inner dimension of the low-rank part, at most the size")

    @classmethod
    def suggest(cls, draw: Draw, slot: SlotSize) -> Self:
        """Rank d log-uniform from 1 to just below half the size: there the factors are the less."""
        d = draw.integer("d", 1, largest_saving_rank(slot.largest_smaller_side), log=True)
        return cls(d=min(d, largest_saving_rank(slot.smaller_side)))

    def check(self, in_features: int, out_features: int) -> None:
        """The matrix is square and d at most its size."""
        refuse_rectangle(self.kind, in_features=in_features, out_features=out_features)
        refuse_outside(
            "d", self.d, most=in_features, in_features=in_features, out_features=out_features
        )

    def parameter_count(self, in_features: int, out_features: int) -> int:
        """`2 n d + n`."""
        return (out_features + in_features) * self.d + out_features

    def build(
        self,
        in_features: int,
        out_features: int,
        *,
        copies: int = 1,
        generator: torch.Generator | None = None,
    ) -> StructuredLinear:
        """Glorot-uniform factors and a diagonal of U(-0.01, 0.01)."""
        self.check(in_features, out_features)
        return LowRankDiagonalLinear(
            in_features,
            out_features,
            d=self.d,
            copies=copies,
            generator=generator or generator_of(None),
        )


class LowRankDiagonalLinear(LowRankLinear):
    """Stores L, R and D `[G, n]`."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        d: int,
        copies: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__(in_features, out_features, d=d, copies=copies, generator=generator)
        self.diagonal = nn.Parameter(torch.empty(copies, out_features))
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
