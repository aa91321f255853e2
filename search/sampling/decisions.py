"""What trains next where a study's sampler decides it, and how far: Note [Stretches].

A ranking is computed in the background whenever what it follows from has changed. The coordinator
gives free slots to its first choices; each one that begins is a decision, and is written with the
attempt that trains it.
"""

from collections.abc import Callable, Generator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, final

from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from search.running import StudyContext, begin_trial, end_trial, let_go, still_stands
from search.samplers import NO_LIMIT, Choice, Question, Ranking, SamplerContext
from storage.endings import TrialCause
from storage.records import TrialCounts, TrialOrigin, TrialOutcome, TrialRecord, TrialState
from storage.repositories.metrics import Metrics
from storage.repositories.trials import Trials

MOST_BEGUN = 20
"""So many configurations may be begun for each trial of a budget, which then counts epochs."""

_INTEGER = TypeAdapter(int)


@final
class Decisions:
    """The decisions of one study. The background makes rankings, the coordinator takes choices."""

    def __init__(
        self,
        study: StudyContext,
        sampler_context: SamplerContext,
        *,
        is_ready: Callable[[TrialRecord], bool],
        waited_for: Callable[[], Set[int]],
    ) -> None:
        """Make none yet.

        Args:
            study: whose they are.
            sampler_context: what its sampler may know.
            is_ready: whether a trial that waits may begin, as far as measuring goes.
            waited_for: the paused trials that others wait for, which repeat them.
        """
        self._study = study
        self._sampler_context = sampler_context
        self._is_ready, self._waited_for = is_ready, waited_for
        self._ranking: Ranking | None = None
        self._key: object = None
        """What the ranking follows from."""
        self._taken: set[int] = set()
        """Choices of the ranking that have begun."""
        self._left: Sequence[Choice] = ()
        """What the ranking had beside the choice that was taken last."""
        self._epochs_at_ranking: int | None = None
        """That the budgets left when the ranking was made; null: any number."""
        self._spare_epochs: int | None = None
        """Those of them that the choice that was taken last does not take to its end."""
        self._beginning: set[int] = set()
        """The choices that were taken last, of which rows may say nothing yet."""
        self._is_taking = False
        """Whether the dispatcher is just being told of it."""
        self._last: Mapping[str, Any] | None = None
        """The stretch of the last decision, once it was looked for."""
        self.is_wanted = False
        """Whether a slot is free, or nothing of the study is at work."""

    def decides_about(self, trial: TrialRecord) -> bool:
        """Whether the ranking says when a trial begins or goes on; others go as they came."""
        if trial.state == TrialState.PAUSED:
            return True
        if trial.state != TrialState.QUEUED or trial.origin != TrialOrigin.SAMPLER:
            return False
        return trial.repeats is None or self._sampler_context.replicates

    def room(self, counts: TrialCounts) -> int:
        """How many suggestions are to be asked for.

        After each decision as many as it named, so that what is ranked does not hang on who was
        quicker; before there are any, one waits for each slot.
        """
        named = self._last_decision().get("suggestions")
        # Looked at last: the coordinator may take a choice at any moment.
        if self._is_beginning():
            return 0
        if named is None or not counts.unknown:
            return max(0, 2 * self._slots - counts.unknown)
        return max(0, _INTEGER.validate_python(named) - _suggested(counts))

    def is_due(self) -> bool:
        """Whether a ranking is wanted, and what it follows from has changed since the last one.

        While no slot is free nothing hangs on it, and what is not known yet may be by then.
        """
        key = self._key
        # Looked at after the key, which a choice that is taken meanwhile does away with.
        if not self.is_wanted or self._is_beginning():
            return False
        return key != self._now()

    def _is_beginning(self) -> bool:
        """Whether rows do not say yet that the last choice runs, which they will in a moment."""
        if self._is_taking:
            return True
        beginning = self._beginning & self._study.attended()
        if not beginning:
            return False
        trials = self._study.trials.open(TrialState.QUEUED, TrialState.PAUSED)
        return any(trial.number in beginning for trial in trials)

    def rank(self) -> None:
        """Rank what waits and what is paused, and do what follows of it but for beginning."""
        key = self._now()
        trials = self._study.trials.open()
        ready = {t.number for t in trials if self.decides_about(t) and self._is_ready(t)}
        question = Question(
            decision=self._next_decision(),
            epochs_left=self._epochs_left(trials),
            slots=self._slots,
            ready=ready,
            wanted=self._waited_for(),
        )
        with self._study.dispatcher.asks.timed(self._study.spec.sampler.kind):
            ranking = self._study.spec.sampler.rank(self._sampler_context, question)
        self._end_what_is_not_wanted(ranking)
        self._study.search_is_over = ranking.over
        self._ranking, self._taken = ranking, set()
        self._epochs_at_ranking = question.epochs_left
        # Of what has just ended the ranking knows.
        self._key = self._now() if ranking.superseded or ranking.let_go else key

    def next(self) -> Choice | None:
        """What is to begin on a free slot; None: nothing is, or it is not known yet."""
        if self._ranking is None or self.is_due():
            return None
        choices = (one for one in self._ranking.choices if one.trial not in self._taken)
        return next(choices, None)

    @contextmanager
    def taking(
        self, choice: Choice, trial: TrialRecord
    ) -> Generator[Callable[[Session], None], None, None]:
        """Have an attempt begin what was chosen; nothing is asked or ranked meanwhile.

        What is given is to be done in the transaction that writes the attempt.
        """
        self._is_taking = True
        try:
            yield self._take(choice, trial)
        finally:
            self._is_taking = False

    def companions(self) -> Sequence[Choice]:
        """What the ranking of the last choice has beside it, the best first."""
        return [one for one in self._left if one.trial not in self._beginning]

    def spares(self, choice: Choice, trial: TrialRecord) -> bool:
        """Whether the last choice can reach its end although this one goes along with it."""
        spare = self._spare_epochs
        return spare is None or choice.until - trial.resumes_from <= spare

    @contextmanager
    def accompanying(
        self, choice: Choice, trial: TrialRecord
    ) -> Generator[Callable[[Session], None], None, None]:
        """Have an attempt begin beside the last choice; see `taking`.

        No limits are known for it: it is judged anew after its next stretch, whatever comes of it.
        """
        is_last = choice.until >= self._study.spec.budget.epochs
        limits = () if is_last else ((choice.until, -NO_LIMIT),)
        self._is_taking = True
        try:
            self._taken.add(choice.trial)
            if self._spare_epochs is not None:
                self._spare_epochs -= choice.until - trial.resumes_from
            stretch = self._stretch(replace(choice, limits=limits), trial, self._wanted(trial))
            yield partial(_begin, trial=trial, stretches={trial.number: stretch})
        finally:
            self._is_taking = False

    def _wanted(self, trial: TrialRecord) -> int:
        """How many suggestions there are to be in all once this trial has begun, too.

        One for each slot and one more, which may be better than the least of them.
        """
        counts = self._study.trials.counts()
        waiting = counts.by_state.get(TrialState.QUEUED, 0)
        queued = self._study.trials.open(TrialState.QUEUED)
        waiting -= sum(one.number in self._beginning for one in queued)
        waiting -= trial.state == TrialState.QUEUED
        return _suggested(counts) + max(0, self._slots + 1 - waiting)

    def _stretch(
        self, choice: Choice, trial: TrialRecord, suggestions: int | None
    ) -> dict[str, Any]:
        """What is written of a decision."""
        before = trial.stretch or {}
        decision = self._next_decision()
        stretch: dict[str, Any] = {
            "decision": decision,
            "judged": decision,
            "suggestions": suggestions,
            "number": 1 + _INTEGER.validate_python(before.get("number", 0)),
            "from": trial.resumes_from,
            "until": choice.until,
            "index": choice.index,
            "price": choice.price,
            "limits": [[*limit] for limit in choice.limits],
        }
        self._last = stretch
        self._beginning.add(trial.number)
        return stretch

    def _take(self, choice: Choice, trial: TrialRecord) -> Callable[[Session], None]:
        assert self._ranking is not None
        self._taken.add(choice.trial)
        limits = self._ranking.limits
        self._left = [one for one in self._ranking.choices if one.trial not in self._taken]
        left = self._epochs_at_ranking
        rest = self._study.spec.budget.epochs - trial.resumes_from
        self._spare_epochs = None if left is None else left - rest
        self._beginning &= self._study.attended()
        suggestions = None if self._ranking.together else self._wanted(trial)
        stretch = self._stretch(choice, trial, suggestions)
        decision = stretch["decision"]
        if not self._ranking.together:
            self._ranking, self._key = None, None
        others = {
            t.number: {
                **t.stretch,
                "judged": decision,
                "limits": [[*limit] for limit in limits[t.number]],
            }
            for t in self._study.trials.open(TrialState.RUNNING)
            if t.number in limits and t.stretch is not None
        }
        return partial(_begin, trial=trial, stretches={**others, trial.number: stretch})

    def leave_the_rest(self) -> bool:
        """Once the search is over and nothing runs, end what is left; whether anything was."""
        trials = self._study.trials.open()
        rest = [trial for trial in trials if self.decides_about(trial)]
        if not rest or len(rest) < len(trials):
            return False
        with self._study.database.write() as session:
            for trial in rest:
                why = f"paused at epoch {trial.epochs_trained} when the search was over"
                if still_stands(session, trial):
                    _leave(session, trial, why)
        return True

    def _now(self) -> object:
        """What the ranking of this moment follows from; equal ones have the same ranking."""
        trials = self._study.trials.open()
        counts = self._study.trials.counts()
        return (
            tuple((trial.number, trial.state) for trial in trials),
            frozenset(t.number for t in trials if self.decides_about(t) and self._is_ready(t)),
            counts.total,
            self._study.spec.budget,
        )

    @property
    def _slots(self) -> int:
        return self._study.places

    def _next_decision(self) -> int:
        return 1 + _INTEGER.validate_python(self._last_decision().get("decision", -1))

    def _last_decision(self) -> Mapping[str, Any]:
        """The newest of the rows' stretches, for a coordinator that goes on; {} where none is."""
        if self._last is None:
            with self._study.database.read() as session:
                trials = Trials(session).list(self._study.id)
            stretches = [trial.stretch for trial in trials if trial.stretch is not None]
            self._last = max(stretches, key=_decision_of) if stretches else {}
        return self._last

    def _epochs_left(self, trials: Sequence[TrialRecord]) -> int | None:
        """That the budgets leave beyond what runs is to train before it is judged again."""
        budget = self._study.spec.budget
        running = [trial.number for trial in trials if trial.state == TrialState.RUNNING]
        with self._study.database.read() as session:
            spent = Metrics(session).epochs_trained(self._study.id)
            rows = Trials(session).numbered(self._study.id, running)
        promised = sum(max(0, self._until(row) - row.epochs_trained) for row in rows)
        most = budget.trials * budget.epochs
        if budget.total_epochs is not None:
            most = min(most, budget.total_epochs)
        return max(0, most - spent - promised)

    def _until(self, trial: TrialRecord) -> int:
        """The epoch after which a running trial is judged next."""
        epochs = self._study.spec.budget.epochs
        if trial.stretch is None:
            return epochs
        until = _INTEGER.validate_python(trial.stretch["until"])
        rungs = (*self._study.spec.sampler.rungs(epochs), epochs)
        return max(until, next((one for one in rungs if one > trial.epochs_trained), epochs))

    def _end_what_is_not_wanted(self, ranking: Ranking) -> None:
        gone = [*ranking.superseded, *ranking.let_go]
        if not gone:
            return
        with self._study.database.write() as session:
            for trial in Trials(session).numbered(self._study.id, gone):
                if not trial.state.has_ended:
                    _leave(session, trial, ranking.let_go.get(trial.number, ""))


def _suggested(counts: TrialCounts) -> int:
    """How many trials were ever asked for; what was refused is replaced."""
    return counts.total - counts.refused


def _decision_of(stretch: Mapping[str, Any]) -> int:
    return _INTEGER.validate_python(stretch["decision"])


def _begin(session: Session, *, trial: TrialRecord, stretches: dict[int, dict[str, Any]]) -> None:
    begin_trial(session, trial)
    Trials(session).set_stretches(trial.study_id, stretches)


def _leave(session: Session, trial: TrialRecord, why: str) -> None:
    """End a trial that never begins or goes on."""
    if trial.state == TrialState.PAUSED:
        let_go(session, trial, why)
        return
    outcome = TrialOutcome(cause=TrialCause.SUPERSEDED)
    end_trial(session, trial.study_id, trial.number, state=TrialState.CANCELLED, outcome=outcome)
