"""Trials: what was tried, what came of it, and how it was measured."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from pydantic import Field, RootModel

from service.answers.base import Answer

_ENDED = frozenset({"complete", "stopped", "infeasible", "failed", "cancelled"})


class Attempt(Answer):
    """One try at a trial; several where a worker was lost."""

    number: int
    state: str
    reason: str | None = None
    slot: str
    machine: str | None = None
    device: str
    started_at: datetime
    ended_at: datetime | None = None
    stood_still_seconds: float = 0.0


class Trial(Answer):
    """One trial: its configuration and what came of it."""

    number: int
    outcome: str | None
    reason: str | None = None
    architecture: str
    parametrization: str
    hyperparameters: dict[str, Any]
    values: Mapping[str, float | None]
    test_quality: float | None = None
    test_metrics: dict[str, float] = Field(default_factory=dict[str, float])
    origin: str | None = None
    repeats: int | None = None
    continues: int | None = None
    stopping: dict[str, Any] | None = None
    throughput_ratio: float | None = None
    dense_parameters: int | None = None
    best_epoch: int | None = None
    epochs_trained: int = 0
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    attempts: list[Attempt] = Field(default_factory=list[Attempt])
    links: Mapping[str, str | None]

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen in it."""
        return self.outcome in _ENDED


class Measurement(Answer):
    """A throughput measurement with its circumstances; the search goes by the one that is used."""

    id: str = ""
    trial: int
    used: bool = True
    device: str
    samples_per_second: float
    ratio: float
    seconds: float
    record: dict[str, Any]
    created_at: datetime


class MeasuringAgain(Answer):
    """Another measurement that was asked for, and is not there (yet)."""

    state: Literal["waiting", "running", "failed"]
    asked_at: datetime
    reason: str | None = None


class Remeasuring(Answer):
    """What was asked for: the trial lists the new record as soon as it is there."""

    measurement: MeasuringAgain
    links: Mapping[str, str | None]


class TrialDetail(Trial):
    """A trial with its whole specification and its throughput records, the oldest first."""

    spec: dict[str, Any]
    throughput: Measurement | None = None
    measurements: list[Measurement] = Field(default_factory=list[Measurement])
    measuring: MeasuringAgain | None = None


class Epoch(Answer):
    """One epoch of a learning curve."""

    epoch: int
    train_loss: float | None
    validation: float
    spectral_margin: float | None = None
    gradient_first: float | None = None
    gradient_last: float | None = None
    recovered_batches: int = 0
    seconds: float


class Epochs(RootModel[list[Epoch]]):
    """A learning curve, by epoch."""


class Enqueued(Answer):
    """A trial that a user named; its number is null until the server has made it."""

    number: int | None
    links: Mapping[str, str | None]
