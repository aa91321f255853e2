"""What one study tells Optuna and asks of it, beside the coordinator's other work.

Note [Asks and tells]: a sampler may think for seconds, and no slot waits for it. Each study
exchanges with its own in the background, one thing at a time, while the coordinator goes on filling
slots from the queue. What a sampler knows when it draws suggestion k must not depend on who was
quicker, or two runs of a study would differ. So a fixed number of trials is asked for ahead of what
was told, ended trials are told one by one in the order of their ends, and what one makes room for
is asked before the next is told.
"""

from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as StillAtWork
from datetime import UTC, datetime

import optuna

from search.confirmation import Confirmation
from search.duplicates import Duplicates
from search.enqueued import Enqueued
from search.figures import Figures
from search.hypervolumes import FRONT
from search.mirror import Mirror
from search.showing import Showing
from search.study_context import StudyContext
from search.suggestions import Suggestions
from storage.events import Events
from storage.exchanges import Exchanges
from storage.metrics import Metrics
from storage.records import Json, TrialRecord, TrialState
from storage.studies import Studies
from storage.trials import Trials

_MOMENT_SECONDS = 0.02


class Exchange:
    """The asks and tells of one study, see Note [Asks and tells]."""

    def __init__(
        self, study: StudyContext, mirror: Mirror, *, uncounted_seconds: Callable[[], float]
    ) -> None:
        """`uncounted_seconds` is how long the study has run since its row was told."""
        self._study = study
        self._mirror = mirror
        self._uncounted_seconds = uncounted_seconds
        self.suggestions = Suggestions(study, mirror)
        self.confirmation = Confirmation(study, mirror, self.suggestions)
        self._enqueued = Enqueued(study, mirror, self.suggestions)
        self._duplicates = Duplicates(study)
        self.figures = Figures(size=4)
        self.showing = Showing(study, mirror, self.figures)
        self._front: list[int] = []
        self._searching = False
        self._halted = False
        self._at_work: Future[None] | None = None

    def go_on(self, *, searching: bool) -> None:
        """See to it that what is due is done in the background.

        Users' own trials and tells always are, suggestions only while the study is `searching`.

        Raises:
            Exception: whatever went wrong there.
        """
        self._searching = searching
        if not self._is_at_work():
            self._at_work = self._study.floor.in_background(self._study.id, self._do_what_is_due)

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
        """Whether nothing is at work, and Optuna knows how every trial ended.

        Raises:
            Exception: whatever went wrong at work.
        """
        if self._is_at_work():
            return False
        with self._study.database.read() as session:
            return not Trials(session).untold(self._study.id)

    def halt(self) -> None:
        """Begin nothing any more; what is just being asked or told ends by itself."""
        self._halted = True

    def adopt(self, number: int, asked: optuna.Trial) -> None:
        """Write the row of a trial that was asked for before the coordinator died."""
        if self._enqueued.adopt(asked):
            return
        confirms = bool(self.confirmation.due())
        (self.confirmation if confirms else self.suggestions).enter(number, asked)

    def _is_at_work(self) -> bool:
        if self._at_work is None:
            return False
        if not self._at_work.done():
            return True
        done, self._at_work = self._at_work, None
        done.result()
        return False

    def _do_what_is_due(self) -> None:
        while not self._halted and self._advance():
            pass
        if not self._halted:
            self.showing.go_on()

    def _advance(self) -> bool:
        """Do the one thing that is due first; False: nothing is."""
        # In a study that is held or about to end too: whoever asked is told the trial's number.
        if self._enqueued.ask():
            return True
        with self._study.database.read() as session:
            ended = Trials(session).untold(self._study.id)
        # What was refused when it was drawn is told at once.
        first = next((trial for trial in ended if not trial.dispatched), None)
        if first is None and self._searching:
            first = self._duplicates.reuse()
            if first is None and (self.suggestions.ask() or self.confirmation.ask()):
                return True
        if first is None and ended:
            first = ended[0]
        if first is not None:
            self._tell(first)
        return first is not None

    def _tell(self, trial: TrialRecord) -> None:
        self._mirror.tell(trial)
        with self._study.database.write() as session:
            if Trials(session).mark_told(self._study.id, trial.number, datetime.now(UTC)):
                Exchanges(session).append(self._study.id, "tell", trial.number)
        if trial.state == TrialState.COMPLETE:
            self._tell_front()

    def _tell_front(self) -> None:
        """Write an event when the front has changed."""
        with self._study.database.read() as session:
            study = Studies(session).get(self._study.id)
            standing = self.figures.standing(session, study)
            epochs = Metrics(session).epochs_trained(study.id)
        before, self._front = self._front, [trial.number for trial in standing.front]
        new = [trial for trial in standing.front if trial.number not in before]
        if not new:
            # Points leave a front only when others come onto it.
            return
        last = max(new, key=lambda trial: (trial.finished_at or study.created_at, trial.number))
        payload: dict[str, Json] = {
            "trials": [*self._front],
            "hypervolume": standing.hypervolume,
            "trial": last.number,
            "epochs_trained": epochs,
            "wall_seconds": study.running_seconds + self._uncounted_seconds(),
        }
        with self._study.database.write() as session:
            Events(session).append(self._study.id, FRONT, payload, datetime.now(UTC))
