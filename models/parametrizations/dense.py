"""A plain matrix: the baseline that every other parametrization is held against."""

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import nn

from models.errors import SlotError
from models.forms import DenseForm
from models.linear import StructuredLinear
from models.math.complex_matrices import real_form
from models.math.initialisation import glorot_uniform_, he_normal_, identity_, orthogonal_
from models.parameter_sampler import ParameterSampler
from models.parametrizations.parametrization import Family
from models.quantization import Matrices, Scheme
from models.spec import Slot

Start = Literal["glorot_uniform", "he_normal", "orthogonal", "identity"]

_STARTS = {
    "glorot_uniform": glorot_uniform_,
    "he_normal": he_normal_,
    "orthogonal": orthogonal_,
    "identity": identity_,
}


class Dense(Family):
    """All `out * in` numbers of W; in a complex slot, real and imaginary parts of all of them."""

    title: ClassVar[str] = "Dense"
    paper: ClassVar[str] = (
        "Glorot, Bengio: Understanding the difficulty of training deep feedforward neural networks "
        "(AISTATS 2010), for the initialisation; He, Zhang, Ren, Sun: Delving Deep into Rectifiers "
        "(ICCV 2015, arXiv:1502.01852), for he_normal; Le, Jaitly, Hinton: A Simple Way to "
        "Initialize Recurrent Networks of Rectified Linear Units (2015, arXiv:1504.00941), for the "
        "identity"
    )

    kind: Literal["dense"] = "dense"
    initialisation: Start = Field(
        default="glorot_uniform",
        description="start of W: Glorot-uniform, N(0, 2 / n_in) as by He, a random orthogonal "
        "matrix, or the identity (IRNN; ones on the diagonal of a rectangle); complex matrices "
        "have the first alone",
    )

    @classmethod
    def suggest(cls, sampler: ParameterSampler, slot: Slot, *, largest: int) -> Self:  # noqa: ARG003
        """Nothing to draw."""
        return cls()

    @classmethod
    def check_slot(cls, slot: Slot) -> None:
        """Every slot is fine, complex ones too."""

    def check(self, slot: Slot) -> None:
        """A complex matrix starts Glorot-uniform."""
        if slot.field == "complex" and self.initialisation != "glorot_uniform":
            raise SlotError(
                f"initialisation = {self.initialisation!r} is for real matrices, not for a {slot} "
                "one; allowed is 'glorot_uniform'"
            )

    def parameter_count(self, slot: Slot) -> int:
        """`out * in` per matrix, twice that for a complex one."""
        parts = 2 if slot.field == "complex" else 1
        return parts * slot.num_matrices * slot.out_features * slot.in_features

    def build(self, slot: Slot, *, generator: torch.Generator) -> StructuredLinear:
        """Matrices drawn as `initialisation` says."""
        self.check(slot)
        if slot.field == "complex":
            return ComplexDenseLinear(slot, generator=generator)
        return DenseLinear(slot, initialisation=self.initialisation, generator=generator)


class DenseLinear(StructuredLinear):
    """Stores W `[G, out, in]`."""

    def __init__(self, slot: Slot, *, initialisation: Start, generator: torch.Generator) -> None:
        super().__init__(slot)
        weight = torch.empty(self.num_matrices, self.out_features, self.in_features)
        self.weight = nn.Parameter(_STARTS[initialisation](weight, generator=generator))

    def make_form(self) -> DenseForm:
        """W itself."""
        return DenseForm(self.weight)

    def schemes(self) -> Mapping[str, Scheme]:
        """W is rounded."""
        return {"weight": Matrices()}

    def degrees_of_freedom(self) -> int:
        """One per entry of W."""
        return self.weight.numel()


class ComplexDenseLinear(StructuredLinear):
    """Stores the real and imaginary parts of W, `[G, 2, out, in]`."""

    def __init__(self, slot: Slot, *, generator: torch.Generator) -> None:
        super().__init__(slot)
        weight = torch.empty(self.num_matrices, 2, slot.out_features, slot.in_features)
        glorot_uniform_(weight, generator=generator)
        # Two parts of half the variance each make a complex entry of the variance of a real one.
        self.weight = nn.Parameter(weight if weight.is_meta else weight / 2**0.5)

    def make_form(self) -> DenseForm:
        """The real matrix that acts on `(re | im)`."""
        real, imaginary = self.weight.unbind(1)
        return DenseForm(real_form(real, imaginary))

    def schemes(self) -> Mapping[str, Scheme]:
        """Both parts are rounded."""
        return {"weight": Matrices()}

    def degrees_of_freedom(self) -> int:
        """Two per complex entry."""
        return self.weight.numel()
