"""Jobs and hooks that several tests of training use."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from models.architectures import Gru, Rnn
from models.model import ModelSpec
from models.parametrizations import Dense, HouseholderSvd, LowRankDiagonal
from search.tasks import Batch, DataSources, Digits, Language, Metric, Split, Splits
from search.tasks.task import Range
from search.tasks.text.token_samples import TokenStream
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


def with_bits(job: TrainJob, bits: int) -> TrainJob:
    """The same with numbers of so many bits."""
    model = job.trial.model.model_copy(update={"bits": bits})
    return job.model_copy(update={"trial": job.trial.model_copy(update={"model": model})})


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


class _Spoilt(TokenStream):
    """A text whose third window is no number."""

    def take(self, batch: Tensor) -> Batch:
        taken = super().take(batch)
        is_third = int(batch[1]) == 2 * self.window
        return replace(taken, x=taken.x * torch.nan) if is_third else taken


def make_spoilt_text(
    folder: Path, *, checkpoint_seconds: float = 1e9
) -> tuple[TrainJob, Splits[TokenStream]]:
    """A text that is read with the state carried on, by a trial that recovers."""
    (folder / "verse.txt").write_text("the cat sat on the mat\n" * 60)
    sources = DataSources(cache=folder / "cache", folder=folder)
    task = Language(corpus="file", file="verse.txt", window=12).resolved(sources)
    model = ModelSpec(
        architecture=Gru(hidden_size=8, layers=2),
        parametrization=Dense(),
        signature=task.signature(),
    )
    training = TrainingSpec(learning_rate=0.01, batch_size=8, nan_recovery=0.1)
    job = TrainJob(
        task=task,
        trial=TrialSpec(model=model, training=training, seed=1),
        number=0,
        epochs=2,
        checkpoint_seconds=checkpoint_seconds,
    )
    read = task.load(sources)
    train, validation, test = read.train, read.validation, read.test
    assert isinstance(train, TokenStream)
    assert isinstance(validation, TokenStream)
    assert isinstance(test, TokenStream)
    spoilt = _Spoilt(train.tokens, train.window, train.one_hot)
    return job, Splits(spoilt, validation, test)


def poisoned(split: Split, row: int, value: float) -> Split:
    """The same samples, of which one has a value everywhere."""
    x = split.x.clone()
    x[row] = value
    return Split(x, split.y)


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
