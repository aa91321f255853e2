"""A complex matrix that may be any unitary one."""

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from models.errors import SlotError
from models.forms import DenseForm
from models.linear import StructuredLinear
from models.math.initialisation import normal_
from models.math.orthogonal_maps import (
    ORTHOGONAL_MAPS,
    OrthogonalMap,
    OrthogonalMapName,
    skew_hermitian_form,
)
from models.math.precision import raised
from models.parameter_sampler import ParameterSampler
from models.parametrizations.parametrization import Family, refuse_rectangle
from models.quantization import Matrices, Scheme
from models.spec import Slot

LOOP_KEEPS = 8
"""Numbers that a step of the uRNN in torch's operations leaves of each complex unit for its
gradient, beside what our kernel does."""


class UnitaryFull(Family):
    """`W` unitary, the Cayley transform or the exponential of a skew-Hermitian A of n^2 numbers.

    The source keeps W itself, 2 n^2 numbers, and multiplies it by a Cayley transform in each step:
    `W <- (I + l/2 A)^{-1} (I - l/2 A) W` with `A = G W^H - W G^H` and G the gradient, a gradient
    step with a learning rate of its own that other optimizers cannot take, and whose rounding
    errors add up. Here A is what is trained, by whatever optimizer trains the rest, and W is made
    of it anew each time. The price: no W of the Cayley transform has an eigenvalue -1 (the source's
    may, and the exponential's), and A's coordinates are not W's own: one step in A turns W the less
    the further W is from the identity.
    """

    title: ClassVar[str] = "Full unitary (FC-uRNN)"
    paper: ClassVar[str] = (
        "Wisdom, Powers, Hershey, Le Roux, Atlas: Full-Capacity Unitary Recurrent Neural Networks "
        "(NIPS 2016, arXiv:1611.00035)"
    )

    kind: Literal["unitary_full"] = "unitary_full"
    orthogonal_map: OrthogonalMapName = Field(
        default="cayley", description="how W follows from a skew-Hermitian matrix"
    )

    @classmethod
    def suggest(cls, sampler: ParameterSampler, slot: Slot, *, largest: int) -> Self:  # noqa: ARG003
        """Nothing to draw."""
        return cls()

    @classmethod
    def check_slot(cls, slot: Slot) -> None:
        """The matrix is complex and square."""
        if slot.field != "complex":
            raise SlotError(f"defined for complex matrices only, not for a real {slot} one")
        refuse_rectangle(slot)

    def check(self, slot: Slot) -> None:
        """The matrix is complex and square."""
        self.check_slot(slot)

    def parameter_count(self, slot: Slot) -> int:
        """`n^2` real numbers per matrix, as the source counts too (it stores twice as many)."""
        return slot.num_matrices * slot.in_features**2

    def working_numbers(self, slot: Slot) -> int:
        """The solution, and its real form of twice the size."""
        return slot.num_matrices * 30 * slot.in_features**2

    def kept_numbers(self, slot: Slot) -> int:
        """What a loop keeps of each step: no kernel computes these."""
        return slot.num_matrices * LOOP_KEEPS * slot.in_features

    def build(self, slot: Slot, *, generator: torch.Generator) -> StructuredLinear:
        """A random unitary matrix."""
        self.check(slot)
        return UnitaryFullLinear(
            slot, orthogonal_map=ORTHOGONAL_MAPS[self.orthogonal_map], generator=generator
        )


class UnitaryFullLinear(StructuredLinear):
    """Stores A `[G, n, n]`: real parts below the diagonal, imaginary ones on it and above."""

    def __init__(
        self, slot: Slot, *, orthogonal_map: OrthogonalMap, generator: torch.Generator
    ) -> None:
        super().__init__(slot)
        size = slot.in_features
        self.orthogonal_map = orthogonal_map
        self.a = nn.Parameter(torch.empty(slot.num_matrices, size, size))
        # The eigenvalues of A are those of its real form, which is a skew matrix of twice the size.
        normal_(self.a, orthogonal_map.start_deviation(2 * size), generator=generator)

    def make_form(self) -> DenseForm:
        """The real form of W, made of the real form of A."""
        weight = self.orthogonal_map.matrix(skew_hermitian_form(raised(self.a)))
        return DenseForm(weight.to(self.a.dtype))

    def schemes(self) -> Mapping[str, Scheme]:
        """A is rounded: W stays unitary."""
        return {"a": Matrices()}

    def degrees_of_freedom(self) -> int:
        """`n^2` per matrix, the dimension of the unitary group."""
        return self.a.numel()

    def singular_values(self) -> Tensor:
        """All 1, those of the real form `[G, 2 n]`."""
        return self.a.new_ones(self.num_matrices, self.in_features)
