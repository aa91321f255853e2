"""A cache of what follows from a study's trials, computed once for every version of them."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from sqlalchemy.orm import Session

from search.fronts import pareto
from search.fronts.all_trials import AllTrials
from search.fronts.best_of_kind import BestOfKind, best_of_kinds
from search.fronts.complete_trials import CompleteTrials
from search.fronts.dominance import on_front
from search.fronts.hypervolumes import Growth, HypervolumePoint
from search.fronts.importance import Importance, Importances
from search.fronts.pareto import Front, hypervolume, objective_infos
from search.fronts.recommendation import MAX_QUALITY_LOSS
from search.studies import Objective, StudySpec
from storage.records import StudyRecord, TrialRecord
from storage.repositories.tallies import Tallies, Tally
from storage.repositories.trial_summaries import ShownTrial, TrialSummary

_T = TypeVar("_T")


@dataclass(frozen=True)
class Standing:
    """The front of a study over its own objectives, summarised."""

    front: tuple[TrialSummary, ...]
    hypervolume: float | None


class Figures:
    """Fronts, hypervolumes and importances of studies, as one process last computed them.

    Every method takes a study as its session read it. The session must have changed nothing of the
    study itself: a version that is never committed would name what others never see. Threads may
    share the figures; a request for what another one computes just then waits for it.
    """

    def __init__(self, *, size: int = 1024) -> None:
        """Keep the `size` results that were asked for last."""
        self._size = size
        self._lock = threading.Lock()
        self._known: OrderedDict[Hashable, Future[Any]] = OrderedDict()
        self._complete = CompleteTrials()
        self._all = AllTrials()
        self._growth = Growth()
        self._importances = Importances()

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
        max_quality_loss: float = MAX_QUALITY_LOSS,
    ) -> Front:
        """The front over the objectives asked for, or the study's own, see `pareto.front`."""
        wanted = None if objectives is None else tuple(objectives)
        return self._once(
            study,
            ("front", wanted, latest, max_quality_loss),
            lambda: pareto.front(
                session,
                study,
                objectives=wanted,
                latest=latest,
                max_quality_loss=max_quality_loss,
                complete=self._complete,
            ),
        )

    def complete(self, session: Session, study: StudyRecord) -> Sequence[TrialSummary]:
        """Summaries of all complete trials, by number: what a plot shows beside the front."""
        return self._complete.summaries(session, study)

    def kinds(self, session: Session, study: StudyRecord) -> Mapping[str, BestOfKind]:
        """The best trial of each architecture and parametrization, by name."""
        return self._once(study, "kinds", lambda: best_of_kinds(session, study, self._complete))

    def trials(self, session: Session, study: StudyRecord) -> Sequence[ShownTrial]:
        """All trials by number, in whatever state; how far they have trained may be out of date."""
        return self._all.of(session, study)

    def records(
        self, session: Session, study: StudyRecord, numbers: Collection[int]
    ) -> Mapping[int, TrialRecord]:
        """Some of the complete trials whole, by number."""
        return self._complete.records(session, study, numbers)

    def tally(self, session: Session, study: StudyRecord) -> Tally:
        """How much there is of everything that a study counts."""
        return self.tallies(session, [study])[study.id]

    def tallies(self, session: Session, studies: Sequence[StudyRecord]) -> Mapping[str, Tally]:
        """The same of several studies, by their ids."""
        changing = [study.id for study in studies if not study.state.has_ended]
        found = dict(Tallies(session).of(changing, datetime.now(UTC)))
        for study in studies:
            if study.state.has_ended:
                # Whatever is added to one that has ended comes with an event, or with a version.
                found[study.id] = self._once(
                    study, ("tally", study.last_event), partial(_tally, session, study)
                )
        return found

    def importance(self, session: Session, study: StudyRecord) -> Importance:
        """What each dimension did to each objective."""
        return self._once(study, "importance", lambda: self._importances.of(session, study))

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
        trials = self._complete.summaries(session, study)
        front = [trials[place] for place in on_front(self._complete.values(session, study), infos)]
        return Standing(
            front=tuple(front),
            # Whatever a front dominates adds nothing to its hypervolume.
            hypervolume=hypervolume(front, infos, study.reference_point),
        )


def _tally(session: Session, study: StudyRecord) -> Tally:
    return Tallies(session).of([study.id], datetime.now(UTC))[study.id]
