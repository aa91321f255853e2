"""What the rows of studies sum up to: for a page of studies in as many statements as for one."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import bindparam, func, or_, select
from sqlalchemy.orm import Session

from storage.batches import batched
from storage.records import TrialCounts
from storage.repositories.attempts import Attempts, DeviceTime
from storage.repositories.trials import Trials
from storage.tables import MeasurementRow, MetricRow, StudyRow, TrialRow
from storage.tenants import run

_EPOCHS = (
    select(MetricRow.study_id, func.count())
    .where(MetricRow.study_id.in_(bindparam("studies", expanding=True)), MetricRow.epoch > 0)
    .group_by(MetricRow.study_id)
)
_MEASURING = (
    select(MeasurementRow.study_id, func.sum(MeasurementRow.seconds))
    .join(StudyRow, StudyRow.id == MeasurementRow.study_id)
    .where(
        MeasurementRow.study_id.in_(bindparam("studies", expanding=True)),
        or_(StudyRow.finished_at.is_(None), MeasurementRow.created_at <= StudyRow.finished_at),
    )
    .group_by(MeasurementRow.study_id)
)
_FIRST_TRIALS = 10
# Among the first trials: an index has no times, and a minimum over all would read every row.
_BEGUN = (
    select(TrialRow.study_id, func.min(TrialRow.started_at))
    .where(
        TrialRow.study_id.in_(bindparam("studies", expanding=True)),
        TrialRow.number < _FIRST_TRIALS,
        TrialRow.started_at.is_not(None),
    )
    .group_by(TrialRow.study_id)
)


@dataclass(frozen=True)
class Tally:
    """How much there is of everything that a study counts."""

    counts: TrialCounts
    epochs_trained: int
    measuring_seconds: float
    """Of its own time: what is measured again afterwards takes none of it."""
    device_time: DeviceTime
    begun: datetime | None = None
    """When the first trial had a slot; null before."""


class Tallies:
    """The tallies of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def of(self, study_ids: Collection[str], now: datetime) -> Mapping[str, Tally]:
        """Those of the named studies; of one without rows, or that is not there, all are zero."""
        found: dict[str, Tally] = {}
        for some in batched(study_ids):
            counts = Trials(self._session).counts_of(some)
            asked = {"studies": some}
            epochs: dict[str, int] = dict(run(self._session, _EPOCHS, asked).all())
            measuring: dict[str, float] = dict(run(self._session, _MEASURING, asked).all())
            begun: dict[str, datetime] = dict(run(self._session, _BEGUN, asked).all())
            times = Attempts(self._session).device_times(some, now)
            for study_id in some:
                found[study_id] = Tally(
                    counts=counts[study_id],
                    epochs_trained=epochs.get(study_id, 0),
                    measuring_seconds=measuring.get(study_id) or 0.0,
                    device_time=times[study_id],
                    begun=begun.get(study_id),
                )
        return found
