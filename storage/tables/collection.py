"""Collections: studies that one document made, one for each of its data sets."""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, Index, Integer, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from storage.columns import document
from storage.records import LOCAL, Json
from storage.tables.base import Table


class CollectionRow(Table):
    """A collection; what it is made of are ordinary studies."""

    __tablename__ = "collection"
    __table_args__ = (
        UniqueConstraint("tenant", "idempotency_key"),
        Index(None, "tenant", "created_at", "id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant: Mapped[str] = mapped_column(server_default=LOCAL)
    name: Mapped[str]
    source: Mapped[dict[str, Json]] = mapped_column(document())
    budget: Mapped[dict[str, Json] | None] = mapped_column(document())
    created_at: Mapped[datetime]
    idempotency_key: Mapped[str | None]
    body_digest: Mapped[str | None]


class CollectionStudyRow(Table):
    """A study of a collection; it goes with either of the two."""

    __tablename__ = "collection_study"
    __table_args__ = (Index(None, "study_id"),)

    collection_id: Mapped[str] = mapped_column(
        ForeignKey("collection.id", ondelete="CASCADE"), primary_key=True
    )
    study_id: Mapped[str] = mapped_column(
        ForeignKey("study.id", ondelete="CASCADE"), primary_key=True
    )
    position: Mapped[int] = mapped_column(Integer)
    row: Mapped[str]
    seed: Mapped[int] = mapped_column(BigInteger)
