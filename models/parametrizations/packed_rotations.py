"""An orthogonal matrix as a product of packed plane rotations."""

from typing import ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from models.draw import Draw
from models.errors import SlotError
from models.linear import StructuredLinear
from models.ops.factors import DenseFactors
from models.ops.initialisation import uniform_
from models.ops.rotations import circle_schedule, rotation_product, stage_count
from models.parametrizations.parametrization import (
    Parametrization,
    refuse_outside,
    refuse_rectangle,
)
from models.spec import Slot


class PackedRotations(Parametrization):
    """`W = P_1 ... P_count`, each P a set of floor(n/2) rotations of disjoint pairs of coordinates.

    W keeps every norm exactly. All stages together (n - 1 of them, n for odd n) turn every pair
    once and have the n (n - 1) / 2 angles of the rotation group; reflections are not among them.
    """

    title: ClassVar[str] = "Packed rotations (DizzyRNN)"
    paper: ClassVar[str] = (
        "Dorobantu, Stromhaug, Renteria: DizzyRNN: Reparameterizing Recurrent Neural Networks for "
        "Norm-Preserving Backpropagation (2016, arXiv:1612.04035)"
    )

    kind: Literal["packed_rotations"] = "packed_rotations"
    count: int = Field(ge=1, description="packed rotations, at most n - 1 (n for odd n)")

    @classmethod
    def suggest(cls, draw: Draw, slot: Slot, *, largest: int) -> Self:
        """Count log-uniform from 1 to all stages of the schedule."""
        most = max(1, stage_count(largest))
        return cls(count=draw.integer("count", 1, most, log=True)).cut(slot)

    @classmethod
    def check_slot(cls, slot: Slot) -> None:
        """The matrix is square and at least 2 x 2."""
        super().check_slot(slot)
        refuse_rectangle(slot)
        if slot.in_features < 2:
            raise SlotError("needs two coordinates to turn; the matrix is 1 x 1")

    def check(self, slot: Slot) -> None:
        """The schedule has that many stages."""
        self.check_slot(slot)
        refuse_outside("count", self.count, slot, most=stage_count(slot.in_features))

    def cut(self, slot: Slot) -> Self:
        """At most all stages of the schedule."""
        most = max(1, stage_count(slot.smaller_side))
        return self.model_copy(update={"count": min(self.count, most)})

    def parameter_count(self, slot: Slot) -> int:
        """`count * floor(n / 2)` per matrix."""
        return slot.copies * self.count * (slot.in_features // 2)

    def build(self, slot: Slot, *, generator: torch.Generator) -> StructuredLinear:
        """Angles of U(0, 2 pi)."""
        self.check(slot)
        return PackedRotationsLinear(slot, count=self.count, generator=generator)


class PackedRotationsLinear(StructuredLinear):
    """Stores the angles `[G, count, floor(n / 2)]`; the stage that acts first comes first."""

    _partners: Tensor
    _pairs: Tensor
    _signs: Tensor

    def __init__(self, slot: Slot, *, count: int, generator: torch.Generator) -> None:
        super().__init__(slot)
        size = slot.in_features
        stages = circle_schedule(size)[:count]
        self.theta = nn.Parameter(torch.empty(slot.copies, count, size // 2))
        uniform_(self.theta, 0, 2 * torch.pi, generator=generator)
        partners, pairs, signs = _by_coordinate(stages, size)
        self.register_buffer("_partners", torch.tensor(partners), persistent=False)
        self.register_buffer("_pairs", torch.tensor(pairs), persistent=False)
        self.register_buffer("_signs", torch.tensor(signs), persistent=False)

    def make_factors(self) -> DenseFactors:
        """W, as the product of all stages."""
        angles = self.theta.flatten(1)[:, self._pairs] * self._signs
        return DenseFactors(rotation_product(angles, self._partners))

    def multiply_adds(self) -> int:
        """One per entry of W."""
        return self.copies * self.in_features**2

    def degrees_of_freedom(self) -> int:
        """The angles, at most those of the rotation group."""
        group = self.in_features * (self.in_features - 1) // 2
        return min(self.theta.numel(), self.copies * group)

    def singular_values(self) -> Tensor:
        """All 1."""
        return self.theta.new_ones(self.copies, self.in_features)


def _by_coordinate(
    stages: list[list[tuple[int, int]]], size: int
) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
    """For each stage and coordinate: its partner, the place of its angle, and the angle's sign.

    The first coordinate of a pair has sign 1, the second -1; one that is alone is its own partner
    and has 0.
    """
    partners = [list(range(size)) for _ in stages]
    pairs = [[0] * size for _ in stages]
    signs = [[0] * size for _ in stages]
    for stage, members in enumerate(stages):
        for place, (a, b) in enumerate(members, start=stage * (size // 2)):
            partners[stage][a], partners[stage][b] = b, a
            pairs[stage][a] = pairs[stage][b] = place
            signs[stage][a], signs[stage][b] = 1, -1
    return partners, pairs, signs
