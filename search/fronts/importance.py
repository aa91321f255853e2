"""What each dimension of a study's space did to each objective.

By PED-ANOVA, see `search.fronts.ped_anova`: how far the values that a dimension has in the best
trials are from those that it has in all, as a Pearson divergence. It was chosen over fANOVA because
most of our dimensions exist for one parametrization or architecture alone, where fANOVA has nothing
to say, and because it takes a fraction of a second.
"""

import math
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast, final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from search.documents.fronts import DimensionImportance, Importance, ObjectiveImportance
from search.documents.objectives import OBJECTIVE_KINDS
from search.fronts.pareto import ObjectiveInfo, objective_infos
from search.fronts.ped_anova import Grid
from search.samplers import distribution_of
from search.spaces import ChoiceDimension, Dimension, Scalar
from search.studies import OBJECTIVES, Objective, StudySpec, space_of
from storage.records import StudyRecord, TrialOrigin, TrialState
from storage.repositories.trial_summaries import TrialSummary
from storage.repositories.trials import Trials

_Floats = NDArray[np.float64]

LEAST_TRIALS = 10
"""With fewer trials there is nothing to tell."""

_LEAST_BEST = 5
"""How many trials count as the best ones at least, as Optuna advises."""

_BEST_SHARE = 0.1

_STUDIES: Final = 8
"""Of so many studies, those that were asked for last, trials are remembered."""


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
        with self._lock:
            sample = self._samples.get(study.id)
            if sample is None:
                sample = self._samples[study.id] = _Sample(StudySpec.model_validate(study.spec))
            self._samples.move_to_end(study.id)
            while len(self._samples) > self._studies:
                self._samples.popitem(last=False)
        with sample.lock:
            if sample.version > study.data_version:
                # A session that sees what was before reads all of it by itself.
                sample = sample.anew()
            sample.read(session, study)
            return Importance(objectives=tuple(sample.judge(info) for info in sample.infos))


class _Column:
    """The values of one dimension, of those trials that have one."""

    def __init__(self, dimension: Dimension) -> None:
        self.is_choice = isinstance(dimension, ChoiceDimension)
        self.options = dimension.options if isinstance(dimension, ChoiceDimension) else ()
        self._grid = Grid(distribution_of(dimension))
        self._places = np.empty(0, int)
        self._cells = np.empty(0, int)
        self._numbers = np.empty(0, float)

    def add(self, places: Sequence[int], values: Sequence[Scalar]) -> None:
        """Some further trials' values, by the trials' places in the sample."""
        self._places = np.append(self._places, np.array(places, int))
        self._cells = np.append(self._cells, self._grid.cells(values))
        if not self.is_choice:
            self._numbers = np.append(self._numbers, np.array(values, float))

    def judge(self, values: _Floats, is_best: NDArray[np.bool_]) -> "_Judgement":
        """What the dimension did to an objective, of whose values those not known are NaN."""
        there = values[self._places]
        known = ~np.isnan(there)
        there, cells = there[known], self._cells[known]
        trend = None if self.is_choice else _trend(self._numbers[known], there)
        return _Judgement(
            divergence=self._grid.divergence(cells, is_best[self._places][known]),
            trials=len(there),
            trend=trend,
            medians=_medians(self.options, cells, there) if self.is_choice else None,
        )


@dataclass(frozen=True)
class _Judgement:
    """What one dimension did to one objective."""

    divergence: float
    trials: int
    trend: float | None
    medians: dict[str, float] | None


