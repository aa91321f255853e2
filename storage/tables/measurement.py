"""Throughput measurements."""

from datetime import datetime

from sqlalchemy import ForeignKeyConstraint, Index
from sqlalchemy.orm import Mapped, mapped_column

from storage.columns import document
from storage.records import Json
from storage.tables.base import Table


class MeasurementRow(Table):
    """One throughput measurement with its circumstances."""

    __tablename__ = "measurement"
    __table_args__ = (
        ForeignKeyConstraint(
            ["study_id", "trial"], ["trial.study_id", "trial.number"], ondelete="CASCADE"
        ),
        Index(None, "study_id", "shape_key", "device"),
        # Their order, and what they took.
        Index("ix_measurement_seconds", "study_id", "created_at", "id", "seconds"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    study_id: Mapped[str]
    trial: Mapped[int]
    shape_key: Mapped[str]
    device: Mapped[str]
    samples_per_second: Mapped[float]
    ratio: Mapped[float]
    latency_p50: Mapped[float | None]
    latency_p99: Mapped[float | None]
    record: Mapped[dict[str, Json]] = mapped_column(document())
    seconds: Mapped[float]
    created_at: Mapped[datetime]
