"""Wilson's interval of a share.

Source: Wilson: Probable Inference, the Law of Succession, and Statistical Inference (Journal of the
American Statistical Association 22, 1927).
"""

import math
from dataclasses import dataclass

_NORMAL_95 = 1.959963984540054
"""The quantile 0.975 of the normal distribution."""


@dataclass(frozen=True)
class Interval:
    """Where a share lies with 95 %."""

    low: float
    high: float


def wilson(share: float, samples: int) -> Interval:
    """The interval of a share in 0..1 of independent samples, of which there are 1 or more.

    A sample's own share, such as that of its frames, counts as a part of a success: the interval is
    then too wide rather than too narrow.
    """
    z2 = _NORMAL_95**2
    centre = (share + z2 / (2 * samples)) / (1 + z2 / samples)
    spread = math.sqrt(max(0.0, share * (1 - share) / samples + z2 / (4 * samples**2)))
    half = _NORMAL_95 * spread / (1 + z2 / samples)
    return Interval(max(0.0, centre - half), min(1.0, centre + half))