class _Sample:
    """The trials of a study by columns, in memory."""

    def __init__(self, spec: StudySpec) -> None:
        self._spec = spec
        self._dimensions = space_of(spec).dimensions
        self._columns = {name: _Column(found) for name, found in self._dimensions.items()}
        self.infos = objective_infos(
            spec.task, [name for name in OBJECTIVES if name in spec.objectives]
        )
        self.lock = threading.Lock()
        self.version = -1
        self._next = 0
        self._places: dict[int, int] = {}
        self._values = np.empty((len(self.infos), 0), float)

    def anew(self) -> "_Sample":
        """The same of no trials yet."""
        return _Sample(self._spec)

    def read(self, session: Session, study: StudyRecord) -> None:
        """Read what has changed; what was drawn for a trial never does."""
        trials = Trials(session)
        changed = trials.summaries(study.id, *TrialState, after=self.version, first=self._next)
        drawn = trials.drawn(study.id, first=self._next)
        found = [trial for trial in changed if trial.origin != TrialOrigin.CONFIRMATION]
        new = [trial.number for trial in found if trial.number not in self._places]
        first = len(self._places)
        self._places |= {number: first + place for place, number in enumerate(new)}
        self._add(first, [cast(Mapping[str, Scalar], drawn[number]) for number in new])
        self._set_values(found, room=len(new))
        self.version = study.data_version
        self._next = max([self._next - 1, *(trial.number for trial in changed)]) + 1

    def _add(self, first: int, drawn: Sequence[Mapping[str, Scalar]]) -> None:
        for name, dimension in self._dimensions.items():
            there = [
                (first + place, values[name])
                for place, values in enumerate(drawn)
                if name in values and dimension.contains(values[name])
            ]
            if there:
                places, values = zip(*there, strict=True)
                self._columns[name].add(places, values)

    def _set_values(self, trials: Sequence[TrialSummary], *, room: int) -> None:
        further = np.full((len(self.infos), room), math.nan)
        self._values = np.concatenate((self._values, further), axis=1)
        places = [self._places[trial.number] for trial in trials]
        for row, info in enumerate(self.infos):
            values = (_known_value(trial, info.name) for trial in trials)
            self._values[row, places] = [math.nan if v is None else v for v in values]

    def judge(self, info: ObjectiveInfo) -> ObjectiveImportance:
        """What each dimension did to one objective."""
        values = self._values[self.infos.index(info)]
        losses = -values if info.direction == "maximize" else values
        ordered = np.sort(losses[~np.isnan(losses)])
        count = len(ordered)
        if count < LEAST_TRIALS:
            return _nothing(info, count, f"{count} trials have a value; it takes {LEAST_TRIALS}")
        share = max(_BEST_SHARE, _LEAST_BEST / count)
        most = ordered[math.ceil(share * count) - 1]
        if most == ordered[-1]:
            value = -most if info.direction == "maximize" else most
            alike = f"too many of the {count} trials have the same value, {value:g}"
            return _nothing(info, count, alike)
        # Of an unknown value, which is NaN, nothing holds.
        judged = {
            name: column.judge(values, losses <= most) for name, column in self._columns.items()
        }
        whole = sum(one.divergence for one in judged.values())
        found = (
            DimensionImportance(
                dimension=name,
                importance=one.divergence / whole if whole > 0 else 0.0,
                trials=one.trials,
                trend=one.trend,
                medians=one.medians,
            )
            for name, one in judged.items()
        )
        return ObjectiveImportance(
            objective=info,
            trials=count,
            best_share=share,
            reason=None,
            dimensions=tuple(sorted(found, key=lambda one: -one.importance)),
        )


def _nothing(info: ObjectiveInfo, trials: int, reason: str) -> ObjectiveImportance:
    return ObjectiveImportance(
        objective=info, trials=trials, best_share=None, reason=reason, dimensions=()
    )


def _known_value(trial: TrialSummary, objective: Objective) -> float | None:
    """A trial's value, where it compares with those of the others."""
    trained = OBJECTIVE_KINDS[objective].known == "trained"
    if trained and trial.state != TrialState.COMPLETE:
        return None
    # Those that were measured are the better ones, which alone would say something else.
    return OBJECTIVE_KINDS[objective].expected(trial)


def _trend(drawn: _Floats, values: _Floats) -> float | None:
    """Spearman's rank correlation: Pearson's of the ranks, of which ties have the mean."""
    if len(drawn) < 2:
        return None
    ranks = _ranks(drawn), _ranks(values)
    if any(one.std() == 0 for one in ranks):
        return None
    return float(np.corrcoef(*ranks)[0, 1])


def _ranks(values: _Floats) -> _Floats:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def _medians(
    options: Sequence[Scalar], cells: NDArray[np.int64], values: _Floats
) -> dict[str, float]:
    return {
        str(option): float(np.median(values[cells == place]))
        for place, option in enumerate(options)
        if (cells == place).any()
    }
