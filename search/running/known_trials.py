"""A claimed study's trials in the coordinator's memory, see Note [Remembered trials]."""

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import final

from storage.engine import Database
from storage.records import TrialCounts, TrialRecord, TrialState
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials

_DISPATCHED, _CONFIRMATIONS, _UNTOLD, _REPEATS = range(4)


@final
class KnownTrials:
    """All trials of one study as their rows are, of which only what has changed is read.

    They are read anew after a write of the coordinator's own (`note_write`) and when the study's
    data have another version (`note_version`), which all else is that matters here. Artifacts and
    how far a trial has trained are not among what is known. Threads may share it.
    """

    def __init__(self, database: Database, study_id: str) -> None:
        self._database = database
        self._study_id = study_id
        self._lock = threading.Lock()
        self._noted = 0
        """Counts what may have changed something."""
        self._read = -1
        """Where that count stood when the rows were last read."""
        self._noted_version = -1
        self._version = -1
        self._trials: dict[int, TrialRecord] = {}
        self._open: dict[int, TrialRecord] = {}
        self._untold: dict[int, TrialRecord] = {}
        self._counts: Counter[tuple[TrialState, int | None]] = Counter()

    def note_write(self) -> None:
        """A write of the coordinator was committed."""
        self._noted += 1

    def look_again(self) -> None:
        """Somebody else's write may have been committed: that an attempt is over says so first."""
        self._noted += 1

    def note_version(self, version: int) -> None:
        """The study's data have this version."""
        if version != self._noted_version:
            self._noted_version = version
            self._noted += 1

    def counts(self) -> TrialCounts:
        """How many trials are in each state, see `Trials.counts`."""
        with self._lock:
            self._refresh()
            totals = {state: n for (state, what), n in self._counts.items() if what is None and n}
            of = {
                what: sum(n for (_, one), n in self._counts.items() if one == what)
                for what in (_DISPATCHED, _CONFIRMATIONS, _UNTOLD)
            }
            infeasible = TrialState.INFEASIBLE
            refused = totals.get(infeasible, 0) - sum(
                self._counts[infeasible, what] for what in (_DISPATCHED, _CONFIRMATIONS)
            )
            return TrialCounts(
                by_state=totals,
                dispatched=of[_DISPATCHED],
                under_way=sum(
                    n
                    for (state, what), n in self._counts.items()
                    if what == _DISPATCHED and not state.has_ended
                ),
                refused=refused,
                confirmations=of[_CONFIRMATIONS],
                untold=of[_UNTOLD],
                waiting_repeats=self._counts[TrialState.QUEUED, _REPEATS],
            )

    def untold(self) -> list[TrialRecord]:
        """Trials that ended and that the sampler does not know of, in the order of their ends."""
        with self._lock:
            self._refresh()
            return sorted(self._untold.values(), key=_by_end)

    def open(self, *states: TrialState) -> list[TrialRecord]:
        """The trials that wait or run, or those in the named ones of these states, by number."""
        with self._lock:
            self._refresh()
            found = sorted(self._open.values(), key=lambda trial: trial.number)
        return [trial for trial in found if not states or trial.state in states]

    def note_told(self, trial: TrialRecord, at: datetime) -> None:
        """The sampler was told of a trial's end; the row says so later."""
        with self._lock:
            self._put([replace(trial, told_at=at)])

    def _refresh(self) -> None:
        noted = self._noted
        if noted == self._read:
            return
        with self._database.read() as session:
            version = Studies(session).versions([self._study_id]).get(self._study_id)
            if version is None:
                # It was deleted, and nothing is left to do for it.
                return
            first = len(self._trials)
            changed = Trials(session).changed(
                self._study_id, after=self._version, first=first, artifacts=False
            )
        self._put(changed)
        self._version, self._read = version, noted

    def _put(self, trials: Iterable[TrialRecord]) -> None:
        for trial in trials:
            before = self._trials.get(trial.number)
            if before == trial:
                continue
            if before is not None:
                self._count(before, -1)
            self._count(trial, 1)
            self._trials[trial.number] = trial
            for those, belongs in (
                (self._open, not trial.state.has_ended),
                (self._untold, _is_untold(trial)),
            ):
                if belongs:
                    those[trial.number] = trial
                else:
                    those.pop(trial.number, None)

    def _count(self, trial: TrialRecord, by: int) -> None:
        confirms = trial.origin.follows_search
        self._counts[trial.state, None] += by
        for what, holds in (
            (_DISPATCHED, trial.dispatched and not confirms),
            (_CONFIRMATIONS, confirms),
            (_UNTOLD, _is_untold(trial)),
            (_REPEATS, trial.repeats is not None),
        ):
            if holds:
                self._counts[trial.state, what] += by


def _is_untold(trial: TrialRecord) -> bool:
    return trial.finished_at is not None and trial.told_at is None


def _by_end(trial: TrialRecord) -> tuple[float, int]:
    ended = trial.finished_at
    return (0.0 if ended is None else ended.timestamp(), trial.number)
