"""What users did, in their order: written with the deed, read by admins, never changed."""

import secrets
from datetime import UTC, datetime

from sqlalchemy import insert
from sqlalchemy.orm import Session

from storage.account_records import AuditRecord
from storage.mapping import reader
from storage.paging import newest_first
from storage.records import Json, Page
from storage.tables import AuditEventRow
from storage.tenants import KEY, tenant_of

_record = reader(AuditRecord)


class Audit:
    """The audit events of one session, which says who acts, see `Database.of`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def note(self, action: str, subject: str, **detail: Json) -> None:
        """Note that the session's user did something, in the transaction in which it is done."""
        self._session.execute(
            insert(AuditEventRow).values(
                id=secrets.token_hex(8),
                at=datetime.now(UTC),
                tenant=tenant_of(self._session),
                key_id=self._session.info.get(KEY),
                action=action,
                subject=subject,
                detail=detail,
            )
        )

    def page(self, *, limit: int, cursor: str | None = None) -> Page[AuditRecord]:
        """Events, newest first.

        Raises:
            BadCursor: if the cursor was not given out by this list.
        """
        return newest_first(
            self._session, AuditEventRow, at="at", limit=limit, cursor=cursor, record=_record
        )
