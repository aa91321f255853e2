"""Errands: what the API asks of the coordinator, which alone speaks to Optuna."""

from typing import TypeAlias

from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from storage.records import ErrandKind, ErrandRecord
from storage.tables import ErrandRow

ErrandRecords: TypeAlias = list[ErrandRecord]


class Errands:
    """The errands of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, record: ErrandRecord) -> None:
        """Leave an errand; its study need not be there (any more)."""
        self._session.execute(insert(ErrandRow).values(**vars(record)))

    def is_open(self, errand_id: str) -> bool:
        """Whether nobody has run this errand."""
        found = self._session.scalar(select(ErrandRow.id).where(ErrandRow.id == errand_id))
        return found is not None

    def open(self, kind: ErrandKind) -> ErrandRecords:
        """Errands of a kind that nobody has run, oldest first."""
        rows = self._session.scalars(
            select(ErrandRow)
            .where(ErrandRow.kind == kind)
            .order_by(ErrandRow.created_at, ErrandRow.id)
        )
        return [_record(row) for row in rows]

    def drop(self, errand_id: str) -> None:
        """Take an errand away; harmless when it is gone."""
        self._session.execute(delete(ErrandRow).where(ErrandRow.id == errand_id))


def _record(row: ErrandRow) -> ErrandRecord:
    return ErrandRecord(
        id=row.id,
        study_id=row.study_id,
        kind=row.kind,
        payload=row.payload,
        created_at=row.created_at,
    )
