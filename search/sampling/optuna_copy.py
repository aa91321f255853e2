"""Optuna's own tables of a study: a copy for people who load it with plain Optuna.

The copy is written behind, in batches, from our rows alone. Nothing is ever read from it but what
it has already, and no trial waits for it.
"""

import logging
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

import optuna
from optuna.exceptions import (
    ExperimentalWarning,
    StorageInternalError,
    UpdateFinishedTrialError,
)
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from search.fronts import objective_infos
from search.optuna_tables import BeingOpened, study_name
from search.samplers import CONSTRAINTS, STATES, distribution_of
from search.sampling.optuna_rows import OptunaRows
from search.sampling.optuna_study import objectives_of
from search.sampling.trial_attributes import configuration_notes, outcome_notes
from search.spaces import Dimension
from search.studies import StudySpec
from storage.errors import DatabaseUnavailable
from storage.records import StudyRecord, TrialRecord, TrialState
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials

PAUSE_SECONDS = 5.0
"""No more often than this: each time takes a moment, and people look less often."""
_MOMENT_SECONDS = 0.05
"""Between two looks whether another thread has opened Optuna's tables."""

_log = logging.getLogger(__name__)

_TROUBLE = (
    DatabaseUnavailable,
    StorageInternalError,
    DBAPIError,
    UpdateFinishedTrialError,
    KeyError,
)
"""What is said when Optuna's tables do not answer, or another coordinator writes them as well."""


class Readable(Protocol):
    """Our database, as far as it is read."""

    def read(self) -> AbstractContextManager[Session]:
        """See `Database.read`."""
        ...


class OptunaCopy:
    """The copy of one study, brought up to date from time to time."""

    def __init__(
        self,
        database: Readable,
        study_id: str,
        spec: StudySpec,
        dimensions: Mapping[str, Dimension],
        *,
        storage: Callable[[], RDBStorage] | None,
    ) -> None:
        """`storage` opens Optuna's tables; null: nobody wants the copy."""
        self._database = database
        self._study_id = study_id
        self._trial = partial(_frozen, spec=spec, dimensions=dimensions)
        self._spec = spec
        self._storage = storage
        self._written_at: float | None = None
        self._copied: _Copied | None = None

    def go_on(self) -> None:
        """Write what has changed, unless something was written a moment ago."""
        if self._written_at is None or time.monotonic() - self._written_at >= PAUSE_SECONDS:
            self._write()

    def write(self) -> None:
        """Write what has changed; what cannot be written now is written later."""
        while not self._write():
            time.sleep(_MOMENT_SECONDS)

    def _write(self) -> bool:
        """The same; whether nobody was just opening the tables, for which nothing waits here."""
        if self._storage is None:
            return True
        try:
            if self._copied is None:
                self._copied = self._opened(self._storage())
            else:
                self._take_what_changed(self._copied)
        except BeingOpened:
            return False
        except _TROUBLE as error:
            self._late(error)
        self._written_at = time.monotonic()
        return True

    def _late(self, error: Exception) -> None:
        # It may have been written by halves, and is compared with our rows at the next look.
        self._copied = None
        reason = str(error).strip().partition("\n")[0]
        _log.warning("Optuna's copy of the study is late", extra={"reason": reason})

    def _opened(self, storage: RDBStorage) -> "_Copied":
        """The copy that is there, where it is one of our rows; else a new one."""
        with self._database.read() as session:
            study = Studies(session).get(self._study_id)
            trials = Trials(session).list(study.id)
        theirs = _open(storage, study, self._spec)
        known = theirs.get_trials(deepcopy=False)
        if not _agree(trials, known, self._spec):
            _log.warning("Optuna's copy is made anew", extra={"trials": len(trials)})
            optuna.delete_study(study_name=study_name(study), storage=storage)
            theirs, known = _open(storage, study, self._spec), []
        their_id = theirs._study_id  # pyright: ignore[reportPrivateUsage]
        copied = _Copied(OptunaRows(storage, their_id), known)
        copied.take(trials, self._trial)
        copied.version = study.data_version
        return copied

    def _take_what_changed(self, copied: "_Copied") -> None:
        with self._database.read() as session:
            study, first = Studies(session).get(self._study_id), copied.count
            changed = Trials(session).changed(study.id, after=copied.version, first=first)
        copied.take(changed, self._trial)
        copied.version = study.data_version


