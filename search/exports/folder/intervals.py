"""Where a metric lies beyond the samples that it was measured on: intervals of 95 %."""

import math
from typing import Final

from search.exports.folder.document import MeanError

_QUANTILE: Final = 1.959963984540054
"""How many standard errors hold 95 % of a normal distribution, to either side."""


def wilson(share: float, samples: int) -> tuple[float, float]:
    """Of a share of so many independent samples (Wilson, JASA 1927).

    Args:
        share: from 0 to 1.
        samples: 1 or more.
    """
    spread = _QUANTILE**2 / samples
    centre = (share + spread / 2) / (1 + spread)
    half = math.sqrt(share * (1 - share) * spread + spread**2 / 4) / (1 + spread)
    return max(0.0, centre - half), min(1.0, centre + half)


def interval(
    metric: str, value: float | None, samples: int | None, mean_error: MeanError | None
) -> tuple[float, float] | None:
    """Of a metric over so many samples; None where nothing is known of what it is a mean of.

    An accuracy is a share. Of other means the spread between validation samples is known.
    """
    if value is None or not samples:
        return None
    if metric == "accuracy":
        return wilson(value, samples)
    if mean_error is None:
        return None
    half = _QUANTILE * mean_error.deviation / math.sqrt(samples)
    return max(0.0, value - half), value + half
