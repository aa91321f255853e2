"""The record of what was done, as the API answers with it."""

from datetime import datetime
from typing import Any

from pydantic import Field

from models.spec import Spec


class AuditDocument(Spec):
    """Something that was done."""

    id: str
    at: datetime
    key_id: str | None = Field(
        description="the key with which it was done; null for the local user and the command line"
    )
    action: str = Field(examples=["study.submitted", "key.revoked", "login.refused"])
    subject: str = Field(description="the id of what it was done to")
    detail: dict[str, Any]


class AuditPage(Spec):
    """What was done, newest first."""

    items: tuple[AuditDocument, ...]
    next_cursor: str | None
