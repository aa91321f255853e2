"""One file beside the original: the value, its interval, and where it is worst."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from search.graphs.metrics.metric import Answers, Metric, Values
from search.graphs.metrics.wilson import Interval, wilson

_WORST = 10


@dataclass(frozen=True)
class Comparison:
    """What was found in one part of the data."""

    value: float
    samples: int
    interval: Interval | None
    """Over samples; None: the metric is no share."""
    worst: tuple[int, ...]
    """The samples (from 0) with the worst values, at most ten, the worst one first."""


def _by_sample(metric: Metric, original: Answers, found: Answers, labels: Answers | None) -> Values:
    """The metric of each sample; where the original and the file answer with nothing, its best."""
    best = metric.span[0] if metric.direction == "minimize" else metric.span[1]
    values = np.full(len(original), best)
    asked = [
        place
        for place, (truth, answer) in enumerate(zip(original, found, strict=True))
        if truth.size or answer.size
    ]
    if asked:
        chosen = None if labels is None else [labels[place] for place in asked]
        values[asked] = metric.by_sample(
            [original[place] for place in asked], [found[place] for place in asked], chosen
        )
    return values


def compared(
    metric: Metric,
    original: Mapping[str, Answers],
    found: Mapping[str, Answers],
    labels: Answers | None = None,
) -> Comparison:
    """A file's answers beside the original's, by the names of outputs.

    Of several outputs a sample has the mean.

    Raises:
        TrainingDiverged: a file answers with NaN or Inf, or in another shape than the original.
        SpecRefused: labels are needed and do not fit.
    """
    values = np.mean(
        [_by_sample(metric, original[name], found[name], labels) for name in original], axis=0
    )
    value = float(values.mean())
    order = np.argsort(values if metric.direction == "maximize" else -values, kind="stable")
    return Comparison(
        value=value,
        samples=len(values),
        interval=wilson(value, len(values)) if metric.is_share else None,
        worst=tuple(int(place) for place in order[:_WORST]),
    )
