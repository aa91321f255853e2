"""Which candidate to train next, where every objective but the quality is known beforehand.

Pure functions of arrays. A replay drives them as the service does: `spread` chooses the first
trials, `expected_final` says how a curve that was cut short would have ended, `rank` chooses every
other trial from a `History` and `Candidates`.

Letters: N trials, M candidates, D features, C cost objectives (0 or more). Costs are minimised, on
the axes of the hypervolume: log10 parameters, -log10 throughput, and so on. Errors are natural
logarithms of what is to be minimised: of 1 - accuracy, or of a loss.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import moocore  # pyright: ignore[reportMissingTypeStubs]
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # pyright: ignore[reportMissingTypeStubs]

from search.samplers.modelling.gaussian_process import Array, GaussianProcess, fit

MOST_FITTED = 200
"""Trials that the process is fitted to, the newest ones: its time grows with their cube."""

_MOST_CELLS = 2_000_000
"""How many numbers a table of the gains in each cell may hold at a time."""

_MOST_CELLS_OF_MANY = 40_000
"""How many cells three or more axes have together."""


@dataclass(frozen=True, kw_only=True)
class History:
    """Trials that were begun."""

    features: Array
    """`[N, D]`."""
    costs: Array
    """`[N, C]`."""
    errors: Array
    """`[N]`; what stopped and running trials would end with, NaN where nothing is known yet."""
    noise_weights: Array
    """`[N]`: 1 for a finished trial, more for an error that was extrapolated."""
    finished: NDArray[np.bool_]
    """`[N]`: trained to the end; these alone are the front that is to be improved."""
    running: NDArray[np.bool_]
    """`[N]`: will be on it, at the error that is predicted now."""


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Configurations to choose from."""

    features: Array
    """`[M, D]`."""
    costs: Array
    """`[M, C]`."""


def rank(
    history: History, candidates: Candidates, *, reference_error: float, reference_costs: Array
) -> NDArray[np.intp]:
    """Indices `[M]` of the candidates by the hypervolume that they are expected to add, most first.

    Expected over the quality alone: costs are exact. Running trials stand on the front at their
    predicted error, so that parallel proposals differ. Without cost objectives this is expected
    improvement. Candidates that add nothing, such as those beyond the reference point, follow by
    their predicted error.

    Args:
        history: needs one known error at least.
        candidates: at least one.
        reference_error: logarithm of the error from which the hypervolume is measured.
        reference_costs: `[C]`, where it is measured from in the costs.
    """
    # Matrices of 200 rows gain little from threads, which wait for cores that trials train on.
    with threadpool_limits(1, user_api="blas"):
        process = _fitted(history)
        mean, deviation = process.predict(candidates.features)
        costs, errors = _standing(history, process)
    gains = expected_gain(
        costs,
        errors,
        candidates.costs,
        mean,
        deviation,
        reference_error=reference_error,
        reference_costs=reference_costs,
    )
    return np.lexsort((mean, -gains))


