"""The addition task: two of many numbers are marked, and their sum is asked for."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from models.interface import Interface, Numbers
from models.spec import Signature
from search.tasks.dataset.regression import squared_error
from search.tasks.raw_samples import RawSamples, first_batch
from search.tasks.samples import Splits
from search.tasks.soft_targets import soft_numbers
from search.tasks.sources import DataSources, DownloadProgress
from search.tasks.synthetic import hashed
from search.tasks.synthetic.generated import Generated, GeneratedTask
from search.tasks.task import NOT_NEGATIVE, SHARE, Metric, Range

Markers = Literal["halves", "anywhere"]

_CLOSE = 0.04


class Addition(GeneratedTask):
    """Sequences of T steps of a number, uniform in [0, 1), and a marker, 1 at two steps and else 0.

    The target is the sum of the two marked numbers, asked after the last step. The metric is the
    mean squared error; its baseline, 1/6, is always answering 1 (the variance of a sum of two
    uniform numbers). `accuracy_0_04` is the share of errors below 0.04, as Mhammedi et al. (ICML
    2017) count it; always answering 1 gets 0.078.
    """

    title: ClassVar[str] = "Addition of two marked numbers"
    paper: ClassVar[str] = (
        "Hochreiter, Schmidhuber: Long Short-Term Memory (Neural Computation 9, 1997), in the form "
        "of Arjovsky, Shah, Bengio: Unitary Evolution Recurrent Neural Networks (ICML 2016, "
        "arXiv:1511.06464)"
    )

    kind: Literal["addition"] = "addition"
    steps: int = Field(
        default=100,
        ge=2,
        le=10_000,
        description="T; spectral RNNs were tried at 30, 100 and 300, low-rank GRUs at 750",
    )
    markers: Markers = Field(
        default="halves",
        description="halves: one marker in the first T // 2 steps and one in the others; anywhere: "
        "at any two different steps",
    )
    test_markers: Markers | None = Field(
        default=None,
        description="of the test samples, null: as the others; low-rank GRUs were trained with "
        "halves and tested with anywhere",
    )
    train_samples: int = Field(
        default=10_000,
        ge=1,
        le=10_000_000,
        description="per epoch; 100,000 for unitary RNNs and low-rank GRUs (10,000 for tests), "
        "50,000 for spectral RNNs (1,000), endlessly fresh ones for orthogonal RNNs",
    )

    @property
    def metric(self) -> Metric:
        """Mean squared error."""
        return Metric(
            name="mse", direction="minimize", unit="squared error of the sum", baseline=1 / 6
        )

    def signature(self) -> Signature:
        """A number and a marker per step, and one number after the last."""
        return Signature(input_size=2, sequence_length=self.steps, output_size=1)

    def load(
        self,
        sources: DataSources,  # noqa: ARG002 -- no file is read
        *,
        progress: DownloadProgress | None = None,  # noqa: ARG002 -- nothing is downloaded
    ) -> Splits[Generated]:
        """Describe the splits; their samples are made when they are taken."""
        return self.splits(
            partial(self._make, self.markers),
            make_test=partial(self._make, self.test_markers or self.markers),
        )

    def interface(self, sources: DataSources) -> Interface:  # noqa: ARG002 -- no file is read
        """Samples as they are generated, and the sum."""
        return Interface(sample=("steps", 2), answer=Numbers(), metric=self.metric.name)

    def raw_samples(self, sources: DataSources) -> RawSamples:
        """Samples as they are generated."""
        batch = first_batch(self.load(sources).validation, numbers=2 * self.steps)
        return RawSamples(batch.x, batch.y).fitting()

    loss = staticmethod(squared_error)
    soft_loss = staticmethod(soft_numbers)

    @property
    def asks_for_classes(self) -> bool:
        """Whether targets are classes: they are not."""
        return False

    def meter(self) -> "AdditionMeter":
        """Mean squared error, and the share of small errors."""
        return AdditionMeter()

    def _make(self, markers: Markers, rows: Tensor) -> tuple[Tensor, Tensor]:
        bits = hashed.words(self.seed, rows.numpy(), 2 + self.steps)
        first, second = _PLACES[markers](bits[:, 0], bits[:, 1], self.steps)
        numbers = hashed.uniform(bits[:, 2:])
        sample = np.arange(len(rows))
        x = np.zeros((len(rows), self.steps, 2), np.float32)
        x[:, :, 0] = numbers
        x[sample, first, 1] = x[sample, second, 1] = 1
        y = numbers[sample, first] + numbers[sample, second]
        return torch.as_tensor(x), torch.as_tensor(y[:, None])


class AdditionMeter:
    """Mean squared error of answers [B, 1], and the share of those closer than 0.04 to the sum."""

    def __init__(self) -> None:
        self._squares = 0.0
        self._close = 0
        self._samples = 0

    def add(self, output: Tensor, target: Tensor) -> None:
        """Count a batch."""
        error = (output - target).abs()
        self._squares += error.double().square().sum().item()
        self._close += int((error < _CLOSE).sum().item())
        self._samples += target.numel()

    @property
    def ranges(self) -> Mapping[str, Range]:
        """An error and a share."""
        return {"mse": NOT_NEGATIVE, "accuracy_0_04": SHARE}

    def values(self) -> Mapping[str, float]:
        """Mean squared error and accuracy."""
        return {
            "mse": self._squares / self._samples,
            "accuracy_0_04": self._close / self._samples,
        }


Bits = NDArray[np.uint64]
Places = tuple[NDArray[np.int64], NDArray[np.int64]]


def _in_halves(one: Bits, other: Bits, steps: int) -> Places:
    half = steps // 2
    return hashed.below(one, half), half + hashed.below(other, steps - half)


def _anywhere(one: Bits, other: Bits, steps: int) -> Places:
    first = hashed.below(one, steps)
    # One of the other places: those from the first one on move up by one.
    second = hashed.below(other, steps - 1)
    return first, second + (second >= first)


_PLACES: Mapping[Markers, Callable[[Bits, Bits, int], Places]] = {
    "halves": _in_halves,
    "anywhere": _anywhere,
}
