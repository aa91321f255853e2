"""The complete trials of studies as a process remembers them, of which it reads what has changed.

See Note [Remembered trials] in `search/README.md`.
"""

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from search.fronts.dominance import Values, values_of
from search.studies import Seeded, seeded
from storage.records import StudyRecord, TrialRecord, TrialState
from storage.repositories.trial_summaries import TrialSummary
from storage.repositories.trials import Trials

_MOST: Final = 200_000
"""How many trials are remembered, of the studies that were asked for last; at least one study's."""

_COMPLETE: Final = (TrialState.COMPLETE,)


@dataclass
class _Remembered:
    """One study as of one version."""

    version: int = -1
    summaries: dict[int, TrialSummary] = field(default_factory=dict[int, TrialSummary])
    numbers: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """In order."""
    in_order: tuple[TrialSummary, ...] = ()
    values: Values = field(default_factory=lambda: values_of(()))
    """Those of `in_order`, row by row; an array that was given out is never changed."""
    seeded: dict[int, Seeded] = field(default_factory=dict[int, Seeded])
    """A trial's configuration never changes."""
    by_configuration: dict[bytes, list[int]] = field(default_factory=dict[bytes, list[int]])
    """The numbers of the trials that train it."""
    alike: set[int] = field(default_factory=set[int])
    """Those whose configuration others train, too."""
    records: dict[int, TrialRecord] = field(default_factory=dict[int, TrialRecord])
    """Whole, of those that were asked for."""
    lock: threading.Lock = field(default_factory=threading.Lock)


@final
class CompleteTrials:
    """What one process knows of complete trials, see Note [Remembered trials].

    Every method takes a study as its session read it. Threads may share this.
    """

    def __init__(self, *, most: int = _MOST) -> None:
        """`most` bounds how many trials are remembered."""
        self._most = most
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _Remembered] = OrderedDict()

    def summaries(self, session: Session, study: StudyRecord) -> Sequence[TrialSummary]:
        """All of them, by number."""
        with (known := self._of(study)).lock:
            return self._up_to_date(known, session, study).in_order

    def values(self, session: Session, study: StudyRecord) -> Values:
        """What they have reached, a row for each of `summaries`; not to be changed."""
        with (known := self._of(study)).lock:
            return self._up_to_date(known, session, study).values

    def seeded(self, session: Session, study: StudyRecord) -> Mapping[int, Seeded]:
        """What each of them trains with which seed, by number; not to be changed."""
        with (known := self._of(study)).lock:
            return dict(self._with_seeds(known, session, study).seeded)

    def alike(self, session: Session, study: StudyRecord) -> Sequence[TrialSummary]:
        """Those whose configuration others of them train, too, by number."""
        with (known := self._of(study)).lock:
            known = self._with_seeds(known, session, study)
            return [known.summaries[number] for number in sorted(known.alike)]

    def records(
        self, session: Session, study: StudyRecord, numbers: Collection[int]
    ) -> Mapping[int, TrialRecord]:
        """Some of them whole, by number."""
        with (known := self._of(study)).lock:
            known = self._up_to_date(known, session, study)
            unknown = [number for number in numbers if number not in known.records]
            if unknown:
                found = Trials(session).numbered(study.id, unknown)
                known.records |= {record.number: record for record in found}
            return {number: known.records[number] for number in numbers}

    def _of(self, study: StudyRecord) -> _Remembered:
        with self._lock:
            known = self._known.setdefault(study.id, _Remembered())
            self._known.move_to_end(study.id)
            total = sum(len(one.summaries) for one in self._known.values())
            while total > self._most and len(self._known) > 1:
                _, forgotten = self._known.popitem(last=False)
                total -= len(forgotten.summaries)
            return known

    def _with_seeds(self, known: _Remembered, session: Session, study: StudyRecord) -> _Remembered:
        """The study as of the session's version, with what each trial trains."""
        known = self._up_to_date(known, session, study)
        unknown = known.summaries.keys() - known.seeded.keys()
        if unknown:
            documents = Trials(session).specs(study.id, min(unknown), max(unknown))
            for number in unknown:
                its = known.seeded[number] = seeded(documents[number])
                together = known.by_configuration.setdefault(its.configuration, [])
                together.append(number)
                if len(together) > 1:
                    known.alike.update(together)
        return known

    def _up_to_date(self, known: _Remembered, session: Session, study: StudyRecord) -> _Remembered:
        """The study as of the session's version: what is remembered, or else read for this once."""
        if known.version > study.data_version:
            known = _Remembered()
        if known.version < study.data_version:
            changed = Trials(session).summaries(study.id, *_COMPLETE, after=known.version)
            if changed:
                _take(known, changed)
            known.version = study.data_version
        return known


def _take(known: _Remembered, changed: Sequence[TrialSummary]) -> None:
    new = [trial.number for trial in changed if trial.number not in known.summaries]
    # Where each of the new ones stands in between those that were there.
    before = np.searchsorted(known.numbers, new)
    known.numbers = numbers = np.insert(known.numbers, before, new)
    values = np.insert(known.values, before, np.nan, axis=0)
    values[np.searchsorted(numbers, [trial.number for trial in changed])] = values_of(changed)
    known.values = values
    known.summaries |= {trial.number: trial for trial in changed}
    known.in_order = tuple(known.summaries[number] for number in numbers.tolist())
    for trial in changed:
        known.records.pop(trial.number, None)
