"""What one study tells Optuna and asks of it, beside the coordinator's other work.

See Note [Asks and tells] in `search/README.md`.
"""

from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as StillAtWork
from datetime import UTC, datetime

from sqlalchemy.orm import Session

from search.fronts import FRONT, Figures
from search.running import StudyContext
from search.samplers import SamplerContext
from search.sampling.companions import Companions
from search.sampling.confirmation import Confirmation
from search.sampling.decisions import Decisions
from search.sampling.duplicates import Duplicates
from search.sampling.enqueued import Enqueued
from search.sampling.fine_tuning import FineTuning
from search.sampling.optuna_copy import OptunaCopy
from search.sampling.optuna_study import OptunaStudy
from search.sampling.suggestions import Suggestions
from storage.records import CommandKind, Json, TrialCounts, TrialRecord, TrialState
from storage.repositories.commands import Commands
from storage.repositories.events import Events
from storage.repositories.exchanges import Exchanges
from storage.repositories.metrics import Metrics
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials

_MOMENT_SECONDS = 0.02


class AskTellLoop:
    """The asks and tells of one study, see Note [Asks and tells]."""

    def __init__(
        self,
        study: StudyContext,
        optuna_study: OptunaStudy,
        copy: OptunaCopy,
        sampler_context: SamplerContext,
        *,
        companions: Companions,
        is_ready: Callable[[TrialRecord], bool],
        uncounted_seconds: Callable[[], float],
    ) -> None:
        """`is_ready` says whether a trial that waits may begin, as far as measuring goes.

        `uncounted_seconds` is how long the study has run since its row last said so.
        """
        self._study = study
        self._optuna_study = optuna_study
        self._uncounted_seconds = uncounted_seconds
        self.suggestions = Suggestions(
            study, optuna_study, companions=companions, first=self._write_tells
        )
        self._confirmation = Confirmation(study, optuna_study, self.suggestions)
        self._fine_tuning = FineTuning(study, optuna_study, self.suggestions)
        self._enqueued = Enqueued(study, optuna_study, self.suggestions)
        self._duplicates = Duplicates(study)
        self.decisions: Decisions | None = None
        """Which of what waits trains next; null: the sampler has no part in that."""
        if study.spec.sampler.rungs(study.spec.budget.epochs):
            self.decisions = Decisions(
                study,
                sampler_context,
                is_ready=is_ready,
                waited_for=self._duplicates.waited_for,
            )
        self.figures = Figures(size=4)
        self.copy = copy
        self._front: list[int] = []
        self._wall_seconds = 0.0
        """What the last event about a front said."""
        self.front_is_due = False
        """Whether an event about another front is still to be written."""
        self._searching = False
        self._may_be_enqueued = True
        self._halted = False
        self._told: list[tuple[int, datetime]] = []
        """What the sampler was told and rows do not say yet."""
        self._at_work: Future[None] | None = None
        self._did = False
        """Whether anything came of what was at work last, as far as is known."""

    def go_on(self, *, searching: bool, enqueued: bool) -> None:
        """See to it that what is due is done in the background.

        Users' own trials (`enqueued`: there may be some) and tells always are, suggestions only
        while the study is `searching`.

        Raises:
            Exception: whatever went wrong there.
        """
        self._searching, self._may_be_enqueued = searching, enqueued
        if not self.is_at_work():
            self._did = True
            self._at_work = self._study.dispatcher.in_background(
                self._study.id, self._do_what_is_due
            )

    def wait_a_moment(self) -> None:
        """Give it the time that a quick sampler takes.

        Raises:
            Exception: whatever went wrong there.
        """
        if self._at_work is not None:
            try:
                self._at_work.result(_MOMENT_SECONDS)
            except StillAtWork:
                return
            self._at_work = None

    def is_done(self) -> bool:
        """Whether nothing is at work, Optuna knows how every trial ended, and the front is told.

        Raises:
            Exception: whatever went wrong at work.
        """
        if self.is_at_work():
            return False
        return not self.front_is_due and not self._study.trials.counts().untold

    def is_due_beyond(self) -> bool:
        """Whether the search is over, and points of its front are to be trained once more."""
        return bool(self._confirmation.due() or self._fine_tuning.due())

    def tell_front(self) -> None:
        """Have an event written if the front is another one: something was measured."""
        self.front_is_due = True

    def halt(self) -> None:
        """Begin nothing any more; what is just being asked or told ends by itself."""
        self._halted = True

    def has_news(self) -> bool:
        """Whether something was done at work that was not looked at, or a front is to be told."""
        is_done = self._at_work is not None and self._at_work.done()
        return self.front_is_due or (is_done and self._did)

    def is_at_work(self) -> bool:
        """Whether something is asked or told just now.

        Raises:
            Exception: whatever went wrong at work.
        """
        if self._at_work is None:
            return False
        if not self._at_work.done():
            return True
        done, self._at_work = self._at_work, None
        done.result()
        return False

    def _do_what_is_due(self) -> bool:
        """Go on until nothing is due; true: another tenant's studies are to go on first."""
        gives_way = did = False
        while not self._halted and not gives_way and self._advance():
            did = True
            gives_way = self._study.dispatcher.should_give_way(self._study.id)
        if self._told:
            with self._study.database.write() as session:
                self._write_tells(session)
        if gives_way:
            return True
        if not self._halted:
            self.copy.go_on()
        self._did = did
        return False

    def _advance(self) -> bool:
        """Do the one thing that is due first; False: nothing is."""
        # In a study that is held or about to end too: a request is answered with a trial's number.
        if self._may_be_enqueued and self._enter_enqueued():
            return True
        counts = self._study.trials.counts()
        ended = self._study.trials.untold() if counts.untold else []
        # What was refused when it was drawn is told at once.
        first = next((trial for trial in ended if not trial.dispatched), None)
        if first is None and self._searching:
            first = self._duplicates.reuse() if counts.waiting_repeats else None
            if first is None and (self._ask(counts) or self._ask_beyond(counts)):
                return True
        if first is None and ended:
            first = ended[0]
        if first is not None:
            self._tell(first)
            return True
        if self.front_is_due:
            self.front_is_due = False
            self._tell_front()
        return False

    def _ask(self, counts: TrialCounts) -> bool:
        """Ask for a suggestion, or rank anew what waits; whether anything was done."""
        decisions = self.decisions
        room = None if decisions is None else decisions.room(counts)
        if self.suggestions.ask(counts, room):
            return True
        # What is told makes room for suggestions, which are to be ranked with the others.
        if decisions is None or counts.untold or not decisions.is_due():
            return False
        decisions.rank()
        if self._study.search_is_over:
            decisions.leave_the_rest()
        return True

    def _ask_beyond(self, counts: TrialCounts) -> bool:
        """Begin what the study adds to its search; whether there was any."""
        return self._confirmation.ask(counts) or self._fine_tuning.ask(counts)

    def _enter_enqueued(self) -> bool:
        """Take the first trial that a user has named; False: there is none."""
        with self._study.database.read() as session:
            commands = Commands(session).open(CommandKind.ENQUEUE, self._study.id, limit=1)
        if commands:
            self._enqueued.enter(commands[0])
        self._may_be_enqueued = bool(commands)
        return bool(commands)

    def _tell(self, trial: TrialRecord) -> None:
        self._optuna_study.tell(trial)
        now = datetime.now(UTC)
        self._told.append((trial.number, now))
        self._study.trials.note_told(trial, now)
        if trial.state == TrialState.COMPLETE:
            self._tell_front()

    def _write_tells(self, session: Session) -> None:
        """Write what was told, in its order: with what was asked after it, where there is some."""
        for number, at in self._told:
            if Trials(session).mark_told(self._study.id, number, at):
                Exchanges(session).append(self._study.id, "tell", number)
        self._told = []

    def _tell_front(self) -> None:
        """Write an event when the front has changed."""
        with self._study.database.read() as session:
            study = Studies(session).get(self._study.id)
            standing = self.figures.standing(session, study)
            before, self._front = self._front, [trial.number for trial in standing.front]
            if set(self._front) == set(before):
                return
            epochs = Metrics(session).epochs_trained(study.id)
        wall_seconds = study.running_seconds + self._uncounted_seconds()
        # The row and what it does not count yet are read one after the other.
        self._wall_seconds = max(self._wall_seconds, wall_seconds)
        # Where points have only left, as they broke a limit when they were measured, none is new.
        new = [trial for trial in standing.front if trial.number not in before]
        last = max(
            new or standing.front,
            key=lambda trial: (trial.finished_at or study.created_at, trial.number),
            default=None,
        )
        payload: dict[str, Json] = {
            "trials": [*self._front],
            "hypervolume": standing.hypervolume,
            "trial": None if last is None else last.number,
            "epochs_trained": epochs,
            "wall_seconds": self._wall_seconds,
        }
        with self._study.database.write() as session:
            self._write_tells(session)
            Events(session).append(self._study.id, FRONT, payload, datetime.now(UTC))
