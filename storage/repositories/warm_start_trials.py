"""Trials of other studies that a study starts with: copies, which stay when the others go."""

from collections.abc import Sequence
from typing import TypeAlias

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from storage.locking import lock_study
from storage.mapping import reader
from storage.records import WarmStartTrialRecord
from storage.tables import WarmStartTrialRow

WarmStartTrialRecords: TypeAlias = list[WarmStartTrialRecord]


_record = reader(WarmStartTrialRecord)


class WarmStartTrials:
    """The warm-start trials of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, study_id: str, records: Sequence[WarmStartTrialRecord]) -> None:
        """Keep what a new study starts with, in this order."""
        lock_study(self._session, study_id)
        rows = [
            {"study_id": study_id, "position": position, **vars(record)}
            for position, record in enumerate(records)
        ]
        if rows:
            self._session.execute(insert(WarmStartTrialRow), rows)

    def list(self, study_id: str) -> WarmStartTrialRecords:
        """What the study started with, in its order."""
        rows = self._session.scalars(
            select(WarmStartTrialRow)
            .where(WarmStartTrialRow.study_id == study_id)
            .order_by(WarmStartTrialRow.position)
        )
        return [_record(row) for row in rows]
