"""What every parser of users' files gives: series as they stand, and what is said of each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from search.errors import DataError
from search.uploads.dataset_metadata import Problem, ReadingOptions

UNASSIGNED = -1
"""The split of a sample that is in none yet; others are indices into `SPLIT_NAMES`."""

Targets: TypeAlias = tuple[str, ...] | NDArray[Any] | None
"""One word a sample, as in a text file, or an array `[N]` or `[N, K]`; None: there are none."""


@dataclass(frozen=True)
class Columns:
    """What a table calls its columns, in their order."""

    names: tuple[str, ...]
    target: int | None
    """The target's column; None: there is none."""

    @property
    def parted(self) -> tuple[str | None, tuple[str, ...]]:
        """The target's name, and those of the values."""
        if self.target is None:
            return None, self.names
        return self.names[self.target], (
            *self.names[: self.target],
            *self.names[self.target + 1 :],
        )


@dataclass(frozen=True)
class RawDataset:
    """N samples of at most T steps of F features, before anything is decided about them."""

    x: NDArray[np.float32]
    """`[N, T, F]`; NaN is a missing value, and 0 stands behind a sample's own length."""
    lengths: NDArray[np.int64]
    """`[N]`, from 1 to T."""
    targets: Targets
    split: NDArray[np.int8]
    """`[N]`"""
    problem: Problem | None = None
    """What the file itself says it is for."""
    lengths_given: bool = False
    """Whether the file names the lengths: padding was its author's decision."""
    columns: Columns | None = None
    """None: the file names none."""


Reader: TypeAlias = Callable[[BinaryIO, ReadingOptions, int, Columns | None], RawDataset]
"""A parser: a seekable file, how to read it, the bytes that x may take, and the columns of the
training file where this is the test file that came with it."""


def stacked(
    series: Sequence[NDArray[np.float32]], most_bytes: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Join series `[T_i, F]` into x `[N, T, F]`, padded behind with 0, and their lengths `[N]`.

    Raises:
        DataError: There are none, or x takes more than `most_bytes`.
    """
    if not series:
        raise DataError("there are no samples: 0 rows of data")
    lengths = np.array([len(one) for one in series], dtype=np.int64)
    shape = (len(series), int(lengths.max()), series[0].shape[1])
    check_size(shape, most_bytes)
    x = np.zeros(shape, dtype=np.float32)
    for row, one in zip(x, series, strict=True):
        row[: len(one)] = one
    return x, lengths


def check_size(shape: tuple[int, int, int], most_bytes: int) -> None:
    """Refuse samples that take too much room.

    Raises:
        DataError: float32 numbers of this shape take more than `most_bytes`.
    """
    samples, steps, features = shape
    size = 4 * samples * steps * features
    if size > most_bytes:
        raise DataError(
            f"{samples} samples of {steps} steps of {features} features take {size} bytes "
            f"as float32; at most {most_bytes}"
        )


def unassigned(count: int) -> NDArray[np.int8]:
    """The split of samples whose file names none, `[count]`."""
    return np.full(count, UNASSIGNED, dtype=np.int8)


def joined(parts: Sequence[RawDataset], most_bytes: int) -> RawDataset:
    """The samples of several parts, one after the other.

    Raises:
        DataError: The parts do not fit each other, or take more than `most_bytes` together.
    """
    first, targets = parts[0], _joined_targets([part.targets for part in parts])
    for part in parts[1:]:
        if part.x.shape[2] != first.x.shape[2]:
            raise DataError(
                f"the parts differ: {first.x.shape[2]} features and {part.x.shape[2]} features"
            )
        if part.problem != first.problem:
            raise DataError(f"the parts differ: one says {first.problem}, one {part.problem}")
    steps = max(part.x.shape[1] for part in parts)
    shape = (sum(len(part.x) for part in parts), steps, first.x.shape[2])
    check_size(shape, most_bytes)
    x = np.zeros(shape, dtype=np.float32)
    begin = 0
    for part in parts:
        x[begin : begin + len(part.x), : part.x.shape[1]] = part.x
        begin += len(part.x)
    return RawDataset(
        x=x,
        lengths=np.concatenate([part.lengths for part in parts]),
        targets=targets,
        split=np.concatenate([part.split for part in parts]),
        problem=first.problem,
        lengths_given=any(part.lengths_given for part in parts),
    )


def _joined_targets(targets: Sequence[Targets]) -> Targets:
    words = [part for part in targets if isinstance(part, tuple)]
    arrays = [part for part in targets if isinstance(part, np.ndarray)]
    if len(words) == len(targets):
        return tuple(word for part in words for word in part)
    if not words and not arrays:
        return None
    if len(arrays) < len(targets):
        raise DataError("the parts differ: targets are missing in one of them")
    if len({(array.shape[1:], array.dtype.kind in "SU") for array in arrays}) > 1:
        shapes = " and ".join(f"{array.dtype} {array.shape}" for array in arrays)
        raise DataError(f"the parts differ: their targets are {shapes}")
    return np.concatenate(arrays)
