"""A process of final errors: over configurations, and each trial's own beside it.

The final log error of a trial is `F = f(configuration) + own`. f is a Gaussian process with a
Matern 5/2 kernel, a length per group of features and an unknown mean; `own` is what differs from
seed to seed. Of F, each trial has an observation whose variance is known: 0 when it was trained to
the end, more when it was carried there from an earlier epoch. So a trial's own end is known better
than that of another one of the same configuration.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from search.samplers.modelling.gaussian_process import Array, matern_of

NOTHING = 100.0
"""Variance of an observation that says nothing."""

_MEAN_DEVIATION = 1.0
"""How far the process's mean may lie off that of the observations."""

_USUAL = {"length": 1.0, "signal": 0.5, "own": 0.06}
"""Deviations and lengths that are expected beforehand, lengths in units of a feature's range."""

_LOG_DEVIATION = {"length": 0.7, "signal": 0.7, "own": 0.5}
"""How far, on the natural logarithm, the most likely may lie off these."""

_STEPS = (2.0, math.sqrt(2.0))
"""Factors by which the search changes one of them at a time, the coarser first."""


@dataclass(frozen=True, kw_only=True)
class Scales:
    """What a process is fitted by."""

    lengths: tuple[float, ...]
    """One per group of features."""
    signal: float
    """Standard deviation of f."""
    own: float
    """Standard deviation between two trainings of one configuration."""


class Kernel:
    """Correlations of rows of features, by their groups."""

    def __init__(self, groups: NDArray[np.int64]) -> None:
        self._columns = [np.flatnonzero(groups == one) for one in np.unique(groups)]

    @property
    def groups(self) -> int:
        """How many lengths there are."""
        return len(self._columns)

    def squares(self, left: Array, right: Array) -> Array:
        """Squared distances `[G, M, N]` in each group, of rows `[M, D]` and `[N, D]`."""
        found = np.empty((self.groups, len(left), len(right)))
        for squares, columns in zip(found, self._columns, strict=True):
            a, b = left[:, columns], right[:, columns]
            np.matmul(-2 * a, b.T, out=squares)
            squares += np.sum(a**2, axis=1)[:, None] + np.sum(b**2, axis=1)
        return np.maximum(found, 0.0, out=found)

    def correlations(self, squares: Array, lengths: Sequence[float]) -> Array:
        """`[M, N]`."""
        return matern_of(np.tensordot(1 / np.square(lengths), squares, axes=1))


class FinalErrors:
    """The process, given observations of trials' final errors."""

    def __init__(
        self,
        kernel: Kernel,
        scales: Scales,
        features: Array,
        values: Array,
        variances: Array,
        *,
        usual: float,
        squares: Array | None = None,
    ) -> None:
        """Condition on observations.

        Args:
            kernel: of the features.
            scales: as fitted.
            features: `[N, D]` of the trials; N may be 0.
            values: `[N]`, what was observed.
            variances: `[N]` of these about the trials' final errors.
            usual: the mean before any observation.
            squares: what `kernel.squares` says of the features, where that is known.
        """
        self._kernel, self._scales, self._usual = kernel, scales, usual
        self._features, self._values, self._variances = features, values, variances
        self._squares = kernel.squares(features, features) if squares is None else squares
        covariance = self._shared(self._squares)
        covariance[np.diag_indices(len(values))] += scales.own**2 + variances
        self._inverse = np.linalg.inv(covariance)
        self._weights = self._inverse @ (values - usual)

    def with_variances(self, values: Array, variances: Array) -> "FinalErrors":
        """The same trials with other observations."""
        return FinalErrors(
            self._kernel,
            self._scales,
            self._features,
            values,
            variances,
            usual=self._usual,
            squares=self._squares,
        )

    def of_new(self, features: Array) -> tuple[Array, Array]:
        """Mean and variance `[M]` of the final errors of other trials `[M, D]`."""
        shared = self._shared(self._kernel.squares(features, self._features))
        mean = self._usual + shared @ self._weights
        whole = self._scales.signal**2 + _MEAN_DEVIATION**2
        left = whole - np.einsum("mn,mn->m", shared @ self._inverse, shared)
        return mean, np.maximum(left, 1e-9) + self._scales.own**2

    def of_trials(self) -> tuple[Array, Array]:
        """Mean and variance `[N]` of the trials' own final errors."""
        # Their covariance with the observations is that of the observations less the variances.
        mean = self._values - self._variances * self._weights
        variance = self._variances - self._variances**2 * np.diag(self._inverse)
        return mean, np.maximum(variance, 0.0)

    def covariance(self, which: NDArray[np.intp]) -> Array:
        """`[K, K]`, of the final errors of some of the trials together."""
        variances = self._variances[which]
        inverse = self._inverse[np.ix_(which, which)]
        return np.diag(variances) - variances[:, None] * inverse * variances

    def without(self, which: int) -> tuple[float, float]:
        """Mean and variance of a trial's final error if its own observation were not there."""
        share = float(self._inverse[which, which])
        variance = 1 / share - float(self._variances[which])
        return float(self._values[which] - self._weights[which] / share), max(variance, 1e-9)

    def _shared(self, squares: Array) -> Array:
        correlations = self._kernel.correlations(squares, self._scales.lengths)
        return self._scales.signal**2 * correlations + _MEAN_DEVIATION**2


def fit_scales(
    kernel: Kernel, features: Array, values: Array, variances: Array, *, usual: float
) -> Scales:
    """The most likely scales, with a log-normal prior on each, by search along one at a time.

    Args:
        kernel: of the features.
        features: `[N, D]`.
        values: `[N]`.
        variances: `[N]`.
        usual: the mean before any observation.
    """
    names = ["length"] * kernel.groups + ["signal", "own"]
    prior = np.log([_USUAL[name] for name in names])
    deviations = np.array([_LOG_DEVIATION[name] for name in names])
    squares = kernel.squares(features, features)
    away = values - usual

    def likelihood(logs: Array) -> float:
        scales = _scales(logs)
        covariance = kernel.correlations(squares, scales.lengths) * scales.signal**2
        covariance += _MEAN_DEVIATION**2
        covariance[np.diag_indices(len(values))] += scales.own**2 + variances
        root = np.linalg.cholesky(covariance)
        fits = -0.5 * float(away @ np.linalg.solve(covariance, away))
        fits -= float(np.log(np.diag(root)).sum())
        return fits - 0.5 * float(np.sum(((logs - prior) / deviations) ** 2))

    best, logs = likelihood(prior), prior
    for step in np.log(_STEPS):
        for place in range(len(logs)):
            for move in (step, -step):
                moved = logs.copy()
                moved[place] += move
                found = likelihood(moved)
                while found > best:
                    best, logs = found, moved.copy()
                    moved[place] += move
                    found = likelihood(moved)
    return _scales(logs)


def _scales(logs: Array) -> Scales:
    *lengths, signal, own = np.exp(logs).tolist()
    return Scales(lengths=tuple(lengths), signal=signal, own=own)
