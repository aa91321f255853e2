"""What all copy tasks have in common, and those that count every step."""

import math
from abc import ABC, abstractmethod
from typing import ClassVar

from models.interface import Classes, Interface
from models.spec import Signature
from search.tasks.classification import cross_entropy_of_steps
from search.tasks.raw_samples import RawSamples, first_batch
from search.tasks.samples import Splits
from search.tasks.soft_targets import soft_classes
from search.tasks.sources import DataSources, DownloadProgress
from search.tasks.synthetic import copying
from search.tasks.synthetic.copying import DATA_STEPS, EIGHT_SYMBOLS, Alphabet, CopyMeter, Symbols
from search.tasks.synthetic.generated import Generated, GeneratedTask
from search.tasks.task import Metric


class CopyingTask(GeneratedTask, ABC):
    """Symbols that are shown, and to be repeated later."""

    alphabet: ClassVar[Alphabet]

    def load(
        self,
        sources: DataSources,  # noqa: ARG002 -- no file is read
        *,
        progress: DownloadProgress | None = None,  # noqa: ARG002 -- nothing is downloaded
    ) -> Splits[Generated]:
        """Describe the splits; their samples are made when they are taken."""
        return self.splits(copying.encoded(self.shown_and_answered, self.alphabet))

    def interface(self, sources: DataSources) -> Interface:  # noqa: ARG002 -- no file is read
        """One-hot symbols as they are generated, and a symbol at every step."""
        return Interface(
            sample=("steps", self.alphabet.size),
            answer=Classes(classes=self.alphabet.names),
            metric=self.metric.name,
        )

    def raw_samples(self, sources: DataSources) -> RawSamples:
        """Samples as they are generated."""
        numbers = self.alphabet.size * self.signature().sequence_length
        batch = first_batch(self.load(sources).validation, numbers=numbers)
        return RawSamples(batch.x, batch.y).fitting()

    @property
    @abstractmethod
    def metric(self) -> Metric:
        """See `search.tasks.task.Criterion`."""

    @abstractmethod
    def signature(self) -> Signature:
        """See `search.tasks.task.Task`."""

    loss = staticmethod(cross_entropy_of_steps)
    soft_loss = staticmethod(soft_classes)

    @property
    def asks_for_classes(self) -> bool:
        """Whether targets are classes: they are."""
        return True

    @abstractmethod
    def shown_and_answered(self, rows: Symbols) -> tuple[Symbols, Symbols]:
        """What some rows' sequences show, and what is to be answered, `[B, steps]` each."""


class LaggedCopy(CopyingTask, ABC):
    """Symbols out of eight, to be repeated after a signal, in T + 20 steps that all count.

    A memoryless answer is blank where that is right, and guesses among the eight symbols elsewhere.
    """

    alphabet: ClassVar[Alphabet] = EIGHT_SYMBOLS
    symbols_to_recall: ClassVar[float] = DATA_STEPS
    """In the mean."""

    lag: int

    @property
    def metric(self) -> Metric:
        """Cross-entropy; its baseline is that of the memoryless answer."""
        return copying.cross_entropy_metric(self.symbols_to_recall * math.log(8) / self.steps)

    def signature(self) -> Signature:
        """Ten symbols in and ten logits out at each of T + 20 steps."""
        return copying.signature(EIGHT_SYMBOLS, steps=self.steps)

    def meter(self) -> CopyMeter:
        """Cross-entropy, and accuracy over the steps that repeat data."""
        return CopyMeter(EIGHT_SYMBOLS)

    @property
    def steps(self) -> int:
        """Of a sequence."""
        return self.lag + 2 * DATA_STEPS
