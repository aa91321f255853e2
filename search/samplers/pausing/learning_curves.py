"""How the error after some of the epochs carries to that after all of them.

Errors are natural logarithms of the best so far, as they stand at rungs: numbers of epochs that
grow, the last of them the whole training. Letters: N trials, R rungs, F families.

Between neighbouring rungs r and s, with x(r) the error at r and L = ln(s / r),
`x(s) = centre + level + offset of the family + slope (x(r) - centre) + noise`. All trials that
passed both rungs tell of it, finished or not. The level and the slope are all families', offsets
are partially pooled (Gelman & Hill 2007, equation 12.1): a family of which little was seen is taken
for an average one, and known less well. Steps are chained to the end. How far levels and offsets
may be wrong is common to trials: what was carried from early epochs errs together, and many such
trials tell less than as many that err each on its own.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from search.samplers.modelling.gaussian_process import Array

_DROP, _SPREAD, _PRIOR_TRIALS = 0.5, 0.25, 4.0
"""What is expected before any trial: an error falls by `_DROP L`, give or take `_SPREAD sqrt(L)`,
as if that had been seen in so many trials."""

_OFFSET_SPREAD = 0.2
"""How far a family's own mean lies off that of all, in units of sqrt(L)."""

_SLOPE_PRIOR, _LEAST_SLOPE, _LARGEST_SLOPE = 0.5, 0.3, 1.0
"""Differences stay as they are until as much was seen otherwise; they shrink in training."""


@dataclass(frozen=True, kw_only=True)
class LearningCurves:
    """Lines from each rung to the end; the last column is for families that were never seen."""

    families: NDArray[np.int64]
    """`[F]`, those that were seen, ascending."""
    levels: Array
    """`[R, F + 1]`: the error at the end where that at the rung is 0."""
    slopes: Array
    """`[R]`."""
    own: Array
    """`[R]`, variance of the error at the end, given that at the rung; 0 at the last."""
    offsets: Array
    """`[R, F + 1]`, variance that a family's trials have in common."""
    common: Array
    """`[R]`, variance that all trials have in common."""

    def carried(
        self, errors: Array, rungs: NDArray[np.int64], families: NDArray[np.int64]
    ) -> tuple[Array, Array]:
        """Mean and variance of the errors at the end, from `errors` at the indices `rungs`."""
        levels = self.levels[rungs, self._columns(families)]
        return levels + self.slopes[rungs] * errors, self.variance(rungs, families)

    def variance(self, rungs: NDArray[np.int64], families: NDArray[np.int64]) -> Array:
        """Of the errors at the end, given those at the indices `rungs`."""
        offsets = self.offsets[rungs, self._columns(families)]
        return self.own[rungs] + offsets + self.common[rungs]

    def shared(
        self,
        rungs: NDArray[np.int64],
        families: NDArray[np.int64],
        other_rungs: NDArray[np.int64],
        other_families: NDArray[np.int64],
    ) -> Array:
        """Covariance `[M, N]` of what is carried for different trials: from the later rung on."""
        later = np.maximum(rungs[:, None], other_rungs)
        alike = families[:, None] == other_families
        offsets = self.offsets[later, self._columns(families)[:, None]]
        return alike * offsets + self.common[later]

    def _columns(self, families: NDArray[np.int64]) -> NDArray[np.intp]:
        if not len(self.families):
            return np.zeros(len(families), np.intp)
        found = np.minimum(np.searchsorted(self.families, families), len(self.families) - 1)
        return np.where(self.families[found] == families, found, len(self.families))


def fit_curves(errors: Array, families: NDArray[np.int64], rungs: Sequence[int]) -> LearningCurves:
    """The lines of trials' curves.

    Args:
        errors: `[N, R]`, NaN where a trial has not been.
        families: `[N]`.
        rungs: R numbers of epochs, ascending.
    """
    known, codes = np.unique(families, return_inverse=True)
    last, columns = len(rungs) - 1, len(known) + 1
    levels, offsets = np.zeros((last + 1, columns)), np.zeros((last + 1, columns))
    slopes, own, common = np.ones(last + 1), np.zeros(last + 1), np.zeros(last + 1)
    for rung in range(last - 1, -1, -1):
        passed = ~np.isnan(errors[:, rung + 1]) & ~np.isnan(errors[:, rung])
        pair = errors[passed, rung], errors[passed, rung + 1]
        length = math.log(rungs[rung + 1] / rungs[rung])
        step = _step(*pair, codes[passed], len(known), length)
        later = slopes[rung + 1]
        slopes[rung] = later * step.slope
        levels[rung] = levels[rung + 1] + later * step.levels
        own[rung] = own[rung + 1] + later**2 * step.noise
        offsets[rung] = offsets[rung + 1] + later**2 * step.offsets
        common[rung] = common[rung + 1] + later**2 * step.common
    return LearningCurves(
        families=known, levels=levels, slopes=slopes, own=own, offsets=offsets, common=common
    )


@dataclass(frozen=True, kw_only=True)
class _Step:
    """The line from one rung to the next; columns as in `LearningCurves`, the rest variances."""

    slope: float
    levels: Array
    noise: float
    offsets: Array
    common: float


def _step(
    before: Array, after: Array, codes: NDArray[np.intp], families: int, length: float
) -> _Step:
    """The line from errors `before` to errors `after`, with an offset per family."""
    centre = float(before.mean()) if len(before) else 0.0
    away = before - centre
    slope = (float(away @ after) + _SLOPE_PRIOR) / (float(away @ away) + _SLOPE_PRIOR)
    slope = min(_LARGEST_SLOPE, max(_LEAST_SLOPE, slope))
    rest = after - centre - slope * away
    counts = np.bincount(codes, minlength=families + 1).astype(float)
    sums = np.bincount(codes, weights=rest, minlength=families + 1)
    squares = float(rest @ rest)
    seen = counts > 0
    means = sums[seen] / counts[seen]
    # One family more that is as expected beforehand, so that few do not decide.
    level = (float(means.sum()) - _DROP * length) / (len(means) + 1)
    within = max(0.0, squares - float(counts[seen] @ means**2))
    noise = within + _PRIOR_TRIALS * _SPREAD**2 * length
    noise /= float((counts[seen] - 1).sum()) + _PRIOR_TRIALS
    wide = _OFFSET_SPREAD**2 * length
    offsets = wide * (sums - counts * level) / (noise + counts * wide)
    return _Step(
        slope=slope,
        levels=centre - slope * centre + level + offsets,
        noise=noise,
        offsets=wide * noise / (noise + counts * wide),
        common=wide / (len(means) + 1),
    )
