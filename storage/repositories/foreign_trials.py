"""Trials of other studies that a study starts with: copies, which stay when the others go."""

from collections.abc import Sequence
from typing import TypeAlias

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from storage.locking import lock_study
from storage.mapping import reader
from storage.records import ForeignTrialRecord
from storage.tables import ForeignTrialRow

ForeignTrialRecords: TypeAlias = list[ForeignTrialRecord]


_record = reader(ForeignTrialRecord)


class ForeignTrials:
    """The foreign trials of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, study_id: str, records: Sequence[ForeignTrialRecord]) -> None:
        """Keep what a new study starts with, in this order."""
        lock_study(self._session, study_id)
        rows = [
            {"study_id": study_id, "position": position, **vars(record)}
            for position, record in enumerate(records)
        ]
        if rows:
            self._session.execute(insert(ForeignTrialRow), rows)

    def list(self, study_id: str) -> ForeignTrialRecords:
        """What the study started with, in its order."""
        rows = self._session.scalars(
            select(ForeignTrialRow)
            .where(ForeignTrialRow.study_id == study_id)
            .order_by(ForeignTrialRow.position)
        )
        return [_record(row) for row in rows]
