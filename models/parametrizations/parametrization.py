"""What every parametrization of a weight matrix offers."""

from abc import ABC, abstractmethod
from typing import ClassVar, Self

import torch

from models.draw import Draw
from models.errors import SlotError
from models.linear import StructuredLinear
from models.spec import SlotSize, Spec


class Parametrization(Spec, ABC):
    """How one weight matrix W `[out_features, in_features]` is stored.

    A variant is one file with its fields, search space, counts and module, and one name in the
    union of this package. Its `kind` tells it apart.
    """

    title: ClassVar[str]
    paper: ClassVar[str]

    @classmethod
    @abstractmethod
    def suggest(cls, draw: Draw, slot: SlotSize) -> Self:
        """Draw the fields from ranges that `slot.largest_*` fix, cut to what the slot holds."""

    @abstractmethod
    def check(self, in_features: int, out_features: int) -> None:
        """Refuse a slot that this cannot hold.

        Raises:
            SlotError: not defined for these sizes, or a hyperparameter is out of their range.
        """

    @abstractmethod
    def parameter_count(self, in_features: int, out_features: int) -> int:
        """Trainable numbers of one matrix, by a formula that never falls when a field grows."""

    @abstractmethod
    def build(
        self,
        in_features: int,
        out_features: int,
        *,
        copies: int = 1,
        generator: torch.Generator | None = None,
    ) -> StructuredLinear:
        """A freshly initialised module of `copies` matrices.

        The start is drawn from the generator, or from the system's entropy without one; never from
        torch's global state.

        Raises:
            SlotError: see `check`.
        """

    def paper_count(self, in_features: int, out_features: int) -> int:
        """The count by the source's convention, where that differs from the trainable numbers."""
        return self.parameter_count(in_features, out_features)


def refuse_outside(
    name: str, value: int, *, most: int, in_features: int, out_features: int
) -> None:
    """Refuse a count or rank above what the slot holds.

    Raises:
        SlotError: names the value and what is allowed.
    """
    if value > most:
        raise SlotError(
            f"{name} = {value} does not fit a {out_features} x {in_features} matrix; "
            f"allowed is 1 to {most}"
        )


def refuse_rectangle(kind: str, *, in_features: int, out_features: int) -> None:
    """Refuse a slot that is not square.

    Raises:
        SlotError: names the sizes.
    """
    if in_features != out_features:
        raise SlotError(
            f"{kind} is defined for square matrices only, not for {out_features} x {in_features}"
        )
