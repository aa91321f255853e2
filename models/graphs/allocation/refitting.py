"""Sensitivities by what was measured of whole networks."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

_SMALLEST_LOSS = 1e-9
_SMALLEST_FACTOR = 1e-3
_PRIOR = 0.1
"""How much the sensitivity that a layer has had counts, beside one measured loss."""
_ROUNDS = 2000
_ENOUGH = 1e-10


def refitted(
    sensitivity: Mapping[str, float],
    errors: Sequence[Mapping[str, float]],
    losses: Sequence[float],
    *,
    prior: float = _PRIOR,
) -> dict[str, float]:
    """Sensitivities `s f` whose predictions meet measured losses, by their relative errors.

    The factors `f >= 0` minimise `sum_t (sum_l s_l e_tl f_l / loss_t - 1)^2 + prior sum_l (f_l -
    1)^2`: a layer that no trial tells apart keeps its sensitivity, and none gets below a thousandth
    of it. `errors` has the local errors of each trial by layer; those left out are 0.
    """
    names = list(sensitivity)
    scale = np.array([sensitivity[name] for name in names])
    table = np.array([[row.get(name, 0.0) for name in names] for row in errors])
    table = table.reshape(len(losses), len(names)) * scale
    kept = np.array([max(loss, _SMALLEST_LOSS) for loss in losses]).reshape(-1, 1)
    root = math.sqrt(prior)
    matrix = np.concatenate([table / kept, root * np.eye(len(names))])
    target = np.concatenate([np.ones(len(losses)), np.full(len(names), root)])
    factors = np.maximum(nonnegative_least_squares(matrix, target), _SMALLEST_FACTOR)
    return {name: float(s * f) for name, s, f in zip(names, scale, factors, strict=True)}


def nonnegative_least_squares(
    matrix: NDArray[np.float64], target: NDArray[np.float64]
) -> NDArray[np.float64]:
    """X `[n]`, all `x >= 0`, that minimises `|A x - b|^2` of A `[m, n]` and b `[m]`.

    By coordinate descent on the normal equations, which converges as each step is exact (Franc,
    Hlavac, Navara: Sequential coordinate-wise algorithm for the non-negative least squares problem,
    CAIP 2005); columns of zeros get 0.
    """
    normal = matrix.T @ matrix
    diagonal = np.diagonal(normal)
    x = np.zeros(matrix.shape[1])
    gradient = -(matrix.T @ target)
    moving = np.flatnonzero(diagonal > 0)
    for _ in range(_ROUNDS):
        largest = 0.0
        for place in moving:
            new = max(0.0, x[place] - gradient[place] / diagonal[place])
            step = new - x[place]
            if step != 0:
                x[place] = new
                gradient += step * normal[place]
                largest = max(largest, abs(step))
        if largest <= _ENOUGH * max(1.0, float(x.max(initial=0.0))):
            break
    return x
