"""A split whose samples are kept without their zeros and written out batch by batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from search.formats.sparse_rows import SparseRows
from search.tasks.samples import Batch


@dataclass(frozen=True)
class _Matrix:
    """`SparseRows` as tensors on a device."""

    starts: Tensor
    columns: Tensor
    values: Tensor
    width: int

    @classmethod
    def of(cls, rows: SparseRows) -> "_Matrix":
        return cls(
            torch.as_tensor(rows.starts),
            torch.as_tensor(rows.columns),
            torch.as_tensor(rows.values),
            rows.width,
        )

    def to(self, device: torch.device) -> "_Matrix":
        return _Matrix(
            self.starts.to(device), self.columns.to(device), self.values.to(device), self.width
        )

    def dense(self, rows: Tensor) -> Tensor:
        """Write some rows out: `[B, width]` float32."""
        first = self.starts[rows]
        lengths = self.starts[rows + 1] - first
        row_of_each = torch.repeat_interleave(lengths)
        shifts = first - (lengths.cumsum(0) - lengths)
        places = shifts[row_of_each] + torch.arange(len(row_of_each), device=rows.device)
        full = torch.zeros(len(rows), self.width, device=rows.device)
        full[row_of_each, self.columns[places].long()] = self.values[places]
        return full


@dataclass(frozen=True)
class SparseSplit:
    """Samples of one kind of flat vectors with targets of another, both mostly 0.

    `take` gives x `[B, steps, features / steps]` and y `[B, labels]`, both float32.
    """

    features: _Matrix
    targets: _Matrix
    steps: int

    @classmethod
    def of(cls, features: SparseRows, targets: SparseRows, *, steps: int) -> "SparseSplit":
        """Take in as many rows of targets as of features, whose width `steps` divides."""
        return cls(_Matrix.of(features), _Matrix.of(targets), steps)

    @property
    def carries_state(self) -> bool:
        """Samples are independent of each other."""
        return False

    def __len__(self) -> int:
        return len(self.features.starts) - 1

    def batches(self, size: int, generator: torch.Generator | None) -> Sequence[Tensor]:
        """All samples once: in a fresh permutation, or as they come."""
        count = len(self)
        rows = (
            torch.arange(count) if generator is None else torch.randperm(count, generator=generator)
        )
        return torch.split(rows.to(self.features.starts.device), size)

    def take(self, batch: Tensor) -> Batch:
        """The samples of some rows."""
        x = self.features.dense(batch)
        return Batch(x.view(len(batch), self.steps, -1), self.targets.dense(batch))

    def to(self, device: torch.device) -> Self:
        """The same samples on a device."""
        return type(self)(self.features.to(device), self.targets.to(device), self.steps)
