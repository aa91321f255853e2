"""Numbers brought to mean 0 and deviation 1, and what brings them back."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.spec import Spec

_ROWS = 1024
"""Samples that are looked at together: doubles of a whole data set could fill the memory."""


class Scaling(Spec):
    """What was subtracted from each feature, and then divided by."""

    means: tuple[float, ...]
    deviations: tuple[float, ...]
    """The population's; 1 for a feature that never changes."""


def measured(values: NDArray[np.float32], lengths: NDArray[np.int64] | None = None) -> Scaling:
    """Mean and standard deviation of each feature.

    Args:
        values: `[N, ..., F]`.
        lengths: for values `[N, T, F]`: the steps of each sample that count; None: all of them.
    """
    pieces = [slice(start, start + _ROWS) for start in range(0, len(values), _ROWS)]
    counted = [_counted(values[piece], lengths, piece) for piece in pieces]
    count = sum(len(rows) for rows in counted)
    mean = np.zeros(values.shape[-1])
    for rows in counted:
        mean += rows.sum(axis=0, dtype=np.float64) / count
    # In two passes, since a small deviation around a large mean would be lost in one.
    variance = np.zeros(values.shape[-1])
    for rows in counted:
        variance += ((rows - mean) ** 2).sum(axis=0) / count
    deviation = np.sqrt(variance)
    # Rounding leaves a feature that never changes a deviation of its last digits.
    constant = deviation <= 1e-7 * np.abs(mean)
    deviation = np.where(constant | (deviation == 0), 1.0, deviation)
    return Scaling(means=tuple(mean.tolist()), deviations=tuple(deviation.tolist()))


def scaled(
    values: NDArray[np.float32], scaling: Scaling, lengths: NDArray[np.int64] | None = None
) -> NDArray[np.float32]:
    """The values by that scaling; padding stays 0."""
    means, deviations = np.array(scaling.means), np.array(scaling.deviations)
    result = np.empty_like(values)
    for start in range(0, len(values), _ROWS):
        piece = slice(start, start + _ROWS)
        result[piece] = (values[piece] - means) / deviations
        if lengths is not None:
            result[piece][~_valid(values[piece], lengths[piece])] = 0
    return result


def _counted(
    values: NDArray[np.float32], lengths: NDArray[np.int64] | None, piece: slice
) -> NDArray[np.float32]:
    """The rows of features that are no padding, `[rows, F]`."""
    if lengths is None:
        return values.reshape(-1, values.shape[-1])
    return values[_valid(values, lengths[piece])]


def _valid(values: NDArray[Any], lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which steps `[N, T]` of padded samples `[N, T, F]` are their own."""
    steps = np.arange(values.shape[1], dtype=np.int64)
    return np.less(steps[None, :], lengths[:, None])
