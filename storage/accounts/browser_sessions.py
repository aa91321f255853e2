"""Browsers that logged in with a key: each has a session of its own, known by a digest."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, delete, func, insert, select, update
from sqlalchemy.orm import Session

from storage.account_records import ApiKeyRecord, BrowserSessionRecord
from storage.accounts.keys import key_record, valid_at
from storage.mapping import reader
from storage.tables import ApiKeyRow, BrowserSessionRow
from storage.tenants import ACROSS_TENANTS

_record = reader(BrowserSessionRecord)


class BrowserSessions:
    """The browser sessions of one database session. An ended one is as good as none."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, record: BrowserSessionRecord) -> None:
        """Add a session; it is the tenant's of the database session."""
        self._session.execute(insert(BrowserSessionRow).values(**vars(record)))

    def find(
        self, digest: str, *, at: datetime
    ) -> tuple[BrowserSessionRecord, ApiKeyRecord] | None:
        """The session and its key; null when there is none, or it or its key has ended."""
        row = self._session.execute(
            select(BrowserSessionRow, ApiKeyRow)
            .join(ApiKeyRow, ApiKeyRow.id == BrowserSessionRow.key_id)
            .where(BrowserSessionRow.digest == digest, _goes_on(at))
        ).one_or_none()
        return None if row is None else (_record(row[0]), key_record(row[1]))

    def valid_ones(self, digests: Iterable[str], *, at: datetime) -> set[str]:
        """Those of the digests that are sessions, and go on at that time."""
        return set(
            self._session.scalars(
                select(BrowserSessionRow.digest)
                .join(ApiKeyRow, ApiKeyRow.id == BrowserSessionRow.key_id)
                .where(BrowserSessionRow.digest.in_(digests), _goes_on(at))
            )
        )

    def count(self, key_id: str, *, at: datetime) -> int:
        """How many browsers are logged in with a key."""
        return self._session.scalars(
            select(func.count())
            .select_from(BrowserSessionRow)
            .where(BrowserSessionRow.key_id == key_id, BrowserSessionRow.expires_at > at)
        ).one()

    def touch(self, digest: str, *, at: datetime, expires_at: datetime) -> None:
        """Note that a session was used, and when it ends now; harmless when it is gone."""
        self._session.execute(
            update(BrowserSessionRow)
            .where(BrowserSessionRow.digest == digest)
            .values(last_used_at=at, expires_at=expires_at)
        )

    def end(self, digest: str) -> bool:
        """End a session; False where there was none."""
        return self._delete(BrowserSessionRow.digest == digest) > 0

    def end_all(self, key_id: str) -> int:
        """End every session of a key; how many those were."""
        return self._delete(BrowserSessionRow.key_id == key_id)

    def end_oldest(self, key_id: str, *, keep: int) -> int:
        """End the sessions of a key but for those used last; how many those were."""
        of_key = BrowserSessionRow.key_id == key_id
        kept = (
            select(BrowserSessionRow.digest)
            .where(of_key)
            .order_by(BrowserSessionRow.last_used_at.desc(), BrowserSessionRow.digest)
            .limit(keep)
        )
        return self._delete(of_key & BrowserSessionRow.digest.not_in(kept))

    def sweep(self, *, at: datetime) -> int:
        """Remove what has ended by itself, of every tenant; how many sessions those were."""
        return self._delete(BrowserSessionRow.expires_at <= at, **ACROSS_TENANTS)

    def _delete(self, condition: ColumnElement[bool], **options: Any) -> int:
        ended = self._session.scalars(
            delete(BrowserSessionRow).where(condition).returning(BrowserSessionRow.digest),
            execution_options=options,
        )
        return len(ended.all())


def _goes_on(at: datetime) -> ColumnElement[bool]:
    return (BrowserSessionRow.expires_at > at) & valid_at(at)
