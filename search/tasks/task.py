"""What a task is: sizes, data in three splits, a loss to train on and a metric to report."""

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor

from models.spec import Signature, Spec
from search.tasks.sources import DataSources, DownloadProgress


class Metric(Spec):
    """The number by which a task's models are compared."""

    name: str
    direction: Literal["maximize", "minimize"]
    unit: str
    baseline: float
    """The quality of the trivial predictor; each task says which one that is."""

    def is_better(self, value: float, than: float) -> bool:
        """Whether `value` is strictly better than `than`."""
        return value > than if self.direction == "maximize" else value < than


@dataclass(frozen=True)
class Split:
    """Samples in memory: x [N, T, features] float32 and their targets, for classes y [N] int64."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return self.x.shape[0]

    def to(self, device: torch.device) -> "Split":
        """The same samples on a device."""
        return Split(self.x.to(device), self.y.to(device))


@dataclass(frozen=True)
class Splits:
    """Disjoint samples: gradients see `train`, the search `validation`; `test` chooses nothing."""

    train: Split
    validation: Split
    test: Split

    @property
    def sizes(self) -> dict[str, int]:
        """The number of samples of each split, by name."""
        return {
            "train": len(self.train),
            "validation": len(self.validation),
            "test": len(self.test),
        }

    def to(self, device: torch.device) -> "Splits":
        """The same samples on a device."""
        return Splits(self.train.to(device), self.validation.to(device), self.test.to(device))


class Task(Protocol):
    """What training and the service ask of a task; every class of the union answers it."""

    title: ClassVar[str]
    paper: ClassVar[str]

    @property
    def kind(self) -> str:
        """The task's name in a study spec."""
        ...

    @property
    def metric(self) -> Metric:
        """The metric of validation and test quality; known without reading data."""
        ...

    def signature(self) -> Signature:
        """The shapes at both ends of a model for this task; known without reading data."""
        ...

    def load(self, sources: DataSources, *, progress: DownloadProgress | None = None) -> Splits:
        """Read the data, fetching it first where that is possible.

        The same files give the same splits, sample for sample and in the same order.

        Raises:
            DataError: A file is missing, damaged or could not be fetched.
        """
        ...

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Give the mean training loss over a batch, as a scalar that can be differentiated."""
        ...

    def quality(self, output: Tensor, target: Tensor) -> float:
        """Give the metric's value over all samples of a split."""
        ...
