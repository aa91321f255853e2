"""A matrix of low rank, stored as its two factors."""

from typing import ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import nn

from models.draw import Draw
from models.linear import StructuredLinear
from models.ops.factors import LowRankFactors
from models.ops.initialisation import generator_of, glorot_uniform_
from models.parametrizations.parametrization import Parametrization, refuse_outside
from models.spec import SlotSize


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
    def suggest(cls, draw: Draw, slot: SlotSize) -> Self:
        """Rank d log-uniform from 1 to just below half the size: there the factors are the less."""
        d = draw.integer("d", 1, largest_saving_rank(slot.largest_smaller_side), log=True)
        return cls(d=min(d, largest_saving_rank(slot.smaller_side)))

    def check(self, in_features: int, out_features: int) -> None:
        """Rank d is at most the shorter side."""
        refuse_outside(
            "d",
            self.d,
            most=min(in_features, out_features),
            in_features=in_features,
            out_features=out_features,
        )

    def parameter_count(self, in_features: int, out_features: int) -> int:
        """`(out + in) d`."""
        return (out_features + in_features) * self.d

    def build(
        self,
        in_features: int,
        out_features: int,
        *,
        copies: int = 1,
        generator: torch.Generator | None = None,
    ) -> StructuredLinear:
        """Glorot-uniform factors."""
        self.check(in_features, out_features)
        return LowRankLinear(
            in_features,
            out_features,
            d=self.d,
            copies=copies,
            generator=generator or generator_of(None),
        )


class LowRankLinear(StructuredLinear):
    """Stores L `[G, out, d]` and R `[G, d, in]`."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        d: int,
        copies: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__(in_features, out_features, copies=copies)
        self.rank = d
        self.left = nn.Parameter(torch.empty(copies, out_features, d))
        self.right = nn.Parameter(torch.empty(copies, d, in_features))
        glorot_uniform_(self.left, generator=generator)
        glorot_uniform_(self.right, generator=generator)

    def make_factors(self) -> LowRankFactors:
        """L and R themselves."""
        return LowRankFactors(self.left, self.right)

    def multiply_adds(self) -> int:
        """One per entry of both factors."""
        return self.left.numel() + self.right.numel()

    def degrees_of_freedom(self) -> int:
        """`(out + in) d - d^2` per matrix: L S^-1 and S R give one W for every invertible S."""
        return self.left.numel() + self.right.numel() - self.copies * self.rank**2
