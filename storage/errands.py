"""Errands: what the API asks of the coordinator, which alone speaks to Optuna."""

from typing import TypeAlias

from sqlalchemy import delete, insert, select, update
from sqlalchemy.orm import Session

from storage.errors import NotFound
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

    def find(self, errand_id: str) -> ErrandRecord | None:
        """One errand, while it is there."""
        row = self._session.scalar(select(ErrandRow).where(ErrandRow.id == errand_id))
        return None if row is None else _record(row)

    def open(self, kind: ErrandKind, study_id: str | None = None) -> ErrandRecords:
        """Errands of a kind that no trial came of yet, oldest first; of one study, or of all."""
        query = select(ErrandRow).where(ErrandRow.kind == kind, ErrandRow.trial.is_(None))
        if study_id is not None:
            query = query.where(ErrandRow.study_id == study_id)
        rows = self._session.scalars(query.order_by(ErrandRow.created_at, ErrandRow.id))
        return [_record(row) for row in rows]

    def answer(self, errand_id: str, trial: int) -> None:
        """Say which trial came of an errand, which stays to tell it.

        Raises:
            NotFound: if there is no such errand.
        """
        answered = self._session.scalar(
            update(ErrandRow)
            .where(ErrandRow.id == errand_id)
            .values(trial=trial)
            .returning(ErrandRow.id)
        )
        if answered is None:
            raise NotFound(f"there is no errand {errand_id!r}")

    def drop(self, errand_id: str) -> None:
        """Take an errand away; harmless when it is gone."""
        self._session.execute(delete(ErrandRow).where(ErrandRow.id == errand_id))

    def drop_of_study(self, study_id: str, kind: ErrandKind) -> None:
        """Take away all errands of a kind that a study has, answered ones included."""
        self._session.execute(
            delete(ErrandRow).where(ErrandRow.study_id == study_id, ErrandRow.kind == kind)
        )


def _record(row: ErrandRow) -> ErrandRecord:
    return ErrandRecord(
        id=row.id,
        study_id=row.study_id,
        kind=row.kind,
        payload=row.payload,
        trial=row.trial,
        created_at=row.created_at,
    )