def expected_gain(
    front_costs: Array,
    front_errors: Array,
    costs: Array,
    mean: Array,
    deviation: Array,
    *,
    reference_error: float,
    reference_costs: Array,
) -> Array:
    """Expected hypervolume `[M]` that each candidate adds to a front, in closed form.

    The axes are the error itself, `exp(log error)`, and the costs. At a given cost the front's
    best error is a step function; in each of its cells the expected improvement of a log-normal
    error is `K Phi(d) - exp(m + s^2 / 2) Phi(d - s)`, `d = (ln K - m) / s` (Black & Scholes 1973,
    equation 13, a put), and the gain is its integral over all costs from the candidate's on. It is
    exact for up to two costs. Of more, each axis has a few cells, whose number all axes together
    bound, and a point counts from the next cell's beginning on.

    Args:
        front_costs: `[F, C]`, not necessarily free of dominated points; F may be 0.
        front_errors: `[F]`, logarithms.
        costs: `[M, C]` of the candidates.
        mean: `[M]` of their log error.
        deviation: `[M]`, its standard deviation.
        reference_error: logarithm.
        reference_costs: `[C]`.
    """
    # With fewer than two cost axes the others are a single cell of width 1.
    missing = max(0, 2 - costs.shape[1])
    front_costs = np.pad(front_costs, ((0, 0), (0, missing)))
    costs = np.pad(costs, ((0, 0), (0, missing)))
    reference_costs = np.pad(reference_costs, (0, missing), constant_values=1.0)

    inside = (front_errors < reference_error) & np.all(front_costs < reference_costs, axis=1)
    inside[inside] = undominated(np.column_stack([front_costs, front_errors])[inside])
    front_costs, front_errors = front_costs[inside], front_errors[inside]
    levels = np.unique(np.append(front_errors, reference_error))
    improvement = _expected_improvement(levels, mean, deviation)

    axes = [_breaks(front_costs[:, axis], costs.shape[1]) for axis in range(costs.shape[1])]
    best = _best_in_cells(front_costs, front_errors, axes, reference_error)
    places = np.searchsorted(levels, best)
    widths = [
        _widths(breaks, costs[:, axis], reference_costs[axis]) for axis, breaks in enumerate(axes)
    ]
    # Some candidates at a time: of a front of hundreds there are as many cells as its square.
    at_once = max(1, _MOST_CELLS // places.size)
    parts: list[Array] = []
    for begin in range(0, len(costs), at_once):
        gained = improvement[begin : begin + at_once, places]
        for width in reversed(widths):
            gained = np.einsum("mi,m...i->m...", width[begin : begin + at_once], gained)
        parts.append(gained)
    return np.concatenate([np.zeros(0), *parts])


def expected_final(error: float, errors_then: Array, errors_at_end: Array) -> float:
    """The error (a logarithm) that a trial would end with, from that at the epoch it has reached.

    A line through what finished trials had at that epoch and at their end. Its slope is held to
    [0.3, 1]: few points make a steep line, and differences shrink in training.

    Args:
        error: the trial's own.
        errors_then: `[K]` of the finished trials, at the same epoch.
        errors_at_end: `[K]`; with K = 0 the error stays as it is.
    """
    if len(errors_then) == 0:
        return error
    then, end = float(np.mean(errors_then)), float(np.mean(errors_at_end))
    spread_then = float(np.sum((errors_then - then) ** 2))
    common = float(np.sum((errors_then - then) * (errors_at_end - end)))
    slope = float(np.clip(common / spread_then, 0.3, 1.0)) if spread_then > 0 else 1.0
    return end + slope * (error - then)


def spread(taken: Array, points: Array) -> int:
    """Index of the point `[M, K]` that lies farthest from all that are taken `[N, K]`."""
    if len(taken) == 0:
        return 0
    distances = np.linalg.norm(points[:, None, :] - taken[None, :, :], axis=2)
    return int(np.argmax(distances.min(axis=1)))


def undominated(points: Array) -> NDArray[np.bool_]:
    """Which rows no other row is at most as large as in every column; of equal ones, the first."""
    return np.asarray(moocore.is_nondominated(points, keep_weakly=False), dtype=np.bool_)


def _fitted(history: History) -> GaussianProcess:
    known = np.flatnonzero(~np.isnan(history.errors))[-MOST_FITTED:]
    return fit(history.features[known], history.errors[known], history.noise_weights[known])


def _standing(history: History, process: GaussianProcess) -> tuple[Array, Array]:
    """Costs and errors of what is on the front, or will be."""
    finished, running = history.finished, history.running
    if not running.any():
        return history.costs[finished], history.errors[finished]
    predicted, _ = process.predict(history.features[running])
    costs = np.concatenate([history.costs[finished], history.costs[running]])
    return costs, np.concatenate([history.errors[finished], predicted])


def _breaks(costs: Array, axes: int) -> Array:
    """Where the cells of an axis begin: at each cost, or at some of them where axes are many."""
    breaks = np.unique(costs)
    most = int(_MOST_CELLS_OF_MANY ** (1 / axes)) - 1
    if axes <= 2 or len(breaks) <= most:
        return breaks
    # The dearest is one of them, so that every point has a cell.
    return breaks[np.linspace(0, len(breaks) - 1, most).round().astype(int)]


def _best_in_cells(
    costs: Array, errors: Array, breaks: Sequence[Array], reference_error: float
) -> Array:
    """The lowest error `[cells, cells, ...]` of points that cost no more than a cell does."""
    best = np.full([len(one) + 1 for one in breaks], reference_error)
    # A point holds from the cell on that begins at its own cost; the first begins before all.
    cells = tuple(np.searchsorted(one, costs[:, axis]) + 1 for axis, one in enumerate(breaks))
    np.minimum.at(best, cells, errors)
    for axis in range(len(breaks)):
        best = np.minimum.accumulate(best, axis=axis)
    return best


def _expected_improvement(levels: Array, mean: Array, deviation: Array) -> Array:
    """`E[max(0, exp level - exp X)]` `[M, L]` for X normal."""
    away = (levels[None, :] - mean[:, None]) / deviation[:, None]
    below = np.exp(levels)[None, :] * _normal(away)
    paid = np.exp(mean + deviation**2 / 2)[:, None] * _normal(away - deviation[:, None])
    return np.maximum(below - paid, 0.0)


def _normal(values: Array) -> Array:
    """The standard normal distribution function; numpy has none."""
    halves = [0.5 * math.erfc(-value / math.sqrt(2)) for value in values.ravel().tolist()]
    return np.array(halves).reshape(values.shape)


def _lower_ends(breaks: Array) -> Array:
    """Where each cell of an axis begins; the first has no beginning."""
    return np.append(-np.inf, breaks)


def _widths(breaks: Array, costs: Array, reference: float) -> Array:
    """How much of each cell lies at or above each candidate's cost: `[M, cells]`."""
    upper = np.append(breaks, reference)
    begins = np.maximum(_lower_ends(breaks)[None, :], costs[:, None])
    return np.maximum(upper[None, :] - begins, 0.0)
