"""Samples that are computed when a batch asks for them, and what tasks of such samples share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from pydantic import Field
from torch import Tensor

from models.spec import Spec
from search.tasks.samples import EVALUATION_ROWS, Batch, Splits
from search.tasks.sources import DataSources

Make = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Gives x and y of some rows, `[B]` int64 on the CPU; each sample follows from its row alone."""

_CPU = torch.device("cpu")

# Each split has rows of its own, so that none is in two; the longest split has far fewer than 2^32.
TEST_ROWS = range(0, 2**32)
VALIDATION_ROWS = range(2**32, 2**33)
TRAINING_ROWS = range(2**33, 2**62)


@dataclass(frozen=True)
class Generated:
    """A split of `size` consecutive rows that `make` turns into samples, batch by batch.

    Nothing but a batch is ever in memory. Rows of different splits never coincide; that two rows
    give equal samples is as likely as it is for independent draws, and where a task has few
    different samples it happens.
    """

    make: Make
    rows: range
    """Those that may be used; all fixed splits begin with its first."""
    size: int
    fresh: bool = False
    """Each epoch has `size` new rows, from a place in `rows` that its generator draws."""
    device: torch.device = _CPU

    @property
    def carries_state(self) -> bool:
        """Samples are independent of each other."""
        return False

    def __len__(self) -> int:
        return self.size

    def batches(self, size: int, generator: torch.Generator | None) -> Sequence[Tensor]:
        """The split's rows in a fresh permutation, new rows where they are fresh, or as they come.

        Rows stay on the CPU, where samples are made of them.
        """
        if generator is None:
            order = torch.arange(self.size)
        elif self.fresh:
            places = len(self.rows) - self.size + 1
            order = torch.arange(self.size) + torch.randint(places, (1,), generator=generator)
        else:
            order = torch.randperm(self.size, generator=generator)
        return torch.split(order + self.rows.start, size)

    def take(self, batch: Tensor) -> Batch:
        """Make the samples of some rows."""
        x, y = self.make(batch)
        return Batch(x.to(self.device), y.to(self.device))

    def to(self, device: torch.device) -> Self:
        """The same samples, which are made on the CPU and then moved."""
        return replace(self, device=device)


class GeneratedTask(Spec):
    """How many samples a generated task has in each split, and what they are drawn from.

    All sizes are known from the document, and no file is read.
    """

    evaluation_rows: ClassVar[int] = EVALUATION_ROWS

    train_samples: int = Field(default=10_000, ge=1, le=10_000_000, description="per epoch")
    fresh: bool = Field(
        default=False,
        description="whether each epoch has new training samples instead of the same ones again",
    )
    validation_samples: int = Field(
        default=1_000, ge=1, le=10_000_000, description="samples that quality is measured on"
    )
    test_samples: int = Field(
        default=1_000, ge=1, le=10_000_000, description="samples that choose nothing"
    )
    seed: int = Field(default=0, ge=0, lt=2**32, description="of the samples")

    @classmethod
    def example(cls) -> Self:
        """The task as it is when nothing is said."""
        return cls()

    def resolved(self, sources: DataSources) -> Self:  # noqa: ARG002 -- nothing follows from files
        """The same: all sizes are known."""
        return self

    def data_bytes(self) -> int:
        """The rows' numbers in the order of an epoch; samples are made batch by batch."""
        return 16 * max(self.train_samples, self.validation_samples, self.test_samples)

    def splits(self, make: Make, *, make_test: Make | None = None) -> Splits[Generated]:
        """Splits of one kind of samples, or with test samples of another."""
        return Splits(
            Generated(make, TRAINING_ROWS, self.train_samples, fresh=self.fresh),
            Generated(make, VALIDATION_ROWS, self.validation_samples),
            Generated(make_test or make, TEST_ROWS, self.test_samples),
        )
