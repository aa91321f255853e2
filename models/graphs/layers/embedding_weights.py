"""Tables in which `Gather` looks up rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from models.graphs.layers.arrangement import Arrangement
from models.graphs.layers.role import AnyArray, Operand, Reading, Role, Use, whole_number


@dataclass(frozen=True)
class EmbeddingRole(Role):
    """A table `[rows, n]` of which rows are looked up."""

    kind: ClassVar[str] = "embedding"
    structured: ClassVar[bool] = True

    @classmethod
    def of(cls, use: Use) -> Self | None:
        """The first input of a `Gather` along the first axis, of two dimensions."""
        if use.node.op_type != "Gather" or use.place != 0 or len(use.native) != 2:
            return None
        if whole_number(use, "axis", 0) not in (0, -2):
            return None
        return cls(Arrangement.of_rows(use.native, columns=use.native[1]))

    def operands(self) -> tuple[Operand, ...]:
        """The rows that are looked up."""
        return (Operand("input", 1),)

    def read(
        self, values: Sequence[AnyArray | None], generator: np.random.Generator, most: int
    ) -> Reading:
        """How often each row was looked up; a lookup multiplies nothing."""
        del generator, most
        (indices,) = values
        if indices is None:
            return Reading(positions=0)
        rows = self.arrangement.native[0]
        # Negative indices count from the end.
        counts = np.bincount(indices.reshape(-1).astype(np.int64) % rows, minlength=rows)
        return Reading(positions=0, counts=counts.astype(np.int64))
