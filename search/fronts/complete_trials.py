"""The complete trials of studies as a process remembers them, of which it reads what has changed.

See Note [Remembered trials] in `search/README.md`.
"""

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, final

from sqlalchemy.orm import Session

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
    in_order: tuple[TrialSummary, ...] = ()
    seeded: dict[int, Seeded] = field(default_factory=dict[int, Seeded])
    """A trial's configuration never changes."""
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

    def seeded(self, session: Session, study: StudyRecord) -> Mapping[int, Seeded]:
        """What each of them trains with which seed, by number; not to be changed."""
        with (known := self._of(study)).lock:
            known = self._up_to_date(known, session, study)
            unknown = known.summaries.keys() - known.seeded.keys()
            if unknown:
                documents = Trials(session).specs(study.id, min(unknown), max(unknown))
                known.seeded |= {number: seeded(documents[number]) for number in unknown}
            return dict(known.seeded)

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

    def _up_to_date(self, known: _Remembered, session: Session, study: StudyRecord) -> _Remembered:
        """The study as of the session's version: what is remembered, or else read for this once."""
        if known.version > study.data_version:
            known = _Remembered()
        if known.version < study.data_version:
            changed = Trials(session).summaries(study.id, *_COMPLETE, after=known.version)
            known.summaries |= {summary.number: summary for summary in changed}
            if changed:
                known.in_order = tuple(known.summaries[key] for key in sorted(known.summaries))
            for summary in changed:
                known.records.pop(summary.number, None)
            known.version = study.data_version
        return known
