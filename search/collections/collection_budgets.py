"""The budgets that the studies of a collection share, as a coordinator watches them."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, final

from sqlalchemy.orm import Session

from search.collections.collection_spec import CollectionBudget
from search.studies import StudySpec, ended_after_dispatch
from storage.endings import StudyCause
from storage.engine import Database
from storage.records import CollectionRecord, CollectionStudyRecord, TrialCounts
from storage.repositories.collections import Collections
from storage.repositories.studies import Studies
from storage.repositories.tallies import Tallies

_LARGEST_SHARE: Final = 0.05
"""Of the time, that is spent with looking."""


@dataclass(frozen=True)
class _Shared:
    """A collection of which studies are in progress."""

    budget: CollectionBudget
    studies: Sequence[str]
    training_epochs: int | None
    """Of a whole training, where those are counted instead of trials."""


@final
class CollectionBudgets:
    """The budgets of all collections of which studies are in progress."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: Mapping[str, _Shared] = {}
        """By collection."""
        self._of_study: Mapping[str, _Shared] = {}
        self._due = 0.0

    def look(self) -> None:
        """End the studies whose collection has used up its budget, as one of their own would."""
        began = time.monotonic()
        if began < self._due:
            return
        with self._database.read() as session:
            records = Collections(session).with_open_budgets()
            members = Collections(session).members([record.id for record in records])
            self._known = {
                record.id: self._known.get(record.id)
                or _shared(session, record, members[record.id])
                for record in records
            }
            used_up = [
                (one, name)
                for one in self._known.values()
                if (name := _used_up(session, one)) is not None
            ]
        self._of_study = {study: one for one in self._known.values() for study in one.studies}
        for one, name in used_up:
            self._end(one, name)
        ended = time.monotonic()
        self._due = ended + (ended - began) / _LARGEST_SHARE

    def may_begin(self, study_id: str) -> bool:
        """Whether another trial of a study may begin: its collection has one left."""
        shared = self._of_study.get(study_id)
        if shared is None or shared.budget.trials is None:
            return True
        with self._database.read() as session:
            return _trials(session, shared, lambda counts: counts.dispatched) < shared.budget.trials

    def _end(self, shared: _Shared, name: str) -> None:
        with self._database.write() as session:
            studies = Studies(session)
            # In the order in which all that take several studies lock them.
            for study in sorted(studies.with_ids(shared.studies), key=lambda study: study.id):
                if not study.state.has_ended and study.ending is None:
                    studies.set_ending(study.id, StudyCause.BUDGET, f"collection_budget.{name}")


def counted_epochs(spec: StudySpec) -> int | None:
    """Epochs of a whole training, where `trials` counts those; null where it counts trials."""
    return spec.budget.epochs if spec.sampler.rungs(spec.budget.epochs) else None


def _shared(
    session: Session, record: CollectionRecord, members: Sequence[CollectionStudyRecord]
) -> _Shared:
    # The sampler and the epochs of a trial are the document's, and so alike in all.
    spec = StudySpec.model_validate(Studies(session).get(members[0].study_id).spec)
    return _Shared(
        budget=CollectionBudget.model_validate(record.budget),
        studies=[member.study_id for member in members],
        training_epochs=counted_epochs(spec),
    )


def _used_up(session: Session, shared: _Shared) -> str | None:
    """The first of the budgets that is used up; null: none is."""
    budget = shared.budget
    if (
        budget.trials is not None
        and _trials(session, shared, ended_after_dispatch) >= budget.trials
    ):
        return "trials"
    if budget.total_epochs is None and budget.device_hours is None:
        return None
    tallies = Tallies(session).of(shared.studies, datetime.now(UTC)).values()
    used = {
        "total_epochs": sum(tally.epochs_trained for tally in tallies),
        "device_hours": sum(tally.device_time.seconds for tally in tallies) / 3600,
    }
    limits = budget.model_dump(include={*used}, exclude_none=True)
    return next((name for name, limit in limits.items() if used[name] >= limit), None)


def _trials(session: Session, shared: _Shared, count: Callable[[TrialCounts], int]) -> int:
    """How many trials the studies have had, or whole trainings."""
    tallies = Tallies(session).of(shared.studies, datetime.now(UTC)).values()
    if shared.training_epochs is not None:
        return sum(tally.epochs_trained for tally in tallies) // shared.training_epochs
    return sum(count(tally.counts) for tally in tallies)
