"""Jobs and hooks that several tests of training use."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from models.architectures import Gru, Rnn
from models.model import ModelSpec
from models.parametrizations import Dense, HouseholderSvd, LowRankDiagonal
from search.tasks import DataSources, Digits, Metric, Split, Splits
from search.tasks.task import Range
from search.training.jobs import EpochReport, TrainJob, Verdict
from search.training.trial_spec import TrainingSpec, TrialSpec

TASK = Digits(train_samples=200)
PIXELS = Digits(train_samples=200, layout="pixels")
SIGNATURE = TASK.signature()

MODELS = {
    "rnn-dense": ModelSpec(
        architecture=Rnn(hidden_size=16), parametrization=Dense(), signature=SIGNATURE
    ),
    "rnn-householder_svd": ModelSpec(
        architecture=Rnn(hidden_size=16),
        parametrization=HouseholderSvd(m1=4, m2=3, r=0.1),
        signature=SIGNATURE,
    ),
    "gru-low_rank_diagonal": ModelSpec(
        architecture=Gru(hidden_size=12),
        parametrization=LowRankDiagonal(d=3),
        signature=SIGNATURE,
    ),
}


class FixedMeter:
    """Says what it was made to say, whatever it is shown."""

    def __init__(self, name: str, value: float) -> None:
        self.ranges = {name: Range()}
        self._values = {name: value}

    def add(self, output: Tensor, target: Tensor) -> None:
        del output, target

    def values(self) -> dict[str, float]:
        return self._values


class Scripted:
    """The digits, with validation and test qualities from a list, in the order of asking."""

    title: ClassVar[str] = TASK.title
    paper: ClassVar[str] = TASK.paper
    kind = "digits"

    def __init__(
        self,
        *qualities: float,
        direction: str = "maximize",
        losses: dict[int, float] | None = None,
    ) -> None:
        """`losses` on held-out samples by evaluation, counted from 1; else 1."""
        self._qualities = list(qualities)
        self._losses = losses or {}
        self._evaluated = 0
        self.metric = Metric.model_validate(
            {"name": "score", "direction": direction, "unit": "points", "baseline": 0}
        )
        self.signature, self.load = TASK.signature, TASK.load
        self.targets: list[Tensor] = []

    soft_loss = staticmethod(TASK.soft_loss)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        if output.requires_grad:
            self.targets.append(target)
            return TASK.loss(output, target)
        return torch.tensor(self._losses.get(self._evaluated, 1.0))

    def meter(self) -> FixedMeter:
        self._evaluated += 1
        return FixedMeter(self.metric.name, self._qualities.pop(0))


def make_job(
    model: str = "rnn-dense",
    *,
    epochs: int = 3,
    seed: int = 7,
    checkpoint_seconds: float = 1e9,
    training: TrainingSpec | None = None,
) -> TrainJob:
    return TrainJob(
        task=TASK,
        trial=TrialSpec(
            model=MODELS[model],
            training=training or TrainingSpec(learning_rate=0.01, batch_size=64, decay=0.8),
            seed=seed,
        ),
        number=0,
        epochs=epochs,
        checkpoint_seconds=checkpoint_seconds,
    )


def make_overflowing_job(
    *, nan_recovery: float | None, checkpoint_seconds: float = 1e9
) -> TrainJob:
    """A linear recurrence over 64 steps, with steps so long that W^64 soon overflows."""
    return TrainJob(
        task=PIXELS,
        trial=TrialSpec(
            model=ModelSpec(
                architecture=Rnn(hidden_size=16, activation="leaky_relu", leak=1),
                parametrization=Dense(),
                signature=PIXELS.signature(),
            ),
            training=TrainingSpec(
                optimizer="adagrad", learning_rate=0.5, batch_size=20, nan_recovery=nan_recovery
            ),
            seed=1,
        ),
        number=0,
        epochs=3,
        checkpoint_seconds=checkpoint_seconds,
    )


def load_splits(cache: Path) -> Splits[Split]:
    return TASK.load(DataSources(cache=cache))


class RecordingHooks:
    """Keeps what training says; goes on until `stop_after` epochs."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.stood_still_seconds = 0.0
        self.reports: list[EpochReport] = []
        self.saved: list[bytes] = []
        self.batches = 0
        self.inside = False
        self._stop_after = stop_after

    @contextmanager
    def batch(self) -> Iterator[None]:
        assert not self.inside
        self.batches += 1
        self.inside = True
        try:
            yield
        finally:
            self.inside = False

    def epoch_done(self, report: EpochReport) -> Verdict:
        assert not self.inside
        self.reports.append(report)
        if report.epoch == self._stop_after:
            return Verdict(verdict="stop", reason="beaten by 3", lease_seconds=1)
        return Verdict(lease_seconds=1)

    def save(self, resume: bytes) -> None:
        assert not self.inside
        self.saved.append(resume)
