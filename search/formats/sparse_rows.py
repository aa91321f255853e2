"""Rows of numbers of which most are 0: the common form of what sparse text formats hold."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

ARRAYS = ("starts", "columns", "values", "width")
"""What rows are kept as in files."""


@dataclass(frozen=True)
class SparseRows:
    """A matrix `[N, columns]` as compressed rows; what is not listed is 0."""

    starts: NDArray[Any]
    """`[N + 1]` int64: row i's numbers are at starts[i]..starts[i + 1]."""
    columns: NDArray[Any]
    """`[numbers]` int32, ascending within a row."""
    values: NDArray[Any]
    """`[numbers]` float32."""
    width: int
    """How many columns there are."""

    def __len__(self) -> int:
        return len(self.starts) - 1

    @classmethod
    def of(cls, rows: Iterable[Sequence[tuple[int, float]]], *, width: int) -> "SparseRows":
        """Collect rows of (column, value), ascending by column."""
        starts, columns, values = [0], list[int](), list[float]()
        for row in rows:
            columns += [column for column, _ in row]
            values += [value for _, value in row]
            starts.append(len(columns))
        return cls(
            np.array(starts, np.int64),
            np.array(columns, np.int32),
            np.array(values, np.float32),
            width,
        )

    @classmethod
    def named(cls, arrays: Mapping[str, NDArray[Any]], name: str) -> "SparseRows":
        """Take back what `arrays` gave under a name."""
        starts, columns, values, width = (arrays[f"{name}_{field}"] for field in ARRAYS)
        return cls(starts, columns, values, int(width))

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Give the arrays to be kept, `<name>_<array>` for each of `ARRAYS`."""
        fields = (self.starts, self.columns, self.values, np.array(self.width))
        return {f"{name}_{field}": array for field, array in zip(ARRAYS, fields, strict=True)}

    def dense(self) -> NDArray[Any]:
        """Write all zeros out: `[N, width]` float32."""
        full = np.zeros((len(self), self.width), dtype=np.float32)
        full[self._row_of_each(), self.columns] = self.values
        return full

    def rows(self, chosen: NDArray[Any]) -> "SparseRows":
        """Give some rows, in the order asked for."""
        lengths = np.diff(self.starts)[chosen]
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        # Where each number is: its row's start here, and its place within the row.
        shifts = np.repeat(self.starts[chosen] - starts[:-1], lengths)
        places = shifts + np.arange(len(shifts))
        return SparseRows(starts, self.columns[places], self.values[places], self.width)

    def only(self, chosen: NDArray[Any]) -> "SparseRows":
        """Give some columns, ascending, numbered anew from 0."""
        renumbered = np.full(self.width, -1, dtype=np.int32)
        renumbered[chosen] = np.arange(len(chosen), dtype=np.int32)
        kept = renumbered[self.columns] >= 0
        counts = np.bincount(self._row_of_each()[kept], minlength=len(self))
        return SparseRows(
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            renumbered[self.columns[kept]],
            self.values[kept],
            len(chosen),
        )

    def _row_of_each(self) -> NDArray[Any]:
        return np.repeat(np.arange(len(self)), np.diff(self.starts))


def ascending(row: list[tuple[int, float]], *, what: str) -> list[tuple[int, float]]:
    """Sort a row by column.

    Raises:
        ValueError: A column occurs twice.
    """
    ordered = sorted(row)
    for (one, _), (next_one, _) in itertools.pairwise(ordered):
        if one == next_one:
            raise ValueError(f"{what} {one} occurs twice")
    return ordered
