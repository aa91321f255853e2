"""What studies of other tasks say beforehand of final errors: which configurations end well.

Values of another task do not compare with those of this one, but the order of configurations may
be alike. So a trial's rank among a source's n becomes a normal score, `Phi^-1((rank - 1/2) / n)`,
after Salinas, Shen & Perrone 2020, "A quantile-based approach for hyperparameter transfer
learning". A Gaussian process predicts the score z of any configuration. How much that tells is
learned from the study's own trials, whose final log errors are taken for
`F = mean + s (rho z + sqrt(1 - rho^2) d) + noise`: s is their spread, rho their correlation with z,
and d a process of variance 1, what z does not tell. So are processes added in Kennedy & O'Hagan
2000, "Predicting the output from a complex computer code when fast approximations are available".

Letters as in `search.samplers.pausing.options`, and S sources. Scores grow with the error.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import final

import numpy as np
from numpy.typing import NDArray

from search.samplers.modelling.blas_threads import one_blas_thread
from search.samplers.modelling.encoding import COUNTS, Encoding, values_of_trial
from search.samplers.modelling.gaussian_process import Array, GaussianProcess, fit, matern
from search.samplers.modelling.sampler_cache import SamplerCache
from search.samplers.pausing.learning_curves import fit_curves
from search.samplers.pausing.options import Begun, Standing
from search.samplers.sampler import RankedTrials

MOST_FITTED = 200
"""Trials of one source that its process is fitted to, evenly chosen."""

_MOST_COMPARED = 150
"""Own trials by which sources are judged, those that were trained the longest."""

_CORRELATIONS = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
"""Each as likely as the others beforehand, so that half of what a source says is believed."""

_SPREADS = 0.5 * 2.0 ** np.arange(-2, 3)
_SPREAD_DEVIATION = 0.7
"""How far, on the natural logarithm, the spread may lie off the middle one."""

_LENGTH, _OWN, _MEAN_DEVIATION = 1.0, 0.06, 1.0
"""Of d in units of a feature's range, between two trainings of one configuration, and of the mean:
what is expected of final errors beforehand."""


def ranks_of(errors: Sequence[float]) -> list[float]:
    """(rank - 1/2) / n of each, the lowest at rank 1; equal ones have the mean of their ranks."""
    ordered = sorted(errors)
    return [
        (bisect_left(ordered, error) + bisect_right(ordered, error)) / (2 * len(ordered))
        for error in errors
    ]


@dataclass(frozen=True, kw_only=True)
class _Source:
    columns: NDArray[np.intp]
    process: GaussianProcess


@final
class RankScores:
    """The scores that each source predicts, by the dimensions that vary in it and are searched."""

    def __init__(
        self, encoding: Encoding, sources: Sequence[RankedTrials], sampler_cache: SamplerCache
    ) -> None:
        """`encoding` is of the study's own dimensions; each source has one trial at least."""
        self._sources = [
            sampler_cache.of(
                source.trials[0], "ranks", lambda _, source=source: _fitted(encoding, source)
            )
            for source in sources
        ]

    def of(self, features: Array) -> Array:
        """`[M, S]` of configurations by their features `[M, D]`."""
        found = np.zeros((len(features), len(self._sources)))
        for scores, source in zip(found.T, self._sources, strict=True):
            scores[:] = source.process.means(features[:, source.columns])
        return found


def _fitted(encoding: Encoding, source: RankedTrials) -> _Source:
    step = math.ceil(len(source.trials) / MOST_FITTED)
    features = encoding.rows(values_of_trial(trial) for trial in source.trials[::step])
    scores = np.array([NormalDist().inv_cdf(rank) for rank in source.ranks[::step]])
    varied = np.ptp(features, axis=0) > 0
    # Another task's counts are of other sizes of inputs and answers.
    varied[:COUNTS] = False
    columns = np.flatnonzero(varied)
    with one_blas_thread():
        process = fit(features[:, columns], scores, np.ones(len(scores)))
    return _Source(columns=columns, process=process)


def rank_weights(begun: Begun, scores: Array, *, rungs: Sequence[int]) -> Array:
    """By how much log errors are expected to grow with each source's scores: `[S]`.

    It is the mean of `s rho` over a grid of both and over the sources, each weighted by how likely
    it makes what the study's trials show, carried to their ends. A source that tells nothing comes
    to have a weight of about 0, as do all but the best of several.

    Args:
        begun: the study's trials, their `prior` aside.
        scores: `[N, S]` of these.
        rungs: numbers of epochs.
    """
    sources = scores.shape[1]
    if not sources:
        return np.zeros(0)
    log_prior = -0.5 * (np.log(_SPREADS / np.median(_SPREADS)) / _SPREAD_DEVIATION) ** 2
    # Letters: A spreads, B correlations.
    logs = np.zeros((sources, len(_SPREADS), len(_CORRELATIONS))) + log_prior[:, None]
    slopes = np.outer(_SPREADS, _CORRELATIONS)
    with one_blas_thread():
        signals, values, white_scores = _whitened(begun, scores, rungs)
    variances = 1 + np.outer(_SPREADS**2, 1 - _CORRELATIONS**2)[..., None] * signals
    rest = values - slopes[..., None] * white_scores[:, None, None]
    logs -= 0.5 * np.sum(rest**2 / variances + np.log(variances), axis=-1)
    weights = np.exp(logs - logs.max())
    return np.sum(weights * slopes, axis=(1, 2)) / weights.sum()


def _whitened(begun: Begun, scores: Array, rungs: Sequence[int]) -> tuple[Array, Array, Array]:
    """What own trials tell, turned so that all of its noise is independent and of variance 1.

    With the covariances K of d and `L L^T` of the noise, and `L^-1 K L^-T = Q e Q^T`, the turned
    values `Q^T L^-1 v` have the variances `1 + s^2 (1 - rho^2) e`.

    Returns:
        e `[K]`, the values `[K]`, and the sources' scores `[S, K]`, of K trials.
    """
    errors = begun.errors
    # What failed at once has the same error at all rungs, and says nothing of how curves go.
    failed = (begun.standing == Standing.OVER) & np.all(errors == errors[:, :1], axis=1)
    told = ~np.isnan(errors[:, 0]) & ~failed
    last = np.sum(~np.isnan(errors), axis=1) - 1
    found = np.flatnonzero(told)
    rows = found[np.argsort(-last[found], kind="stable")][:_MOST_COMPARED]
    at, families, features = last[rows], begun.families[rows], begun.features[rows]
    curves = fit_curves(np.where(told[:, None], errors, np.nan), begun.families, rungs)
    values, variance = curves.carried(errors[rows, at], at, families)
    noise = curves.shared(at, families, at, families)
    noise[np.diag_indices(len(rows))] = variance + _OWN**2
    root = np.linalg.cholesky(noise + _MEAN_DEVIATION**2)
    inverse = np.asarray(np.linalg.inv(root), float)
    spectrum, basis = np.linalg.eigh(
        inverse @ matern(features, features, length=_LENGTH) @ inverse.T
    )
    turned = np.asarray(basis.T @ inverse, float)
    away = values - (values.mean() if len(values) else 0.0)
    return np.maximum(spectrum, 0.0), turned @ away, (turned @ scores[rows]).T
