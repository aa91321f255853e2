"""What a study may be for: each objective described once, and everything else goes by that.

A new objective is one entry here, and the columns that its value stands in.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from search.documents.readable import seconds

Objective: TypeAlias = Literal["quality", "parameters", "throughput", "bytes", "latency"]

Direction: TypeAlias = Literal["minimize", "maximize"]


class Valued(Protocol):
    """Whatever has the values of a trial: its record, its summary, or a copy of it."""

    @property
    def quality(self) -> float | None:
        """The task's metric on validation data."""
        ...

    @property
    def parameters(self) -> int:
        """All trainable numbers."""
        ...

    @property
    def throughput(self) -> float | None:
        """Samples per second."""
        ...

    @property
    def bytes(self) -> int | None:
        """Of the exported file."""
        ...

    @property
    def latency_p50(self) -> float | None:
        """Seconds of one call, the median."""
        ...

    @property
    def predicted(self) -> Mapping[str, Sequence[float]]:
        """By field, the value that was predicted before it was measured, and its interval."""
        ...


@dataclass(frozen=True, kw_only=True)
class ObjectiveKind:
    """One objective: what it is called, which way is better, and where its value comes from."""

    name: Objective
    direction: Direction | None
    """Which way is better; null: that of the task's metric."""
    unit: str
    """Empty: that of the task's metric."""
    known: Literal["exact", "measured", "trained"]
    """When: before training and for certain, once the shape was measured, or after training."""
    column: str
    """The field of a trial's row that holds the value."""
    value: Callable[[Valued], float | None]
    """Reads it; null where a trial has none (yet)."""
    logarithmic: bool = False
    """Whether pictures compare it by ratios."""
    has_unit: bool = False
    """Whether headings name the unit, which values in tables and on axes lack."""
    shown: Callable[[float], str] = "{:,.4f}".format
    """A value as a table has it."""
    tick: Callable[[float], str] | None = None
    """A round value on an axis, with its unit; null: as short as it can be said."""
    told: str
    """A value in a sentence, as `str.format` makes it of `metric` and `value`."""

    def expected(self, trial: Valued) -> float | None:
        """The value, or else what is predicted: for comparisons that no answer publishes."""
        value = self.value(trial)
        return self._predicted(trial) if value is None else value

    def for_sampler(self, trial: Valued) -> float | None:
        """What a sampler is told: of a trial that trained on a prediction, always that one."""
        predicted = self._predicted(trial)
        return self.value(trial) if predicted is None else predicted

    def _predicted(self, trial: Valued) -> float | None:
        found = trial.predicted.get(self.column)
        return None if found is None else found[0]

    def decades(self, value: float) -> float:
        """A value as a cost: its logarithm, the lower the better; not for the task's metric."""
        decades = math.log10(max(value, 1e-9))
        return -decades if self.direction == "maximize" else decades


_WHOLE = "{:,.0f}".format

_KINDS = (
    ObjectiveKind(
        name="quality",
        direction=None,
        unit="",
        known="trained",
        column="quality",
        value=lambda trial: trial.quality,
        told="{metric} {value}",
    ),
    ObjectiveKind(
        name="parameters",
        direction="minimize",
        unit="numbers",
        known="exact",
        column="parameters",
        value=lambda trial: float(trial.parameters),
        told="{value} parameters",
        logarithmic=True,
        shown=_WHOLE,
    ),
    ObjectiveKind(
        name="throughput",
        direction="maximize",
        unit="samples/s",
        known="measured",
        column="throughput",
        value=lambda trial: trial.throughput,
        told="{value} samples/s",
        has_unit=True,
        shown=_WHOLE,
    ),
    ObjectiveKind(
        name="bytes",
        direction="minimize",
        unit="bytes",
        known="exact",
        column="bytes",
        value=lambda trial: None if trial.bytes is None else float(trial.bytes),
        told="{value} bytes",
        logarithmic=True,
        shown=_WHOLE,
    ),
    ObjectiveKind(
        name="latency",
        direction="minimize",
        unit="s",
        known="measured",
        column="latency_p50",
        value=lambda trial: trial.latency_p50,
        told="{value} a call",
        logarithmic=True,
        shown=seconds,
        tick=seconds,
    ),
)

OBJECTIVE_KINDS: Mapping[Objective, ObjectiveKind] = {kind.name: kind for kind in _KINDS}
"""By name, in the order in which they are shown."""

OBJECTIVES: tuple[Objective, ...] = tuple(OBJECTIVE_KINDS)

USUAL_OBJECTIVES: tuple[Objective, ...] = ("quality", "parameters", "throughput")
"""Those of a study that names none."""


def in_order(names: Collection[str]) -> tuple[Objective, ...]:
    """The objectives among some names, in the order in which they are shown."""
    return tuple(name for name, kind in OBJECTIVE_KINDS.items() if kind.name in names)
