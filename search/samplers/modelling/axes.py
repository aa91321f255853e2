"""Objectives as costs: each minimised, and logarithmic.

The error is a natural logarithm, as in `search.samplers.modelling.acquisition`; parameters and
throughput are decades, as in the hypervolume that a study shows.
"""

import math
from collections.abc import Sequence

from search.stopping import log_error
from search.tasks import Metric


def cost_of(name: str, value: float, metric: Metric, *, samples: int | None = None) -> float:
    """The value of `quality`, `parameters` or `throughput`, in its own unit, as a cost."""
    match name:
        case "parameters":
            return math.log10(max(1.0, value))
        case "throughput":
            return -math.log10(max(value, 1e-9))
        case _:
            return natural_log_error(value, metric, samples=samples)


def natural_log_error(quality: float, metric: Metric, *, samples: int | None = None) -> float:
    """Natural logarithm; of a metric that ends at 1, at least one share of the `samples`."""
    if metric.direction == "maximize" and samples:
        decades = log_error(quality, metric.direction, smallest=1 / samples)
    else:
        decades = log_error(quality, metric.direction)
    return decades * math.log(10)


def costs_of(
    values: Sequence[float],
    objectives: Sequence[str],
    metric: Metric,
    *,
    samples: int | None = None,
) -> list[float]:
    """A trial's values, in the order of the objectives, as costs."""
    return [
        cost_of(name, value, metric, samples=samples)
        for name, value in zip(objectives, values, strict=True)
    ]
