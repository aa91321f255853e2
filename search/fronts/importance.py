"""What each dimension of a study's space did to each objective.

PED-ANOVA (Watanabe, Bansal and Hutter, "PED-ANOVA: Efficiently Quantifying Hyperparameter
Importance in Arbitrary Subspaces", IJCAI 2023, arXiv 2304.10255, eq. 16), in the form for spaces
with conditions (arXiv 2601.20800, theorem 4.2), as Optuna has it: how far the values that a
dimension has in the best trials are from those that it has in all, as a Pearson divergence. It was
chosen over fANOVA because most of our dimensions exist for one parametrization or architecture
alone, where fANOVA has nothing to say, and because it takes a fraction of a second.
"""

import math
import statistics
import threading
import warnings
from collections.abc import Container, Mapping, Sequence
from datetime import UTC, datetime
from typing import cast

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial
from sqlalchemy.orm import Session

from search.documents.fronts import DimensionImportance, Importance, ObjectiveImportance
from search.documents.objectives import OBJECTIVE_KINDS
from search.fronts.pareto import ObjectiveInfo, objective_infos
from search.samplers import distribution_of
from search.spaces import ChoiceDimension, Dimension, Scalar, SearchSpace
from search.studies import OBJECTIVES, Objective, StudySpec
from storage.records import Json, StudyRecord, TrialOrigin, TrialState
from storage.repositories.trial_summaries import TrialSummary
from storage.repositories.trials import Trials

LEAST_TRIALS = 10
"""With fewer trials there is nothing to tell."""

_LEAST_BEST = 5
"""How many trials count as the best ones at least, as Optuna advises."""

_BEST_SHARE = 0.1

# Filters of warnings belong to the process, and those of two threads would undo each other's.
_FILTERING = threading.Lock()


def importance(session: Session, study: StudyRecord) -> Importance:
    """The importance of a study's dimensions, by its trials as they stand.

    Confirmations, which repeat points of the front, do not count.
    """
    spec = StudySpec.model_validate(study.spec)
    trials = Trials(session)
    summaries = [
        trial
        for trial in trials.summaries(study.id, *TrialState)
        if trial.origin != TrialOrigin.CONFIRMATION
    ]
    dimensions = SearchSpace(spec).dimensions
    sample = _Sample(summaries, trials.drawn(study.id), dimensions)
    infos = objective_infos(spec.task, [name for name in OBJECTIVES if name in spec.objectives])
    return Importance(objectives=tuple(sample.judge(info) for info in infos))


class _Sample:
    """The trials of a study as Optuna's evaluator wants them, in memory."""

    def __init__(
        self,
        trials: Sequence[TrialSummary],
        drawn: Mapping[int, Mapping[str, Json]],
        dimensions: Mapping[str, Dimension],
    ) -> None:
        self._trials = trials
        self._dimensions = dimensions
        self._drawn = {
            trial.number: {
                name: value
                for name, value in cast(Mapping[str, Scalar], drawn[trial.number]).items()
                if name in dimensions and dimensions[name].contains(value)
            }
            for trial in trials
        }
        distributions = {name: distribution_of(found) for name, found in dimensions.items()}
        self._study = _InMemory(
            [
                _frozen(position, values, {name: distributions[name] for name in values})
                for position, values in enumerate(self._drawn.values())
            ]
        )

    def judge(self, info: ObjectiveInfo) -> ObjectiveImportance:
        """What each dimension did to one objective."""
        values = [_known_value(trial, info.name) for trial in self._trials]
        known = [value for value in values if value is not None]
        share = max(_BEST_SHARE, _LEAST_BEST / len(known)) if known else 1.0
        reason = _nothing_to_tell(info, known, share)
        found = () if reason is not None else self._dimensions_by(info, values, share)
        return ObjectiveImportance(
            objective=info,
            trials=len(known),
            best_share=None if reason is not None else share,
            reason=reason,
            dimensions=found,
        )

    def _dimensions_by(
        self, info: ObjectiveInfo, values: Sequence[float | None], share: float
    ) -> tuple[DimensionImportance, ...]:
        sign = -1.0 if info.direction == "maximize" else 1.0
        losses = [math.nan if value is None else sign * value for value in values]
        shares = _shares(self._study, losses, share)
        by_trial = {
            trial.number: value
            for trial, value in zip(self._trials, values, strict=True)
            if value is not None
        }
        found: list[DimensionImportance] = []
        for name, dimension in self._dimensions.items():
            pairs = [
                (self._drawn[number][name], value)
                for number, value in by_trial.items()
                if name in self._drawn[number]
            ]
            is_choice = isinstance(dimension, ChoiceDimension)
            found.append(
                DimensionImportance(
                    dimension=name,
                    importance=shares.get(name, 0.0),
                    trials=len(pairs),
                    trend=None if is_choice else _trend(pairs),
                    medians=_medians(pairs) if is_choice else None,
                )
            )
        return tuple(sorted(found, key=lambda one: -one.importance))


