"""What the API asks of the coordinator."""

from datetime import datetime

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from storage.columns import document
from storage.records import LOCAL, CommandKind, Json
from storage.tables.base import Table


class CommandRow(Table):
    """Something that the API asks of the coordinator; it may outlive its study."""

    __tablename__ = "command"
    __table_args__ = (Index(None, "kind", "study_id"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant: Mapped[str] = mapped_column(server_default=LOCAL)
    study_id: Mapped[str]
    kind: Mapped[CommandKind]
    payload: Mapped[dict[str, Json]] = mapped_column(document())
    trial: Mapped[int | None]
    created_at: Mapped[datetime]
