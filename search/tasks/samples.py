"""The samples of a split, and how they come in batches."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, Self, cast

import torch
from torch import Tensor
from typing_extensions import TypeVar

IGNORED = -100
"""The target of steps that are no part of a sample or of its loss: `F.cross_entropy` skips it."""

EVALUATION_ROWS = 256
"""Samples of a batch that is only evaluated, unless a task takes fewer."""


@dataclass(frozen=True)
class Batch:
    """Samples that are shown to a model together."""

    x: Tensor
    """`[B, T, features]` float32, or `[B, T]` int64 where the signature has a vocabulary."""
    y: Tensor
    """As the task's loss takes it: `[B]` or `[B, ...]`, or `[B, T]` for an answer at every step."""
    lengths: Tensor | None = None
    """`[B]` int64, at least 1: steps of each sample, where they differ; what follows is padding."""
    weight: int | None = None
    """What the batch counts for in a mean over batches; None: its samples."""

    @property
    def counts(self) -> int:
        """What the batch counts for in a mean over batches."""
        return len(self.x) if self.weight is None else self.weight


@dataclass(frozen=True)
class Batches:
    """A batch for each of K models, all of B samples."""

    x: Tensor
    """`[K, B, ...]`, padded to the longest of all."""
    y: Tensor
    """`[K, B, ...]`."""
    lengths: Tensor | None
    """`[K, B]`, see `Batch`."""
    counts: Sequence[int]
    """What each counts for in a mean over batches."""


class Samples(Protocol):
    """One split. What it gives depends on nothing but itself and the generator it is given."""

    @property
    def carries_state(self) -> bool:
        """Whether row i of a batch goes on where row i of the one before ended, all epoch long.

        The model then begins each batch in the state in which it ended the last one.
        """
        ...

    def __len__(self) -> int:
        """Samples, or tokens of a text."""
        ...

    def batches(self, size: int, generator: torch.Generator | None) -> Sequence[Tensor]:
        """An epoch's batches, each named by what `take` reads it from.

        Args:
            size: rows of a batch; the last one may be smaller.
            generator: draws the order, and what else is drawn anew in each epoch; without one the
                order is the split's own and the same each time, as for evaluation.
        """
        ...

    def take(self, batch: Tensor) -> Batch:
        """The samples of a batch that `batches` named, on the split's device.

        Unless the state is carried on, names of several batches one behind the other name the
        samples of all, padded to the longest.
        """
        ...

    def to(self, device: torch.device) -> Self:
        """The same samples on a device."""
        ...


def take_each(samples: Samples, batches: Sequence[Tensor]) -> Batches:
    """Take a batch for each of several models.

    Raises:
        ValueError: the models read other rows of a text, whose batches cannot be taken together.
    """
    first, members = batches[0], len(batches)
    if samples.carries_state:
        if not all(torch.equal(one, first) for one in batches):
            raise ValueError("models that read a text together read the same rows of it")
        batch = samples.take(first)
        x, y = (one.expand(members, *one.shape) for one in (batch.x, batch.y))
        return Batches(x, y, None, [batch.counts] * members)
    batch = samples.take(torch.cat([*batches]))

    def each(of_all: Tensor) -> Tensor:
        return of_all.view(members, len(first), *of_all.shape[1:])

    counts = [len(first)] * members
    if batch.weight is not None:
        counted: Any = (each(batch.y) != IGNORED).flatten(1).sum(1)
        counts = cast(list[int], counted.tolist())
    lengths = None if batch.lengths is None else each(batch.lengths)
    return Batches(each(batch.x), each(batch.y), lengths, counts)


@dataclass(frozen=True)
class Split:
    """Samples in memory: x [N, T, features] float32 and their targets, for classes y [N] int64."""

    x: Tensor
    y: Tensor
    lengths: Tensor | None = None
    """`[N]` int64: steps of each sample, where they differ."""

    @property
    def carries_state(self) -> bool:
        """Samples are independent of each other."""
        return False

    def __len__(self) -> int:
        return self.x.shape[0]

    def batches(self, size: int, generator: torch.Generator | None) -> Sequence[Tensor]:
        """All samples once: in a fresh permutation, or as they come."""
        count = len(self)
        rows = (
            torch.arange(count) if generator is None else torch.randperm(count, generator=generator)
        )
        return torch.split(rows.to(self.x.device), size)

    def take(self, batch: Tensor) -> Batch:
        """The samples of some rows."""
        lengths = None if self.lengths is None else self.lengths.index_select(0, batch)
        return Batch(self.x.index_select(0, batch), self.y.index_select(0, batch), lengths)

    def to(self, device: torch.device) -> Self:
        """The same samples on a device."""
        lengths = None if self.lengths is None else self.lengths.to(device)
        return type(self)(self.x.to(device), self.y.to(device), lengths)


S_co = TypeVar("S_co", bound=Samples, covariant=True, default=Samples)


@dataclass(frozen=True)
class Splits(Generic[S_co]):
    """Disjoint samples: gradients see `train`, the search `validation`; `test` chooses nothing."""

    train: S_co
    validation: S_co
    test: S_co
    chooses: bool = field(default=True, kw_only=True)
    """Whether validation tells the best epoch; else gradients see it too, and the last stays."""

    @property
    def sizes(self) -> dict[str, int]:
        """The number of samples of each split, by name."""
        return {
            "train": len(self.train),
            "validation": len(self.validation),
            "test": len(self.test),
        }

    def to(self, device: torch.device) -> "Splits[S_co]":
        """The same samples on a device."""
        moved = (one.to(device) for one in (self.train, self.validation, self.test))
        return Splits(*moved, chooses=self.chooses)
