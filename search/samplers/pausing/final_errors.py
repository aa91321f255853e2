"""A process of final errors: over configurations, and each trial's own beside it.

The final log error of a trial is `F = f(configuration) + own`. f is a Gaussian process with a
Matern 5/2 kernel, a length per group of features and an unknown mean; `own` is what differs from
seed to seed. Of F, each trial has an observation whose noise is known: none when it was trained to
the end, more when it was carried there from an earlier epoch, which trials may have in common. So a
trial's own end is known better than that of another one of the same configuration.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search.samplers.modelling.gaussian_process import Array, matern_of

NOTHING = 100.0
"""Variance of an observation that says nothing."""

_MEAN_DEVIATION = 1.0
"""How far the process's mean may lie off that of the observations."""

_LEAST = 1e-9
"""Of a variance that rounding could make negative."""

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
        """At squared distances `[G, ...]`: `[...]`."""
        return matern_of(np.tensordot(1 / np.square(lengths), squares, axes=1))


@dataclass(frozen=True, kw_only=True)
class Look:
    """Observations of trials that could be made."""

    noise: Array
    """`[M]`, variance of each about its trial's final error."""
    shared: Array
    """`[M, N]`, its covariance with the noise of the observations that were made."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """How trials' final errors vary with one observation of each, before it is made."""

    variance: Array
    """`[M]` of the final error."""
    spread: Array
    """`[M]`, variance of the observation."""
    common: Array
    """`[M]`, covariance of both."""

    @property
    def left(self) -> Array:
        """`[M]`, variance of the final error after the observation."""
        return np.maximum(self.variance - self.common**2 / self.spread, _LEAST)

    @property
    def weight(self) -> Array:
        """`[M]`, by how much the final error's mean moves with what is observed."""
        return self.common / self.spread


