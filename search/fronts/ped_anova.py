"""PED-ANOVA on grids: by how much the best trials' values of a dimension differ from all trials'.

Watanabe, Bansal and Hutter, "PED-ANOVA: Efficiently Quantifying Hyperparameter Importance in
Arbitrary Subspaces", IJCAI 2023, arXiv 2304.10255, eq. 16, in the form for spaces with conditions
(arXiv 2601.20800, theorem 4.2), with the grids and bandwidths that Optuna's evaluator has; a test
compares the two. Optuna's reads every trial anew at every question: here each trial is put into its
cells once, and a question counts cells.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from search.spaces import Scalar

_STEPS: Final = 50
"""Cells that a dimension's range is divided into at most."""

_LEAST_TRIALS: Final = 2
"""A dimension that fewer trials have says nothing."""

_LEAST_BANDWIDTH: Final = 0.5 / 1.64
"""In cells: 90 % of a kernel lie in its own cell."""

_FLOOR: Final = 1e-12

_Floats = NDArray[np.float64]
_Integers = NDArray[np.int64]


class Grid:
    """The cells of one dimension."""

    def __init__(self, distribution: BaseDistribution) -> None:
        """Divide a distribution's range; one of a single value has nothing to say."""
        self._distribution = distribution
        self.is_single = distribution.single()
        self.size = _cells(distribution)

    def cells(self, values: Sequence[Scalar]) -> _Integers:
        """The cell of each value."""
        found = self._distribution
        if isinstance(found, CategoricalDistribution):
            return np.array([int(found.to_internal_repr(value)) for value in values], int)
        assert isinstance(found, IntDistribution | FloatDistribution)
        if self.is_single:
            return np.zeros(len(values), int)
        numbers = np.array(values, float)
        low, high = float(found.low), float(found.high)
        if found.log:
            numbers, low, high = np.log(numbers), math.log(low), math.log(high)
        # One that lies in the middle belongs to the lower cell.
        places = np.ceil((numbers - low) / ((high - low) / (self.size - 1)) - 0.5)
        return np.clip(places.astype(int), 0, self.size - 1)

    def divergence(self, cells: _Integers, is_best: NDArray[np.bool_]) -> float:
        """How far the best trials' values are from all trials', times the shares that have any.

        Args:
            cells: `[N]`, of the trials that have the dimension.
            is_best: `[N]`, which of them are among the best of all.
        """
        if self.is_single or len(cells) < _LEAST_TRIALS or not is_best.any():
            return 0.0
        best, whole = (
            self._density(np.bincount(found, minlength=self.size)) + _FLOOR
            for found in (cells[is_best], cells)
        )
        # The theorem's weights, up to a factor that all dimensions have in common.
        weight = np.count_nonzero(is_best) ** 2 / len(cells)
        return weight * float(whole @ (best / whole - 1) ** 2)

    def _density(self, counts: _Integers) -> _Floats:
        """`[size]`: the probability of each cell by a Parzen estimator of so many values in each.

        One more kernel, of the weight of one value, stands for the prior: all cells alike.
        """
        total = int(counts.sum())
        if isinstance(self._distribution, CategoricalDistribution):
            # Each tried option has a kernel, and each kernel leaves the others a part.
            rest = 1.0 / (np.count_nonzero(counts) + 1)
            mixed = (counts + total * rest) / (1 + self.size * rest)
            return (mixed + 1 / self.size) / (total + 1)
        mixed = _kernels(self.size, _bandwidth(counts)) @ counts
        return (mixed + _prior_kernel(self.size)) / (total + 1)


def _cells(distribution: BaseDistribution) -> int:
    match distribution:
        case CategoricalDistribution(choices=choices):
            return len(choices)
        case IntDistribution(log=True):
            range_ = distribution.high - distribution.low + 1
            return min(math.ceil(math.log(range_) / math.log(2)) + 1, _STEPS)
        case IntDistribution() | FloatDistribution() if distribution.step is not None:
            steps = round((distribution.high - distribution.low) / distribution.step) + 1
            return min(steps, _STEPS)
        case _:
            return _STEPS


def _bandwidth(counts: _Integers) -> float:
    """Scott's rule (1992), in cells, of so many values in each cell."""
    places = np.flatnonzero(counts)
    weights = counts[places]
    up_to = np.cumsum(weights)
    total = int(up_to[-1])
    mean = (places @ weights) / total
    spread = math.sqrt(((places - mean) ** 2 @ weights) / max(1, total - 1))
    first = int(np.searchsorted(up_to, total // 4, side="left"))
    third = int(np.searchsorted(up_to, total * 3 // 4, side="right"))
    between = float(places[min(len(places) - 1, third)] - places[first])
    return max(1.059 * min(between / 1.34, spread) * total**-0.2, _LEAST_BANDWIDTH)


def _kernels(size: int, bandwidth: float) -> _Floats:
    """`[size, size]`: what a normal kernel in each cell (second axis) gives the cells (first axis).

    A kernel is cut off at the ends of the range.
    """
    # Distances between cells are whole numbers: one table of the normal distribution has them all.
    masses = _between((np.arange(2 * size, dtype=np.float64) - size + 0.5) / bandwidth)
    found = masses[np.arange(size)[:, None] - np.arange(size)[None, :] + size - 1]
    return found / found.sum(axis=0)


def _prior_kernel(size: int) -> _Floats:
    """`[size]`: a normal kernel in the middle of the range, as wide as all of it."""
    masses = _between((np.arange(size + 1, dtype=np.float64) - size / 2) / size)
    return masses / masses.sum()


def _between(edges: _Floats) -> _Floats:
    """How much of a normal distribution lies between each two neighbours; twice that much."""
    below = np.array([math.erf(edge / math.sqrt(2)) for edge in edges.tolist()])
    return below[1:] - below[:-1]
