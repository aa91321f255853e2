"""Sensitivities by what was measured of whole networks."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Key = TypeVar("Key")
"""A layer's name, or a layer's name with how it is rounded."""

_SMALLEST_LOSS = 1e-9
_SMALLEST_FACTOR = 1e-3
_PRIOR = 0.1
"""How much the sensitivity that a layer has had counts, beside one measured loss."""
_REWEIGHTINGS = 10
_SWEEPS = 1000
_ENOUGH = 1e-9


def refitted(
    sensitivity: Mapping[Key, float],
    errors: Sequence[Mapping[Key, float]],
    losses: Sequence[float],
    *,
    prior: float = _PRIOR,
) -> dict[Key, float]:
    """Sensitivities `s f` whose predictions meet measured losses, by their ratios.

    The factors minimise `sum_t d(sum_l s_l e_tl f_l, loss_t) + prior sum_l d(f_l, 1)` with
    `d(a, b) = (a - b)^2 / (a b)`, which is `log(a / b)^2` for small differences, and as large
    for half as for twice. Each of 10 rounds is a non-negative least squares problem, with the
    denominators of the round before it. A layer that no trial tells apart keeps its sensitivity;
    none gets below a thousandth of it. `errors` has the local errors of each trial by layer; those
    left out are 0. Losses below 1e-9 count as that.
    """
    names = list(sensitivity)
    scale = np.array([sensitivity[name] for name in names])
    rows = np.array([[row.get(name, 0.0) for name in names] for row in errors])
    table = rows.reshape(len(losses), len(names)) * scale
    wanted = np.maximum(np.array(losses, np.float64), _SMALLEST_LOSS)
    factors = np.ones(len(names))
    for _ in range(_REWEIGHTINGS):
        predicted = np.maximum(table @ factors, _SMALLEST_LOSS)
        weights = 1 / np.sqrt(predicted * wanted)
        kept = np.sqrt(prior / factors)
        matrix = np.concatenate([table * weights[:, None], np.diag(kept)])
        target = np.concatenate([wanted * weights, kept])
        factors = np.maximum(nonnegative_least_squares(matrix, target, factors), _SMALLEST_FACTOR)
    return {name: float(s * f) for name, s, f in zip(names, scale, factors, strict=True)}


def nonnegative_least_squares(
    matrix: NDArray[np.float64],
    target: NDArray[np.float64],
    start: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """The vector x `[n]`, all `x >= 0`, that minimises `|A x - b|^2` of A `[m, n]` and b `[m]`.

    By coordinate descent on the normal equations, from `start` on or from 0 (Franc, Hlavac, Navara:
    Sequential coordinate-wise algorithm for the non-negative least squares problem, CAIP 2005).
    Columns of zeros get 0. It ends when no number moves by a billionth of the largest, or after
    1,000 sweeps.
    """
    normal = matrix.T @ matrix
    diagonal = np.diagonal(normal)
    x = np.zeros(matrix.shape[1]) if start is None else np.where(diagonal > 0, start, 0.0)
    gradient = normal @ x - matrix.T @ target
    moving = np.flatnonzero(diagonal > 0)
    for _ in range(_SWEEPS):
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
