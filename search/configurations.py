"""Which trials are of one configuration, and what it reaches over its seeds."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from storage.records import TrialOrigin, TrialRecord, TrialState

CONFIDENCE = 0.95
"""How often an interval holds the mean over all seeds, were qualities normal."""


@dataclass(frozen=True, kw_only=True)
class OverSeeds:
    """The quality of one configuration, trained with one seed or several."""

    seeds: int
    mean: float
    interval: tuple[float, float] | None
    """Where the mean over all seeds lies, by Student's t; null for a single seed."""


def configuration_of(spec: Mapping[str, Any]) -> str:
    """What makes two trials the same: the documents of model and training, and not the seed."""
    return json.dumps([spec["model"], spec["training"]], sort_keys=True)


def replicate_seed(seed: int, number: int) -> int:
    """The seed of trial `number` where it repeats a configuration: it follows from the study's."""
    # The third word keeps it apart from the sampler's seed of the same number.
    return int(np.random.SeedSequence([seed, number, 1]).generate_state(1)[0])


def is_original(trial: TrialRecord) -> bool:
    """Whether a trial was trained from the start, for the search itself."""
    return trial.continues is None and trial.origin != TrialOrigin.CONFIRMATION


def qualities_over_seeds(trials: Sequence[TrialRecord]) -> dict[str, OverSeeds]:
    """Configuration -> its quality over the seeds of all complete trials that have it.

    A seed counts once, however many trials share its result. Trials that went on from a checkpoint
    are left out: they were trained for longer.
    """
    by_seed: dict[str, dict[int, float]] = {}
    for trial in trials:
        if trial.state != TrialState.COMPLETE or trial.continues is not None:
            continue
        if trial.quality is not None:
            seeds = by_seed.setdefault(configuration_of(trial.spec), {})
            seeds.setdefault(cast(int, trial.spec["seed"]), trial.quality)
    return {
        configuration: over_seeds(list(qualities.values()))
        for configuration, qualities in by_seed.items()
    }


def over_seeds(qualities: Sequence[float]) -> OverSeeds:
    """Mean and interval of at least one quality, each of another seed."""
    count, mean = len(qualities), statistics.fmean(qualities)
    interval = None
    if count > 1:
        error = statistics.stdev(qualities) / math.sqrt(count)
        half = student_quantile(count - 1) * error
        interval = (mean - half, mean + half)
    return OverSeeds(seeds=count, mean=mean, interval=interval)


def student_quantile(freedom: int) -> float:
    """How many standard errors the interval reaches to either side, by Student's t.

    The finite sums of Abramowitz and Stegun, 26.7.3 and 26.7.4, for `P(|t| <= x)`, inverted by
    bisection over the angle `atan(x / sqrt(freedom))`.

    Args:
        freedom: degrees of freedom, 1 or more.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(64):
        middle = (low + high) / 2
        if _within(middle, freedom) < CONFIDENCE:
            low = middle
        else:
            high = middle
    return math.tan((low + high) / 2) * math.sqrt(freedom)


def _within(angle: float, freedom: int) -> float:
    """`P(|t| <= sqrt(freedom) tan(angle))`."""
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for power in range(2 + odd, freedom - 1, 2):
        term *= math.cos(angle) ** 2 * (power - 1) / power
        total += term
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total
