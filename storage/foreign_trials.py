"""Trials of other studies that a study starts with: copies, which stay when the others go."""

from collections.abc import Sequence
from typing import TypeAlias

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from storage.records import ForeignTrialRecord
from storage.statements import lock_study
from storage.tables import ForeignTrialRow

ForeignTrialRecords: TypeAlias = list[ForeignTrialRecord]


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


def _record(row: ForeignTrialRow) -> ForeignTrialRecord:
    return ForeignTrialRecord(
        source_study=row.source_study,
        source_trial=row.source_trial,
        state=row.state,
        architecture=row.architecture,
        parametrization=row.parametrization,
        hyperparameters=row.hyperparameters,
        drawn=row.drawn,
        spec=row.spec,
        parameters=row.parameters,
        dense_parameters=row.dense_parameters,
        shape_key=row.shape_key,
        quality=row.quality,
        throughput=row.throughput,
        throughput_ratio=row.throughput_ratio,
        curve=row.curve,
    )
