"""A matrix as its singular value decomposition, with packed rotations for both bases."""

from collections.abc import Callable, Mapping
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from models.forms import DenseForm, RotatedForm, rotated_form_pays
from models.linear import StructuredLinear
from models.math.precision import raised
from models.math.rotations import stage_count
from models.parameter_sampler import ParameterSampler
from models.parametrizations.parametrization import Family, refuse_outside
from models.parametrizations.parts.packed_angles import (
    PackedAngles,
    Start,
    most_stages,
    refuse_unturnable,
)
from models.spec import Slot

Reduction = Literal["sum", "mean"]

_REDUCTIONS: Mapping[Reduction, Callable[[Tensor], Tensor]] = {
    "sum": lambda squares: squares.sum(-1),
    "mean": lambda squares: squares.mean(-1),
}


class RotationSvd(Family):
    """`W = U diag(s) V^T`: U of count_u packed rotations, V of count_v, and s drawn towards 1.

    s starts at 1 and is free; the loss gets `penalty / 2 * sum_i |s_i - 1|^2` for every matrix.
    With all stages on both sides every matrix is reached: rotations have determinant 1, and the
    sign of det W is that of the product of s, whose entries may be negative.

    The paper sums over i, its code takes the mean (`reduction`); one variant of the code has a
    single product of rotations, with diag(s) after the first half of its stages, where the paper
    and this have two. The paper's counts of stages are put right in `PackedRotations`. Its lower
    bound of the gradient's norm (Corollary 1) takes the smallest singular value other than 0: it
    holds with the smallest one alone.
    """

    title: ClassVar[str] = "Rotation SVD (DizzyRNN-SVD)"
    paper: ClassVar[str] = (
        "Dorobantu, Stromhaug, Renteria: DizzyRNN: Reparameterizing Recurrent Neural Networks for "
        "Norm-Preserving Backpropagation (2016, arXiv:1612.04035)"
    )

    reals: ClassVar[frozenset[str]] = frozenset({"penalty"})

    kind: Literal["rotation_svd"] = "rotation_svd"
    count_u: int = Field(
        ge=1, description="packed rotations of U, the side that writes; at most n - 1 (n for odd n)"
    )
    count_v: int = Field(
        ge=1, description="packed rotations of V, the side that reads; at most n - 1 (n for odd n)"
    )
    penalty: float = Field(
        default=1e-3, ge=0, description="weight lambda of the pull of singular values towards 1"
    )
    reduction: Reduction = Field(
        default="sum",
        description="over a matrix's singular values: sum (the paper) or mean (its code)",
    )
    initialisation: Start = Field(
        default="uniform",
        description="start of the angles: U(0, 2 pi), or 0, which makes W the identity",
    )

    @classmethod
    def suggest(cls, sampler: ParameterSampler, slot: Slot, *, largest: int) -> Self:
        """Both counts log-uniform from 1 to all stages, the penalty log-uniform in [1e-6, 1]."""
        return cls(
            count_u=sampler.integer("count_u", 1, most_stages(largest), log=True),
            count_v=sampler.integer("count_v", 1, most_stages(largest), log=True),
            penalty=sampler.real("penalty", 1e-6, 1.0, log=True),
        ).clamped(slot)

    @classmethod
    def check_slot(cls, slot: Slot) -> None:
        """The matrix is square and at least 2 x 2."""
        super().check_slot(slot)
        refuse_unturnable(slot)

    def check(self, slot: Slot) -> None:
        """The schedule has that many stages, for both sides."""
        self.check_slot(slot)
        for name, count in (("count_u", self.count_u), ("count_v", self.count_v)):
            refuse_outside(name, count, slot, most=stage_count(slot.in_features))

    def clamped(self, slot: Slot) -> Self:
        """Both counts at most all stages of the schedule."""
        most = most_stages(slot.smaller_side)
        counts = {"count_u": min(self.count_u, most), "count_v": min(self.count_v, most)}
        return self.model_copy(update=counts)

    def parameter_count(self, slot: Slot) -> int:
        """`(count_u + count_v) * floor(n / 2) + n` per matrix."""
        size = slot.in_features
        return slot.num_matrices * ((self.count_u + self.count_v) * (size // 2) + size)

    def working_numbers(self, slot: Slot) -> int:
        """Both rotations and their product, or the angles alone."""
        size, stages = slot.in_features, self.count_u + self.count_v
        staged = rotated_form_pays(stages, size)
        return slot.num_matrices * (10 * stages * size if staged else 9 * size**2)

    def build(self, slot: Slot, *, generator: torch.Generator) -> StructuredLinear:
        """Independent angles on both sides as `initialisation` says; s = 1."""
        self.check(slot)
        u, v = (
            PackedAngles(
                slot.in_features,
                count,
                num_matrices=slot.num_matrices,
                initialisation=self.initialisation,
                generator=generator,
            )
            for count in (self.count_u, self.count_v)
        )
        return RotationSvdLinear(slot, u, v, penalty=self.penalty, reduction=self.reduction)


class RotationSvdLinear(StructuredLinear):
    """Stores the angles of both sides and s `[G, n]`."""

    def __init__(
        self,
        slot: Slot,
        u: PackedAngles,
        v: PackedAngles,
        *,
        penalty: float,
        reduction: Reduction,
    ) -> None:
        super().__init__(slot)
        self.penalty_weight: float | Tensor = penalty
        self.reduction: Reduction = reduction
        self.u = u
        self.v = v
        self.s = nn.Parameter(torch.ones(slot.num_matrices, slot.in_features))

    def make_form(self) -> DenseForm | RotatedForm:
        """The three factors, or W as their product, whichever is applied faster."""
        stages = self.u.count + self.v.count
        if not self.s.is_cuda and rotated_form_pays(stages, self.slot.in_features):
            return RotatedForm(self.u.angles(), self.s, self.v.angles())
        scaled = self.u.product() * raised(self.s).unsqueeze(-2)
        return DenseForm((scaled @ self.v.product().mT).to(self.s.dtype))

    def degrees_of_freedom(self) -> int:
        """One per number: with all stages on both sides these are as many as entries of W."""
        return self.u.theta.numel() + self.v.theta.numel() + self.s.numel()

    def singular_values(self) -> Tensor:
        """S itself, signed."""
        return self.s

    def reals(self) -> Mapping[str, float]:
        """Lambda."""
        return {"penalty": float(self.penalty_weight)}

    def use_reals(self, reals: Mapping[str, Tensor]) -> None:
        """See `reals`."""
        self.penalty_weight = reals["penalty"]

    def penalty(self) -> Tensor:
        """`lambda / 2` times the sum (or mean) of `|s_i - 1|^2`, added up over the matrices."""
        squares = (raised(self.s) - 1).square()
        return self.penalty_weight / 2 * _REDUCTIONS[self.reduction](squares).sum()
