"""How far a quality may be off by chance, as far as it is known."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast, final

from search.tasks import MeasuredTask

_PROPORTIONS: Final = frozenset({"accuracy", "agreement"})
"""Metrics that are shares of samples."""

_TWO_SIDED: Final = 1.96
_ONE_SIDED: Final = 1.645
"""Of a normal distribution, the ends that hold 95 %."""


@final
@dataclass(frozen=True)
class Noise:
    """The noise of a share of so many validation samples: `q (1 - q) / N`."""

    samples: int

    def variance(self, quality: float, standard_error: float = 0.0) -> float:
        """That of one quality, or of a mean over seeds with their standard error.

        All seeds are judged by the same samples: a mean is no surer than one of them.
        """
        share = min(max(quality, 0.0), 1.0)
        return max(share * (1 - share) / self.samples, standard_error**2)

    def half_width(self, quality: float) -> float:
        """Half of the 95 % interval round a quality."""
        return _TWO_SIDED * math.sqrt(self.variance(quality))

    def margin(self, variance: float, other: float) -> float:
        """How much worse a quality may be than another one, and be so by chance alone (5 %)."""
        return _ONE_SIDED * math.sqrt(variance + other)

    def floor(self, best: float) -> float:
        """The least share that is within noise of the best one, to a hundredth of its margin."""
        low, high = 0.0, best
        for _ in range(40):
            middle = (low + high) / 2
            margin = self.margin(self.variance(best), self.variance(middle))
            low, high = (low, middle) if best - middle <= margin else (middle, high)
        return high


def noise_of(task: MeasuredTask) -> Noise | None:
    """The noise of a task's quality; None where it is no share, or of an unknown number of samples.

    The number is that of the task's facts, or of its own field or property `validation_samples`.
    """
    if task.metric.name not in _PROPORTIONS:
        return None
    facts: Any = getattr(task, "facts", None)
    samples: Any = getattr(facts, "samples", None)
    if isinstance(samples, Mapping):
        known = cast(Mapping[str, int], samples).get("validation")
    else:
        known = cast(int | None, getattr(task, "validation_samples", None))
    return Noise(known) if known else None
