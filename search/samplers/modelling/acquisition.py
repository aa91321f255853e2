"""Which candidate to train next, where every objective but the quality is known beforehand.

Pure functions of arrays. A replay drives them as the service does: `spread` chooses the first
trials, `expected_final` says how a curve that was cut short would have ended, `rank` chooses every
other trial from a `History` and `Candidates`.

Letters: N trials, M candidates, D features, C cost objectives (0 or more). Costs are minimised, on
the axes of the hypervolume: log10 parameters, -log10 throughput, and so on. Errors are natural
logarithms of what is to be minimised: of 1 - accuracy, or of a loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import moocore  # pyright: ignore[reportMissingTypeStubs]
import numpy as np
from numpy.typing import NDArray

from search.samplers.modelling.blas_threads import one_blas_thread
from search.samplers.modelling.gaussian_process import Array, GaussianProcess, fit

MOST_FITTED = 200
"""Trials that the process is fitted to, the newest ones: its time grows with their cube."""

_MOST_CELLS = 2_000_000
"""How many numbers a table of the areas of each level may hold at a time."""

_MOST_CELLS_OF_MANY = 40_000
"""How many cells three or more axes have together."""


_FROM_BASELINE = 1e-6
"""How much hypervolume outside the region of interest counts: it decides where all else is 0."""

MARGIN = 0.05
"""By how many decades costs that hypervolume is measured from lie beyond the dearest trial's."""


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
    history: History,
    candidates: Candidates,
    *,
    reference_error: float,
    reference_costs: Array,
    baseline_error: float,
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
        baseline_error: logarithm, of a model that learned nothing; see `references`.
    """
    # Matrices of 200 rows gain little from threads, which wait for cores that trials train on.
    with one_blas_thread():
        process = _fitted(history)
        mean, deviation = process.predict(candidates.features)
        costs, errors = _standing(history, process)
    gains = np.zeros(len(mean))
    region = Reference(error=reference_error, costs=reference_costs)
    for reference in references(region, history.costs, baseline_error=baseline_error):
        gains += reference.weight * expected_gain(
            costs,
            errors,
            candidates.costs,
            mean,
            deviation,
            reference_error=reference.error,
            reference_costs=reference.costs,
        )
    return np.lexsort((mean, -gains))


@dataclass(frozen=True, kw_only=True)
class Reference:
    """From where hypervolume is measured."""

    error: float
    """Logarithm."""
    costs: Array
    """`[C]`."""
    weight: float = 1.0
    """What such hypervolume counts."""

    def front(self, costs: Array, errors: Array) -> "Front":
        """That of points with costs `[F, C]` and log errors `[F]`."""
        return Front(costs, errors, reference_error=self.error, reference_costs=self.costs)


def references(region: Reference, begun: Array, *, baseline_error: float) -> list[Reference]:
    """The region of interest, and with hardly any weight all that was begun.

    So a search is not lost while nothing is inside. Where the region is everything it is alone.

    Args:
        region: with the weight 1.
        begun: costs `[N, C]` of all trials.
        baseline_error: logarithm, of a model that learned nothing.
    """
    dearest = np.vstack([region.costs[None], begun + MARGIN]).max(axis=0)
    baseline = max(region.error, baseline_error)
    if region.error == baseline and np.array_equal(dearest, region.costs):
        return [region]
    return [region, Reference(error=baseline, costs=dearest, weight=_FROM_BASELINE)]


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
    front = Front(
        front_costs, front_errors, reference_error=reference_error, reference_costs=reference_costs
    )
    areas = front.areas(costs)
    return np.sum(areas * expected_improvement(front.levels, mean, deviation), axis=-1)


class Front:
    """How much hypervolume a point would add to some points, by its costs and its error.

    At a given cost the front's best error is a step function: one of `levels`. A point gains the
    improvement on each level times the area of costs, from its own on, where that is the best.
    """

    def __init__(
        self, costs: Array, errors: Array, *, reference_error: float, reference_costs: Array
    ) -> None:
        # Without cost axes there is one, a single cell of width 1.
        self._missing = max(0, 1 - costs.shape[1])
        costs = np.pad(costs, ((0, 0), (0, self._missing)))
        ends = np.pad(reference_costs, (0, self._missing), constant_values=1.0)
        inside = (errors < reference_error) & np.all(costs < ends, axis=1)
        inside[inside] = undominated(np.column_stack([costs, errors])[inside])
        costs, errors = costs[inside], errors[inside]
        self.levels: Array = np.unique(np.append(errors, reference_error))
        """`[L]`, log errors, ascending; the last is the reference's."""
        axes = [_breaks(costs[:, axis], costs.shape[1]) for axis in range(costs.shape[1])]
        best = _best_in_cells(costs, errors, axes, reference_error)
        self._level_of_cell = np.searchsorted(self.levels, best)
        # The first cell of an axis has no beginning: one beyond its end stands for it, and areas
        # are continued from there.
        self._edges = [
            np.concatenate([[np.append(breaks, end)[0] - 1.0], breaks, [end]])
            for breaks, end in zip(axes, ends.tolist(), strict=True)
        ]
        self._widths = np.ones(best.shape)
        for axis, edges in enumerate(self._edges):
            shape = [-1 if one == axis else 1 for one in range(best.ndim)]
            self._widths *= np.diff(edges).reshape(shape)

    def areas(self, costs: Array) -> Array:
        """Areas `[M, L]` that lie at or above each point's costs `[M, C]`, by their level.

        Linear in each cost between two edges, for a cell has one level.
        """
        costs = np.pad(costs, ((0, 0), (0, self._missing)))
        cells: list[NDArray[np.intp]] = []
        parts: list[Array] = []
        for axis, edges in enumerate(self._edges):
            cell = np.clip(np.searchsorted(edges, costs[:, axis], "right") - 1, 0, len(edges) - 2)
            part = (costs[:, axis] - edges[cell]) / (edges[cell + 1] - edges[cell])
            cells.append(cell)
            parts.append(np.minimum(part, 1.0))
        found = np.zeros((len(costs), len(self.levels)))
        # Some levels at a time: of a front of hundreds there are as many cells as its square.
        at_once = max(1, _MOST_CELLS // self._level_of_cell.size)
        for first in range(0, len(self.levels), at_once):
            last = min(first + at_once, len(self.levels))
            summed = self._summed(first, last)
            for corner in product((0, 1), repeat=len(cells)):
                share = np.ones(len(costs))
                for part, end in zip(parts, corner, strict=True):
                    share *= part if end else 1 - part
                at = tuple(cell + end for cell, end in zip(cells, corner, strict=True))
                found[:, first:last] += share[:, None] * summed[at]
        return np.maximum(found, 0.0)

    def _summed(self, first: int, last: int) -> Array:
        """Areas `[edges, edges, ..., L]` of some levels, from each corner of the cells on."""
        areas = np.zeros((*(len(edges) for edges in self._edges), last - first))
        of_these = (first <= self._level_of_cell) & (self._level_of_cell < last)
        places = (*np.nonzero(of_these), self._level_of_cell[of_these] - first)
        areas[places] = self._widths[of_these]
        for axis in range(len(self._edges)):
            backwards = np.flip(areas, axis)
            np.cumsum(backwards, axis=axis, out=backwards)
        return areas


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


def expected_improvement(levels: Array, mean: Array, deviation: Array) -> Array:
    """`E[max(0, exp level - exp X)]` `[..., L]` for X normal, `mean` and `deviation` `[...]`."""
    mean, deviation = mean[..., None], deviation[..., None]
    away = (levels - mean) / deviation
    below = np.exp(levels) * _normal(away)
    paid = np.exp(mean + deviation**2 / 2) * _normal(away - deviation)
    return np.maximum(below - paid, 0.0)


def _normal(values: Array) -> Array:
    """The standard normal distribution function."""
    # Late: naming a sampler needs none of it.
    from scipy.special import ndtr  # pyright: ignore[reportMissingTypeStubs]

    return np.asarray(ndtr(values), float)
