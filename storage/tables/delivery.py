"""What users' own servers are to be sent."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from storage.columns import document
from storage.records import Json
from storage.tables.base import Table


class WebhookDeliveryRow(Table):
    """Something to tell a user's own server; it is due until it was delivered or given up."""

    __tablename__ = "webhook_delivery"
    __table_args__ = (Index(None, "study_id"), Index(None, "due_at"))

    id: Mapped[str] = mapped_column(primary_key=True)
    study_id: Mapped[str] = mapped_column(ForeignKey("study.id", ondelete="CASCADE"))
    url: Mapped[str]
    body: Mapped[dict[str, Json]] = mapped_column(document())
    tries: Mapped[int]
    due_at: Mapped[datetime | None]
    delivered_at: Mapped[datetime | None]
    reason: Mapped[str | None]
    created_at: Mapped[datetime]
