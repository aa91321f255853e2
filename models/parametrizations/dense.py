"""A plain matrix: the baseline that every other parametrization is held against."""

from typing import ClassVar, Literal, Self

import torch
from torch import nn

from models.draw import Draw
from models.linear import StructuredLinear
from models.ops.factors import DenseFactors
from models.ops.initialisation import generator_of, glorot_uniform_
from models.parametrizations.parametrization import Parametrization
from models.spec import SlotSize


class Dense(Parametrization):
    """All `out * in` numbers of W."""

    title: ClassVar[str] = "Dense"
    paper: ClassVar[str] = (
        "Glorot, Bengio: Understanding the difficulty of training deep feedforward neural networks "
        "(AISTATS 2010), for the initialisation"
    )

    kind: Literal["dense"] = "dense"

    @classmethod
    def suggest(cls, draw: Draw, slot: SlotSize) -> Self:  # noqa: ARG003 -- nothing to draw
        """Nothing to draw."""
        return cls()

    def check(self, in_features: int, out_features: int) -> None:
        """Every slot is fine."""

    def parameter_count(self, in_features: int, out_features: int) -> int:
        """`out * in`."""
        return out_features * in_features

    def build(
        self,
        in_features: int,
        out_features: int,
        *,
        copies: int = 1,
        generator: torch.Generator | None = None,
    ) -> StructuredLinear:
        """Glorot-uniform matrices."""
        return DenseLinear(
            in_features, out_features, copies=copies, generator=generator or generator_of(None)
        )


class DenseLinear(StructuredLinear):
    """Stores W `[G, out, in]`."""

    def __init__(
        self, in_features: int, out_features: int, *, copies: int, generator: torch.Generator
    ) -> None:
        super().__init__(in_features, out_features, copies=copies)
        self.weight = nn.Parameter(torch.empty(copies, out_features, in_features))
        glorot_uniform_(self.weight, generator=generator)

    def make_factors(self) -> DenseFactors:
        """W itself."""
        return DenseFactors(self.weight)

    def multiply_adds(self) -> int:
        """One per entry of W."""
        return self.weight.numel()

    def degrees_of_freedom(self) -> int:
        """One per entry of W."""
        return self.weight.numel()
