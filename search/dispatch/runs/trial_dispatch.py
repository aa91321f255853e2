"""Which of a study's waiting trials are trained next, and where."""

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, final

from sqlalchemy.orm import Session

from search.agents.executors import Slot
from search.allocation import StackGroup
from search.dispatch.runs.measuring_queue import Measuring
from search.dispatch.runs.study_jobs import evaluate_job
from search.graphs.model_outputs import ModelOutputs
from search.running import (
    BROKEN,
    StudyContext,
    begin_trial,
    end_trial,
    fault_of_data,
    gave_up,
    is_infeasible,
    is_suspect,
    may_be_guilty,
    why_given_up,
)
from search.samplers import Choice
from search.sampling import Decisions, Duplicates
from search.studies import Need, StudySpec, need_of, precedence
from search.training.jobs import TrainJob, TrialJob
from search.training.trial_spec import TrialSpec
from storage.endings import StudyCause, TrialCause
from storage.records import (
    AttemptKind,
    AttemptRecord,
    TrialOrigin,
    TrialOutcome,
    TrialRecord,
    TrialState,
)
from storage.repositories.attempts import Attempts
from storage.repositories.studies import Studies

_CHECKPOINT_SECONDS: Final = 2.0
"""So far apart are two states that a trial stores to resume from, on a few slots, in its first
minutes; later more: see `pause_between_saves`."""
_CHECKPOINTS_PER_SECOND: Final = 50
"""So many of them all slots store together: on more slots each stores fewer, and loses more."""
_MOST_WISHES: Final = 4096
_COMPANION_PRICE: Final = 1 / 3
"""What an epoch costs beside other trials, of what it costs alone: so much it has to promise."""


@dataclass(frozen=True)
class _Wish:
    """What follows from a trial's configuration of where it can be trained."""

    need: Need
    together: StackGroup | None


