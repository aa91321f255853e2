"""An orthogonal matrix as a product of packed plane rotations."""

from typing import ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Tensor

from models.forms import DenseForm, RotatedForm, rotated_form_pays
from models.linear import StructuredLinear
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


class PackedRotations(Family):
    """`W = P_1 ... P_count`, each P a set of floor(n/2) rotations of disjoint pairs of coordinates.

    W keeps every norm exactly. All stages together turn every pair of coordinates once and have the
    n (n - 1) / 2 angles of the rotation group. Where the paper prints something else: it takes
    Q_1 ... Q_n as all stages, but for even n there are n - 1 of them, and for odd n, which it
    leaves out, n stages with one coordinate at rest in each; it says that the products cover the
    orthogonal matrices, but they have determinant 1, so that reflections are not among them.
    """

    title: ClassVar[str] = "Packed rotations (DizzyRNN)"
    paper: ClassVar[str] = (
        "Dorobantu, Stromhaug, Renteria: DizzyRNN: Reparameterizing Recurrent Neural Networks for "
        "Norm-Preserving Backpropagation (2016, arXiv:1612.04035)"
    )

    kind: Literal["packed_rotations"] = "packed_rotations"
    count: int = Field(ge=1, description="packed rotations, at most n - 1 (n for odd n)")
    initialisation: Start = Field(
        default="uniform", description="start of the angles: U(0, 2 pi), or 0 for the identity"
    )

    @classmethod
    def suggest(cls, sampler: ParameterSampler, slot: Slot, *, largest: int) -> Self:
        """Count log-uniform from 1 to all stages of the schedule."""
        return cls(count=sampler.integer("count", 1, most_stages(largest), log=True)).clamped(slot)

    @classmethod
    def check_slot(cls, slot: Slot) -> None:
        """The matrix is square and at least 2 x 2."""
        super().check_slot(slot)
        refuse_unturnable(slot)

    def check(self, slot: Slot) -> None:
        """The schedule has that many stages."""
        self.check_slot(slot)
        refuse_outside("count", self.count, slot, most=stage_count(slot.in_features))

    def clamped(self, slot: Slot) -> Self:
        """At most all stages of the schedule."""
        return self.model_copy(update={"count": min(self.count, most_stages(slot.smaller_side))})

    def parameter_count(self, slot: Slot) -> int:
        """`count * floor(n / 2)` per matrix."""
        return slot.num_matrices * self.count * (slot.in_features // 2)

    def working_numbers(self, slot: Slot) -> int:
        """The product as it stands after some of the stages, or the angles alone."""
        size = slot.in_features
        staged = rotated_form_pays(self.count, size)
        return slot.num_matrices * (10 * self.count * size if staged else 7 * size**2)

    def build(self, slot: Slot, *, generator: torch.Generator) -> StructuredLinear:
        """Angles as `initialisation` says."""
        self.check(slot)
        rotations = PackedAngles(
            slot.in_features,
            self.count,
            num_matrices=slot.num_matrices,
            initialisation=self.initialisation,
            generator=generator,
        )
        return PackedRotationsLinear(slot, rotations)


class PackedRotationsLinear(StructuredLinear):
    """Stores the angles of `rotations`."""

    def __init__(self, slot: Slot, rotations: PackedAngles) -> None:
        super().__init__(slot)
        self.rotations = rotations

    def make_form(self) -> DenseForm | RotatedForm:
        """The angles, or W as the product of all stages, whichever is applied faster."""
        angles = self.rotations.theta
        if not angles.is_cuda and rotated_form_pays(self.rotations.count, self.slot.in_features):
            return RotatedForm(self.rotations.angles())
        return DenseForm(self.rotations.product().to(self.rotations.theta.dtype))

    def degrees_of_freedom(self) -> int:
        """One per angle: no count has more angles than the rotation group has dimensions."""
        return self.rotations.theta.numel()

    def singular_values(self) -> Tensor:
        """All 1."""
        return self.rotations.theta.new_ones(self.num_matrices, self.in_features)
