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
from collections import OrderedDict
from collections.abc import Container, Mapping, Sequence
from datetime import UTC, datetime
from itertools import compress
from typing import Final, cast, final

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
from storage.records import StudyRecord, TrialOrigin, TrialState
from storage.repositories.trial_summaries import TrialSummary
from storage.repositories.trials import Trials

LEAST_TRIALS = 10
"""With fewer trials there is nothing to tell."""

_LEAST_BEST = 5
"""How many trials count as the best ones at least, as Optuna advises."""

_BEST_SHARE = 0.1

_STUDIES: Final = 8
"""Of so many studies, those that were asked for last, trials are remembered."""

# Filters of warnings belong to the process, and those of two threads would undo each other's.
_FILTERING = threading.Lock()


@final
class Importances:
    """The importances of studies, of whose trials one process reads what has changed.

    See Note [Remembered trials] in `search/README.md`. Threads may share this.
    """

    def __init__(self, *, studies: int = _STUDIES) -> None:
        """`studies` is of how many, those that were asked for last, trials are remembered."""
        self._studies = studies
        self._lock = threading.Lock()
        self._samples: OrderedDict[str, _Sample] = OrderedDict()

    def of(self, session: Session, study: StudyRecord) -> Importance:
        """The importance of a study's dimensions, by its trials as they stand.

        Confirmations, which repeat points of the front, do not count.
        """
        spec = StudySpec.model_validate(study.spec)
        with self._lock:
            sample = self._samples.get(study.id)
            if sample is None:
                sample = self._samples[study.id] = _Sample(SearchSpace(spec).dimensions)
            self._samples.move_to_end(study.id)
            while len(self._samples) > self._studies:
                self._samples.popitem(last=False)
        infos = objective_infos(spec.task, [name for name in OBJECTIVES if name in spec.objectives])
        with sample.lock:
            if sample.version > study.data_version:
                # A session that sees what was before reads all of it by itself.
                sample = _Sample(sample.dimensions)
            sample.read(session, study)
            return Importance(objectives=tuple(sample.judge(info) for info in infos))


class _Column:
    """The values of one dimension, of those trials that have one."""

    def __init__(self) -> None:
        self.places: list[int] = []
        self.values: list[Scalar] = []


class _Sample:
    """The trials of a study as Optuna's evaluator wants them, in memory."""

    def __init__(self, dimensions: Mapping[str, Dimension]) -> None:
        self.dimensions = dimensions
        self.lock = threading.Lock()
        self.version = -1
        self._next = 0
        self._trials: dict[int, TrialSummary] = {}
        self._columns = {name: _Column() for name in dimensions}
        self._distributions = {name: distribution_of(found) for name, found in dimensions.items()}
        self._frozen: list[FrozenTrial] = []

    def read(self, session: Session, study: StudyRecord) -> None:
        """Read what has changed; what was drawn for a trial never does."""
        trials = Trials(session)
        changed = trials.summaries(study.id, *TrialState, after=self.version, first=self._next)
        drawn = trials.drawn(study.id, first=self._next)
        for trial in changed:
            if trial.origin == TrialOrigin.CONFIRMATION:
                continue
            if trial.number not in self._trials:
                self._add(cast(Mapping[str, Scalar], drawn[trial.number]))
            self._trials[trial.number] = trial
        self.version = study.data_version
        self._next = max([self._next - 1, *(trial.number for trial in changed)]) + 1

    def _add(self, drawn: Mapping[str, Scalar]) -> None:
        place = len(self._frozen)
        values = {
            name: value
            for name, value in drawn.items()
            if name in self.dimensions and self.dimensions[name].contains(value)
        }
        for name, value in values.items():
            self._columns[name].places.append(place)
            self._columns[name].values.append(value)
        self._frozen.append(
            _frozen(place, values, {name: self._distributions[name] for name in values})
        )

    def judge(self, info: ObjectiveInfo) -> ObjectiveImportance:
        """What each dimension did to one objective."""
        values = [_known_value(trial, info.name) for trial in self._trials.values()]
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
        shares = _shares(_InMemory(self._frozen), losses, share)
        all_values = np.array([math.nan if value is None else value for value in values])
        found: list[DimensionImportance] = []
        for name, dimension in self.dimensions.items():
            column = self._columns[name]
            there = all_values[np.array(column.places, int)]
            has_value = ~np.isnan(there)
            drawn = list(compress(column.values, has_value))
            is_choice = isinstance(dimension, ChoiceDimension)
            found.append(
                DimensionImportance(
                    dimension=name,
                    importance=shares.get(name, 0.0),
                    trials=len(drawn),
                    trend=None if is_choice else _trend(drawn, there[has_value]),
                    medians=_medians(drawn, there[has_value]) if is_choice else None,
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


def _trend(drawn: Sequence[Scalar], values: np.ndarray) -> float | None:
    """Spearman's rank correlation: Pearson's of the ranks, of which ties have the mean."""
    if len(drawn) < 2:
        return None
    ranks = _ranks(np.array(drawn, float)), _ranks(values)
    if any(one.std() == 0 for one in ranks):
        return None
    return float(np.corrcoef(*ranks)[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def _medians(drawn: Sequence[Scalar], values: np.ndarray) -> dict[str, float]:
    by_option: dict[str, list[float]] = {}
    for option, value in zip(drawn, values.tolist(), strict=True):
        by_option.setdefault(str(option), []).append(value)
    return {option: statistics.median(values) for option, values in by_option.items()}
