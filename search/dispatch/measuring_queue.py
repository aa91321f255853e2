"""Throughput of waiting suggestions: several in a row, alone on the device, before they train."""

import logging
from collections.abc import Sequence

from sqlalchemy.orm import Session

from search.agents.executors import Slot
from search.running import (
    BROKEN,
    StudyContext,
    end_trial,
    gave_up,
    is_infeasible,
    is_suspect,
    may_be_guilty,
    why_given_up,
)
from search.spaces import slow
from search.studies import StudySpec, measuring_need, precedence
from search.training.jobs import MeasureJob, Shape
from search.training.trial_spec import TrialSpec
from storage.endings import TrialCause
from storage.records import (
    AttemptKind,
    AttemptRecord,
    TrialOrigin,
    TrialOutcome,
    TrialRecord,
    TrialState,
)
from storage.repositories.attempts import Attempts
from storage.repositories.trials import Trials

_log = logging.getLogger(__name__)


class Measuring:
    """Plans the measuring jobs of one study."""

    def __init__(self, study: StudyContext) -> None:
        self._study = study
        self._alone = False
        """Whether the next job is to run alone, see Note [Sudden deaths]."""

    def is_ready(self, trial: TrialRecord) -> bool:
        """Whether a trial may be dispatched as far as measuring goes."""
        if not self._study.spec.needs_throughput:
            return True
        return trial.measurement_id is not None and not self._too_slow(trial)

    def _too_slow(self, trial: TrialRecord) -> Sequence[tuple[str, float]]:
        """The limits on speed that a measured trial breaks."""
        if trial.origin == TrialOrigin.ORIGINAL:
            # What all else is compared with is wanted whatever it is.
            return ()
        return tuple(slow(self._study.spec.limits, trial))

    def refuse_slow(self) -> None:
        """End the waiting trials that were measured beyond a limit on speed."""
        limits = self._study.spec.limits
        if limits.min_throughput_ratio is None and limits.latency_seconds is None:
            return
        with self._study.database.read() as session:
            waiting = Trials(session).list(self._study.id, TrialState.QUEUED)
        for trial in waiting:
            broken = self._too_slow(trial)
            if not broken:
                continue
            outcome = TrialOutcome(
                cause=TrialCause.LIMIT,
                detail="; ".join(sentence for sentence, _ in broken),
                violation=max(excess for _, excess in broken),
            )
            number, state = trial.number, TrialState.INFEASIBLE
            with self._study.database.write() as session:
                end_trial(session, self._study.id, number, state=state, outcome=outcome)

    def measure_waiting(self) -> None:
        """Measure suggestions that wait, several in a row, when few are ready to be dispatched."""
        if not self._study.spec.needs_throughput:
            return
        with self._study.database.read() as session:
            waiting = Trials(session).list(self._study.id, TrialState.QUEUED)
        waiting.sort(key=precedence)
        unmeasured = [trial for trial in waiting if trial.measurement_id is None]
        overtakes = any(trial.origin == TrialOrigin.USER for trial in unmeasured)
        if overtakes or len(waiting) - len(unmeasured) < len(self._study.slots):
            self._measure(unmeasured)

    def measure_front(self, front: Sequence[TrialRecord]) -> bool:
        """Have the final front measured, as far as the measuring slot's memory allows.

        False when nothing is left to measure, or its first point was tried often enough.
        """
        front = [trial for trial in front if self._fits_in_memory(trial)]
        if not front:
            return False
        with self._study.database.read() as session:
            tried = _tried(session, front[0])
        if gave_up(tried):
            _log.error("a front stays unmeasured", extra={"study_id": self._study.id})
            return False
        self._measure(front)
        return True

    def _fits_in_memory(self, trial: TrialRecord) -> bool:
        slot = self._study.measuring_slot()
        model = TrialSpec.model_validate(trial.spec).model
        return slot is None or measuring_need(model, self._study.spec.throughput).fits(slot)

    def _measure(self, trials: Sequence[TrialRecord]) -> None:
        """Start a measuring job for these trials' shapes, if the measuring slot is free."""
        slot = self._study.measuring_slot()
        if not trials or slot is None or not self._may_start_on(slot):
            return
        first = trials[0]
        with self._study.database.read() as session:
            running = Attempts(session).running(self._study.id)
        if any(attempt.kind == AttemptKind.MEASURE for attempt in running):
            # Another measuring slot of the same model may be free, but each shape is measured once.
            return
        with self._study.database.write() as session:
            tried = _tried(session, first)
            if gave_up(tried) and first.state == TrialState.QUEUED:
                too_large = is_infeasible(tried)
                end_trial(
                    session,
                    self._study.id,
                    first.number,
                    state=TrialState.INFEASIBLE if too_large else TrialState.FAILED,
                    outcome=TrialOutcome(
                        cause=TrialCause.UNMEASURED,
                        detail=why_given_up(tried),
                        violation=BROKEN if too_large else None,
                    ),
                )
                return
        if may_be_guilty(tried):
            # By itself, so that none of the others is blamed with it, or for it.
            trials = [first]
        self._alone, was_alone = is_suspect(tried), self._alone
        if self._alone and not was_alone:
            return
        job = measure_job(self._study.spec, trials, device=slot.model)
        self._study.dispatcher.start(
            self._study.id,
            AttemptKind.MEASURE,
            job,
            trial=first.number,
            slot=slot,
            alone=self._alone,
        )

    def _may_start_on(self, slot: Slot) -> bool:
        if self._alone:
            return self._study.dispatcher.is_clear(self._study.id, slot)
        return self._study.dispatcher.is_measuring_slot_free(self._study.id, slot)


def measure_job(spec: StudySpec, trials: Sequence[TrialRecord], *, device: str) -> MeasureJob:
    """The job that measures these trials' shapes on a device, each once, as a study wants it."""
    wanted = spec.throughput
    shapes = {
        trial.shape_key: Shape(
            trial=trial.number,
            shape_key=trial.shape_key,
            model=TrialSpec.model_validate(trial.spec).model,
        )
        for trial in reversed(trials)
    }
    return MeasureJob(
        shapes=tuple(reversed(shapes.values())),
        mode=wanted.mode,
        runtime=wanted.runtime,
        form=spec.export.form,
        latency=spec.needs_latency,
        batch_size=wanted.batch_size,
        sequence_length=wanted.sequence_length,
        threads=wanted.threads,
        device=device,
    )


def _tried(session: Session, trial: TrialRecord) -> list[AttemptRecord]:
    """The measuring jobs that were begun with this trial."""
    return Attempts(session).of_trial(trial.study_id, trial.number, AttemptKind.MEASURE)
