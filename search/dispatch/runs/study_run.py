"""One study as the coordinator runs it: measure, dispatch, end it, and have it ask and tell."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

from optuna.storages import RDBStorage
from sqlalchemy.orm import Session

from search.allocation import SlotNews
from search.dispatch.runs.measuring_queue import Measuring
from search.dispatch.runs.remeasuring import Remeasuring
from search.dispatch.runs.study_jobs import prepare_job
from search.dispatch.runs.trial_dispatch import TrialDispatch
from search.dispatch.runs.webhook_payload import write_end
from search.fronts import reference_point
from search.running import (
    Dispatcher,
    Look,
    StudyContext,
    abandon,
    end_trial,
    ended_with,
    fault_of_data,
    gave_up,
    lose,
    why_given_up,
)
from search.sampling import (
    AskTellLoop,
    Companions,
    OptunaCopy,
    OptunaStudy,
    RememberedPast,
    sampler_context_of,
)
from search.studies import (
    ENDED,
    Budget,
    StudySpec,
    enter,
    knowledge_of,
    largest_bytes,
    priority_of,
)
from storage.endings import AttemptCause, StudyCause
from storage.records import (
    AttemptKind,
    AttemptRecord,
    AttemptState,
    CommandKind,
    StudyEnding,
    StudyRecord,
    StudyState,
    TrialOutcome,
    TrialRecord,
    TrialState,
)
from storage.repositories.attempts import Attempts
from storage.repositories.commands import Commands
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials

_OPEN = (TrialState.QUEUED, TrialState.RUNNING, TrialState.PAUSED)
_TICK_SECONDS = 1.0
"""How often a study's budgets of time are looked at."""
_COUNT_SECONDS, _COUNT_SHARE = 10.0, 0.1
"""How much of its time a study's row may lack, at most and as a share of what it has counted: each
count is a write, after which all that follow the study look at it."""
_LOOK_AFTER_SECONDS = {SlotNews.CHANGED: 0.0, SlotNews.FREE: 0.2, SlotNews.FULL: 1.0}
"""How long a study of which nothing has changed is left alone."""
_AT_REST_SECONDS = 30.0
"""The same, of a paused study that has no attempt any more."""
_PUT_ASIDE_SECONDS = 10.0
"""How long a trial that is paused has to store the state from which it goes on."""


