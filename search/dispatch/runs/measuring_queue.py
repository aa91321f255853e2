"""Throughput of waiting suggestions: several in a row, alone on the device, before they train."""

import logging
from collections.abc import Sequence

from sqlalchemy.orm import Session

from search.agents.executors import Slot
from search.dispatch.runs.speed_predictions import Predictions, SpeedPredictions
from search.dispatch.runs.study_jobs import measure_network_job
from search.fronts import Figures, best_ends, front_of, may_be_on_front, may_join, middles
from search.graphs.model_outputs import ModelOutputs
from search.graphs.network_trial import NetworkTrial
from search.running import (
    BROKEN,
    StudyContext,
    end_trial,
    gave_up,
    is_infeasible,
    is_suspect,
    may_be_guilty,
    still_stands,
    why_given_up,
)
from search.spaces import slow
from search.studies import StudySpec, measuring_need, precedence
from search.training.jobs import AnyMeasureJob, MeasureJob, Shape
from search.training.trial_spec import TrialSpec, trial_spec_of
from storage.endings import TrialCause
from storage.records import (
    AttemptKind,
    AttemptRecord,
    StudyRecord,
    TrialOrigin,
    TrialOutcome,
    TrialRecord,
    TrialState,
)
from storage.repositories.attempts import Attempts
from storage.repositories.studies import Studies
from storage.repositories.trial_summaries import AnyTrial, TrialSummary
from storage.repositories.trials import Trials

_log = logging.getLogger(__name__)

_BLOCK = 8
"""How many shapes that may be on the front are measured in a row: slots stand still for it."""

_LAST_BLOCK = 4
"""The same when nothing trains any more: after each, fewer may be on the front."""


