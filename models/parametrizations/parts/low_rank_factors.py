"""What matrices of low rank have in common, with and without a diagonal."""

from collections.abc import Mapping
from typing import Self

import torch
from pydantic import Field
from torch import nn

from models.forms import LowRankForm
from models.linear import StructuredLinear
from models.math.initialisation import glorot_uniform_
from models.math.weight_norm import NormalisedRows, plain_rows
from models.parameter_sampler import ParameterSampler
from models.parametrizations.parametrization import Family, refuse_outside
from models.quantization import Matrices, Scheme
from models.spec import Slot


def largest_saving_rank(smaller_side: int) -> int:
    """The largest rank below half the size, where two factors are less than the matrix."""
    return max(1, (smaller_side - 1) // 2)


class LowRankParametrization(Family):
    """Matrices whose main part is `L_g R_g`, in the ways in which both factors can be kept."""

    d: int = Field(ge=1, description="inner dimension of L R, at most the shorter side")
    tied: bool = Field(
        default=False, description="whether all gates of a layer read through one projection R"
    )
    weight_norm: bool = Field(
        default=False,
        description="whether rows of L are kept as g v / |v| and those of R at length 1",
    )

    @classmethod
    def suggest(cls, sampler: ParameterSampler, slot: Slot, *, largest: int) -> Self:
        """Rank d log-uniform from 1 to just below half the size: there the factors are the less."""
        return cls(d=sampler.integer("d", 1, largest_saving_rank(largest), log=True)).clamped(slot)

    def check(self, slot: Slot) -> None:
        """Rank d is at most the shorter side."""
        self.check_slot(slot)
        refuse_outside("d", self.d, slot, most=slot.smaller_side)

    def clamped(self, slot: Slot) -> Self:
        """Rank d below half the shorter side."""
        return self.model_copy(update={"d": min(self.d, largest_saving_rank(slot.smaller_side))})

    def parameter_count(self, slot: Slot) -> int:
        """`(out + in) d` per matrix; tied, `in d` only once per layer; `out` more with gains."""
        num_right = slot.layers if self.tied else slot.num_matrices
        factors = (slot.num_matrices * slot.out_features + num_right * slot.in_features) * self.d
        return factors + (slot.num_matrices * slot.out_features if self.weight_norm else 0)

    def working_numbers(self, slot: Slot) -> int:
        """The rows brought to their norms, where they are."""
        return 2 * self.parameter_count(slot) if self.weight_norm else 0


class LowRankLinear(StructuredLinear):
    """Stores L `[G, out, d]` and R `[G, d, in]`; tied, R is `[layers, d, in]`."""

    def __init__(
        self, slot: Slot, *, d: int, tied: bool, weight_norm: bool, generator: torch.Generator
    ) -> None:
        super().__init__(slot)
        self.rank = d
        self.num_right = slot.layers if tied else slot.num_matrices
        left = torch.empty(slot.num_matrices, slot.out_features, d)
        right = torch.empty(self.num_right, d, slot.in_features)
        glorot_uniform_(left, generator=generator)
        glorot_uniform_(right, generator=generator)
        self.left = NormalisedRows(left, gain=True) if weight_norm else nn.Parameter(left)
        self.right = NormalisedRows(right, gain=False) if weight_norm else nn.Parameter(right)

    @property
    def inner_size(self) -> int:
        """Rank d."""
        return self.rank

    def make_form(self) -> LowRankForm:
        """L and R themselves."""
        return LowRankForm(plain_rows(self.left), plain_rows(self.right))

    def schemes(self) -> Mapping[str, Scheme]:
        """Both factors are rounded, unless their rows say themselves how they are."""
        return {
            name: Matrices()
            for name in ("left", "right")
            if isinstance(getattr(self, name), nn.Parameter)
        }

    def degrees_of_freedom(self) -> int:
        """One per entry of both factors, less d^2 for each R.

        `L S^-1` and `S R` give one W for every invertible S, the same S for all L behind one R.
        """
        return self.multiply_adds() - self.num_right * self.rank**2
