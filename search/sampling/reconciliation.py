"""Bring Optuna's side of a study in line with our rows, after a process died between the two.

There are three such points. Asked and not written: Optuna has one RUNNING trial more than we have
rows, which is adopted with the parameters that it holds. Ended and not told: the coordinator tells
whatever is untold in any case. Optuna's study is gone or differs from our rows: it is rebuilt from
them. So it is where our tables are older than Optuna's, as when a backup was restored: what Optuna
was told of a trial that is still open here need not be what becomes of it.
"""

import logging
from collections.abc import Callable, Sequence

import optuna

from search.running import StudyContext
from search.sampling.optuna_study import OptunaStudy
from storage.records import TrialRecord
from storage.repositories.trials import Trials

_log = logging.getLogger(__name__)


def reconcile(
    study: StudyContext,
    optuna_study: OptunaStudy,
    *,
    adopt: Callable[[optuna.Trial], None],
) -> None:
    """Make Optuna's trials and our rows the same trials.

    `adopt` writes the row of a trial that lacks one.
    """
    with study.database.read() as session:
        rows = Trials(session).list(study.id)
    theirs = optuna_study.trials
    if not _agree(rows, theirs):
        optuna_study.rebuild(rows, study.space.dimensions)
    elif len(theirs) == len(rows) + 1:
        number = len(rows)
        _log.warning("adopting a trial", extra={"study_id": study.id, "trial": number})
        adopt(optuna_study.reopen(number))


def _agree(rows: Sequence[TrialRecord], theirs: Sequence[optuna.trial.FrozenTrial]) -> bool:
    """Whether every row has its trial, and at most one trial, still running, lacks its row."""
    if not len(rows) <= len(theirs) <= len(rows) + 1:
        return False
    if len(theirs) > len(rows) and theirs[-1].state.is_finished():
        return False
    return all(
        row.drawn == trial.params
        and (row.told_at is None or trial.state.is_finished())
        and (row.state.has_ended or not trial.state.is_finished())
        for row, trial in zip(rows, theirs, strict=False)
    )