class Measuring:
    """Plans the measuring jobs of one study.

    The first shapes are measured before they train. Once they predict others, what the prediction
    clears of the study's limits on speed trains first, and is measured in blocks if it may be on
    the front. Only a measurement refuses a trial, or puts it onto the front: see
    Note [Predicted speeds].
    """

    def __init__(self, study: StudyContext, figures: Figures) -> None:
        self._study = study
        self._figures = figures
        self._predictions = SpeedPredictions(study)
        self._alone = False
        """Whether the next job is to run alone, see Note [Sudden deaths]."""
        self._seen_version = -1
        self._candidates: Sequence[TrialRecord] = ()
        """Complete and not measured, and by the last look maybe on the front; likely ones first."""
        self._likely: frozenset[int] = frozenset()
        """Those of them that are on the front if all predictions are right."""
        self._unmeasurable: set[int] = set()
        """Those whose measuring came to nothing too often."""

    def is_ready(self, trial: TrialRecord) -> bool:
        """Whether a trial may be dispatched as far as measuring goes."""
        if not self._study.spec.needs_throughput:
            return True
        if trial.measurement_id is None:
            return bool(trial.predicted)
        return not self._too_slow(trial)

    def _too_slow(self, trial: AnyTrial) -> Sequence[tuple[str, float]]:
        """The limits on speed that a measured trial breaks."""
        limits = self._study.spec.limits
        if trial.origin == TrialOrigin.ORIGINAL:
            if not trial.state.has_ended:
                # What all else is compared with is wanted whatever it is.
                return ()
            # It is its own dense baseline: it was known before whether a ratio of 1 is enough.
            limits = limits.model_copy(update={"min_throughput_ratio": None})
        return tuple(slow(limits, trial))

    def look(self, study: StudyRecord, *, finishing: bool = False) -> bool:
        """Take in what has changed of a study since the last look.

        Returns:
            Whether other shapes are measured than then, so that there may be another front.
        """
        wanted = finishing or self._study.spec.needs_throughput
        if not wanted or study.data_version == self._seen_version:
            return False
        with self._study.database.read() as session:
            study = Studies(session).get(self._study.id)
            grown = self._predictions.refresh(session)
            complete = self._figures.complete(session, study)
            self._find_candidates(session, study, complete)
            waiting = Trials(session).list(self._study.id, TrialState.QUEUED)
        self._seen_version = study.data_version
        self._refuse_slow(waiting, complete)
        return grown

    def _refuse_slow(
        self, waiting: Sequence[TrialRecord], complete: Sequence[TrialSummary]
    ) -> None:
        """End the waiting trials that were measured beyond a limit on speed.

        One that was measured after its training keeps what it learned, and is on no front.
        """
        late = (
            trial
            for trial in complete
            if trial.violation is None and (trial.predicted or trial.origin == TrialOrigin.ORIGINAL)
        )
        for trial in (*waiting, *late):
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
                if isinstance(trial, TrialRecord):
                    if still_stands(session, trial):
                        end_trial(session, self._study.id, number, state=state, outcome=outcome)
                else:
                    Trials(session).note_violation(self._study.id, number, outcome)

    def measure_waiting(self) -> None:
        """Measure several shapes in a row: when few trials are ready, or a block may be on a front.

        What waits comes first, and what may be on the front goes with it.
        """
        if not self._study.spec.needs_throughput:
            return
        waiting = sorted(self._study.trials.open(TrialState.QUEUED), key=precedence)
        unmeasured = self._not_predicted(
            [trial for trial in waiting if not (trial.measurement_id or trial.predicted)]
        )
        overtakes = any(trial.origin == TrialOrigin.USER for trial in unmeasured)
        # What repeats another trial waits for that one, measured or not.
        ready = _new(waiting) - _new(unmeasured)
        if unmeasured and (overtakes or ready < len(self._study.slots)):
            self._measure(unmeasured)
            return
        likely = [trial for trial in self._measurable() if trial.number in self._likely]
        if len({trial.shape_key for trial in likely}) >= _BLOCK:
            self._measure(likely[:_BLOCK])

    def _not_predicted(self, trials: Sequence[TrialRecord]) -> list[TrialRecord]:
        """Those that have to be measured before they train; the others get their predictions."""
        spec = self._study.spec
        everything = spec.throughput.measure == "all" or isinstance(spec.task, ModelOutputs)
        found = None if everything or not trials else self._predictions.of(trials)
        if found is None:
            return [*trials]
        clear = [
            (trial.number, predictions)
            for trial, predictions in zip(trials, found, strict=True)
            if trial.origin != TrialOrigin.ORIGINAL and self._is_clear(predictions)
        ]
        if clear:
            with self._study.database.write() as session:
                for number, predictions in clear:
                    Trials(session).set_predicted(self._study.id, number, predictions)
        numbers = {number for number, _ in clear}
        return [trial for trial in trials if trial.number not in numbers]

    def _is_clear(self, predictions: Predictions) -> bool:
        """Whether even the worse ends of what is predicted keep the limits on speed."""
        limits = self._study.spec.limits
        least, most = limits.min_throughput_ratio, limits.latency_seconds
        return (least is None or predictions["throughput_ratio"].low >= least) and (
            most is None or predictions["latency_p99"].high <= most
        )

    def measure_front(self) -> bool:
        """Have everything measured that may be on the front by the last look, in blocks.

        What was tried often enough
        stays as it is, and so does what the measuring slot has no memory for.

        Returns:
            Whether something is left to measure.
        """
        candidates = self._measurable()
        self._measure(candidates[:_LAST_BLOCK])
        return bool(candidates)

    def _measurable(self) -> list[TrialRecord]:
        """The candidates that can be measured as far as is known."""
        known = (trial for trial in self._candidates if trial.number not in self._unmeasurable)
        return [trial for trial in known if self._fits_in_memory(trial)]

    def _find_candidates(
        self, session: Session, study: StudyRecord, complete: Sequence[TrialSummary]
    ) -> None:
        infos = self._study.infos
        possible = {trial.number: trial for trial in may_be_on_front(complete, infos)}
        records = self._figures.records(session, study, possible)
        found = self._predictions.of([*records.values()]) if records else None
        predictions = {} if found is None else dict(zip(records, found, strict=True))
        known = [trial for trial in complete if trial.measurement_id or trial.number in possible]
        likely = may_join(known, infos, middles(predictions), among_guesses=True)
        # The front of a study whose objectives are not measured, and what all else compares with.
        others = front_of(complete, infos)
        if self._study.spec.compressed_model is not None:
            others += [trial for trial in complete if trial.origin == TrialOrigin.ORIGINAL]
        others = [trial for trial in others if trial.measurement_id is None]
        wanted = (*likely, *may_join(known, infos, best_ends(predictions)), *others)
        records = self._figures.records(session, study, {trial.number for trial in wanted})
        numbers = dict.fromkeys(trial.number for trial in wanted)
        self._candidates = [records[number] for number in numbers]
        self._likely = frozenset(trial.number for trial in (*likely, *others))

    def _fits_in_memory(self, trial: TrialRecord) -> bool:
        slot, spec = self._study.measuring_slot(), trial_spec_of(trial.spec)
        if slot is None or isinstance(spec, NetworkTrial):
            # What measures a network takes what its trials take, and they have a place.
            return True
        return measuring_need(spec.model, self._study.spec.throughput).fits(slot)

    def _measure(self, trials: Sequence[TrialRecord]) -> None:
        """Start a measuring job for these trials' shapes, if the measuring slot is free."""
        slot = self._study.measuring_slot()
        if not trials or slot is None or not self._may_start_on(slot):
            return
        numbers = [trial.number for trial in trials]
        with self._study.database.read() as session:
            running = Attempts(session).running(self._study.id)
            rows = Trials(session).numbered(self._study.id, numbers)
        if any(attempt.kind == AttemptKind.MEASURE for attempt in running):
            # Another measuring slot of the same model may be free, but each shape is measured once.
            return
        # A job may have ended since the last look, with what it measured.
        unmeasured = {row.number for row in rows if row.measurement_id is None}
        trials = [trial for trial in trials if trial.number in unmeasured]
        if not trials:
            return
        first = trials[0]
        with self._study.database.write() as session:
            tried = _tried(session, first)
            if gave_up(tried) and first.state.has_ended:
                self._unmeasurable.add(first.number)
                words = {"study_id": self._study.id, "trial": first.number}
                _log.error("a trial that may be on the front stays unmeasured", extra=words)
                return
            if gave_up(tried):
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
            return self._study.allocator.is_clear(self._study.id, slot)
        return self._study.allocator.is_measuring_slot_free(self._study.tenant, slot)


def measure_job(spec: StudySpec, trials: Sequence[TrialRecord], *, device: str) -> AnyMeasureJob:
    """The job that measures these trials' shapes on a device, each once, as a study wants it."""
    if isinstance(spec.task, ModelOutputs):
        return measure_network_job(spec, spec.task, trials, device=device)
    return measure_models_job(spec, trials, device=device)


def measure_models_job(
    spec: StudySpec, trials: Sequence[TrialRecord], *, device: str
) -> MeasureJob:
    """The same of models that are trained."""
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


def _new(trials: Sequence[TrialRecord]) -> int:
    return sum(trial.repeats is None for trial in trials)


def _tried(session: Session, trial: TrialRecord) -> list[AttemptRecord]:
    """The measuring jobs that were begun with this trial."""
    return Attempts(session).of_trial(trial.study_id, trial.number, AttemptKind.MEASURE)
