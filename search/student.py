"""Student's t: how far a mean of a few numbers may be from the mean of all."""

import math
import statistics
from collections.abc import Sequence

CONFIDENCE = 0.95
"""How often an interval holds the mean over all, were the numbers normal."""


def half_width(numbers: Sequence[float]) -> float | None:
    """How far the interval reaches to either side of the mean; null for a single number."""
    if len(numbers) == 1:
        return None
    return student_quantile(len(numbers) - 1) * standard_error(numbers)


def standard_error(numbers: Sequence[float]) -> float:
    """Of the mean of two numbers or more, as they differ."""
    return statistics.stdev(numbers) / math.sqrt(len(numbers))


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
