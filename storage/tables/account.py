"""Keys, browser sessions, quotas, and the audit."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from storage.columns import Texts, document
from storage.records import Json
from storage.tables.base import Table


class ApiKeyRow(Table):
    """An API key, of which only a digest is kept; one that has ended stays, and opens nothing."""

    __tablename__ = "api_key"
    __table_args__ = (Index(None, "tenant", "created_at", "id"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant: Mapped[str]
    name: Mapped[str]
    scopes: Mapped[tuple[str, ...]] = mapped_column(Texts())
    digest: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[datetime]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    expires_at: Mapped[datetime | None]
    successor: Mapped[str | None]


class BrowserSessionRow(Table):
    """A browser that logged in with a key; only a digest of its cookie is kept."""

    __tablename__ = "browser_session"
    __table_args__ = (Index(None, "key_id"), Index(None, "expires_at"))

    digest: Mapped[str] = mapped_column(primary_key=True)
    tenant: Mapped[str]
    key_id: Mapped[str] = mapped_column(ForeignKey("api_key.id", ondelete="CASCADE"))
    created_at: Mapped[datetime]
    last_used_at: Mapped[datetime]
    expires_at: Mapped[datetime]


class TenantQuotaRow(Table):
    """What an operator set for a tenant in place of the defaults; null limits are none."""

    __tablename__ = "tenant_quota"

    tenant: Mapped[str] = mapped_column(primary_key=True)
    weight: Mapped[float | None]
    limits: Mapped[dict[str, Json]] = mapped_column(document())


class AuditEventRow(Table):
    """Something that a user did; it stays when what it was done to goes."""

    __tablename__ = "audit_event"
    __table_args__ = (Index(None, "tenant", "at", "id"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    tenant: Mapped[str]
    key_id: Mapped[str | None]
    action: Mapped[str]
    subject: Mapped[str]
    detail: Mapped[dict[str, Json]] = mapped_column(document())
