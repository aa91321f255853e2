"""What a task is: sizes, data in three splits, a loss to train on and metrics to report."""

from collections.abc import Mapping
from typing import ClassVar, Literal, Protocol, Self

from torch import Tensor

from models.spec import Signature, Spec
from search.tasks.samples import Splits
from search.tasks.sources import DataSources, DownloadProgress

IGNORED = -100
"""The target of steps that are no part of a sample or of its loss: `F.cross_entropy` skips it."""


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


class Meter(Protocol):
    """Adds up predictions, batch by batch, to a split's metrics."""

    def add(self, output: Tensor, target: Tensor) -> None:
        """Take in a batch: what the model gave and what the samples say, as the loss gets them."""
        ...

    def values(self) -> Mapping[str, float]:
        """All metrics of what was added, by name; the task's own is among them."""
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

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Give the mean training loss over a batch, as a scalar that can be differentiated."""
        ...

    def soft_loss(
        self, output: Tensor, teacher: Tensor, target: Tensor, temperature: float
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

    def signature(self) -> Signature:
        """The shapes at both ends of a model for this task.

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