class StudyRun:
    """One claimed study. Making it makes Optuna's study of our rows.

    `step` does whatever is due.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        study: StudyRecord,
        optuna_storage: Callable[[], RDBStorage] | None,
    ) -> None:
        """`optuna_storage` opens Optuna's own tables, for the copy; null: none is wanted."""
        spec = StudySpec.model_validate(study.spec)
        self._study = StudyContext(study.id, spec, dispatcher, study.tenant)
        with dispatcher.database.read() as session:
            trials = Trials(session).list(study.id)
        companions = Companions(self._study)
        sampler_context = sampler_context_of(
            spec,
            self._study.space,
            RememberedPast(
                dispatcher.database, study.id, with_seconds=spec.sampler.asks_for_seconds()
            ).now,
            knowledge_of(dispatcher.database, study.id),
            interface=lambda: self._study.interface,
            slots=lambda: self._study.places,
            pins=companions.pins,
        )
        optuna_study = OptunaStudy(study, spec, sampler_context, trials)
        copy = OptunaCopy(
            dispatcher.database,
            study.id,
            spec,
            self._study.space.dimensions,
            storage=optuna_storage,
        )
        self._counted = time.monotonic()
        self._ticked = self._stepped = float("-inf")
        self._looked: Look | None = None
        self._ask_tell = AskTellLoop(
            self._study,
            optuna_study,
            copy,
            sampler_context,
            companions=companions,
            is_ready=self._is_ready,
            uncounted_seconds=self._uncounted_seconds,
        )
        self._measuring = Measuring(self._study, self._ask_tell.figures)
        self._decisions = self._ask_tell.decisions
        self._remeasuring = Remeasuring(self._study)
        self._dispatch = TrialDispatch(self._study, self._measuring, self._decisions)
        self._seen = study
        self._stands_still = study.state == StudyState.PAUSED
        self._is_at_rest = False
        """Paused, and without an attempt: it has nothing to do until something is written."""
        self._put_aside: set[str] = set()
        self.abandon()

    @property
    def priority(self) -> int:
        """As the study had it when it was last looked at."""
        return priority_of(self._seen)

    @property
    def tenant(self) -> str:
        """Whose study it is."""
        return self._study.tenant

    def step(self, look: Look, *, slots: SlotNews) -> bool:
        """Do what is due: nothing, where nothing has changed for a moment.

        Returns:
            Whether the study goes on.
        """
        left_alone = _AT_REST_SECONDS if self._is_at_rest else _LOOK_AFTER_SECONDS[slots]
        due = time.monotonic() - self._stepped >= left_alone
        if not (due or look != self._looked or self._ask_tell.has_news()):
            return True
        self._stepped, self._looked = time.monotonic(), look
        study = self._current(look.study)
        if study.state == StudyState.QUEUED:
            study = self._begin()
        if study.state in ENDED:
            return False
        held = study.ending is None and study.state == StudyState.PAUSED
        ready = study.ending is None and study.prepared is not None
        enqueued = CommandKind.ENQUEUE in look.asked
        if self._decisions is not None:
            at_work = self._study.attended()
            self._decisions.is_wanted = not at_work or self._study.free_slot() is not None
            if self._decisions.is_wanted:
                # How the attempt ended whose slot is free is to be known before anything is ranked.
                self._study.trials.look_again()
        self._ask_tell.go_on(searching=ready and not held, enqueued=enqueued)
        if held:
            self._stand_still()
            return True
        self._go_on()
        if study.ending is None:
            study = self._check_budgets(study)
        if study.ending is not None:
            return self._wind_down(study)
        if study.prepared is None:
            self._prepare()
            return True
        if CommandKind.MEASURE in look.asked:
            self._remeasuring.go_on()
        self._look_at_measurements(study)
        self._dispatch.go_on()
        self._measuring.measure_waiting()
        if self._study.free_slot() is not None and self._study.dispatcher.has_a_moment(
            self._study.id
        ):
            self._ask_tell.wait_a_moment()
            self._dispatch.go_on()
        return not self._finish_if_done()

    def dispatch(self) -> None:
        """Start what was ready in this round's step and had to let another tenant go first."""
        self._dispatch.go_on()

    def halt(self) -> None:
        """Begin no ask and no tell any more: the run is given up."""
        self._ask_tell.halt()

    def abandon(self) -> None:
        """Lose what runs with the coordinator that stops, or with the one that died before."""
        abandon(self._study)

    def lost(self, attempt: AttemptRecord, cause: AttemptCause, detail: str) -> None:
        """An attempt's process ended, or its lease did, without a last word."""
        with self._study.database.write() as session:
            if Attempts(session).get(attempt.id).state.is_open:
                paused = attempt.id in self._put_aside
                if paused:
                    lose(session, attempt, AttemptCause.PAUSED)
                else:
                    lose(session, attempt, cause, detail)

    def recall(self, attempt_id: str) -> None:
        """Have a trial wait again whose attempt has not begun; one that has goes on."""
        with self._study.database.write() as session:
            is_recalled = Attempts(session).recall(attempt_id)
        if is_recalled:
            self._study.dispatcher.cancel(attempt_id, grace_seconds=0.0)

    def _current(self, study: StudyRecord) -> StudyRecord:
        """The study as this step sees it: its budget and its priority may change."""
        self._seen = study
        budget = _budget_of(self._seen)
        if budget != self._study.spec.budget:
            self._study.spec = self._study.spec.model_copy(update={"budget": budget})
        return self._seen

    def _begin(self) -> StudyRecord:
        spec, space = self._study.spec, self._study.space
        point = reference_point(
            spec,
            largest_count=space.parameter_range.high,
            largest_bytes=largest_bytes(spec, space),
        )
        now = datetime.now(UTC)
        with self._study.database.write() as session:
            study = Studies(session).get(self._study.id)
            if study.state != StudyState.QUEUED:
                return study
            Studies(session).set_reference_point(self._study.id, point)
            study = enter(session, self._study.id, StudyState.RUNNING, at=now)
            if not self._study.slots:
                self._fail(session, _unserved(self._study))
            elif self._study.measuring_slot() is None:
                wish = self._study.spec.throughput
                models = sorted({slot.model for slot in self._study.slots})
                sentence = (
                    f"throughput.device {wish.device!r} is not here"
                    if wish.device is not None
                    else f"no device is here that throughput.runtime {wish.runtime!r} runs on"
                )
                if self._study.spec.throughput.compiles:
                    sentence += ", with a C compiler"
                self._fail(session, f"{sentence}; there is {', '.join(models)}")
            return Studies(session).get(study.id)

    def _fail(self, session: Session, sentence: str) -> None:
        Studies(session).set_ending(self._study.id, StudyCause.FAILED, sentence)

    def _stand_still(self) -> None:
        """Have the attempts of a paused study store where they are and end; its time stands."""
        if not self._stands_still:
            elapsed = self._uncounted_seconds()
            self._stands_still = True
            with self._study.database.write() as session:
                Studies(session).add_running_seconds(self._study.id, elapsed)
        with self._study.database.read() as session:
            attempts = Attempts(session).open(self._study.id)
        self._is_at_rest = not attempts
        for attempt in attempts:
            if attempt.state is AttemptState.ASSIGNED:
                self.recall(attempt.id)
            elif attempt.id not in self._put_aside:
                self._put_aside.add(attempt.id)
                self._study.dispatcher.cancel(attempt.id, grace_seconds=_PUT_ASIDE_SECONDS)

    def _go_on(self) -> None:
        """Have the time run again that stood while the study was paused."""
        if self._stands_still:
            self._counted = time.monotonic()
        self._stands_still = self._is_at_rest = False

    def _uncounted_seconds(self) -> float:
        """Seconds that the study's row does not count yet; none while it is paused."""
        return 0.0 if self._stands_still else time.monotonic() - self._counted

    def _check_budgets(self, study: StudyRecord) -> StudyRecord:
        """Count the running time, and end the asking when a budget of the study is used up."""
        if time.monotonic() - self._ticked < _TICK_SECONDS:
            return study
        self._ticked = time.monotonic()
        elapsed, budget = self._uncounted_seconds(), self._study.spec.budget
        due = min(_COUNT_SECONDS, _COUNT_SHARE * study.running_seconds)
        if budget.wall_seconds is not None:
            due = min(due, budget.wall_seconds - study.running_seconds)
        if elapsed < due and budget.device_hours is None:
            return study
        self._counted += elapsed
        with self._study.database.write() as session:
            studies = Studies(session)
            studies.add_running_seconds(self._study.id, elapsed)
            study = studies.get(self._study.id)
            budget, wall = _budget_of(study), study.running_seconds
            used = Attempts(session).device_seconds(self._study.id, datetime.now(UTC)) / 3600
            if budget.wall_seconds is not None and wall >= budget.wall_seconds:
                studies.set_ending(self._study.id, StudyCause.BUDGET, "wall_seconds")
            elif budget.device_hours is not None and used >= budget.device_hours:
                studies.set_ending(self._study.id, StudyCause.BUDGET, "device_hours")
            return studies.get(self._study.id)

    def _prepare(self) -> None:
        """Have the task's data fetched and checked once, before anything is asked."""
        with self._study.database.read() as session:
            attempts = Attempts(session).of_study(self._study.id, AttemptKind.PREPARE)
        if any(attempt.state == AttemptState.RUNNING for attempt in attempts):
            return
        if gave_up(attempts):
            with self._study.database.write() as session:
                self._fail(session, fault_of_data(attempts) or why_given_up(attempts))
            return
        slot = self._study.free_slot()
        if slot is not None:
            job = prepare_job(self._study.spec)
            self._study.dispatcher.start(
                self._study.id, AttemptKind.PREPARE, job, trial=None, slot=slot
            )

    def _is_ready(self, trial: TrialRecord) -> bool:
        """Whether a trial may be dispatched as far as measuring goes."""
        return self._measuring.is_ready(trial)

    def _finish_if_done(self) -> bool:
        """End the study when its budget of trials or of draws is used up and told."""
        if self._ask_tell.is_at_work() or self._ask_tell.front_is_due:
            self._study.front_is_settled = False
            return False
        counts = self._study.trials.counts()
        suggestions = self._ask_tell.suggestions
        # Optuna is still to be told of what has ended: that is unknown, too.
        if counts.unknown or suggestions.are_wanted(counts):
            self._study.front_is_settled = False
            return False
        if not self._settle_front():
            return False
        if self._ask_tell.is_due_beyond():
            return False
        enough = counts.dispatched >= self._study.spec.budget.trials
        if enough:
            return self._finish(None)
        if suggestions.are_used_up():
            return self._finish(StudyCause.GRID_EXHAUSTED)
        if self._study.search_is_over and self._study.spec.budget.total_epochs is not None:
            # Fewer epochs are left than a trial would take to its end.
            return self._finish(StudyCause.BUDGET, "total_epochs")
        return self._finish(StudyCause.NOTHING_FEASIBLE)

    def _look_at_measurements(self, study: StudyRecord, *, finishing: bool = False) -> bool:
        """Take in what was measured; whether that may have changed the front."""
        grown = self._measuring.look(study, finishing=finishing)
        if grown:
            self._ask_tell.tell_front()
        return grown

    def _settle_front(self) -> bool:
        """Have the front measured of a study of which nothing runs; whether it is."""
        with self._study.database.read() as session:
            study = Studies(session).get(self._study.id)
        grown = self._look_at_measurements(study, finishing=True)
        settled = not self._measuring.measure_front() and not grown
        self._study.front_is_settled = settled
        return settled

    def _finish(self, cause: StudyCause | None, detail: str | None = None) -> bool:
        """End a study of which nothing runs, once its front is measured, and the original."""
        return self._settle_front() and self._end(StudyState.FINISHED, cause, detail)

    def _wind_down(self, study: StudyRecord) -> bool:
        """End what is open of a study whose ending is stored; returns whether anything still is."""
        on_budget = study.ending_cause is StudyCause.BUDGET
        if self._end_open_trials(study, on_budget=on_budget):
            return True
        if not self._ask_tell.is_done():
            return True
        if on_budget:
            return not self._finish(study.ending_cause, study.ending_detail)
        failed = study.ending_cause is StudyCause.FAILED
        state = StudyState.FAILED if failed else StudyState.CANCELLED
        return not self._end(state, study.ending_cause, study.ending_detail)

    def _end_open_trials(self, ending: StudyEnding, *, on_budget: bool) -> bool:
        """End what waits and what runs; on a used-up budget, what trains ends by its own word.

        Returns:
            Whether a trial still trains.
        """
        with self._study.database.write() as session:
            open_trials = Trials(session).list(self._study.id, *_OPEN)
            training: set[int] = set()
            attempts = Attempts(session).open(self._study.id)
            # With no trial left, what still runs measures the front that the budget bought.
            for attempt in attempts if open_trials or not on_budget else ():
                trains = attempt.kind == AttemptKind.TRAIN
                is_running = attempt.state is AttemptState.RUNNING and trains
                if on_budget and is_running and attempt.trial is not None:
                    training.add(attempt.trial)
                    continue
                lose(session, attempt, AttemptCause.STUDY_ENDED, ending.ending)
                self._study.dispatcher.cancel(attempt.id)
            for trial in open_trials:
                if trial.number in training:
                    continue
                begun = (TrialState.RUNNING, TrialState.PAUSED)
                stopped = on_budget and trial.state in begun
                state = TrialState.STOPPED if stopped else TrialState.CANCELLED
                outcome = ended_with(ending)
                if trial.state == TrialState.PAUSED:
                    # It keeps what it learned.
                    why = {"cause": outcome.cause, "detail": outcome.detail}
                    outcome = TrialOutcome.of(trial, **why)
                end_trial(session, self._study.id, trial.number, state=state, outcome=outcome)
        return bool(training)

    def _end(self, state: StudyState, cause: StudyCause | None, detail: str | None) -> bool:
        """Enter the study's last state, unless a user has just steered it elsewhere."""
        # Before the end is written: nobody comes back to a study that has ended.
        self._ask_tell.copy.write()
        elapsed = self._uncounted_seconds()
        with self._study.database.write() as session:
            study = Studies(session).get(self._study.id)
            steered = (study.state, study.spec, study.ending)
            if steered != (self._seen.state, self._seen.spec, self._seen.ending):
                return False
            if Commands(session).open(CommandKind.ENQUEUE, self._study.id):
                return False
            Studies(session).add_running_seconds(self._study.id, elapsed)
            now = datetime.now(UTC)
            ended = enter(session, self._study.id, state, at=now, cause=cause, detail=detail)
            write_end(session, ended)
            return True


def _unserved(study: StudyContext) -> str:
    """Why no slot is one for the study."""
    wish = study.spec.resources
    of_any_share = wish.model_copy(update={"fraction": None})
    shares = [slot.share for slot in study.allocator.slots(of_any_share)]
    if not shares or wish.fraction is None:
        return f"no slot here serves resources.device {wish.device!r}"
    largest = f"the largest is {max(shares):g}"
    return f"no slot here is resources.fraction {wish.fraction:g} of a device; {largest}"


def _budget_of(study: StudyRecord) -> Budget:
    return Budget.model_validate(study.spec["budget"])
