"""Trials whose speed was not measured, and that may be on the front all the same."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from search.documents.fronts import ObjectiveInfo
from search.documents.objectives import OBJECTIVE_KINDS, ObjectiveKind
from search.fronts.dominance import is_eligible
from storage.repositories.trial_summaries import AnyTrial

_SLACK = 1.5
"""By how much a later prediction may be better than the best that the stored one allows."""

_T = TypeVar("_T", bound=AnyTrial)
Guess: TypeAlias = Callable[[AnyTrial, ObjectiveKind], float | None]
"""What an objective that was not measured is taken for; None: nothing is too good for it."""

Predictions: TypeAlias = Mapping[int, Mapping[str, Sequence[float]]]
"""Of trials by their numbers, as `TrialRecord.predicted` has them."""


def may_join(
    trials: Sequence[_T],
    infos: Sequence[ObjectiveInfo],
    guess: Guess,
    *,
    among_guesses: bool = False,
) -> list[_T]:
    """The unmeasured trials that no measured one dominates if they are as good as guessed.

    With `among_guesses`, no other one as it is guessed dominates them either. Trials that lack more
    than what is measured are not among them, nor are those that can be on no front at all.
    """
    kinds = [OBJECTIVE_KINDS[info.name] for info in infos]
    measured: list[list[float]] = []
    unmeasured: list[tuple[_T, list[float]]] = []
    for trial in filter(is_eligible, trials):
        values = [kind.value(trial) for kind in kinds]
        missing = [kind for kind, value in zip(kinds, values, strict=True) if value is None]
        if not missing:
            measured.append(_losses(infos, values))
        elif all(kind.known == "measured" for kind in missing):
            guessed = [
                guess(trial, kind) if value is None else value
                for kind, value in zip(kinds, values, strict=True)
            ]
            unmeasured.append((trial, _losses(infos, guessed)))
    if among_guesses:
        measured += [losses for _, losses in unmeasured]
    points = np.array(measured).reshape(-1, len(infos))
    return [trial for trial, losses in unmeasured if not _is_dominated(np.array(losses), points)]


def by_stored_bounds(trial: AnyTrial, kind: ObjectiveKind) -> float | None:
    """The best that a trial's stored prediction allows, and that a later one may say."""
    found = trial.predicted.get(kind.column)
    if found is None:
        return None
    bound = optimistic(kind, found)
    return bound * _SLACK if kind.direction == "maximize" else bound / _SLACK


def optimistic(kind: ObjectiveKind, prediction: Sequence[float]) -> float:
    """The better end of a prediction: the value, and the ends of its interval."""
    _, low, high = prediction
    return high if kind.direction == "maximize" else low


def may_be_on_front(trials: Sequence[_T], infos: Sequence[ObjectiveInfo]) -> list[_T]:
    """Those of which nothing but a measurement can say that they are not on the front."""
    return may_join(trials, infos, by_stored_bounds)


def may_come_forward(trials: Sequence[_T], infos: Sequence[ObjectiveInfo]) -> list[_T]:
    """Those that no measured trial dominates: all that do may break a limit on speed yet."""
    kinds = [OBJECTIVE_KINDS[info.name] for info in infos]
    known = [
        (trial, _losses(infos, values))
        for trial in filter(is_eligible, trials)
        if None not in (values := [kind.value(trial) for kind in kinds])
    ]
    measured = [losses for trial, losses in known if trial.measurement_id is not None]
    points = np.array(measured).reshape(-1, len(infos))
    return [trial for trial, losses in known if not _is_dominated(np.array(losses), points)]


def best_ends(predictions: Predictions) -> Guess:
    """Trials guessed at the better ends of what is predicted of them."""
    return _guess(predictions, optimistic)


def middles(predictions: Predictions) -> Guess:
    """Trials guessed at what is predicted of them."""
    return _guess(predictions, lambda _, prediction: prediction[0])


def _guess(
    predictions: Predictions, read: Callable[[ObjectiveKind, Sequence[float]], float]
) -> Guess:
    def guess(trial: AnyTrial, kind: ObjectiveKind) -> float | None:
        found = predictions.get(trial.number, {}).get(kind.column)
        return None if found is None else read(kind, found)

    return guess


def _losses(infos: Sequence[ObjectiveInfo], values: Sequence[float | None]) -> list[float]:
    signs = (-1.0 if info.direction == "maximize" else 1.0 for info in infos)
    return [
        -math.inf if value is None else sign * value
        for sign, value in zip(signs, values, strict=True)
    ]


def _is_dominated(losses: NDArray[np.float64], points: NDArray[np.float64]) -> bool:
    """Whether a point `[K]` is dominated by one of `[N, K]`; all are minimised."""
    at_least = (points <= losses).all(axis=1)
    return bool((at_least & (points < losses).any(axis=1)).any())
