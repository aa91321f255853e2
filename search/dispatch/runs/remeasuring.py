"""Throughput measured again, because a user asks for it: another record, of the same shape.

The search, its limits and the front go by the first record that a shape has on the study's device;
what is measured later stands beside it. The command that asks stays until a record has come of it,
through restarts; one that comes to nothing stays to say why.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, cast, final

from sqlalchemy.orm import Session

from search.allocation import Allocator, SlotNews
from search.dispatch.runs.measuring_queue import measure_job
from search.running import (
    Dispatcher,
    Look,
    StudyContext,
    abandon,
    gave_up,
    lose,
    measurement_id,
)
from search.studies import StudySpec, measured_kind, priority_of
from storage.accounts.audit import Audit
from storage.endings import AttemptCause
from storage.engine import Database
from storage.errors import Conflict, NotFound
from storage.records import (
    AttemptKind,
    AttemptRecord,
    AttemptState,
    CommandKind,
    CommandRecord,
    StudyRecord,
    TrialRecord,
    TrialState,
)
from storage.repositories.attempts import Attempts
from storage.repositories.commands import Commands
from storage.repositories.measurements import Measurements
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials

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
        command = Commands(session).find(_command_id(trial))
        if command is not None and command.trial is not None:
            Commands(session).drop(command.id)
            command = None
        if command is None:
            tried = Attempts(session).next_number(study_id, AttemptKind.MEASURE, number) - 1
            command = CommandRecord(
                id=_command_id(trial),
                study_id=study_id,
                kind=CommandKind.MEASURE,
                payload={"trial": number, _TRIED_BEFORE: tried},
                created_at=datetime.now(UTC),
            )
            Commands(session).add(command)
            Audit(session).note("trial.measured", study_id, trial=number)
        return _standing(session, command)


def asked_again(session: Session, trial: TrialRecord) -> Again | None:
    """How far another measurement of a trial is; null where none is waited for."""
    command = Commands(session).find(_command_id(trial))
    return None if command is None else _standing(session, command)


def ended_studies_to_measure(session: Session, allocator: Allocator) -> list[StudyRecord]:
    """Studies that have ended, with something to measure that there is a measuring slot for."""
    asked = {command.study_id for command in Commands(session).open(CommandKind.MEASURE)}
    ended = [study for study in Studies(session).with_ids(asked) if study.state.has_ended]
    found: list[StudyRecord] = []
    for study in ended:
        spec = StudySpec.model_validate(study.spec)
        wanted = _measured_on(session, study.id, spec)
        if allocator.measuring_slot(*wanted, compiles=spec.throughput.compiles):
            found.append(study)
    return found


class Remeasuring:
    """Makes the measurements that were asked for again, of one study."""

    def __init__(self, study: StudyContext) -> None:
        self._study = study

    def go_on(self) -> bool:
        """Do what is due; whether anything is still asked for."""
        with self._study.database.read() as session:
            commands = Commands(session).open(CommandKind.MEASURE, self._study.id)
        return sum(self._see_to(command) for command in commands) > 0

    def _see_to(self, command: CommandRecord) -> bool:
        """Start the command's job, or end the command; false: it is over."""
        number = cast(int, command.payload["trial"])
        with self._study.database.read() as session:
            trial = Trials(session).get(self._study.id, number)
            tried = _tried(session, command)
            made = _made(session, command, tried)
            at_work = Attempts(session).running(self._study.id)
            wanted = _measured_on(session, self._study.id, self._study.spec)
        if any(attempt.state == AttemptState.RUNNING for attempt in tried):
            return True
        if made or gave_up(tried):
            with self._study.database.write() as session:
                if made:
                    Commands(session).drop(command.id)
                else:
                    Commands(session).answer(command.id, number)
            return False
        slot = self._study.allocator.measuring_slot(
            *wanted, compiles=self._study.spec.throughput.compiles
        )
        # The search may be measuring the very trial.
        busy = any((one.kind, one.trial) == (AttemptKind.MEASURE, number) for one in at_work)
        if (
            slot is not None
            and not busy
            and self._study.allocator.is_measuring_slot_free(self._study.tenant, slot)
        ):
            job = measure_job(self._study.spec, [trial], device=slot.model)
            self._study.dispatcher.start(
                self._study.id, AttemptKind.MEASURE, job, trial=number, slot=slot
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


def _command_id(trial: TrialRecord) -> str:
    return f"measure-{trial.study_id}-{trial.number}"


def _standing(session: Session, command: CommandRecord) -> Again:
    tried = _tried(session, command)
    running = any(attempt.state == AttemptState.RUNNING for attempt in tried)
    ended = [attempt.reason for attempt in tried if attempt.state != AttemptState.RUNNING]
    state: Literal["waiting", "running"] = "running" if running else "waiting"
    return Again(
        state="failed" if command.trial is not None else state,
        asked_at=command.created_at,
        reason=ended[-1] if ended else None,
    )


def _tried(session: Session, command: CommandRecord) -> list[AttemptRecord]:
    """The jobs that were begun for the command: by number, for clocks may differ."""
    before = cast(int, command.payload[_TRIED_BEFORE])
    number = cast(int, command.payload["trial"])
    attempts = Attempts(session).of_trial(command.study_id, number, AttemptKind.MEASURE)
    return [attempt for attempt in attempts if attempt.number > before]


def _made(session: Session, command: CommandRecord, tried: list[AttemptRecord]) -> bool:
    number = cast(int, command.payload["trial"])
    return any(Measurements(session).has(measurement_id(one.id, number)) for one in tried)


def _measured_on(session: Session, study_id: str, spec: StudySpec) -> tuple[str, str | None]:
    """The device that a study is measured on, so that all its records compare."""
    model = spec.throughput.device or Measurements(session).first_device(study_id)
    return measured_kind(spec.throughput, spec.resources), model


@final
class MeasuringRun:
    """As `StudyRun` for a coordinator, of a study that has nothing else to do."""

    def __init__(self, dispatcher: Dispatcher, study: StudyRecord) -> None:
        spec = StudySpec.model_validate(study.spec)
        self._study = StudyContext(study.id, spec, dispatcher, study.tenant)
        self._remeasuring = Remeasuring(self._study)
        self._seen = study
        self.abandon()

    @property
    def priority(self) -> int:
        """As the study had it when it was last looked at."""
        return priority_of(self._seen)

    @property
    def tenant(self) -> str:
        """Whose study it is."""
        return self._study.tenant

    def step(self, look: Look, *, slots: SlotNews) -> bool:  # noqa: ARG002
        """Do what is due; whether there is more. A study that runs on is left to its own run."""
        self._seen = look.study
        try:
            return self._seen.state.has_ended and self._remeasuring.go_on()
        except NotFound:  # it was deleted meanwhile
            return False

    def dispatch(self) -> None:
        """Nothing to start: a run of this kind takes no slots."""

    def halt(self) -> None:
        """Nothing to hold back: a run of this kind works in its steps alone."""

    def abandon(self) -> None:
        """Lose what runs with the coordinator that stops, or with the one that died before."""
        abandon(self._study)

    def lost(self, attempt: AttemptRecord, cause: AttemptCause, detail: str) -> None:
        """An attempt's process ended, or its lease did, without a last word."""
        with self._study.database.write() as session:
            if Attempts(session).get(attempt.id).state == AttemptState.RUNNING:
                lose(session, attempt, cause, detail)
