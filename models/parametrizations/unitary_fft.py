"""The unitary matrix of the uRNN: phases, reflections and Fourier transforms."""

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from models.errors import SlotError
from models.forms import DenseForm, FourierForm, fourier_form_pays
from models.kernels.choice import kernels_take
from models.kernels.unitary import transforms
from models.linear import StructuredLinear
from models.math.initialisation import glorot_uniform_, uniform_
from models.math.unitary import hashed_order
from models.parameter_sampler import ParameterSampler
from models.parametrizations.parametrization import Family, refuse_rectangle
from models.parametrizations.unitary_full import LOOP_KEEPS
from models.quantization import Angles, Directions, Scheme
from models.spec import Slot


class UnitaryFft(Family):
    """`W = D_3 R_2 F^-1 D_2 Pi R_1 F D_1`, unitary, of 7 n numbers.

    The D are diagonals `e^{i theta}`, the R reflections `I - 2 v v^* / |v|^2` with complex v, F the
    unitary Fourier transform. Pi is a fixed permutation. The source draws it at random; here the
    indices are sorted by the SHA-256 of their decimal numbers, so that it is the same for ever and
    no checkpoint has to hold it.
    """

    title: ClassVar[str] = "Unitary by Fourier transforms (uRNN)"
    paper: ClassVar[str] = (
        "Arjovsky, Shah, Bengio: Unitary Evolution Recurrent Neural Networks (ICML 2016, "
        "arXiv:1511.06464)"
    )

    no_fit: ClassVar[str | None] = (
        "no way is known to find the seven factors whose product is nearest to a given matrix"
    )

    kind: Literal["unitary_fft"] = "unitary_fft"

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
        """`7 n` real numbers per matrix: three diagonals and two complex vectors."""
        return slot.num_matrices * 7 * slot.in_features

    def working_numbers(self, slot: Slot) -> int:
        """The kernel's workspace; the factors of loops, where there is none, take less."""
        return slot.num_matrices * 400 * slot.in_features

    def kept_numbers(self, slot: Slot) -> int:
        """What a loop keeps of each step, and what its factors read, where there is no kernel."""
        size = slot.in_features
        return 0 if transforms(size) else slot.num_matrices * (LOOP_KEEPS + 17) * size

    def build(self, slot: Slot, *, generator: torch.Generator) -> StructuredLinear:
        """Phases of U(-pi, pi), and vectors Glorot-uniform on their real `[2, 2 n]` array."""
        self.check(slot)
        return UnitaryFftLinear(slot, generator=generator)


class UnitaryFftLinear(StructuredLinear):
    """Stores the phases `[G, 3, n]` and the reflections' vectors `(re | im)` `[G, 2, 2 n]`."""

    _order: Tensor

    def __init__(self, slot: Slot, *, generator: torch.Generator) -> None:
        super().__init__(slot)
        size = slot.in_features
        self.phases = nn.Parameter(torch.empty(slot.num_matrices, 3, size))
        self.reflections = nn.Parameter(torch.empty(slot.num_matrices, 2, 2 * size))
        uniform_(self.phases, -torch.pi, torch.pi, generator=generator)
        glorot_uniform_(self.reflections, generator=generator)
        self.register_buffer("_order", torch.tensor(hashed_order(size)), persistent=False)

    def make_form(self) -> DenseForm | FourierForm:
        """The factors, or the real form of W made of them, whichever is applied faster."""
        form = FourierForm(self.phases, self.reflections, self._order)
        by_kernel = transforms(self.slot.in_features) and kernels_take(self.phases)
        pays = fourier_form_pays(self.slot.in_features, by_kernel=by_kernel)
        return form if pays else DenseForm(form.whole())

    def schemes(self) -> Mapping[str, Scheme]:
        """Phases are angles, and of the reflections' vectors the directions count."""
        return {"phases": Angles(), "reflections": Directions()}

    def degrees_of_freedom(self) -> int:
        """`7 n - 7` per matrix, at most n^2; for n = 1 the phase (models/math/README.md, eq. 23).

        Lengths and phases of both vectors, a phase that all diagonals share, and a turn of both
        vectors together leave W as it is.
        """
        size = self.slot.in_features
        return self.num_matrices * max(1, min(7 * size - 7, size**2))

    def singular_values(self) -> Tensor:
        """All 1, those of the real form `[G, 2 n]`."""
        return self.phases.new_ones(self.num_matrices, self.in_features)
