"""A user's samples in three parts: for calibration, for choosing, and for the report."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from search.errors import Fault, SpecRefused

LEAST_CALIBRATION = 16
FEW_CALIBRATION = 64
"""Below this many there is a warning."""

DEFAULT_SHARES = (0.4, 0.2, 0.4)

Places = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SampleSplit:
    """Places of samples (from 0) in each part, in rising order; no sample is in two."""

    calibration: Places
    choosing: Places
    test: Places

    @property
    def warning(self) -> str | None:
        """What is said of a part that is small."""
        count = len(self.calibration)
        if count >= FEW_CALIBRATION:
            return None
        return (
            f"only {count} samples are for calibration; with fewer than {FEW_CALIBRATION} "
            "rounding may be fitted to them alone"
        )


def split_samples(
    count: int, shares: Sequence[float] = DEFAULT_SHARES, *, seed: int = 0
) -> SampleSplit:
    """Draw the parts of `count` samples, by a seed.

    Args:
        count: of samples.
        shares: of calibration, choosing and test, above 0; they sum to 1.
        seed: of the drawing alone.

    Raises:
        SpecRefused: see `part_sizes`.
    """
    first, second, _ = part_sizes(count, shares)
    order = np.random.default_rng(seed).permutation(count)
    return SampleSplit(*map(np.sort, np.split(order, [first, first + second])))


def part_sizes(count: int, shares: Sequence[float]) -> tuple[int, int, int]:
    """How many of `count` samples are for calibration, for choosing and for the test.

    Raises:
        SpecRefused: shares are not three above 0 whose sum is 1, fewer than 16 samples are for
            calibration, or a part has none.
    """
    if len(shares) != 3 or min(shares) <= 0 or not math.isclose(sum(shares), 1, abs_tol=1e-6):
        raise SpecRefused(
            [
                Fault(
                    "task.split",
                    f"{list(shares)}; allowed are three shares above 0 whose sum is 1: of "
                    "calibration, choosing and test",
                )
            ]
        )
    calibration = math.floor(count * shares[0] + 1e-9)
    choosing = math.floor(count * (shares[0] + shares[1]) + 1e-9) - calibration
    test = count - calibration - choosing
    if calibration < LEAST_CALIBRATION:
        raise SpecRefused(
            [
                Fault(
                    "task.data",
                    f"{calibration} of {count} samples are for calibration; at least "
                    f"{LEAST_CALIBRATION} are needed",
                )
            ]
        )
    if not (choosing and test):
        raise SpecRefused(
            [
                Fault(
                    "task.data",
                    f"of {count} samples {choosing} are for choosing and {test} for the test; "
                    "each needs 1 or more",
                )
            ]
        )
    return calibration, choosing, test