class _Copied:
    """What Optuna's tables have of a study."""

    version = -1
    """Of our rows that were taken last."""

    def __init__(self, rows: OptunaRows, theirs: Sequence[FrozenTrial]) -> None:
        self._rows = rows
        self._ids = [trial._trial_id for trial in theirs]  # pyright: ignore[reportPrivateUsage]
        self._open = {trial.number for trial in theirs if not trial.state.is_finished()}

    @property
    def count(self) -> int:
        """How many trials there are."""
        return len(self._ids)

    def take(
        self, trials: Sequence[TrialRecord], copy_of: Callable[[TrialRecord], FrozenTrial]
    ) -> None:
        """Write trials, by number, that are new or have ended."""
        known = self.count
        new = [copy_of(trial) for trial in trials if trial.number >= known]
        ended = [t for t in trials if t.number in self._open and STATES[t.state].is_finished()]
        ends = {self._ids[trial.number]: _end_of(copy_of(trial), trial) for trial in ended}
        self._ids += self._rows.write(new, ends, known=known)
        self._open -= {trial.number for trial in ended}
        self._open |= {
            number for number, trial in enumerate(new, known) if not trial.state.is_finished()
        }


def _end_of(copied: FrozenTrial, trial: TrialRecord) -> FrozenTrial:
    """What an ended trial's copy lacks that was written when it waited or ran."""
    copied.user_attrs = outcome_notes(trial)
    return copied


def _open(storage: RDBStorage, record: StudyRecord, spec: StudySpec) -> optuna.Study:
    infos = objective_infos(spec.task, spec.objectives)
    study = optuna.create_study(
        study_name=study_name(record),
        storage=storage,
        directions=[info.direction for info in infos],
        load_if_exists=True,
    )
    names = [info.metric for info in infos]
    if study.metric_names != names:
        with warnings.catch_warnings():
            # Known since 3.2 as experimental; people see objectives by these names.
            warnings.simplefilter("ignore", ExperimentalWarning)
            study.set_metric_names(names)
    return study


def _agree(rows: Sequence[TrialRecord], theirs: Sequence[FrozenTrial], spec: StudySpec) -> bool:
    """Whether their trials are the first of our rows, and what has ended there ended so here.

    Our tables may be older than Optuna's, as when a backup was restored.
    """
    return len(theirs) <= len(rows) and all(
        row.drawn == trial.params and (not trial.state.is_finished() or _is_copy(trial, row, spec))
        for row, trial in zip(rows, theirs, strict=False)
    )


def _is_copy(trial: FrozenTrial, row: TrialRecord, spec: StudySpec) -> bool:
    values = objectives_of(row, spec) if _is_complete(row) else None
    return trial.state == STATES[row.state] and trial.values == values


def _is_complete(trial: TrialRecord) -> bool:
    return trial.state == TrialState.COMPLETE


def _frozen(
    trial: TrialRecord, spec: StudySpec, dimensions: Mapping[str, Dimension]
) -> FrozenTrial:
    notes = configuration_notes(spec, trial.number, trial.drawn, trial.hyperparameters)
    violated = trial.state.has_ended and trial.violation is not None
    return optuna.trial.create_trial(
        state=STATES[trial.state],
        params=dict(trial.drawn),
        distributions={name: distribution_of(dimensions[name]) for name in trial.drawn},
        values=objectives_of(trial, spec) if _is_complete(trial) else None,
        user_attrs={**notes, **outcome_notes(trial)},
        system_attrs={CONSTRAINTS: [trial.violation]} if violated else {},
    )
