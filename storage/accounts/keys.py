"""API keys: who may do what for which tenant, by digest only."""

import hashlib
from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import ColumnElement, delete, exists, insert, or_, select, update
from sqlalchemy.orm import Session

from storage.account_records import ApiKeyRecord
from storage.errors import NotFound
from storage.mapping import reader
from storage.paging import newest_first
from storage.records import Page
from storage.tables import ApiKeyRow

key_record = reader(ApiKeyRecord)


def key_digest(text: str) -> str:
    """What is stored of a key or a cookie. A plain hash is enough for 256 random bits."""
    return hashlib.sha256(text.encode()).hexdigest()


def valid_at(at: datetime) -> ColumnElement[bool]:
    """The condition that a key opens something at a time: neither revoked nor expired."""
    return ApiKeyRow.revoked_at.is_(None) & or_(
        ApiKeyRow.expires_at.is_(None), ApiKeyRow.expires_at > at
    )


class Keys:
    """The API keys of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, record: ApiKeyRecord, *, digest: str) -> ApiKeyRecord:
        """Add a key; in a tenant's session it is that tenant's."""
        row = self._session.scalars(
            insert(ApiKeyRow).values(**vars(record), digest=digest).returning(ApiKeyRow)
        ).one()
        return key_record(row)

    def find(self, *, digest: str) -> ApiKeyRecord | None:
        """The key whose text has this digest, one that has ended included."""
        row = self._session.scalar(select(ApiKeyRow).where(ApiKeyRow.digest == digest))
        return None if row is None else key_record(row)

    def get(self, key_id: str) -> ApiKeyRecord:
        """One key, one that has ended included.

        Raises:
            NotFound: if there is none.
        """
        row = self._session.scalar(select(ApiKeyRow).where(ApiKeyRow.id == key_id))
        if row is None:
            raise _missing(key_id)
        return key_record(row)

    def valid_ones(self, key_ids: Iterable[str], *, at: datetime) -> set[str]:
        """Those of the ids that are keys, and open something at that time."""
        found = select(ApiKeyRow.id).where(ApiKeyRow.id.in_(key_ids), valid_at(at))
        return set(self._session.scalars(found))

    def any_valid(self, *, at: datetime) -> bool:
        """Whether there is a key at all that opens something at that time."""
        return bool(self._session.scalar(select(exists().where(valid_at(at)))))

    def any(self) -> bool:
        """Whether a key was ever made: those that have ended stay."""
        return bool(self._session.scalar(select(exists(ApiKeyRow.id))))

    def page(self, *, limit: int, cursor: str | None = None) -> Page[ApiKeyRecord]:
        """Keys, newest first, those that have ended included.

        Raises:
            BadCursor: if the cursor was not given out by this list.
        """
        return newest_first(self._session, ApiKeyRow, limit=limit, cursor=cursor, record=key_record)

    def revoke(self, key_id: str, *, at: datetime) -> bool:
        """Let a key open nothing any more, for ever; False when it did not before.

        Raises:
            NotFound: if there is no such key.
        """
        revoked = self._session.scalar(
            update(ApiKeyRow)
            .where(ApiKeyRow.id == key_id, ApiKeyRow.revoked_at.is_(None))
            .values(revoked_at=at)
            .returning(ApiKeyRow.id)
        )
        if revoked is None:
            self.get(key_id)
        return revoked is not None

    def rotate(self, key_id: str, *, successor: str, ends: datetime) -> bool:
        """Note which key takes this one's place, and when this one ends; False: another does."""
        rotated = self._session.scalar(
            update(ApiKeyRow)
            .where(ApiKeyRow.id == key_id, ApiKeyRow.successor.is_(None))
            .values(successor=successor, expires_at=ends)
            .returning(ApiKeyRow.id)
        )
        return rotated is not None

    def remove_all(self) -> list[str]:
        """Remove every key with its browser sessions, as if none had ever been; their ids."""
        return list(self._session.scalars(delete(ApiKeyRow).returning(ApiKeyRow.id)))

    def touch(self, key_id: str, *, at: datetime) -> None:
        """Note that a key was used; harmless when it is gone."""
        self._session.execute(
            update(ApiKeyRow).where(ApiKeyRow.id == key_id).values(last_used_at=at)
        )


def _missing(key_id: str) -> NotFound:
    return NotFound(f"there is no key {key_id!r}")
