"""An orthogonal matrix as a product of Householder reflectors."""

from functools import partial
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Tensor

from models.forms import DenseForm, LowRankForm, factored_form_pays
from models.linear import StructuredLinear
from models.math.householder import (
    reflector_diagonal_low_rank,
    reflector_weight,
    staircase_entries,
)
from models.math.initialisation import normal_
from models.parameter_sampler import ParameterSampler
from models.parametrizations.parametrization import (
    Family,
    refuse_outside,
    refuse_rectangle,
)
from models.parametrizations.parts.staircase import Staircase, reflector_numbers, trainable_entries
from models.spec import Slot


class Householder(Family):
    """`W = H_n(u_n) ... H_{n-m+1}(u_{n-m+1})`: reflectors of n, n - 1, ... coordinates.

    W keeps every norm exactly, and is the identity on n - m directions. The determinant is (-1)^m
    for m reflectors, at the start and ever after: m = n reaches the half of the orthogonal matrices
    that has this determinant. The 1 x 1 reflector of m = n is a sign, -1 like that of every other
    reflector, and not trained (its gradient is 0).
    """

    title: ClassVar[str] = "Householder (oRNN)"
    paper: ClassVar[str] = (
        "Mhammedi, Hellicar, Rahman, Bailey: Efficient Orthogonal Parametrisation of Recurrent "
        "Neural Networks Using Householder Reflections (ICML 2017, arXiv:1612.00188)"
    )

    kind: Literal["householder"] = "householder"
    m: int = Field(ge=1, description="reflectors, at most the size")

    @classmethod
    def suggest(cls, sampler: ParameterSampler, slot: Slot, *, largest: int) -> Self:
        """Count m log-uniform from 1 to the size."""
        return cls(m=sampler.integer("m", 1, largest, log=True)).clamped(slot)

    @classmethod
    def check_slot(cls, slot: Slot) -> None:
        """The matrix is square."""
        super().check_slot(slot)
        refuse_rectangle(slot)

    def check(self, slot: Slot) -> None:
        """The matrix is square and m at most its size."""
        self.check_slot(slot)
        refuse_outside("m", self.m, slot, most=slot.smaller_side)

    def clamped(self, slot: Slot) -> Self:
        """Count m at most the size."""
        return self.model_copy(update={"m": min(self.m, slot.smaller_side)})

    def parameter_count(self, slot: Slot) -> int:
        """`R(n, m) = m n - m (m - 1) / 2` per matrix, less 1 for the 1 x 1 reflector of m = n."""
        return slot.num_matrices * trainable_entries(slot.in_features, self.m)

    def paper_count(self, slot: Slot) -> int:
        """`R(n, m)` per matrix."""
        return slot.num_matrices * staircase_entries(slot.in_features, self.m)

    def working_numbers(self, slot: Slot) -> int:
        """The reflectors, and what they make up."""
        size = slot.in_features
        dense = None if factored_form_pays(self.m, size) else size**2
        return slot.num_matrices * reflector_numbers(entries=self.m * size, size=dense)

    def build(self, slot: Slot, *, generator: torch.Generator) -> StructuredLinear:
        """Normal entries, brought to unit length: reflectors of random directions."""
        self.check(slot)
        return HouseholderLinear(slot, m=self.m, generator=generator)


class HouseholderLinear(StructuredLinear):
    """Stores the reflectors' nonzero entries."""

    def __init__(self, slot: Slot, *, m: int, generator: torch.Generator) -> None:
        super().__init__(slot)
        # The paper's deviation of 0.01 is lost in the unit length.
        start = partial(normal_, deviation=1.0, generator=generator)
        self.u = Staircase(slot.in_features, m, num_matrices=slot.num_matrices, start=start)

    @property
    def _factored(self) -> bool:
        return factored_form_pays(self.u.count, self.in_features)

    def singular_values(self) -> Tensor:
        """All 1."""
        return self.u.entries.new_ones(self.num_matrices, self.in_features)

    def make_form(self) -> DenseForm | LowRankForm:
        """Diagonal plus rank m where that is the cheaper product, else W."""
        rows, dtype = self.u.rows(), self.u.entries.dtype
        signs = self.u.signed(rows.new_ones(self.num_matrices, self.in_features))
        if self._factored:
            diagonal, left, right = reflector_diagonal_low_rank(rows, signs)
            return LowRankForm(left.to(dtype), right.to(dtype), diagonal.to(dtype))
        return DenseForm(reflector_weight(rows, signs).to(dtype))

    def degrees_of_freedom(self) -> int:
        """`m (2 n - m - 1) / 2` per matrix, the directions of the reflectors."""
        return self.u.degrees_of_freedom()
