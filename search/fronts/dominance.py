"""Which trials no other one dominates, of a few or of thousands."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

import moocore  # pyright: ignore[reportMissingTypeStubs]
import numpy as np
from numpy.typing import NDArray

from search.documents.fronts import ObjectiveInfo
from search.documents.objectives import OBJECTIVE_KINDS, OBJECTIVES, Objective
from storage.records import TrialOrigin, TrialState
from storage.repositories.trial_summaries import AnyTrial

Values = NDArray[np.float64]
"""`[trials, objectives]`, in the order of `OBJECTIVES`; NaN where a trial has no value, and all of
a trial's where it may be on no front."""

_T = TypeVar("_T", bound=AnyTrial)

_COLUMNS: Final = tuple(kind.column for kind in OBJECTIVE_KINDS.values())
_PLACES: Final[Mapping[Objective, int]] = {name: place for place, name in enumerate(OBJECTIVES)}


def value_of(trial: AnyTrial, objective: Objective) -> float | None:
    """A trial's value of one objective; null where it has none (yet)."""
    return OBJECTIVE_KINDS[objective].value(trial)


def is_eligible(trial: AnyTrial) -> bool:
    """Whether a trial may be on a front at all, whatever its values are.

    A confirmation repeats a point. So does a training that was best before its first epoch: its
    file is that of the trial that it continues.
    """
    repeats = trial.origin == TrialOrigin.CONFIRMATION or (
        trial.origin == TrialOrigin.FINE_TUNING and trial.best_epoch == 0
    )
    return trial.state == TrialState.COMPLETE and not repeats and trial.violation is None


def values_of(trials: Iterable[AnyTrial]) -> Values:
    """The values of trials, a row for each."""
    nothing = (None,) * len(_COLUMNS)
    rows = [
        tuple(getattr(trial, column) for column in _COLUMNS) if is_eligible(trial) else nothing
        for trial in trials
    ]
    # None becomes NaN.
    return np.array(rows, float).reshape(-1, len(_COLUMNS))


def on_front(values: Values, infos: Sequence[ObjectiveInfo]) -> list[int]:
    """The rows that have every objective and that no other row dominates.

    Domination: at least as good in every objective and better in one. Equal trials do not dominate
    each other, so ties are all on the front.
    """
    points = values[:, [_PLACES[info.name] for info in infos]]
    whole = np.flatnonzero(~np.isnan(points).any(axis=1))
    if not len(whole):
        return []
    maximise = [info.direction == "maximize" for info in infos]
    keeps = moocore.is_nondominated(points[whole], maximise=maximise, keep_weakly=True)
    return whole[keeps].tolist()


def front_of(trials: Sequence[_T], infos: Sequence[ObjectiveInfo]) -> list[_T]:
    """The complete trials that have every objective and are dominated by none, by number.

    Confirmations are on none, nor trainings that brought nothing: they repeat points of it. Nor is
    an original that is over the study's limits, which is measured all the same.
    """
    return [trials[place] for place in on_front(values_of(trials), infos)]


def with_quality(values: Values, qualities: Mapping[int, float]) -> Values:
    """A copy with other qualities in some rows, of those that may be on a front."""
    column = _PLACES["quality"]
    changed = values.copy()
    for place, quality in qualities.items():
        if not np.isnan(values[place, column]):
            changed[place, column] = quality
    return changed
