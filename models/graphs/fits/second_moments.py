"""Second moments `C = E[x x^T]` of the vectors that a matrix reads."""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.graphs.layers import AnyArray, Matrix

Double: TypeAlias = NDArray[np.float64]

_RIDGE = 1e-5
_DAMPING = 1e-2
_SMALLEST = 1e-12


class SecondMoments(ABC):
    """A positive definite C `[in, in]`, in a form that may be smaller than that."""

    @property
    @abstractmethod
    def diagonal(self) -> Double:
        """The mean square of each number `[in]`."""

    @abstractmethod
    def times(self, matrix: AnyArray) -> Double:
        """`W C` of W `[rows, in]`."""

    @abstractmethod
    def times_root(self, matrix: AnyArray) -> Double:
        """`W C^(1/2)` of W `[rows, in]`."""

    @abstractmethod
    def times_inverse_root(self, matrix: AnyArray) -> Double:
        """`W C^(-1/2)` of W `[rows, in]`."""

    @property
    def repeat(self) -> int:
        """How many neighbouring columns share what `compensation` says of them."""
        return 1

    @property
    def compensation(self) -> Double | None:
        """The upper Cholesky factor of `C^-1` `[in / repeat, in / repeat]`, C damped by 1 %.

        None where columns have nothing to do with each other, so that none can make up for another.
        """
        return None

    @abstractmethod
    def products(self, left: AnyArray, right: AnyArray) -> Double:
        """`a C b` `[rows]` of each row a of one matrix `[rows, in]` and b of another.

        In single precision but for the last sum: it is far quicker, and exact to some 1e-6.
        """

    def energy(self, matrix: AnyArray) -> float:
        """`tr(W C W^T)`, the mean squared length of what W `[rows, in]` makes."""
        return float(self.products(matrix, matrix).sum())


class DiagonalMoments(SecondMoments):
    """Numbers that are read independently of each other."""

    def __init__(self, diagonal: AnyArray) -> None:
        """Of the mean squares `[in]`; 1e-5 of their mean is added."""
        values = diagonal.astype(np.float64)
        # What was never read weighs every direction alike.
        self._diagonal = values + (_RIDGE * float(values.mean()) or 1.0)

    @classmethod
    def alike(cls, size: int) -> "DiagonalMoments":
        """Those of a matrix of which nothing is known."""
        return cls(np.ones(size))

    @property
    def diagonal(self) -> Double:
        """The mean square of each number `[in]`."""
        return self._diagonal

    def times(self, matrix: AnyArray) -> Double:
        """`W C`."""
        return matrix * self._diagonal

    def times_root(self, matrix: AnyArray) -> Double:
        """`W C^(1/2)`."""
        return matrix * np.sqrt(self._diagonal)

    def times_inverse_root(self, matrix: AnyArray) -> Double:
        """`W C^(-1/2)`."""
        return matrix / np.sqrt(self._diagonal)

    def products(self, left: AnyArray, right: AnyArray) -> Double:
        """`a C b` of rows."""
        return (left * right.astype(np.float64)) @ self._diagonal


class FullMoments(SecondMoments):
    """Moments of all pairs of channels.

    With `repeat` k, each channel is k neighbouring columns, as in the patches of a convolution; the
    places in a patch count as alike and independent: `C` is the channels' moments times identity.
    """

    def __init__(self, channels: AnyArray, repeat: int = 1) -> None:
        """Of `E[x x^T]` `[in / repeat, in / repeat]`; 1e-5 of the mean diagonal is added."""
        values = channels.astype(np.float64)
        mean = float(np.trace(values)) / len(values)
        self._channels = values + (_RIDGE * mean or 1.0) * np.eye(len(values))
        self._repeat = repeat

    @property
    def repeat(self) -> int:
        """Columns of a channel."""
        return self._repeat

    @property
    def diagonal(self) -> Double:
        """The mean square of each number `[in]`."""
        return np.repeat(np.diagonal(self._channels), self._repeat)

    def times(self, matrix: AnyArray) -> Double:
        """`W C`."""
        return self._by_channel(matrix, self._channels)

    def times_root(self, matrix: AnyArray) -> Double:
        """`W C^(1/2)`."""
        return self._by_channel(matrix, self._roots[0])

    def times_inverse_root(self, matrix: AnyArray) -> Double:
        """`W C^(-1/2)`."""
        return self._by_channel(matrix, self._roots[1])

    def products(self, left: AnyArray, right: AnyArray) -> Double:
        """`a C b` of rows."""
        if self._repeat > 1:
            left, right = (channel_rows(matrix, self._repeat) for matrix in (left, right))
        made = left.astype(np.float32) @ self._single
        sums = np.einsum("rc,rc->r", made, right, dtype=np.float64)
        return sums.reshape(-1, self._repeat).sum(1)

    @property
    def compensation(self) -> Double:
        """The upper Cholesky factor of the inverse."""
        return self._upper

    @cached_property
    def _single(self) -> Matrix:
        return self._channels.astype(np.float32)

    @cached_property
    def _upper(self) -> Double:
        damping = _DAMPING * float(np.trace(self._channels)) / len(self._channels)
        damped = self._channels + damping * np.eye(len(self._channels))
        inverse = np.linalg.inv(damped)
        # An inverse is symmetric but for rounding, and Cholesky's method reads one half of it.
        return np.ascontiguousarray(np.linalg.cholesky((inverse + inverse.T) / 2).T, np.float64)

    @cached_property
    def _roots(self) -> tuple[Double, Double]:
        values, vectors = np.linalg.eigh(self._channels)
        root = np.sqrt(np.maximum(values, values[-1] * _SMALLEST))
        return (vectors * root) @ vectors.T, (vectors / root) @ vectors.T

    def _by_channel(self, matrix: AnyArray, factor: Double) -> Double:
        if self._repeat == 1:
            return matrix @ factor
        return whole_columns(channel_rows(matrix, self._repeat) @ factor, self._repeat)


def channel_rows(matrix: AnyArray, repeat: int) -> AnyArray:
    """A matrix `[rows, channels * repeat]` as `[rows * repeat, channels]`."""
    rows, columns = matrix.shape
    by_place = matrix.reshape(rows, columns // repeat, repeat).transpose(0, 2, 1)
    return by_place.reshape(rows * repeat, -1)


def whole_columns(matrix: AnyArray, repeat: int) -> AnyArray:
    """The reverse of `channel_rows`."""
    rows, channels = matrix.shape
    by_place = matrix.reshape(rows // repeat, repeat, channels).transpose(0, 2, 1)
    return by_place.reshape(rows // repeat, -1)
