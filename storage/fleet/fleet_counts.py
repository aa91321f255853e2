"""Sums over everything that the database holds; none of them names anything."""

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from storage.records import AttemptKind, AttemptState, StudyState, TrialState
from storage.tables import ArtifactRow, AttemptRow, MeasurementRow, StudyRow, TrialRow


@dataclass(frozen=True)
class AttemptTotal:
    """Attempts of one kind in one state, and the device time that they took."""

    count: int
    device_seconds: float


class FleetCounts:
    """The sums of one session, a query each."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def studies(self) -> dict[StudyState, int]:
        """How many studies are in each state."""
        statement = select(StudyRow.state, func.count()).group_by(StudyRow.state)
        found = self._session.execute(statement)
        return dict.fromkeys(StudyState, 0) | dict(found.all())

    def open_trials(self) -> dict[TrialState, int]:
        """How many trials wait and how many run, in the studies that are in progress."""
        wanted = (TrialState.QUEUED, TrialState.RUNNING)
        in_progress = [state for state in StudyState if not state.has_ended]
        found = self._session.execute(
            select(TrialRow.state, func.count())
            .join(StudyRow, StudyRow.id == TrialRow.study_id)
            .where(StudyRow.state.in_(in_progress), TrialRow.state.in_(wanted))
            .group_by(TrialRow.state)
        )
        return dict.fromkeys(wanted, 0) | dict(found.all())

    def attempts(self) -> dict[tuple[AttemptKind, AttemptState], AttemptTotal]:
        """Attempts by kind and state, with what their workers said of their time last."""
        found = self._session.execute(
            select(
                AttemptRow.kind,
                AttemptRow.state,
                func.count(),
                func.sum(AttemptRow.device_seconds),
            ).group_by(AttemptRow.kind, AttemptRow.state)
        )
        none = AttemptTotal(0, 0.0)
        return {(kind, state): none for kind in AttemptKind for state in AttemptState} | {
            (kind, state): AttemptTotal(count, seconds or 0.0)
            for kind, state, count, seconds in found
        }

    def running_seconds(self) -> float:
        """How long all studies together were in state `running`."""
        return self._session.scalar(select(func.sum(StudyRow.running_seconds))) or 0.0

    def measuring_seconds(self) -> float:
        """How long all measurements together had their device alone."""
        return self._session.scalar(select(func.sum(MeasurementRow.seconds))) or 0.0

    def artifacts(self) -> tuple[int, int]:
        """How many artifacts are stored, and their bytes."""
        count, size = self._session.execute(
            select(func.count(), func.coalesce(func.sum(ArtifactRow.size), 0))
        ).one()
        return count, int(size)
