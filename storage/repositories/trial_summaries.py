"""Summaries of trials: what fronts and plots need of thousands, read without their documents."""

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from storage.endings import TrialCause, sentence
from storage.records import Json, TrialOrigin, TrialRecord, TrialState


@dataclass(frozen=True)
class TrialSummary:
    """Of a trial no more than its model, its values and how far it is, without its documents."""

    number: int
    state: TrialState
    origin: TrialOrigin
    quality: float | None
    parameters: int
    throughput: float | None
    measurement_id: str | None
    continues: int | None
    finished_at: datetime | None
    architecture: str
    parametrization: str
    dense_parameters: int
    throughput_ratio: float | None
    latency_p50: float | None
    latency_p99: float | None
    bytes: int | None
    violation: float | None
    predicted: dict[str, list[float]]
    best_epoch: int | None


@dataclass(frozen=True)
class ShownTrial:
    """Of a trial what tables show: what was drawn, and what came of it."""

    number: int
    state: TrialState
    origin: TrialOrigin
    architecture: str
    parametrization: str
    cause: TrialCause | None
    detail: str | None
    drawn: dict[str, Json]
    hyperparameters: dict[str, Json]
    violation: float | None
    quality: float | None
    test_quality: float | None
    parameters: int
    throughput: float | None
    throughput_ratio: float | None
    latency_p50: float | None
    bytes: int | None
    predicted: dict[str, list[float]]
    epochs_trained: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def reason(self) -> str | None:
        """Why it ended, as a sentence."""
        return sentence(self.cause, self.detail)


AnyTrial: TypeAlias = TrialRecord | TrialSummary
"""All of a trial's record, or its summary: what is needed to compare it with others."""
