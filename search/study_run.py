"""One study as the coordinator runs it: measure, dispatch, end it, and have it ask and tell."""

import time
from datetime import UTC, datetime

from optuna.storages import BaseStorage

from search.attempts import BROKEN, BUDGET, announce_trial, end_trial
from search.compression import ORIGINAL_TRIAL
from search.duplicates import Duplicates
from search.ending import write_end
from search.exchange import Exchange
from search.executors import Slot
from search.losses import DATA_AT_FAULT, PAUSED, gave_up, ran_out_of_memory
from search.lost_attempts import abandon, lose
from search.measuring import Measuring
from search.mirror import Mirror
from search.named_trials import precedence
from search.pareto import reference_point
from search.reconcile import reconcile
from search.remeasuring import Remeasuring
from search.space import SearchSpace
from search.spec import Budget, StudySpec
from search.studies import ENDED, enter, priority_of
from search.study_context import Floor, StudyContext
from search.surroundings import RememberedPast, surroundings_of
from search.trial import TrialSpec
from search.warm_start import knowledge_of
from search.wire import PrepareJob, TrainJob
from storage.attempts import Attempts
from storage.errands import Errands
from storage.records import (
    AttemptKind,
    AttemptRecord,
    AttemptState,
    ErrandKind,
    StudyRecord,
    StudyState,
    TrialRecord,
    TrialState,
)
from storage.studies import Studies
from storage.trials import Trials

FAILED = "failed: "
"""How the ending of a study begins that cannot go on; the sentence for the user follows."""

GRID_EXHAUSTED = "grid_exhausted"
"""The reason of a study's end when its sampler has no further suggestion."""

NOTHING_FEASIBLE = "nothing_feasible"
"""The reason when so many suggestions were refused that no more are asked for."""

_OPEN = (TrialState.QUEUED, TrialState.RUNNING)
_TICK_SECONDS = 1.0
_PUT_ASIDE_SECONDS = 10.0
"""How long a trial that is paused has to store the state from which it goes on."""


