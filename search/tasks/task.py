"""What a task is: sizes, data in three splits, a loss to train on and metrics to report."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

from torch import Tensor

from models.interface import Interface
from models.spec import Signature, Spec
from search.documents.catalog import Metric
from search.tasks.raw_samples import RawSamples
from search.tasks.samples import Splits
from search.tasks.sources import DataSources, DownloadProgress


@dataclass(frozen=True)
class Range:
    """Which values a metric can have: finite ones, both ends included."""

    low: float = -math.inf
    high: float = math.inf

    def __contains__(self, value: float) -> bool:
        """Whether a metric can have this value."""
        return math.isfinite(value) and self.low <= value <= self.high

    def __str__(self) -> str:
        """In words, as a message says what is allowed."""
        if math.isinf(self.high):
            return "finite numbers" if math.isinf(self.low) else f"finite numbers from {self.low:g}"
        if math.isinf(self.low):
            return f"finite numbers up to {self.high:g}"
        return f"numbers from {self.low:g} to {self.high:g}"


SHARE = Range(0.0, 1.0)
"""That of accuracies, precisions and F1."""

NOT_NEGATIVE = Range(0.0)
"""That of errors and entropies."""


def differences(found: Spec, known: Spec) -> str:
    """The names of the fields in which two documents of a kind differ."""
    names = type(found).model_fields
    return ", ".join(name for name in names if getattr(found, name) != getattr(known, name))


class Meter(Protocol):
    """Adds up predictions, batch by batch, to a split's metrics."""

    @property
    def ranges(self) -> Mapping[str, Range]:
        """Which values each metric can have, by name, of all that `values` may give."""
        ...

    def add(self, output: Tensor, target: Tensor) -> None:
        """Take in a batch: what the model gave and what the samples say, as the loss gets them."""
        ...

    def values(self) -> Mapping[str, float]:
        """All metrics of what was added, by name; the task's own is among them."""
        ...


class MeasuredTask(Protocol):
    """Whatever has a metric of quality."""

    @property
    def metric(self) -> Metric:
        """See `Criterion.metric`."""
        ...


class Criterion(Protocol):
    """What training asks of a task: how wrong a model is, and how good."""

    @property
    def metric(self) -> Metric:
        """The metric of validation and test quality.

        Raises:
            TaskUnresolved: it follows from data that were not looked at.
        """
        ...

    def loss(self, output: Tensor, target: Tensor, /) -> Tensor:
        """Give the mean training loss over a batch, as a scalar that can be differentiated."""
        ...

    def soft_loss(
        self, output: Tensor, teacher: Tensor, target: Tensor, temperature: float, /
    ) -> Tensor:
        """Give how far answers are from another model's, see `search.tasks.soft_targets`."""
        ...

    def meter(self) -> Meter:
        """A meter that has seen nothing yet."""
        ...


class Task(Criterion, Protocol):
    """What training and the service ask of a task; every class of the union answers it.

    A task whose sizes follow from files or uploads has a field `facts`, None in what a user sends:
    `resolved` fills it in when a study is submitted. Until then such a task has neither metric nor
    signature.
    """

    title: ClassVar[str]
    paper: ClassVar[str]
    evaluation_rows: ClassVar[int]
    """Samples of a batch that is only evaluated, at most."""

    @classmethod
    def example(cls) -> Self:
        """A resolved document, for the catalog; its files need not be there."""
        ...

    @property
    def kind(self) -> str:
        """The task's name in a study spec."""
        ...

    def resolved(self, sources: DataSources) -> Self:
        """The same task with what follows from its data; nothing is downloaded.

        Raises:
            DataError: a file or an upload is missing or damaged; the message names it, and where
                it belongs.
        """
        ...

    @property
    def asks_for_classes(self) -> bool:
        """Whether targets are classes: of each sample, or of each step.

        Raises:
            TaskUnresolved: it follows from data that were not looked at.
        """
        ...

    def signature(self) -> Signature:
        """The shapes at both ends of a model for this task.

        Raises:
            TaskUnresolved: they follow from data that were not looked at.
        """
        ...

    def data_bytes(self) -> int:
        """Bytes that all splits take in memory together.

        Raises:
            TaskUnresolved: they follow from data that were not looked at.
        """
        ...

    def load(self, sources: DataSources, *, progress: DownloadProgress | None = None) -> Splits:
        """Read the data, fetching it first where that is possible.

        The same files give the same splits, sample for sample and in the same order.

        Raises:
            DataError: A file is missing, damaged, no longer what it was when the task was resolved,
                or could not be fetched.
        """
        ...

    def interface(self, sources: DataSources) -> Interface:
        """What stands around a model for this task: from a raw sample to an answer.

        Raises:
            DataError: as `load`, which was done before.
        """
        ...

    def raw_samples(self, sources: DataSources) -> RawSamples:
        """The first validation samples as they are before anything is done to them.

        Raises:
            DataError: as `load`, which was done before.
        """
        ...
