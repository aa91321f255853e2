"""Suggestions: asked of Optuna ahead of need, refused by hard limits, and made our rows at once."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import cast

import optuna
from sqlalchemy.orm import Session

from models.errors import SpecError
from search.running import StudyContext, announce_trial, end_trial
from search.sampling.companions import Companions
from search.sampling.decisions import MOST_BEGUN
from search.sampling.duplicates import Duplicates
from search.sampling.optuna_study import OptunaStudy
from search.spaces import (
    LATER,
    AnyDrawn,
    Candidate,
    DrawnNetwork,
    DrawnTrial,
    Hyperparameters,
    PinnedSource,
    Scalar,
    Source,
    TrialSource,
)
from search.studies import bytes_wanted, need_of, refusals, replicate_seed
from search.training.compression import ORIGINAL_TRIAL
from search.training.trial_spec import TrialSpec
from storage.accounts.quotas import Quotas
from storage.endings import TrialCause
from storage.records import TrialCounts, TrialOrigin, TrialOutcome, TrialRecord, TrialState
from storage.repositories.exchanges import Exchanges
from storage.repositories.measurements import Measurements
from storage.repositories.trials import Trials

DRAWS_PER_TRIAL = 20
"""How many draws a study may make per trial of its budget, refused ones included."""

REDRAWS = 3
"""How often a configuration that an earlier trial has is drawn again, where the user wants that."""

_MOST_AHEAD = 300
_MOST_TOGETHER = 32
_MOMENT_SECONDS = 0.05
"""How long trials wait for others that are written with them."""


@dataclass(frozen=True)
class _Admitted:
    """A trial whose row is to be written."""

    trial: TrialRecord
    refusal: TrialOutcome | None
    also: Callable[[Session], None] | None


class Suggestions:
    """The queue of configurations that wait for a slot."""

    def __init__(
        self,
        study: StudyContext,
        optuna_study: OptunaStudy,
        *,
        companions: Companions,
        first: Callable[[Session], None],
    ) -> None:
        """`first` is done at the beginning of each transaction that adds a trial."""
        self._study = study
        self._first = first
        self._optuna_study = optuna_study
        self._duplicates = Duplicates(study)
        self.companions = companions
        self._size = study.spec.sampler.size(study.space)
        self._pauses = bool(study.spec.sampler.rungs(study.spec.budget.epochs))
        """Whether the sampler ranks what waits, and trials are budgets of epochs."""
        self._proposes_no_more = False
        """Whether a sampler that proposes whole configurations has no other one."""
        self._together: list[_Admitted] | None = None
        """What is written later, together; null: each trial at once."""

    def ask(self, counts: TrialCounts, room: int | None = None) -> bool:
        """Ask for suggestions, as many as there is room for ahead and the budgets leave.

        `room` says it where it follows from what the sampler has decided.

        What a quick sampler answers within a moment is written together: each transaction waits
        for others that write the study.

        Returns:
            Whether one was asked for.
        """
        if room is None:
            room = self._room() - counts.unknown
        if room <= 0 or not self.are_wanted(counts):
            return False
        # A tenant whose quota is full draws ahead no more; one draw of each study waits, so that no
        # study stands still for what others have waiting.
        waits = bool(counts.by_state.get(TrialState.QUEUED))
        if waits and not self._study.dispatcher.may_queue(self._study.id):
            return False
        until = time.monotonic() + _MOMENT_SECONDS
        self._together = []
        try:
            for left in reversed(range(self._most_together(counts, room))):
                with self._study.dispatcher.asks.timed(self._study.spec.sampler.kind):
                    if not self._ask_one():
                        break
                # What was refused is told before anything else is asked.
                refused = any(one.refusal is not None for one in self._together)
                if left == 0 or refused or time.monotonic() >= until:
                    break
        finally:
            admitted, self._together = self._together, None
            self._optuna_study.unwritten = ()
        self._write(admitted)
        return bool(admitted)

    def _ask_one(self) -> bool:
        """Ask for one suggestion; whether there is one now."""
        number = self._optuna_study.next_number
        if not self._study.spec.sampler.proposes or number < self._study.spec.named_first:
            self.enter(self._optuna_study.ask())
            return True
        proposal = self._optuna_study.propose(number)
        if proposal is None:
            self._proposes_no_more = True
        if proposal is None or proposal == LATER:
            return False
        asked = self._optuna_study.ask()
        self.admit(number, asked, proposal, origin=TrialOrigin.SAMPLER)
        return True

    def _most_together(self, counts: TrialCounts, room: int) -> int:
        """How many trials may be asked for before their rows are written."""
        if self._size is not None:
            # Rows tell whether a sampler has more to suggest.
            return 1
        if self._pauses and self._study.places <= 1:
            # How many are drawn at once is not to depend on how long that takes.
            return 1
        with self._study.database.read() as session:
            if Quotas(session).of(self._study.tenant).queued_trials is not None:
                return 1
        waiting = counts.by_state.get(TrialState.QUEUED, 0)
        return min(
            _MOST_TOGETHER,
            room,
            self._most_begun() - counts.dispatched - waiting,
        )

    def have_room(self, counts: TrialCounts) -> bool:
        """Whether fewer trials are ahead of what the sampler knows than there may be.

        One on each slot there is just now, and twice as many that wait or are measured, but for a
        great many slots: rounds look at all that wait.
        """
        return counts.unknown < self._room()

    def _room(self) -> int:
        places = self._study.places
        return places + min(2 * places, _MOST_AHEAD)

    def _most_begun(self) -> int:
        """How many trials the budget lets begin."""
        trials = self._study.spec.budget.trials
        return MOST_BEGUN * trials if self._pauses else trials

    def are_wanted(self, counts: TrialCounts) -> bool:
        """Whether the budgets leave another suggestion, with all that wait."""
        waiting = counts.by_state.get(TrialState.QUEUED, 0)
        return counts.dispatched + waiting < self._most_begun() and not self.are_over(counts)

    def are_used_up(self) -> bool:
        """Whether the sampler has suggested all that it has; most have no end."""
        if self._size is None:
            return self._proposes_no_more
        with self._study.database.read() as session:
            suggested = Trials(session).count_of(self._study.id, TrialOrigin.SAMPLER)
        return suggested >= self._size

    def are_over(self, counts: TrialCounts) -> bool:
        """Whether the budget of trials, the draws that it allows or all suggestions are spent."""
        budget = self._most_begun()
        draws = counts.total - counts.confirmations
        if counts.dispatched >= budget or draws >= DRAWS_PER_TRIAL * budget:
            return True
        if self._study.search_is_over:
            return True
        return self.are_used_up()

    def enter(self, asked: optuna.Trial) -> None:
        """Draw a configuration for an asked trial and make it our row at once.

        The first trials are the study's presets instead, in their order, or the model that it
        compresses.
        """
        number, presets = asked.number, self._study.spec.presets
        if self._study.spec.compressed_model is not None and number == 0:
            self._admit_original()
        elif number < len(presets):
            drawn = self._study.space.preset(presets[number])
            self.admit(number, asked, drawn, origin=TrialOrigin.PRESET)
        else:
            pins = self.companions.pins(number)
            wrapped = partial(PinnedSource, pins) if pins else None
            drawn = self.draw(number, asked, wrapped=wrapped)
            self.admit(number, asked, drawn, origin=TrialOrigin.SAMPLER)

    def draw(
        self, number: int, asked: optuna.Trial, *, wrapped: Callable[[Source], Source] | None = None
    ) -> DrawnTrial:
        """A configuration by the sampler's answers to an asked trial, or to what wraps them."""

        def drawn_from(source: Source) -> DrawnTrial:
            return self._study.space.draw(source if wrapped is None else wrapped(source))

        if self._study.spec.duplicates != "resample":
            return drawn_from(TrialSource(asked))
        # The first of a few draws that no earlier trial has, or else the last of them.
        drawn = drawn_from(self._optuna_study.rehearse(asked, 0))
        for again in range(1, REDRAWS + 1):
            if self._duplicates.first_like(drawn.spec, number=number) is None:
                break
            drawn = drawn_from(self._optuna_study.rehearse(asked, again))
        return drawn

    def admit(
        self,
        number: int,
        asked: optuna.Trial,
        drawn: AnyDrawn,
        *,
        origin: TrialOrigin,
        also: Callable[[Session], None] | None = None,
    ) -> None:
        """Give an asked trial its configuration, and make it our row by the study's rules.

        Limits refuse it, and what becomes of a repeated one is the user's wish. `also` is done in
        the transaction that writes the row.
        """
        self._optuna_study.give(asked, drawn.drawn, self._study.space.dimensions)
        refusal = self._refusal(drawn)
        repeats = self._duplicates.first_like(drawn.spec, number=number)
        if repeats is not None and self._study.spec.duplicates == "replicate":
            drawn = _replicated(drawn, replicate_seed(self._study.spec.seed, number))
        self.add(number, drawn, origin=origin, repeats=repeats, refusal=refusal, also=also)
        self._duplicates.note(drawn.spec, number=number)

    def _admit_original(self) -> None:
        """Make the study's original its first trial; over a limit it is measured all the same."""
        drawn = self._study.space.original()
        limits = self._study.spec.limits
        over = [
            excess for _, excess in refusals(self._study.spec, drawn.spec, self._study.interface)
        ]
        if limits.min_throughput_ratio is not None and limits.min_throughput_ratio > 1:
            # It is its own dense baseline: the ratio is 1.
            over.append(limits.min_throughput_ratio - 1)
        violation = max(over, default=None)
        self.add(ORIGINAL_TRIAL, drawn, origin=TrialOrigin.ORIGINAL, violation=violation)
        self._duplicates.note(drawn.spec, number=ORIGINAL_TRIAL)

    def again(
        self,
        asked: optuna.Trial,
        trial: TrialRecord,
        *,
        origin: TrialOrigin,
        repeats: int | None = None,
        continues: int | None = None,
        also: Callable[[Session], None] | None = None,
    ) -> None:
        """Give an asked trial another's configuration, and a seed of its own."""
        number = asked.number
        seed = replicate_seed(self._study.spec.seed, number)
        drawn = DrawnTrial(
            candidate=Candidate(
                architecture=trial.architecture, parametrization=trial.parametrization
            ),
            # Only what was trained can be trained again.
            spec=TrialSpec.model_validate(trial.spec).model_copy(update={"seed": seed}),
            hyperparameters=cast(Hyperparameters, dict(trial.hyperparameters)),
            drawn=cast(dict[str, Scalar], dict(trial.drawn)),
        )
        self._optuna_study.give(asked, drawn.drawn, self._study.space.dimensions)
        self.add(number, drawn, origin=origin, repeats=repeats, continues=continues, also=also)

    def add(
        self,
        number: int,
        drawn: AnyDrawn,
        *,
        origin: TrialOrigin,
        repeats: int | None = None,
        continues: int | None = None,
        violation: float | None = None,
        refusal: TrialOutcome | None = None,
        also: Callable[[Session], None] | None = None,
    ) -> None:
        """Write the row of a trial that was asked for; one that is refused ends with it.

        One that needs more memory than any slot has is refused, a user's too. `violation`
        is that of a trial which is run in spite of it.
        """
        if refusal is None:
            refusal = need_of(self._study.spec, drawn.spec).refusal(self._study.slots)
        now, spec = datetime.now(UTC), drawn.spec
        trial = TrialRecord(
            study_id=self._study.id,
            number=number,
            state=TrialState.QUEUED,
            architecture=drawn.candidate.architecture,
            parametrization=drawn.candidate.parametrization,
            hyperparameters=dict(drawn.hyperparameters),
            drawn=dict(drawn.drawn),
            spec=spec.model_dump(mode="json"),
            parameters=spec.parameter_count(),
            dense_parameters=spec.dense_parameter_count(),
            shape_key=spec.shape_key(),
            bytes=bytes_wanted(self._study.spec, spec, self._study.interface, continues=continues),
            violation=violation,
            origin=origin,
            repeats=repeats,
            continues=continues,
            created_at=now,
        )
        self.companions.note(trial, is_refused=refusal is not None)
        admitted = _Admitted(trial, refusal, also)
        if self._together is None:
            self._write([admitted])
        else:
            self._together.append(admitted)
            self._optuna_study.unwritten = [one.trial for one in self._together]

    def _write(self, admitted: Sequence[_Admitted]) -> None:
        slot = self._study.measuring_slot()
        with self._study.database.write() as session:
            self._first(session)
            for one in admitted:
                self._write_one(session, one, measured_on=None if slot is None else slot.model)

    def _write_one(self, session: Session, admitted: _Admitted, *, measured_on: str | None) -> None:
        trial, refusal = admitted.trial, admitted.refusal
        Trials(session).add(trial)
        Exchanges(session).append(self._study.id, "ask", trial.number)
        announce_trial(session, trial, at=trial.created_at)
        if admitted.also is not None:
            admitted.also(session)
        if refusal is not None:
            end_trial(
                session, self._study.id, trial.number, state=TrialState.INFEASIBLE, outcome=refusal
            )
            return
        known = measured_on and Measurements(session).find(
            self._study.id, trial.shape_key, measured_on
        )
        if known:
            Trials(session).set_throughput(self._study.id, trial.number, known)

    def _refusal(self, drawn: AnyDrawn) -> TrialOutcome | None:
        """Why a draw is refused before any training, and by how much; null if it is not."""
        try:
            drawn.spec.check()
        except SpecError as error:
            return TrialOutcome(cause=TrialCause.LIMIT, detail=str(error), violation=1.0)
        over = list(refusals(self._study.spec, drawn.spec, self._study.interface))
        if not over:
            return None
        return TrialOutcome(
            cause=TrialCause.LIMIT,
            detail="; ".join(sentence for sentence, _ in over),
            violation=max(excess for _, excess in over),
        )


def _replicated(drawn: AnyDrawn, seed: int) -> AnyDrawn:
    """The same configuration with a seed of its own."""
    if isinstance(drawn, DrawnNetwork):
        return drawn
    return replace(drawn, spec=drawn.spec.model_copy(update={"seed": seed}))