@final
class TrialDispatch:
    """Gives the slots that are free to the trials of one study."""

    def __init__(
        self, study: StudyContext, measuring: Measuring, decisions: Decisions | None
    ) -> None:
        """`decisions` are those of a sampler that ranks what waits; null: it takes its turn."""
        self._study = study
        self._measuring = measuring
        self._decisions = decisions
        self._duplicates = Duplicates(study)
        self._suspects: set[int] = set()
        """Trials that are to run alone, see Note [Sudden deaths]."""
        self._wishes: dict[int, _Wish] = {}
        """By trial: what follows from its configuration alone."""

    def go_on(self) -> None:
        """Give free slots to the trials that wait, in the order of `precedence`."""
        self._dispatch_a_suspect()
        # Most of the time nothing is free, and what waits need not be read then.
        if not self._may_start():
            return
        waiting = self._unattended()
        if not self._study.dispatcher.may_begin(self._study.id):
            waiting = [trial for trial in waiting if trial.dispatched]
        held = self._duplicates.held(waiting)
        decisions = self._decisions
        by_number = {
            trial.number: trial
            for trial in waiting
            if decisions is not None and decisions.decides_about(trial)
        }
        others = [trial for trial in waiting if trial.number not in by_number]
        if not self._dispatch_in_turn(others, held) or decisions is None:
            return
        while self._study.free_slot() is not None and (choice := decisions.next()) is not None:
            trial = by_number.get(choice.trial)
            slot = None if trial is None else self._study.free_slot(self._wish_of(trial).need)
            if trial is None or slot is None:
                # It has begun or ended since, or there is no slot of its size: it is ranked anew.
                if trial is not None:
                    self._end_if_too_large(trial, self._wish_of(trial).need)
                return
            with decisions.taking(choice, trial) as also:
                self._start(trial, slot, also=also)
            self._add_companions(decisions, choice, by_number)

    def _add_companions(
        self, decisions: Decisions, choice: Choice, by_number: Mapping[int, TrialRecord]
    ) -> None:
        """Have the next best of a ranking trained beside its choice, as many as are worth it."""
        first = self._wish_of(by_number[choice.trial])
        if first.together is None:
            return
        for other in decisions.companions():
            if other.index < _COMPANION_PRICE * choice.index:
                return
            trial = by_number.get(other.trial)
            wish = None if trial is None else self._wish_of(trial)
            if trial is None or wish is None or wish.together != first.together:
                continue
            if not decisions.spares(other, trial):
                continue
            place = self._study.stack_place(wish.together, wish.need)
            if place is None:
                return
            with decisions.accompanying(other, trial) as also:
                self._start(trial, place, also=also)

    def _may_start(self) -> bool:
        """Whether anything could begin, on a slot, beside others or after them."""
        return (
            self._study.free_slot() is not None
            or self._study.slot_ahead() is not None
            or self._study.allocator.is_stack_open(self._study.id)
        )

    def _dispatch_in_turn(self, waiting: Sequence[TrialRecord], held: Set[int]) -> bool:
        """Give free slots to these trials; whether they leave any."""
        ready = [
            trial
            for trial in sorted(waiting, key=precedence)
            if trial.number not in held and self._measuring.is_ready(trial)
        ]
        # What waits is spread over the slots that are free before one takes more than its part.
        free = self._study.free_slots
        part = math.ceil(len(ready) / free) if free else None
        is_passing = False
        for trial in ready:
            if trial.number in self._suspects:
                continue
            wish = self._wish_of(trial)
            together = wish.together
            if together is not None and part is not None:
                together = replace(together, most=min(part, together.most))
            slot = self._study.stack_place(together, wish.need, is_passing=is_passing)
            slot = slot or self._study.free_slot(wish.need)
            if slot is not None:
                if trial.state == TrialState.QUEUED or self._may_try_again(trial):
                    self._start(trial, slot)
                elif trial.number in self._suspects:
                    # Before others take what is free, which it would have to wait for.
                    self._dispatch_a_suspect()
            elif self._study.free_slot() is not None:
                self._end_if_too_large(trial, wish.need)
            elif not self._book_ahead(trial, wish):
                is_passing = True
                if not self._may_start():
                    return False
        return self._study.free_slot() is not None

    def _book_ahead(self, trial: TrialRecord, wish: _Wish) -> bool:
        """Have a trial follow an attempt that is about to end; whether it does."""
        if trial.state != TrialState.QUEUED:
            return False
        slot = self._study.slot_ahead(wish.need, wish.together)
        if slot is not None:
            self._start(trial, slot, ahead=True)
        return slot is not None

    def _dispatch_a_suspect(self) -> None:
        """Start a trial that is to run alone once a machine is free: Note [Sudden deaths]."""
        if not self._suspects:
            return
        waiting = self._unattended()
        self._suspects &= {trial.number for trial in waiting}
        suspect = next((trial for trial in waiting if trial.number in self._suspects), None)
        if suspect is None:
            return
        need = self._wish_of(suspect).need
        slot = self._study.lone_slot(need)
        if slot is None:
            self._end_if_too_large(suspect, need)
        else:
            self._suspects.discard(suspect.number)
            self._start(suspect, slot, alone=True)

    def _unattended(self) -> list[TrialRecord]:
        """The open trials that no attempt trains now."""
        attended = self._study.attended()
        return [trial for trial in self._study.trials.open() if trial.number not in attended]

    def _wish_of(self, trial: TrialRecord) -> _Wish:
        """What a trial needs, and with which others it may be trained."""
        if trial.number not in self._wishes:
            if len(self._wishes) >= _MOST_WISHES:
                self._wishes.clear()
            job = self._job_of(trial)
            need = need_of(self._study.spec, job.trial)
            self._wishes[trial.number] = _Wish(need, self._study.together(job))
        return self._wishes[trial.number]

    def _end_if_too_large(self, trial: TrialRecord, need: Need) -> None:
        """End a trial for which the slots that there are now have too little memory.

        It was admitted while a larger one was here; where one is here and taken, it waits.
        """
        refusal = need.refusal(self._study.slots)
        if refusal is None:
            return
        with self._study.database.write() as session:
            end_trial(
                session,
                self._study.id,
                trial.number,
                state=TrialState.INFEASIBLE,
                outcome=refusal,
            )

    def _may_try_again(self, trial: TrialRecord) -> bool:
        """Whether a trial that lost its attempt gets another now.

        If it gets none, it ends here; one that is to run alone is noted and waits for that.
        """
        with self._study.database.write() as session:
            attempts = Attempts(session).of_trial(self._study.id, trial.number, AttemptKind.TRAIN)
            if not gave_up(attempts):
                if is_suspect(attempts):
                    self._suspects.add(trial.number)
                return trial.number not in self._suspects and not self._parts(trial, attempts)
            fault = fault_of_data(attempts)
            if fault is not None:
                Studies(session).set_ending(self._study.id, StudyCause.FAILED, fault)
            too_large = is_infeasible(attempts)
            end_trial(
                session,
                self._study.id,
                trial.number,
                state=TrialState.INFEASIBLE if too_large else TrialState.FAILED,
                outcome=TrialOutcome(
                    cause=TrialCause.INFEASIBLE if too_large else TrialCause.FAILED,
                    detail=why_given_up(attempts),
                    violation=BROKEN if too_large else None,
                ),
            )
            return False

    def _parts(self, trial: TrialRecord, attempts: Sequence[AttemptRecord]) -> bool:
        """Whether a trial is to be trained with no others any more, whose process might die of it.

        It then waits for a slot of its own.
        """
        wish = self._wish_of(trial)
        parts = wish.together is not None and may_be_guilty(attempts)
        if parts:
            self._wishes[trial.number] = replace(wish, together=None)
        return parts

    def _start(
        self,
        trial: TrialRecord,
        slot: Slot,
        *,
        alone: bool = False,
        ahead: bool = False,
        also: Callable[[Session], None] | None = None,
    ) -> None:
        """Have a trial trained on a slot; `also` is what its beginning writes besides."""
        wish = self._wish_of(trial)
        self._study.dispatcher.start(
            self._study.id,
            AttemptKind.TRAIN,
            self._job_of(trial),
            trial=trial.number,
            slot=slot,
            alone=alone,
            ahead=ahead,
            together=None if alone else wish.together,
            need=wish.need,
            # What waits at its machine begins by that one's word.
            also=None if ahead else also or partial(begin_trial, trial=trial),
        )

    def _job_of(self, trial: TrialRecord) -> TrialJob:
        if isinstance(self._study.spec.task, ModelOutputs):
            return evaluate_job(self._study, self._study.spec.task, trial)
        return TrainJob(
            task=self._study.spec.task,
            trial=TrialSpec.model_validate(trial.spec),
            number=trial.number,
            epochs=self._study.spec.budget.epochs,
            continues=trial.continues,
            checkpoint_seconds=max(
                _CHECKPOINT_SECONDS, self._study.places / _CHECKPOINTS_PER_SECOND
            ),
            waits_at=_waits_at(self._study.spec, trial),
        )


def _waits_at(spec: StudySpec, trial: TrialRecord) -> tuple[int, ...] | None:
    """The epochs after which a trial learns whether it goes on; null: each.

    Elsewhere training waits for nobody, and what stops it comes as soon as it can.
    """
    if spec.budget.total_epochs is not None:
        return None
    if spec.early_stopping is not None:
        return spec.early_stopping.rungs(spec.budget.epochs)
    # What somebody named is trained to its end.
    return spec.sampler.rungs(spec.budget.epochs) if trial.origin == TrialOrigin.SAMPLER else ()
