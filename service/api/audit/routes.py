"""What was done on behalf of the asker's tenant, and with which key."""

from fastapi import APIRouter

from service.api.audit.schemas import AuditDocument, AuditPage
from service.api.resources import Held, PageCursor, PageLimit
from service.api.rows import from_row
from service.http.problems import documented
from storage.accounts.audit import Audit

PREFIX = "/v1/audit"

router = APIRouter(prefix=PREFIX, tags=["keys"])


@router.get("", responses=documented(422))
def list_audit_events(held: Held, limit: PageLimit = 50, cursor: PageCursor = None) -> AuditPage:
    """What users did to studies, data sets and keys, and who logged in, newest first."""
    with held.database.read() as session:
        page = Audit(session).page(limit=limit, cursor=cursor)
    return AuditPage(
        items=tuple(from_row(AuditDocument, event) for event in page.items),
        next_cursor=page.next_cursor,
    )
