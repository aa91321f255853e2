"""Objectives as costs: each minimised, and logarithmic.

The error is a natural logarithm, as in `search.samplers.modelling.acquisition`; all else is
decades, as in the hypervolume that a study shows.
"""

import math
from collections.abc import Sequence

from search.documents.objectives import OBJECTIVE_KINDS, Objective
from search.stopping import log_error
from search.tasks import Metric


def cost_of(name: Objective, value: float, metric: Metric, *, samples: int | None = None) -> float:
    """The value of an objective, in its own unit, as a cost."""
    kind = OBJECTIVE_KINDS[name]
    if kind.known == "trained":
        return natural_log_error(value, metric, samples=samples)
    return kind.decades(value)


def natural_log_error(quality: float, metric: Metric, *, samples: int | None = None) -> float:
    """Natural logarithm; of a metric that ends at 1, at least one share of the `samples`."""
    if metric.direction == "maximize" and samples:
        decades = log_error(quality, metric.direction, smallest=1 / samples)
    else:
        decades = log_error(quality, metric.direction)
    return decades * math.log(10)


def costs_of(
    values: Sequence[float],
    objectives: Sequence[Objective],
    metric: Metric,
    *,
    samples: int | None = None,
) -> list[float]:
    """A trial's values, in the order of the objectives, as costs."""
    return [
        cost_of(name, value, metric, samples=samples)
        for name, value in zip(objectives, values, strict=True)
    ]
