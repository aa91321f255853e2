"""A low-rank matrix plus a diagonal."""

from typing import ClassVar, Literal

import torch
from torch import nn

from models.forms import LowRankForm
from models.linear import StructuredLinear
from models.math.initialisation import uniform_
from models.parametrizations.parametrization import refuse_rectangle
from models.parametrizations.parts.low_rank_factors import LowRankLinear, LowRankParametrization
from models.spec import Slot


class LowRankDiagonal(LowRankParametrization):
    """`W_g = L_g R_g + diag(D_g)`: full rank at the price of one more number per row.

    Tied, all gates of a layer read through one R, each with its own L and D. With weight
    normalisation (A.2) rows of L are `g v / |v|` and rows of R have length 1; D is left as it is.
    """

    title: ClassVar[str] = "Low rank plus diagonal"
    paper: ClassVar[str] = (
        "Miceli Barone: Low-rank passthrough neural networks (2016, arXiv:1603.03116)"
    )

    kind: Literal["low_rank_diagonal"] = "low_rank_diagonal"

    @classmethod
    def check_slot(cls, slot: Slot) -> None:
        """The matrix is square."""
        super().check_slot(slot)
        refuse_rectangle(slot)

    def parameter_count(self, slot: Slot) -> int:
        """That of the factors, and n per matrix."""
        return super().parameter_count(slot) + slot.num_matrices * slot.out_features

    def build(self, slot: Slot, *, generator: torch.Generator) -> StructuredLinear:
        """Glorot-uniform factors (of R the directions with weight normalisation), D of U(±0.01)."""
        self.check(slot)
        return LowRankDiagonalLinear(
            slot, d=self.d, tied=self.tied, weight_norm=self.weight_norm, generator=generator
        )


class LowRankDiagonalLinear(LowRankLinear):
    """Stores L, R and D `[G, n]`."""

    def __init__(
        self, slot: Slot, *, d: int, tied: bool, weight_norm: bool, generator: torch.Generator
    ) -> None:
        super().__init__(slot, d=d, tied=tied, weight_norm=weight_norm, generator=generator)
        self.diagonal = nn.Parameter(torch.empty(slot.num_matrices, slot.out_features))
        uniform_(self.diagonal, -0.01, 0.01, generator=generator)

    def make_form(self) -> LowRankForm:
        """L, R and D themselves."""
        thin = super().make_form()
        return LowRankForm(thin.left, thin.right, self.diagonal)

    def degrees_of_freedom(self) -> int:
        """Those of the factors and one per entry of D, at most the entries of W.

        Every W is reached from d = n - 1 on.
        """
        return min(super().degrees_of_freedom(), self.num_matrices * self.in_features**2)
