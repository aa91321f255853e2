"""A cache of what follows from a study's trials, computed once for every version of them."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from sqlalchemy.orm import Session

from search.fronts import pareto
from search.fronts.complete_trials import CompleteTrials
from search.fronts.hypervolumes import Growth, HypervolumePoint
from search.fronts.importance import Importance, importance
from search.fronts.pareto import Front, front_of, hypervolume, objective_infos
from search.studies import Objective, StudySpec
from storage.records import StudyRecord, TrialCounts, TrialRecord
from storage.repositories.attempts import Attempts
from storage.repositories.measurements import Measurements
from storage.repositories.metrics import Metrics
from storage.repositories.trial_summaries import TrialSummary
from storage.repositories.trials import Trials

_T = TypeVar("_T")


@dataclass(frozen=True)
class Standing:
    """The front of a study over its own objectives, summarised."""

    front: tuple[TrialSummary, ...]
    hypervolume: float | None


@dataclass(frozen=True)
class Tally:
    """What the rows of a study sum up to."""

    counts: TrialCounts
    epochs_trained: int
    measuring_seconds: float
    """Of its own time: what is measured again afterwards takes none of it."""
    device_seconds: float


class Figures:
    """Fronts, hypervolumes and importances of studies, as one process last computed them.

    Every method takes a study as its session read it. The session must have changed nothing of the
    study itself: a version that is never committed would name what others never see. Threads may
    share the figures; whoever asks for what another one computes just then waits for it.
    """

    def __init__(self, *, size: int = 1024) -> None:
        """Keep the `size` results that were asked for last."""
        self._size = size
        self._lock = threading.Lock()
        self._known: OrderedDict[Hashable, Future[Any]] = OrderedDict()
        self._complete = CompleteTrials()
        self._growth = Growth()

    def standing(self, session: Session, study: StudyRecord) -> Standing:
        """The trials on the front and their hypervolume."""
        return self._once(study, "standing", lambda: self._standing(session, study))

    def front(
        self,
        session: Session,
        study: StudyRecord,
        *,
        objectives: Sequence[Objective] | None = None,
        latest: bool = False,
    ) -> Front:
        """The front over the objectives asked for, or the study's own, see `pareto.front`."""
        wanted = None if objectives is None else tuple(objectives)
        return self._once(
            study,
            ("front", wanted, latest),
            lambda: pareto.front(
                session, study, objectives=wanted, latest=latest, complete=self._complete
            ),
        )

    def complete(self, session: Session, study: StudyRecord) -> Sequence[TrialSummary]:
        """Summaries of all complete trials, by number: what a plot shows beside the front."""
        return self._complete.summaries(session, study)

    def records(
        self, session: Session, study: StudyRecord, numbers: Collection[int]
    ) -> Mapping[int, TrialRecord]:
        """Some of the complete trials whole, by number."""
        return self._complete.records(session, study, numbers)

    def tally(self, session: Session, study: StudyRecord) -> Tally:
        """How much there is of everything that a study counts."""
        if not study.state.has_ended:
            return _tally(session, study)
        # Whatever is added to a study that has ended comes with an event, or with a version.
        return self._once(study, ("tally", study.last_event), lambda: _tally(session, study))

    def importance(self, session: Session, study: StudyRecord) -> Importance:
        """What each dimension did to each objective."""
        return self._once(study, "importance", lambda: importance(session, study))

    def hypervolumes(self, session: Session, study: StudyRecord) -> tuple[HypervolumePoint, ...]:
        """How the front's hypervolume grew."""
        return self._once(
            study,
            # It follows from the events, of which more can come without another outcome.
            ("hypervolumes", study.last_event),
            lambda: self._growth.of(session, study),
        )

    def _once(self, study: StudyRecord, what: Hashable, compute: Callable[[], _T]) -> _T:
        key = (study.id, study.data_version, what)
        with self._lock:
            known: Future[_T] | None = self._known.get(key)
            future = known or Future[_T]()
            self._known[key] = future
            self._known.move_to_end(key)
            while len(self._known) > self._size:
                self._known.popitem(last=False)
        if known is None:
            try:
                future.set_result(compute())
            except BaseException as error:
                with self._lock:
                    self._known.pop(key, None)
                future.set_exception(error)
        return future.result()

    def _standing(self, session: Session, study: StudyRecord) -> Standing:
        spec = StudySpec.model_validate(study.spec)
        infos = objective_infos(spec.task, spec.objectives)
        front = front_of(self._complete.summaries(session, study), infos)
        return Standing(
            front=tuple(front),
            # Whatever a front dominates adds nothing to its hypervolume.
            hypervolume=hypervolume(front, infos, study.reference_point),
        )


def _tally(session: Session, study: StudyRecord) -> Tally:
    return Tally(
        counts=Trials(session).counts(study.id),
        epochs_trained=Metrics(session).epochs_trained(study.id),
        measuring_seconds=Measurements(session).measuring_seconds(
            study.id, until=study.finished_at
        ),
        device_seconds=Attempts(session).device_seconds(study.id, datetime.now(UTC)),
    )
