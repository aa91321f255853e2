"""A study, its events, and the order in which its sampler was asked and told."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index, Integer, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from storage.columns import Texts, document
from storage.endings import StudyCause
from storage.records import LOCAL, Json, StudyState
from storage.tables.base import Table


class StudyRow(Table):
    """A study, the root of all else; its counters number its events and exchanges without gaps."""

    __tablename__ = "study"
    __table_args__ = (
        UniqueConstraint("tenant", "idempotency_key"),
        Index(None, "tenant", "created_at", "id"),
        Index(None, "state"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant: Mapped[str] = mapped_column(server_default=LOCAL)
    name: Mapped[str]
    tags: Mapped[tuple[str, ...]] = mapped_column(Texts(), server_default="[]")
    notes: Mapped[str] = mapped_column(server_default="")
    state: Mapped[StudyState]
    state_cause: Mapped[StudyCause | None]
    state_detail: Mapped[str | None]
    spec: Mapped[dict[str, Json]] = mapped_column(document())
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    running_seconds: Mapped[float]
    ending_cause: Mapped[StudyCause | None]
    ending_detail: Mapped[str | None]
    prepared: Mapped[dict[str, Json] | None] = mapped_column(document())
    reference_point: Mapped[dict[str, float] | None] = mapped_column(document())
    last_event: Mapped[int]
    last_exchange: Mapped[int]
    data_version: Mapped[int] = mapped_column(server_default=text("0"))
    owner: Mapped[str | None]
    owned_until: Mapped[datetime | None]
    idempotency_key: Mapped[str | None]
    body_digest: Mapped[str | None]


class EventRow(Table):
    """One event; its number comes from the study's counter."""

    __tablename__ = "event"

    study_id: Mapped[str] = mapped_column(
        ForeignKey("study.id", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    kind: Mapped[str]
    payload: Mapped[dict[str, Json]] = mapped_column(document())
    created_at: Mapped[datetime]


class ExchangeRow(Table):
    """One ask or tell, in the order in which the sampler heard them."""

    __tablename__ = "exchange"

    study_id: Mapped[str] = mapped_column(
        ForeignKey("study.id", ondelete="CASCADE"), primary_key=True
    )
    position: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    kind: Mapped[str]
    trial: Mapped[int]
