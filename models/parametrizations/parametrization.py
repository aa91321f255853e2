"""What every parametrization of weight matrices offers."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Self

import torch

from models.errors import SlotError
from models.linear import StructuredLinear
from models.parameter_sampler import ParameterSampler
from models.spec import Slot, Spec, kind_of


class Parametrization(Spec, ABC):
    """How the weight matrices of a slot are stored: by a member of a family, or of several."""

    title: ClassVar[str]

    @property
    @abstractmethod
    def families(self) -> "Sequence[type[Family]]":
        """The families by which matrices are stored, each named at least once."""

    @property
    def family(self) -> str:
        """The kind of the one family of all matrices, or else one's own kind."""
        first, *others = set(self.families)
        return kind_of(type(self) if others else first)

    @abstractmethod
    def check(self, slot: Slot) -> None:
        """Refuse a slot that this member cannot hold.

        Raises:
            SlotError: not defined for the slot, or a hyperparameter is out of its range.
        """

    def clamped(self, slot: Slot) -> Self:  # noqa: ARG002 -- nothing to clamp where nothing is counted
        """The same with counts and ranks clamped to what the slot holds."""
        return self

    def for_slot(self, slot: Slot) -> "Parametrization":
        """What is stored in a slot: this, clamped where the slot is an auxiliary one."""
        return self.clamped(slot) if slot.auxiliary else self

    @abstractmethod
    def parameter_count(self, slot: Slot) -> int:
        """Trainable numbers of a slot, by a formula that never falls when a field grows."""

    def paper_count(self, slot: Slot) -> int:
        """The count by the source's convention, where that differs from the trainable numbers."""
        return self.parameter_count(slot)

    def working_numbers(self, slot: Slot) -> int:  # noqa: ARG002 -- parameters are applied as such
        """Numbers that a training step takes to make what is applied of the parameters.

        Gradients of what is made are among them. Measured, see tests/benchmarks/memory.py.
        """
        return 0

    def kept_numbers(self, slot: Slot) -> int:  # noqa: ARG002 -- a product keeps what it reads
        """Numbers that one product with a vector leaves for its gradient, beside the vector."""
        return 0

    @abstractmethod
    def build(self, slot: Slot, *, generator: torch.Generator) -> StructuredLinear:
        """A freshly initialised module of the slot's matrices, drawn from the generator alone.

        Raises:
            SlotError: see `check`.
        """


class Family(Parametrization, ABC):
    """A way of storing matrices that a search may name.

    A variant is one file with its fields, search space, counts and module, and one name in the
    union of this package. Its `kind` tells it apart.
    """

    paper: ClassVar[str]
    reals: ClassVar[frozenset[str]] = frozenset()
    """Fields that shape no parameter, and that its module computes with (`StructuredLinear.reals`):
    networks that differ in them, and not in `optional`, can be computed in the same calls."""
    no_fit: ClassVar[str | None] = None
    """Why plain matrices are not converted to it; None where `models.compression.fit` has how."""

    @property
    def families(self) -> "Sequence[type[Family]]":
        """Itself alone."""
        return (type(self),)

    @property
    def optional(self) -> frozenset[str]:
        """Parameters that its module has, and that with other `reals` it would not have."""
        return frozenset()

    @classmethod
    @abstractmethod
    def suggest(cls, sampler: ParameterSampler, slot: Slot, *, largest: int) -> Self:
        """Draw the fields, from ranges that `largest` fixes, and clamp them to what the slot holds.

        Args:
            sampler: who answers.
            slot: the slot of the model underway.
            largest: the smaller side of the largest slot of the study, the same for every model
                of it.
        """

    @classmethod
    def check_slot(cls, slot: Slot) -> None:
        """Refuse a slot for which no member of this variant is defined.

        Raises:
            SlotError: names what the slot lacks.
        """
        if slot.field != "real":
            raise SlotError(f"defined for real matrices only, not for a {slot} one")


def refuse_outside(name: str, value: int, slot: Slot, *, most: int) -> None:
    """Refuse a count or rank above what the slot holds.

    Raises:
        SlotError: names the value and what is allowed.
    """
    if value > most:
        raise SlotError(f"{name} = {value} does not fit a {slot} matrix; allowed is 1 to {most}")


def refuse_rectangle(slot: Slot) -> None:
    """Refuse a slot that is not square.

    Raises:
        SlotError: names the sizes.
    """
    if slot.in_features != slot.out_features:
        raise SlotError(f"defined for square matrices only, not for {slot}")
