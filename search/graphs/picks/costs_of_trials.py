"""What a file costs, apart from what it loses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

Objective: TypeAlias = Literal["bytes", "multiply_adds"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)


@dataclass(frozen=True)
class Costs:
    """Both are better if lower."""

    bytes: float
    """Of the file, exactly; of a layer, what it takes in the file."""
    multiply_adds: float
    """For one sample, in the products of the layers alone."""

    def of(self, objective: Objective) -> float:
        """One of them."""
        return {"bytes": self.bytes, "multiply_adds": self.multiply_adds}[objective]

    def values(self, objectives: Sequence[Objective]) -> tuple[float, ...]:
        """Some of them, in this order."""
        return tuple(map(self.of, objectives))
