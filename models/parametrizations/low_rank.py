"""A matrix of low rank, stored as its two factors."""

from typing import ClassVar, Literal

import torch

from models.linear import StructuredLinear
from models.parametrizations.parts.low_rank_factors import LowRankLinear, LowRankParametrization
from models.spec import Slot


class LowRank(LowRankParametrization):
    """`W_g = L_g R_g` with inner dimension d: R reads the input, L writes the output.

    Tied, all gates of a layer read through one R. With weight normalisation (A.2) rows of L are
    `g v / |v|` and rows of R have length 1, which reaches the same matrices and keeps the factors
    from growing against each other.
    """

    title: ClassVar[str] = "Low rank"
    paper: ClassVar[str] = (
        "Miceli Barone: Low-rank passthrough neural networks (2016, arXiv:1603.03116)"
    )

    kind: Literal["low_rank"] = "low_rank"

    def build(self, slot: Slot, *, generator: torch.Generator) -> StructuredLinear:
        """Glorot-uniform factors, of which weight normalisation keeps R's directions alone."""
        self.check(slot)
        return LowRankLinear(
            slot, d=self.d, tied=self.tied, weight_norm=self.weight_norm, generator=generator
        )
