"""The space of a study: its dimensions, its size, and what its trials are predicted to take."""

import math
from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from models.spec import Spec

Scalar: TypeAlias = bool | int | float | str


class IntegerDimension(Spec):
    """Integers of [low, high], on a grid of `step` or log-uniform."""

    kind: Literal["integer"] = "integer"
    name: str
    low: int
    high: int
    log: bool = False
    step: int = 1

    def contains(self, value: Scalar) -> bool:
        """Whether a value can be drawn."""
        if not isinstance(value, int) or isinstance(value, bool):
            return False
        return self.low <= value <= self.high and (value - self.low) % self.step == 0


class RealDimension(Spec):
    """Real numbers of [low, high], uniform, log-uniform or on a grid of `step`."""

    kind: Literal["real"] = "real"
    name: str
    low: float
    high: float
    log: bool = False
    step: float | None = None

    def contains(self, value: Scalar) -> bool:
        """Whether a value can be drawn."""
        if isinstance(value, bool | str) or not self.low <= value <= self.high:
            return False
        steps = 0.0 if self.step is None else (value - self.low) / self.step
        return math.isclose(steps, round(steps), abs_tol=1e-9)


class ChoiceDimension(Spec):
    """One of several options, without order."""

    kind: Literal["choice"] = "choice"
    name: str
    options: tuple[Scalar, ...]

    def contains(self, value: Scalar) -> bool:
        """Whether a value can be drawn; `True` is not 1."""
        return any(type(value) is type(option) and value == option for option in self.options)


Dimension = Annotated[
    IntegerDimension | RealDimension | ChoiceDimension, Field(discriminator="kind")
]


class ParameterRange(Spec):
    """The fewest and the most parameters that a trial of the study can have."""

    low: int
    high: int


class WarmStartSource(Spec):
    """A study of `warm_start`, and what of it is used."""

    study: str
    by: Literal["results", "ranks"] = Field(
        description="`results`: its trials count as what they are, for its task is the same; "
        "`ranks`: only how they rank among each other does, for it is not"
    )
    trials: int = Field(description="how many of its trials are used")


class SpaceDescription(Spec):
    """What a dry run tells: the dimensions, the candidates and the range of parameter counts."""

    dimensions: tuple[Dimension, ...]
    candidates: tuple[dict[str, str], ...]
    parameter_range: ParameterRange
    known_trials: int = Field(
        default=0,
        description="how many trials of the studies in `warm_start` lie in the space, where these "
        "have the same task",
    )
    warm_start: tuple[WarmStartSource, ...] = Field(
        default=(), description="how each study of `warm_start` is used"
    )


class MemoryCandidate(Spec):
    """A configuration at one end of a space."""

    architecture: str
    parametrization: str
    hyperparameters: Mapping[str, Scalar | None]
    bytes: int = Field(
        description="that it is predicted to take, see deploy/docs/explanation/memory.md"
    )


class SpaceMemory(Spec):
    """What the configurations of a space are predicted to take, and what there is."""

    largest_candidate: MemoryCandidate
    smallest_candidate: MemoryCandidate
    slot_bytes: int | None = Field(
        description="that an attempt may take on the largest slot which serves the study; null "
        "where that is unknown. What needs more ends as infeasible and is not started"
    )


class DryRun(SpaceDescription):
    """What a study would search, what it would know beforehand, and what its trials would take."""

    memory: SpaceMemory | None = Field(
        description="what they are predicted to take; servers that predict nothing do not send it"
    )
    trials: int | None = Field(
        default=None, description="of the budget, its default included; null from older servers"
    )
    epochs: int | None = Field(default=None, description="of a trial, likewise")
