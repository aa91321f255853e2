"""Throughput measured again, because a user asks for it: another record, of the same shape.

The search, its limits and the front go by the first record that a shape has on the study's device;
what is measured later stands beside it. The errand that asks stays until a record has come of it,
through restarts; one that comes to nothing stays to say why.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, cast

from sqlalchemy.orm import Session

from search.attempts import measurement_id
from search.losses import gave_up
from search.measuring import measure_job
from search.spec import StudySpec
from search.study_context import Floor, StudyContext
from storage.attempts import Attempts
from storage.audit import Audit
from storage.engine import Database
from storage.errands import Errands
from storage.errors import Conflict
from storage.measurements import Measurements
from storage.records import (
    AttemptKind,
    AttemptRecord,
    AttemptState,
    ErrandKind,
    ErrandRecord,
    StudyRecord,
    TrialRecord,
    TrialState,
)
from storage.studies import Studies
from storage.trials import Trials

_TRIED_BEFORE = "tried_before"


@dataclass(frozen=True)
class Again:
    """A measurement that was asked for and has not been made."""

    state: Literal["waiting", "running", "failed"]
    asked_at: datetime
    reason: str | None
    """Why the last try came to nothing."""


def measure_again(database: Database, study_id: str, number: int) -> Again:
    """Ask for another record of a trial; asking while one is waited for asks once.

    Raises:
        NotFound: there is no such study or trial.
        Conflict: nothing says that the trial's model can be measured.
    """
    with database.write() as session:
        Studies(session).get(study_id)
        trial = Trials(session).get(study_id, number)
        _refuse_unmeasurable(trial)
        errand = Errands(session).find(_errand_id(trial))
        if errand is not None and errand.trial is not None:
            Errands(session).drop(errand.id)
            errand = None
        if errand is None:
            tried = Attempts(session).next_number(study_id, AttemptKind.MEASURE, number) - 1
            errand = ErrandRecord(
                id=_errand_id(trial),
                study_id=study_id,
                kind=ErrandKind.MEASURE,
                payload={"trial": number, _TRIED_BEFORE: tried},
                created_at=datetime.now(UTC),
            )
            Errands(session).add(errand)
            Audit(session).note("trial.measured", study_id, trial=number)
        return _standing(session, errand)


def asked_again(session: Session, trial: TrialRecord) -> Again | None:
    """How far another measurement of a trial is; null where none is waited for."""
    errand = Errands(session).find(_errand_id(trial))
    return None if errand is None else _standing(session, errand)


def ended_studies_to_measure(session: Session, floor: Floor) -> list[StudyRecord]:
    """Studies that have ended, of which something is to be measured that this floor can measure."""
    asked = {errand.study_id for errand in Errands(session).open(ErrandKind.MEASURE)}
    found = [study for study in Studies(session).with_ids(asked) if study.state.has_ended]
    return [
        study
        for study in found
        if floor.lane(*_lane_wanted(session, study.id, StudySpec.model_validate(study.spec)))
    ]


class Remeasuring:
    """Makes the measurements that were asked for again, of one study."""

    def __init__(self, study: StudyContext) -> None:
        self._study = study

    def go_on(self) -> bool:
        """Do what is due; whether anything is still asked for."""
        with self._study.database.read() as session:
            errands = Errands(session).open(ErrandKind.MEASURE, self._study.id)
        return sum(self._see_to(errand) for errand in errands) > 0

    def _see_to(self, errand: ErrandRecord) -> bool:
        """Start the errand's job, or end the errand; false: it is over."""
        number = cast(int, errand.payload["trial"])
        with self._study.database.read() as session:
            trial = Trials(session).get(self._study.id, number)
            tried = _tried(session, errand)
            made = _made(session, errand, tried)
            at_work = Attempts(session).running(self._study.id)
            wanted = _lane_wanted(session, self._study.id, self._study.spec)
        if any(attempt.state == AttemptState.RUNNING for attempt in tried):
            return True
        if made or gave_up(tried):
            with self._study.database.write() as session:
                if made:
                    Errands(session).drop(errand.id)
                else:
                    Errands(session).answer(errand.id, number)
            return False
        lane = self._study.floor.lane(*wanted)
        # The search may be measuring the very trial.
        busy = any((one.kind, one.trial) == (AttemptKind.MEASURE, number) for one in at_work)
        if lane is not None and not busy and self._study.floor.lane_is_free(lane):
            job = measure_job(self._study.spec.throughput, [trial])
            self._study.floor.start(
                self._study.id, AttemptKind.MEASURE, job, trial=number, slot=lane
            )
        return True


def _refuse_unmeasurable(trial: TrialRecord) -> None:
    """Measure what was trained, or was measured before: its model is known to be built and run."""
    trained = trial.state in (TrialState.COMPLETE, TrialState.STOPPED)
    if not trained and trial.measurement_id is None:
        raise Conflict(
            f"trial {trial.number} of study {trial.study_id!r} is {trial.state.value} and was "
            "never measured; measured again is what is complete or stopped, or was measured before"
        )


def _errand_id(trial: TrialRecord) -> str:
    return f"measure-{trial.study_id}-{trial.number}"


def _standing(session: Session, errand: ErrandRecord) -> Again:
    tried = _tried(session, errand)
    running = any(attempt.state == AttemptState.RUNNING for attempt in tried)
    ended = [attempt.reason for attempt in tried if attempt.state != AttemptState.RUNNING]
    state: Literal["waiting", "running"] = "running" if running else "waiting"
    return Again(
        state="failed" if errand.trial is not None else state,
        asked_at=errand.created_at,
        reason=ended[-1] if ended else None,
    )


def _tried(session: Session, errand: ErrandRecord) -> list[AttemptRecord]:
    """The jobs that were begun for the errand: by number, for clocks may differ."""
    before = cast(int, errand.payload[_TRIED_BEFORE])
    number = cast(int, errand.payload["trial"])
    attempts = Attempts(session).of_trial(errand.study_id, number, AttemptKind.MEASURE)
    return [attempt for attempt in attempts if attempt.number > before]


def _made(session: Session, errand: ErrandRecord, tried: list[AttemptRecord]) -> bool:
    number = cast(int, errand.payload["trial"])
    return any(Measurements(session).has(measurement_id(one.id, number)) for one in tried)


def _lane_wanted(session: Session, study_id: str, spec: StudySpec) -> tuple[str, str | None]:
    """The device that a study is measured on, so that all its records compare."""
    model = spec.throughput.device or Measurements(session).first_device(study_id)
    return spec.resources.device, model