class FinalErrors:
    """The process, given observations of trials' final errors."""

    def __init__(
        self,
        kernel: Kernel,
        scales: Scales,
        features: Array,
        values: Array,
        noise: Array,
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
            noise: `[N, N]`, covariance of these about the trials' final errors.
            usual: the mean before any observation.
            squares: what `kernel.squares` says of the features, where that is known.
        """
        self._kernel, self._scales, self._usual = kernel, scales, usual
        self._features, self._values, self._noise = features, values, noise
        self._squares = kernel.squares(features, features) if squares is None else squares
        self._prior = self._shared(self._squares)
        covariance = self._prior + noise
        covariance[np.diag_indices(len(values))] += scales.own**2
        self._inverse = np.asarray(np.linalg.inv(covariance), float)
        self._weights = self._inverse @ (values - usual)

    def with_noise(self, noise: Array) -> "FinalErrors":
        """The same trials and values, observed with another noise."""
        return FinalErrors(
            self._kernel,
            self._scales,
            self._features,
            self._values,
            noise,
            usual=self._usual,
            squares=self._squares,
        )

    def of_trials(self, which: NDArray[np.intp]) -> tuple[Array, Array]:
        """Mean `[K]` and covariance `[K, K]` of the final errors of some of the trials."""
        # Their covariance with the observations is that of the observations less the noise.
        noise = self._noise[which]
        mean = self._values[which] - noise @ self._weights
        return mean, noise[:, which] - noise @ self._inverse @ noise.T

    def prior_with(self, features: Array) -> Array:
        """Covariance `[M, N]` of other trials' final errors with the observed trials'."""
        return self._shared(self._kernel.squares(features, self._features))

    def looked_at(
        self, prior: Array, looks: Sequence[Look], own_place: NDArray[np.intp]
    ) -> list[Seen]:
        """Final errors of trials, beside observations of them that are not made yet.

        Args:
            prior: `[M, N]` as from `prior_with`.
            looks: at the trials.
            own_place: `[M]`, which of the observed trials each one is, -1 for none; it is taken as
                if it had not been observed.
        """
        left_out = _LeftOut(self._inverse, own_place)
        prior = left_out.cleared(prior)
        whole = self._scales.signal**2 + _MEAN_DEVIATION**2 + self._scales.own**2
        across = prior @ self._inverse
        variance = np.maximum(whole - left_out.product(across, prior, across), _LEAST)
        found: list[Seen] = []
        for look in looks:
            rows = left_out.cleared(prior + look.shared)
            across_seen = rows @ self._inverse
            spread = whole + look.noise - left_out.product(across_seen, rows, across_seen)
            common = whole - left_out.product(across_seen, prior, across)
            found.append(Seen(variance=variance, spread=np.maximum(spread, _LEAST), common=common))
        return found

    def means(self, prior: Array, look: Look, own_place: NDArray[np.intp]) -> tuple[Array, Array]:
        """Means `[M]` of the final errors and of observations of them, see `looked_at`."""
        left_out = _LeftOut(self._inverse, own_place)
        final = left_out.weighed(left_out.cleared(prior), self._weights)
        observed = left_out.weighed(left_out.cleared(prior + look.shared), self._weights)
        return self._usual + final, self._usual + observed

    def _shared(self, squares: Array) -> Array:
        correlations = self._kernel.correlations(squares, self._scales.lengths)
        return self._scales.signal**2 * correlations + _MEAN_DEVIATION**2


class _LeftOut:
    """The inverse of a covariance without one row and column, another one for each trial.

    It is the whole inverse less an outer product: `A - a a^T / a_i`, a the column i of A.
    """

    def __init__(self, inverse: Array, places: NDArray[np.intp]) -> None:
        self._inverse = inverse
        self._known = np.flatnonzero(places >= 0)
        self._places = places[self._known]
        self._own = np.diag(inverse)[self._places]

    def cleared(self, rows: Array) -> Array:
        """Rows `[M, N]` without what is left out."""
        rows = rows.copy()
        rows[self._known, self._places] = 0.0
        return rows

    def product(self, across: Array, others: Array, across_others: Array) -> Array:
        """`[M]` quadratic forms of rows and others, both cleared; `across` is times the inverse."""
        found = np.einsum("mn,mn->m", across, others)
        removed = across[self._known, self._places] * across_others[self._known, self._places]
        found[self._known] -= removed / self._own
        return found

    def weighed(self, rows: Array, weights: Array) -> Array:
        """`[M]` products of cleared rows with the inverse times what `weights` are of."""
        found = rows @ weights
        across = np.einsum("mn,mn->m", rows[self._known], self._inverse[self._places])
        found[self._known] -= across * weights[self._places] / self._own
        return found


def fit_scales(
    kernel: Kernel, features: Array, values: Array, noise: Array, *, usual: float
) -> Scales:
    """The most likely scales, with a log-normal prior on each, by search along one at a time.

    Args:
        kernel: of the features.
        features: `[N, D]`.
        values: `[N]`.
        noise: `[N, N]`.
        usual: the mean before any observation.
    """
    # Late: naming a sampler needs none of it.
    from scipy import linalg  # pyright: ignore[reportMissingTypeStubs]

    solve: Any = linalg.solve_triangular  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    names = ["length"] * kernel.groups + ["signal", "own"]
    prior = np.log([_USUAL[name] for name in names])
    deviations = np.array([_LOG_DEVIATION[name] for name in names])
    # Below the diagonal alone: the others are the same.
    lower = np.tril_indices(len(values), -1)
    squares = kernel.squares(features, features)[:, *lower]
    away = values - usual
    covariance, diagonal = noise + _MEAN_DEVIATION**2, np.diag_indices(len(values))
    below, own = covariance[lower], covariance[diagonal]

    def likelihood(logs: Array) -> float:
        scales = _scales(logs)
        correlations = kernel.correlations(squares, scales.lengths)
        covariance[lower] = below + scales.signal**2 * correlations
        covariance[diagonal] = own + scales.signal**2 + scales.own**2
        root = np.linalg.cholesky(covariance)
        white = np.asarray(solve(root, away, lower=True), float)
        fits = -0.5 * float(white @ white) - float(np.log(np.diag(root)).sum())
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
