"""What options are worth per price, over a front that is to be improved.

Letters: M options, C cost objectives, K quadrature nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from search.samplers.modelling.acquisition import Front, expected_improvement
from search.samplers.modelling.gaussian_process import Array

_NODES, _SUMS = np.polynomial.hermite_e.hermegauss(5)
_WEIGHTS: Array = _SUMS / _SUMS.sum()

_LEAST_VARIANCE = 1e-6
"""Of a final error that is nearly known."""

_LEAST_LEARNED = 0.001
"""The share of a variance that any look takes away."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Steps that could be next."""

    mean: Array
    """`[M]` of the final log error."""
    variance: Array
    """`[M]`."""
    left: Array
    """`[M]`, variance of the final log error after what the next rung shows."""
    step: Array
    """`[M]`, price of training to the next rung."""
    rest: Array
    """`[M]`, price of all that follows."""
    chance: Array
    """`[M]`, that it trains at all."""


class Gains:
    """Expected hypervolume of options with some costs, over fronts that have weights."""

    def __init__(self, fronts: Sequence[tuple[float, Front]], costs: Array) -> None:
        """Costs are `[M, C]`, or `[1, C]` where all options have the same."""
        self._levels = np.concatenate([front.levels for _, front in fronts])
        self._areas = np.hstack([weight * front.areas(costs) for weight, front in fronts])

    def index(self, options: Options) -> Array:
        """`[M]`, see Note [Index of an option]."""
        left = np.minimum(options.left, (1 - _LEAST_LEARNED) * options.variance)
        moves = np.sqrt(options.variance - left)
        means = np.concatenate([options.mean[None], options.mean + _NODES[:, None] * moves])
        variances = np.concatenate([options.variance[None], np.tile(left, (len(_NODES), 1))])
        straight, *at_nodes = self._expected(means, np.maximum(variances, _LEAST_VARIANCE))
        straight /= options.step + options.rest
        gains = np.stack(at_nodes)
        order = np.argsort(-gains, axis=0)
        weights = _WEIGHTS[order]
        worth = np.cumsum(weights * np.take_along_axis(gains, order, axis=0), axis=0)
        ratios = worth / (options.step + options.rest * np.cumsum(weights, axis=0))
        # Without a rest there is nothing to decide at the rung.
        ahead = np.where(options.rest > 0, ratios.max(axis=0), 0.0)
        return options.chance * np.maximum(straight, ahead)

    def _expected(self, means: Array, variances: Array) -> Array:
        """`[K, M]`, of means and variances `[K, M]`."""
        improved = expected_improvement(self._levels, means, np.sqrt(variances))
        return np.sum(improved * self._areas, axis=-1)
