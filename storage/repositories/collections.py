"""Collections: studies that one document made, and where each of them stands."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from storage.batches import batched
from storage.errors import Conflict, IdempotencyConflict, NotFound
from storage.locking import insert
from storage.mapping import reader, values_of
from storage.paging import newest_first
from storage.records import (
    CollectionRecord,
    CollectionStudyRecord,
    Json,
    Page,
    StudyState,
)
from storage.tables import CollectionRow, CollectionStudyRow, StudyRow
from storage.tenants import tenant_of

Members: TypeAlias = Mapping[str, Sequence[CollectionStudyRecord]]
"""By collection, its studies in the order of their document."""

_record = reader(CollectionRecord)
_member = reader(CollectionStudyRecord)


class Collections:
    """The collections of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def create(
        self,
        *,
        id: str,
        name: str,
        source: dict[str, Json],
        budget: dict[str, Json] | None,
        at: datetime,
        idempotency_key: str | None = None,
        body_digest: str | None = None,
    ) -> CollectionRecord:
        """Add a collection without studies, which `add_studies` names.

        Where another request has used the key with the same body, that one's collection is
        returned: its id is not the given one, and nothing is stored.

        Raises:
            IdempotencyConflict: if the key was used with another body.
            Conflict: if there is a collection with this id.
        """
        row = self._session.scalar(
            insert(self._session, CollectionRow)
            .values(
                id=id,
                name=name,
                source=source,
                budget=budget,
                created_at=at,
                idempotency_key=idempotency_key,
                body_digest=body_digest,
            )
            .on_conflict_do_nothing()
            .returning(CollectionRow)
        )
        if row is not None:
            return _record(row)
        earlier = None
        if idempotency_key is not None:
            earlier = self.find_idempotent(idempotency_key, body_digest)
        if earlier is None:
            raise Conflict(f"there is a collection with the id {id!r} already")
        return earlier

    def add_studies(self, members: Sequence[CollectionStudyRecord]) -> None:
        """Name the studies of a collection, which are stored already.

        Raises:
            NotFound: if one of them is not the tenant's.
        """
        rows = [values_of(member) for member in members]
        self._session.execute(insert(self._session, CollectionStudyRow), rows)

    def find_idempotent(self, key: str, body_digest: str | None) -> CollectionRecord | None:
        """The tenant's collection that was made with this key, if any.

        Raises:
            IdempotencyConflict: if it was made from another body.
        """
        row = self._session.scalar(
            select(CollectionRow).where(
                CollectionRow.tenant == tenant_of(self._session),
                CollectionRow.idempotency_key == key,
            )
        )
        if row is None:
            return None
        if row.body_digest != body_digest:
            raise IdempotencyConflict(
                f"the idempotency key {key!r} was used for collection {row.id!r} with another body"
            )
        return _record(row)

    def get(self, collection_id: str) -> CollectionRecord:
        """One collection.

        Raises:
            NotFound: if there is none.
        """
        row = self._session.scalar(select(CollectionRow).where(CollectionRow.id == collection_id))
        if row is None:
            raise _missing(collection_id)
        return _record(row)

    def page(self, *, limit: int, cursor: str | None = None) -> Page[CollectionRecord]:
        """Collections, newest first.

        Raises:
            BadCursor: if the cursor was not given out by this list.
        """
        return newest_first(
            self._session, CollectionRow, limit=limit, cursor=cursor, record=_record
        )

    def members(self, collection_ids: Collection[str]) -> Members:
        """The studies of the named collections; one that is not there has none."""
        found: dict[str, list[CollectionStudyRecord]] = {one: [] for one in collection_ids}
        for some in batched(collection_ids):
            rows = self._session.scalars(
                select(CollectionStudyRow)
                .where(CollectionStudyRow.collection_id.in_(some))
                .order_by(CollectionStudyRow.collection_id, CollectionStudyRow.position)
            )
            for row in rows:
                found[row.collection_id].append(_member(row))
        return found

    def states(self, collection_ids: Collection[str]) -> Mapping[str, Mapping[StudyState, int]]:
        """How many studies of each of the named collections are in which state."""
        found: dict[str, dict[StudyState, int]] = {one: {} for one in collection_ids}
        for some in batched(collection_ids):
            rows = self._session.execute(
                select(CollectionStudyRow.collection_id, StudyRow.state, func.count())
                .join(StudyRow, StudyRow.id == CollectionStudyRow.study_id)
                .where(CollectionStudyRow.collection_id.in_(some))
                .group_by(CollectionStudyRow.collection_id, StudyRow.state)
            )
            for collection_id, state, count in rows:
                found[collection_id][state] = count
        return found

    def with_open_budgets(self) -> Sequence[CollectionRecord]:
        """The collections with a budget of which a study may still go on, oldest first."""
        still_open = (StudyState.QUEUED, StudyState.RUNNING, StudyState.PAUSED)
        ids = (
            select(CollectionStudyRow.collection_id)
            .join(StudyRow, StudyRow.id == CollectionStudyRow.study_id)
            .where(StudyRow.state.in_(still_open))
        )
        rows = self._session.scalars(
            select(CollectionRow)
            .where(CollectionRow.budget.is_not(None), CollectionRow.id.in_(ids))
            .order_by(CollectionRow.created_at, CollectionRow.id)
        )
        return [_record(row) for row in rows]

    def delete(self, collection_id: str) -> None:
        """Remove a collection; its studies stay.

        Raises:
            NotFound: if there is no such collection.
        """
        gone = self._session.scalar(
            delete(CollectionRow)
            .where(CollectionRow.id == collection_id)
            .returning(CollectionRow.id)
        )
        if gone is None:
            raise _missing(collection_id)


def _missing(collection_id: str) -> NotFound:
    return NotFound(f"there is no collection {collection_id!r}")
