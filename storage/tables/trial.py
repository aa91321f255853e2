"""Trials, their learning curves, and copies of other studies' trials."""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, ForeignKeyConstraint, Index, Integer, text
from sqlalchemy.orm import Mapped, mapped_column

from storage.columns import document
from storage.endings import TrialCause
from storage.records import Json, TrialOrigin, TrialState
from storage.tables.base import Table


class TrialRow(Table):
    """A trial: a configuration and its outcome."""

    __tablename__ = "trial"
    __table_args__ = (
        # Trials are counted by these columns alone, without a look at their documents.
        Index(
            "ix_trial_counts",
            *("study_id", "state", "dispatched", "origin", "told_at", "finished_at"),
        ),
        Index(None, "study_id", "data_version"),
        # The few that ended and that the sampler has not heard of yet.
        Index(
            "ix_trial_untold",
            "study_id",
            "finished_at",
            sqlite_where=text("told_at IS NULL AND finished_at IS NOT NULL"),
            postgresql_where=text("told_at IS NULL AND finished_at IS NOT NULL"),
        ),
    )

    study_id: Mapped[str] = mapped_column(
        ForeignKey("study.id", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    state: Mapped[TrialState]
    cause: Mapped[TrialCause | None]
    detail: Mapped[str | None]
    architecture: Mapped[str]
    parametrization: Mapped[str]
    hyperparameters: Mapped[dict[str, Json]] = mapped_column(document())
    drawn: Mapped[dict[str, Json]] = mapped_column(document())
    spec: Mapped[dict[str, Json]] = mapped_column(document())
    parameters: Mapped[int] = mapped_column(BigInteger)
    dense_parameters: Mapped[int] = mapped_column(BigInteger)
    shape_key: Mapped[str]
    violation: Mapped[float | None]
    quality: Mapped[float | None]
    test_quality: Mapped[float | None]
    test_metrics: Mapped[dict[str, float]] = mapped_column(document(), nullable=True)
    origin: Mapped[TrialOrigin]
    repeats: Mapped[int | None]
    continues: Mapped[int | None]
    stopping: Mapped[dict[str, Json] | None] = mapped_column(document())
    stretch: Mapped[dict[str, Json] | None] = mapped_column(document())
    pausing: Mapped[dict[str, Json] | None] = mapped_column(document())
    best_epoch: Mapped[int | None]
    epochs_trained: Mapped[int]
    throughput: Mapped[float | None]
    throughput_ratio: Mapped[float | None]
    latency_p50: Mapped[float | None]
    latency_p99: Mapped[float | None]
    bytes: Mapped[int | None] = mapped_column(BigInteger)
    measurement_id: Mapped[str | None]
    dispatched: Mapped[bool]
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    told_at: Mapped[datetime | None]
    data_version: Mapped[int] = mapped_column(server_default=text("0"))
    """The version of the study's data that came of the trial's last change."""
    exports: Mapped[dict[str, Json]] = mapped_column(document(), server_default=text("'{}'"))
    predicted: Mapped[dict[str, list[float]]] = mapped_column(
        document(), server_default=text("'{}'")
    )


class MetricRow(Table):
    """One epoch of a trial's learning curve."""

    __tablename__ = "metric"
    __table_args__ = (
        ForeignKeyConstraint(
            ["study_id", "number"], ["trial.study_id", "trial.number"], ondelete="CASCADE"
        ),
    )

    study_id: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    epoch: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    train_loss: Mapped[float | None]
    validation: Mapped[float]
    spectral_margin: Mapped[float | None]
    gradient_first: Mapped[float | None]
    gradient_last: Mapped[float | None]
    recovered_batches: Mapped[int] = mapped_column(server_default=text("0"))
    seconds: Mapped[float]
    attempt: Mapped[int]
    generalization_term: Mapped[float | None]
    validation_loss: Mapped[float | None]
    probes: Mapped[list[Json] | None] = mapped_column(document())


class WarmStartTrialRow(Table):
    """A copy of another study's trial, which the study's sampler starts with."""

    __tablename__ = "foreign_trial"

    study_id: Mapped[str] = mapped_column(
        ForeignKey("study.id", ondelete="CASCADE"), primary_key=True
    )
    position: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    source_study: Mapped[str]
    source_trial: Mapped[int]
    state: Mapped[TrialState]
    architecture: Mapped[str]
    parametrization: Mapped[str]
    hyperparameters: Mapped[dict[str, Json]] = mapped_column(document())
    drawn: Mapped[dict[str, Json]] = mapped_column(document())
    spec: Mapped[dict[str, Json]] = mapped_column(document())
    parameters: Mapped[int] = mapped_column(BigInteger)
    dense_parameters: Mapped[int] = mapped_column(BigInteger)
    shape_key: Mapped[str]
    quality: Mapped[float | None]
    throughput: Mapped[float | None]
    throughput_ratio: Mapped[float | None]
    latency_p50: Mapped[float | None]
    latency_p99: Mapped[float | None]
    bytes: Mapped[int | None] = mapped_column(BigInteger)
    curve: Mapped[list[float]] = mapped_column(document())
    rank: Mapped[float | None]
