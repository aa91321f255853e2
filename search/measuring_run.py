"""A study that has ended, while something of it is measured again."""

from typing import final

from search.lost_attempts import abandon, lose
from search.remeasuring import Remeasuring
from search.space import SearchSpace
from search.spec import StudySpec
from search.studies import priority_of
from search.study_context import Floor, StudyContext
from storage.attempts import Attempts
from storage.errors import NotFound
from storage.records import AttemptRecord, AttemptState, StudyRecord
from storage.studies import Studies


@final
class MeasuringRun:
    """As `StudyRun` for a coordinator, of a study that has nothing else to do."""

    def __init__(self, floor: Floor, study: StudyRecord) -> None:
        spec = StudySpec.model_validate(study.spec)
        self._study = StudyContext(study.id, spec, SearchSpace(spec), floor)
        self._remeasuring = Remeasuring(self._study)
        self._seen = study
        self.abandon()

    @property
    def priority(self) -> int:
        """As the study had it when it was last looked at."""
        return priority_of(self._seen)

    def step(self) -> bool:
        """Do what is due; whether there is more. A study that runs on is left to its own run."""
        try:
            with self._study.database.read() as session:
                self._seen = Studies(session).get(self._study.id)
            return self._seen.state.has_ended and self._remeasuring.go_on()
        except NotFound:  # it was deleted meanwhile
            return False

    def halt(self) -> None:
        """Nothing to hold back: a run of this kind works in its steps alone."""

    def abandon(self) -> None:
        """Lose what runs with the coordinator that stops, or with the one that died before."""
        abandon(self._study)

    def lost(self, attempt: AttemptRecord, reason: str) -> None:
        """An attempt's process ended, or its lease did, without a last word."""
        with self._study.database.write() as session:
            if Attempts(session).get(attempt.id).state == AttemptState.RUNNING:
                lose(session, attempt, reason)
