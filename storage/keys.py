"""API keys: who may do what for which tenant, by digest only."""

import hashlib
from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import exists, insert, select, update
from sqlalchemy.orm import Session

from storage.errors import NotFound
from storage.paging import newest_first
from storage.records import ApiKeyRecord, Page
from storage.tables import ApiKeyRow

_VALID = ApiKeyRow.revoked_at.is_(None)


def key_digest(text: str) -> str:
    """What is stored of a key. A plain hash is enough for 256 random bits."""
    return hashlib.sha256(text.encode()).hexdigest()


class Keys:
    """The API keys of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, record: ApiKeyRecord, *, digest: str) -> ApiKeyRecord:
        """Add a key; in a tenant's session it is that tenant's."""
        values = {**vars(record), "scopes": list(record.scopes)}
        row = self._session.scalars(
            insert(ApiKeyRow).values(**values, digest=digest).returning(ApiKeyRow)
        ).one()
        return _record(row)

    def find_valid(self, *, digest: str) -> ApiKeyRecord | None:
        """The key whose text has this digest; null when there is none, or it was revoked."""
        row = self._session.scalar(select(ApiKeyRow).where(ApiKeyRow.digest == digest, _VALID))
        return None if row is None else _record(row)

    def find(self, *, digest: str) -> ApiKeyRecord | None:
        """The key whose text has this digest, revoked ones included."""
        row = self._session.scalar(select(ApiKeyRow).where(ApiKeyRow.digest == digest))
        return None if row is None else _record(row)

    def get(self, key_id: str) -> ApiKeyRecord:
        """One key, revoked ones included.

        Raises:
            NotFound: if there is none.
        """
        row = self._session.scalar(select(ApiKeyRow).where(ApiKeyRow.id == key_id))
        if row is None:
            raise _missing(key_id)
        return _record(row)

    def valid_ones(self, key_ids: Iterable[str]) -> set[str]:
        """Those of the ids that are keys, and not revoked."""
        return set(
            self._session.scalars(select(ApiKeyRow.id).where(ApiKeyRow.id.in_(key_ids), _VALID))
        )

    def any_valid(self) -> bool:
        """Whether there is a key at all that was not revoked."""
        return bool(self._session.scalar(select(exists().where(_VALID))))

    def page(self, *, limit: int, cursor: str | None = None) -> Page[ApiKeyRecord]:
        """Keys, newest first, revoked ones included.

        Raises:
            BadCursor: if the cursor was not given out by this list.
        """
        return newest_first(
            self._session,
            select(ApiKeyRow),
            ApiKeyRow.created_at,
            ApiKeyRow.id,
            limit=limit,
            cursor=cursor,
            record=_record,
            key=lambda record: (record.created_at, record.id),
        )

    def revoke(self, key_id: str, *, at: datetime) -> bool:
        """Let a key open nothing any more, for ever; False when it did not before.

        Raises:
            NotFound: if there is no such key.
        """
        revoked = self._session.scalar(
            update(ApiKeyRow)
            .where(ApiKeyRow.id == key_id, _VALID)
            .values(revoked_at=at)
            .returning(ApiKeyRow.id)
        )
        if revoked is None:
            self.get(key_id)
        return revoked is not None

    def touch(self, key_id: str, *, at: datetime) -> None:
        """Note that a key was used; harmless when it is gone."""
        self._session.execute(
            update(ApiKeyRow).where(ApiKeyRow.id == key_id).values(last_used_at=at)
        )


def _missing(key_id: str) -> NotFound:
    return NotFound(f"there is no key {key_id!r}")


def _record(row: ApiKeyRow) -> ApiKeyRecord:
    return ApiKeyRecord(
        id=row.id,
        tenant=row.tenant,
        name=row.name,
        scopes=tuple(str(scope) for scope in row.scopes),
        created_at=row.created_at,
        last_used_at=row.last_used_at,
        revoked_at=row.revoked_at,
    )