class StudyRun:
    """One claimed study. Making it reconciles our rows with Optuna's.

    `step` does whatever is due.
    """

    def __init__(self, floor: Floor, optuna_storage: BaseStorage, study: StudyRecord) -> None:
        spec = StudySpec.model_validate(study.spec)
        self._study = StudyContext(study.id, spec, SearchSpace(spec), floor)
        mirror = Mirror(
            optuna_storage,
            study,
            spec,
            surroundings_of(
                spec,
                self._study.space,
                RememberedPast(floor.database, study.id).now,
                knowledge_of(floor.database, study.id),
            ),
        )
        self._ticked = time.monotonic()
        self._exchange = Exchange(self._study, mirror, uncounted_seconds=self._since_tick)
        self._duplicates = Duplicates(self._study)
        self._measuring = Measuring(self._study)
        self._remeasuring = Remeasuring(self._study)
        self._seen = study
        self._stands_still = study.state == StudyState.PAUSED
        self._put_aside: set[str] = set()
        self.abandon()
        reconcile(self._study, mirror, adopt=self._exchange.adopt)

    @property
    def priority(self) -> int:
        """As the study had it when it was last looked at."""
        return priority_of(self._seen)

    def step(self) -> bool:
        """Do what is due.

        Returns:
            Whether the study goes on.
        """
        study = self._current()
        if study.state == StudyState.QUEUED:
            study = self._begin()
        if study.state in ENDED:
            return False
        held = study.ending is None and study.state == StudyState.PAUSED
        ready = study.ending is None and study.prepared is not None
        self._exchange.go_on(searching=ready and not held)
        if held:
            self._stand_still()
            return True
        self._stands_still = False
        if study.ending is None:
            study = self._check_budgets(study)
        if study.ending is not None:
            return self._wind_down(study)
        if study.prepared is None:
            self._prepare()
            return True
        self._remeasuring.go_on()
        self._measuring.refuse_slow()
        self._dispatch()
        self._measuring.measure_waiting()
        if self._study.free_slot() is not None:
            self._exchange.wait_a_moment()
            self._dispatch()
        return not self._finish_if_done()

    def halt(self) -> None:
        """Begin no ask and no tell any more: the run is given up."""
        self._exchange.halt()

    def abandon(self) -> None:
        """Lose what runs with the coordinator that stops, or with the one that died before."""
        abandon(self._study)

    def lost(self, attempt: AttemptRecord, reason: str) -> None:
        """An attempt's process ended, or its lease did, without a last word."""
        with self._study.database.write() as session:
            if Attempts(session).get(attempt.id).state == AttemptState.RUNNING:
                paused = attempt.id in self._put_aside
                lose(session, attempt, PAUSED if paused else reason)

    def _current(self) -> StudyRecord:
        """The study as this step sees it: its budget and its priority may change."""
        with self._study.database.read() as session:
            self._seen = Studies(session).get(self._study.id)
        budget = _budget_of(self._seen)
        if budget != self._study.spec.budget:
            self._study.spec = self._study.spec.model_copy(update={"budget": budget})
        return self._seen

    def _begin(self) -> StudyRecord:
        point = reference_point(
            self._study.spec, largest_count=self._study.space.parameter_range.high
        )
        now = datetime.now(UTC)
        with self._study.database.write() as session:
            study = Studies(session).get(self._study.id)
            if study.state != StudyState.QUEUED:
                return study
            Studies(session).set_reference_point(self._study.id, point)
            study = enter(session, self._study.id, StudyState.RUNNING, at=now)
            if not self._study.slots:
                Studies(session).set_ending(self._study.id, f"{FAILED}{_unserved(self._study)}")
            elif self._study.lane() is None:
                wish = self._study.spec.throughput.device
                models = sorted({slot.model for slot in self._study.slots})
                sentence = f"throughput.device {wish!r} is not here; there is {', '.join(models)}"
                Studies(session).set_ending(self._study.id, f"{FAILED}{sentence}")
            return Studies(session).get(study.id)

    def _stand_still(self) -> None:
        """Have the attempts of a paused study store where they are and end; its time stands."""
        if not self._stands_still:
            self._stands_still = True
            elapsed = self._since_tick()
            with self._study.database.write() as session:
                Studies(session).add_running_seconds(self._study.id, elapsed)
        self._ticked = time.monotonic()
        with self._study.database.read() as session:
            attempts = Attempts(session).running(self._study.id)
        for attempt in attempts:
            if attempt.id not in self._put_aside:
                self._put_aside.add(attempt.id)
                self._study.floor.cancel(attempt.id, grace_seconds=_PUT_ASIDE_SECONDS)

    def _since_tick(self) -> float:
        """Seconds that the study's row does not count yet."""
        return time.monotonic() - self._ticked

    def _check_budgets(self, study: StudyRecord) -> StudyRecord:
        """Count the running time, and end the asking when a budget of the study is used up."""
        elapsed = self._since_tick()
        if elapsed < _TICK_SECONDS:
            return study
        self._ticked += elapsed
        with self._study.database.write() as session:
            studies = Studies(session)
            studies.add_running_seconds(self._study.id, elapsed)
            study = studies.get(self._study.id)
            budget, wall = _budget_of(study), study.running_seconds
            used = Attempts(session).device_seconds(self._study.id, datetime.now(UTC)) / 3600
            if budget.wall_seconds is not None and wall >= budget.wall_seconds:
                studies.set_ending(self._study.id, f"{BUDGET}: wall_seconds")
            elif budget.device_hours is not None and used >= budget.device_hours:
                studies.set_ending(self._study.id, f"{BUDGET}: device_hours")
            return studies.get(self._study.id)

    def _prepare(self) -> None:
        """Have the task's data fetched and checked once, before anything is asked."""
        with self._study.database.read() as session:
            attempts = Attempts(session).of_study(self._study.id, AttemptKind.PREPARE)
        if any(attempt.state == AttemptState.RUNNING for attempt in attempts):
            return
        if gave_up(attempts):
            reason = attempts[-1].reason or "unknown"
            sentence = reason.removeprefix(DATA_AT_FAULT)
            with self._study.database.write() as session:
                Studies(session).set_ending(self._study.id, f"{FAILED}{sentence}")
            return
        slot = self._study.free_slot()
        if slot is not None:
            job = PrepareJob(task=self._study.spec.task)
            self._study.floor.start(self._study.id, AttemptKind.PREPARE, job, trial=None, slot=slot)

    def _dispatch(self) -> None:
        """Start attempts on free slots, see `precedence`."""
        # Most of the time nothing is free, and what waits need not be read then.
        if self._study.free_slot() is None:
            return
        with self._study.database.read() as session:
            held = self._duplicates.held(session)
            waiting = Trials(session).unattended(self._study.id)
        waiting.sort(key=precedence)
        for trial in waiting:
            if trial.number in held or not self._measuring.is_ready(trial):
                continue
            slot = self._study.free_slot()
            if slot is None:
                return
            if trial.state == TrialState.QUEUED or self._may_try_again(trial):
                self._start(trial, slot)

    def _may_try_again(self, trial: TrialRecord) -> bool:
        """Whether a trial that lost its attempt gets another; if not, it ends here."""
        with self._study.database.write() as session:
            attempts = Attempts(session).of_trial(self._study.id, trial.number, AttemptKind.TRAIN)
            if not gave_up(attempts):
                return True
            reason = attempts[-1].reason or "unknown"
            if reason.startswith(DATA_AT_FAULT):
                sentence = reason.removeprefix(DATA_AT_FAULT)
                Studies(session).set_ending(self._study.id, f"{FAILED}{sentence}")
            too_large = ran_out_of_memory(attempts)
            end_trial(
                session,
                self._study.id,
                trial.number,
                state=TrialState.INFEASIBLE if too_large else TrialState.FAILED,
                reason=reason,
                violation=BROKEN if too_large else None,
            )
            return False

    def _start(self, trial: TrialRecord, slot: Slot) -> None:
        now = datetime.now(UTC)
        with self._study.database.write() as session:
            trials = Trials(session)
            trials.start(self._study.id, trial.number, now)
            announce_trial(session, trials.get(self._study.id, trial.number), at=now)
        job = TrainJob(
            task=self._study.spec.task,
            trial=TrialSpec.model_validate(trial.spec),
            number=trial.number,
            epochs=self._study.spec.budget.epochs,
            continues=trial.continues,
        )
        self._study.floor.start(
            self._study.id, AttemptKind.TRAIN, job, trial=trial.number, slot=slot
        )

    def _finish_if_done(self) -> bool:
        """End the study when its budget of trials or of draws is used up and told."""
        if not self._exchange.is_done():
            return False
        with self._study.database.read() as session:
            counts = Trials(session).counts(self._study.id)
        suggestions = self._exchange.suggestions
        # A trial may have ended since the exchange was asked: Optuna is still to be told of it.
        if counts.unknown or suggestions.are_wanted(counts):
            return False
        if self._exchange.confirmation.due():
            return False
        enough = counts.dispatched >= self._study.spec.budget.trials
        if enough:
            return self._finish(None)
        return self._finish(GRID_EXHAUSTED if suggestions.are_used_up() else NOTHING_FEASIBLE)

    def _finish(self, reason: str | None) -> bool:
        """End a study of which nothing runs, once its front is measured, and the original."""
        with self._study.database.read() as session:
            study = Studies(session).get(self._study.id)
            standing = self._exchange.figures.standing(session, study)
            compared = {trial.number for trial in standing.front}
            if self._study.spec.compress is not None:
                compared.add(ORIGINAL_TRIAL)
            unmeasured = [
                trial
                for trial in Trials(session).numbered(self._study.id, compared)
                if trial.state == TrialState.COMPLETE and trial.measurement_id is None
            ]
        if unmeasured and self._measuring.measure_front(unmeasured):
            return False
        return self._end(StudyState.FINISHED, reason)

    def _wind_down(self, study: StudyRecord) -> bool:
        """Bring a study to the end that was decided; returns whether it goes on until then."""
        assert study.ending is not None
        on_budget = study.ending.startswith(BUDGET)
        if self._end_open_trials(study.ending, on_budget=on_budget):
            return True
        if not self._exchange.is_done():
            return True
        if on_budget:
            return not self._finish(study.ending)
        failed = study.ending.startswith(FAILED)
        state = StudyState.FAILED if failed else StudyState.CANCELLED
        return not self._end(state, study.ending.removeprefix(FAILED))

    def _end_open_trials(self, ending: str, *, on_budget: bool) -> bool:
        """End what waits and what runs; on a used-up budget, what trains ends by its own word.

        Returns:
            Whether a trial still trains.
        """
        with self._study.database.write() as session:
            open_trials = Trials(session).list(self._study.id, *_OPEN)
            training: set[int] = set()
            attempts = Attempts(session).running(self._study.id)
            # With no trial left, what still runs measures the front that the budget bought.
            for attempt in attempts if open_trials or not on_budget else ():
                if on_budget and attempt.kind == AttemptKind.TRAIN and attempt.trial is not None:
                    training.add(attempt.trial)
                    continue
                lose(session, attempt, ending)
                self._study.floor.cancel(attempt.id)
            for trial in open_trials:
                if trial.number in training:
                    continue
                stopped = on_budget and trial.state == TrialState.RUNNING
                state = TrialState.STOPPED if stopped else TrialState.CANCELLED
                reason = BUDGET if on_budget else ending
                end_trial(session, self._study.id, trial.number, state=state, reason=reason)
        return bool(training)

    def _end(self, state: StudyState, reason: str | None) -> bool:
        """Enter the study's last state, unless a user has just steered it elsewhere."""
        # Before the end is told: nobody comes back to a study that has ended.
        self._exchange.showing.show()
        elapsed = self._since_tick()
        with self._study.database.write() as session:
            study = Studies(session).get(self._study.id)
            steered = (study.state, study.spec, study.ending)
            if steered != (self._seen.state, self._seen.spec, self._seen.ending):
                return False
            if Errands(session).open(ErrandKind.ENQUEUE, self._study.id):
                return False
            Studies(session).add_running_seconds(self._study.id, elapsed)
            ended = enter(session, self._study.id, state, at=datetime.now(UTC), reason=reason)
            write_end(session, ended)
            return True


def _unserved(study: StudyContext) -> str:
    """Why no slot is one for the study."""
    wish = study.spec.resources
    shares = [slot.share for slot in study.floor.slots(wish.device)]
    if not shares or wish.fraction is None:
        return f"no slot here serves resources.device {wish.device!r}"
    largest = f"the largest is {max(shares):g}"
    return f"no slot here is resources.fraction {wish.fraction:g} of a device; {largest}"


def _budget_of(study: StudyRecord) -> Budget:
    return Budget.model_validate(study.spec["budget"])