class _InMemory(optuna.Study):
    """Complete trials, for an evaluator that only looks at them.

    A storage, which a study has otherwise, would copy each of them twice.
    """

    def __init__(self, trials: list[FrozenTrial]) -> None:
        self._trials = trials

    @property
    def directions(self) -> list[StudyDirection]:
        """That of the losses which the evaluator is given."""
        return [StudyDirection.MINIMIZE]

    def get_trials(
        self,
        deepcopy: bool = True,  # noqa: ARG002 - nobody changes them
        states: Container[optuna.trial.TrialState] | None = None,  # noqa: ARG002 - all are complete
    ) -> list[FrozenTrial]:
        """All of them."""
        return self._trials


def _frozen(
    position: int, values: Mapping[str, Scalar], distributions: Mapping[str, BaseDistribution]
) -> FrozenTrial:
    now = datetime.now(UTC)
    return FrozenTrial(
        number=position,
        trial_id=position,
        state=optuna.trial.TrialState.COMPLETE,
        # The evaluator is told which trials count, and by which loss.
        value=0.0,
        datetime_start=now,
        datetime_complete=now,
        params=dict(values),
        distributions=dict(distributions),
        user_attrs={},
        system_attrs={},
        intermediate_values={},
    )


def _known_value(trial: TrialSummary, objective: Objective) -> float | None:
    """A trial's value, where it compares with those of the others."""
    trained = OBJECTIVE_KINDS[objective].known == "trained"
    if trained and trial.state != TrialState.COMPLETE:
        return None
    # Those that were measured are the better ones, which alone would say something else.
    return OBJECTIVE_KINDS[objective].expected(trial)


def _nothing_to_tell(info: ObjectiveInfo, values: Sequence[float], share: float) -> str | None:
    if len(values) < LEAST_TRIALS:
        return f"{len(values)} trials have a value; it takes {LEAST_TRIALS}"
    ordered = sorted(values, reverse=info.direction == "maximize")
    if ordered[math.ceil(share * len(ordered)) - 1] == ordered[-1]:
        return f"too many of the {len(values)} trials have the same value, {ordered[-1]:g}"
    return None


def _shares(study: optuna.Study, losses: Sequence[float], share: float) -> dict[str, float]:
    # Not with the others: with it come evaluators by random forests, which take a second.
    from optuna.importance import PedAnovaImportanceEvaluator

    evaluator = PedAnovaImportanceEvaluator(target_quantile=share)
    with _FILTERING, warnings.catch_warnings():
        # That lower values count as better, and that a dimension is held by one trial alone: the
        # first is meant, and the number of trials is in the answer.
        warnings.simplefilter("ignore")
        found = evaluator.evaluate(study, target=lambda trial: losses[trial.number])
    whole = sum(found.values())
    return {name: value / whole if whole > 0 else 0.0 for name, value in found.items()}


def _trend(pairs: Sequence[tuple[Scalar, float]]) -> float | None:
    """Spearman's rank correlation: Pearson's of the ranks, of which ties have the mean."""
    if len(pairs) < 2:
        return None
    drawn, values = (_ranks([float(pair[side]) for pair in pairs]) for side in (0, 1))
    if drawn.std() == 0 or values.std() == 0:
        return None
    return float(np.corrcoef(drawn, values)[0, 1])


def _ranks(values: Sequence[float]) -> np.ndarray:
    _, place, counts = np.unique(np.array(values), return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def _medians(pairs: Sequence[tuple[Scalar, float]]) -> dict[str, float]:
    by_option: dict[str, list[float]] = {}
    for option, value in pairs:
        by_option.setdefault(str(option), []).append(value)
    return {option: statistics.median(values) for option, values in by_option.items()}
