"""What was done on behalf of the asker's tenant, and with which key."""

from datetime import datetime
from typing import Any

from fastapi import APIRouter
from pydantic import Field

from models.spec import Spec
from service.problems import documented
from service.resources import Held, PageCursor, PageLimit
from storage.audit import Audit

PREFIX = "/v1/audit"

router = APIRouter(prefix=PREFIX, tags=["keys"])


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


@router.get("", responses=documented(422))
def list_audit_events(held: Held, limit: PageLimit = 50, cursor: PageCursor = None) -> AuditPage:
    """What users did to studies, data sets and keys, and who logged in, newest first."""
    with held.database.read() as session:
        page = Audit(session).page(limit=limit, cursor=cursor)
    return AuditPage(
        items=tuple(AuditDocument.model_validate(vars(event)) for event in page.items),
        next_cursor=page.next_cursor,
    )
