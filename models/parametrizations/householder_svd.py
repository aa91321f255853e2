"""A matrix kept as its singular value decomposition, with singular values in an interval."""

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from models.draw import Draw
from models.linear import StructuredLinear
from models.ops.factors import DenseFactors, LowRankFactors, factored_form_pays
from models.ops.householder import staircase_entries, svd_diagonal_low_rank, svd_weight
from models.parametrizations.parametrization import Parametrization, refuse_outside
from models.parametrizations.staircase import Staircase, trainable_entries
from models.spec import Slot


class HouseholderSvd(Parametrization):
    """`W = U diag(s) V^T`: U of m1 reflectors, V of m2, and every s within r of sigma_star.

    `s = sigma_star + 2 r (sigmoid(p) - 1/2)` starts at sigma_star. With m1 = m2 = min(in, out) and
    an r that is wide enough every matrix is reached; with r small the norm of what passes through
    is all but kept.
    """

    title: ClassVar[str] = "Householder SVD (Spectral-RNN)"
    paper: ClassVar[str] = (
        "Zhang, Lei, Dhillon: Stabilizing Gradients for Deep Neural Networks via Efficient SVD "
        "Parameterization (2018, arXiv:1803.09327)"
    )

    kind: Literal["householder_svd"] = "householder_svd"
    m1: int = Field(ge=1, description="reflectors of U, the side that writes")
    m2: int = Field(ge=1, description="reflectors of V, the side that reads")
    r: float = Field(
        default=0.01, gt=0, le=1, description="radius of the singular values' interval"
    )
    sigma_star: float = Field(
        default=1.0, ge=0, description="centre of the singular values' interval"
    )

    @classmethod
    def suggest(cls, draw: Draw, slot: Slot, *, largest: int) -> Self:
        """m1, m2 log-uniform from 1 to the shorter side, r log-uniform in [1e-3, 0.5].

        In a residual branch the singular values lie around 0, else around 1.
        """
        return cls(
            m1=draw.integer("m1", 1, largest, log=True),
            m2=draw.integer("m2", 1, largest, log=True),
            r=draw.real("r", 1e-3, 0.5, log=True),
            sigma_star=0.0 if slot.residual else 1.0,
        ).cut(slot)

    def check(self, slot: Slot) -> None:
        """Both counts are at most the shorter side."""
        self.check_slot(slot)
        for name, count in (("m1", self.m1), ("m2", self.m2)):
            refuse_outside(name, count, slot, most=slot.smaller_side)

    def cut(self, slot: Slot) -> Self:
        """Both counts at most the shorter side."""
        most = slot.smaller_side
        return self.model_copy(update={"m1": min(self.m1, most), "m2": min(self.m2, most)})

    def parameter_count(self, slot: Slot) -> int:
        """`R(out, m1) + R(in, m2) + min(in, out)` per matrix, less 1 for each 1 x 1 reflector."""
        return slot.copies * (
            trainable_entries(slot.out_features, self.m1)
            + trainable_entries(slot.in_features, self.m2)
            + slot.smaller_side
        )

    def paper_count(self, slot: Slot) -> int:
        """The same with 1 x 1 reflectors counted."""
        return slot.copies * (
            staircase_entries(slot.out_features, self.m1)
            + staircase_entries(slot.in_features, self.m2)
            + slot.smaller_side
        )

    def build(self, slot: Slot, *, generator: torch.Generator) -> StructuredLinear:
        """Independent Glorot-uniform reflectors on both sides; singular values at sigma_star."""
        self.check(slot)
        return HouseholderSvdLinear(
            slot,
            m1=self.m1,
            m2=self.m2,
            r=self.r,
            sigma_star=self.sigma_star,
            generator=generator,
        )


class HouseholderSvdLinear(StructuredLinear):
    """Stores the reflectors' nonzero entries and p `[G, min(out, in)]`."""

    def __init__(
        self,
        slot: Slot,
        *,
        m1: int,
        m2: int,
        r: float,
        sigma_star: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__(slot)
        self.r = r
        self.sigma_star = sigma_star
        self.u = Staircase(slot.out_features, m1, copies=slot.copies, generator=generator)
        self.v = Staircase(slot.in_features, m2, copies=slot.copies, generator=generator)
        self.p = nn.Parameter(torch.zeros(slot.copies, slot.smaller_side))

    @property
    def _rank(self) -> int:
        return self.u.count + self.v.count

    @property
    def _factored(self) -> bool:
        return self.in_features == self.out_features and factored_form_pays(
            self._rank, self.in_features
        )

    def singular_values(self) -> Tensor:
        """S `[G, min(out, in)]`, within r of sigma_star."""
        # 2 (sigmoid(p) - 1/2) = tanh(p / 2), without the cancellation near p = 0.
        return self.sigma_star + self.r * torch.tanh(self.p / 2)

    def _signed_singular_values(self) -> Tensor:
        """Singular values with the signs of the 1 x 1 reflectors, which act on the last one."""
        sigma = self.singular_values()
        for sign in (self.u.sign, self.v.sign):
            if sign is not None:
                sigma = torch.cat((sigma[:, :-1], sigma[:, -1:] * sign.unsqueeze(-1)), dim=-1)
        return sigma

    def make_factors(self) -> DenseFactors | LowRankFactors:
        """Diagonal plus low rank where that is the cheaper product, else W."""
        sides = self.u.rows(), self.v.rows(), self._signed_singular_values()
        if self._factored:
            diagonal, left, right = svd_diagonal_low_rank(*sides)
            return LowRankFactors(left, right, diagonal)
        return DenseFactors(svd_weight(*sides))

    def multiply_adds(self) -> int:
        """Two thin products and the diagonal in the factored form, else one per entry of W."""
        size = self.in_features
        each = 2 * size * self._rank + size if self._factored else size * self.out_features
        return self.copies * each

    def degrees_of_freedom(self) -> int:
        """Directions of the reflectors and the singular values, at most the entries of W."""
        free = self.u.degrees_of_freedom() + self.v.degrees_of_freedom() + self.p.numel()
        return min(free, self.copies * self.in_features * self.out_features)

    def learning_rate_scales(self) -> Mapping[str, float]:
        """`ds/dp <= r / 2`: p steps 1 / (2 r) times as far, and s moves alike for every r."""
        return {"p": 1 / (2 * self.r)}
