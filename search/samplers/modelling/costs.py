"""What a configuration costs apart from training it: exactly, or as measured, or as predicted."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from models.model import shape_words
from search.documents.objectives import OBJECTIVE_KINDS, Objective, ObjectiveKind
from search.documents.region import Region
from search.samplers.modelling.gaussian_process import Array
from search.samplers.modelling.sampler_cache import SamplerCache
from search.spaces import DrawnTrial
from search.training.trial_spec import TrialSpec
from storage.records import TrialRecord

_SLOPE_PENALTY, _OFFSET_PENALTY = 0.01, 0.1
"""Ridge penalties, in units of one observation: of slopes, and of a candidate's own offset."""

Features: TypeAlias = tuple[str, float, float]
"""A candidate and the logarithms of both counts, see `Costs`."""

FileBytes = Callable[[TrialSpec], int | None]


def _nobody_asks(_: TrialSpec) -> None:
    return None


class Costs:
    """The cost objectives of trials and draws: all but the quality, as logarithms, see `decades`.

    What follows from the configuration is exact. A shape that was measured has what was measured.
    For others the logarithm is predicted by ridge regression on the logarithms of the parameter
    counts, the model's own and its dense baseline's, with an offset per candidate: both are closed
    formulas, and follow the multiply-adds of a parametrization, which would need the model to be
    laid out.
    """

    def __init__(
        self,
        objectives: Collection[Objective],
        trials: Sequence[TrialRecord],
        sampler_cache: SamplerCache | None = None,
        *,
        file_bytes: FileBytes = _nobody_asks,
    ) -> None:
        self._sampler_cache = sampler_cache or SamplerCache()
        self._kinds = [
            kind
            for kind in OBJECTIVE_KINDS.values()
            if kind.name in objectives and kind.known != "trained"
        ]
        self._exact: Mapping[Objective, Callable[[DrawnTrial], float | None]] = {
            "parameters": lambda drawn: drawn.parameters,
            "bytes": lambda drawn: file_bytes(drawn.spec),
        }
        self._trials = trials
        self._regressions: dict[str, Regression] = {}

    def of_draws(self, drawn: Sequence[DrawnTrial]) -> Array:
        """`[M, C]`."""
        features = [features_of_draw(one) for one in drawn]
        costs = np.empty((len(drawn), len(self._kinds)))
        for column, kind in zip(costs.T, self._kinds, strict=True):
            if kind.known == "exact":
                values = [self._exact[kind.name](one) for one in drawn]
            else:
                alike = [self._by_shape.get(one.shape) for one in drawn]
                values = [None if trial is None else kind.value(trial) for trial in alike]
            column[:] = [kind.decades(value) if value else math.nan for value in values]
            unknown = np.flatnonzero(np.isnan(column))
            column[unknown] = self._predicted(kind, [features[place] for place in unknown])
        return costs

    def of_trials(self, trials: Sequence[TrialRecord]) -> Array:
        """`[N, C]`."""
        what = f"costs in {', '.join(kind.name for kind in self._kinds)}"
        known = self._sampler_cache.of_all(trials, what, self._known)
        costs = [
            self._of_trial(trial) if told is None else told
            for trial, told in zip(trials, known, strict=True)
        ]
        return np.array(costs).reshape(len(costs), len(self._kinds))

    def bounds(self, region: Region) -> Array:
        """Where a region of interest ends `[C]`; infinity where it does not."""
        values = [(kind, region.value(kind.name)) for kind in self._kinds]
        return np.array([math.inf if v is None else kind.decades(v) for kind, v in values])

    def throughput_ratio(self, drawn: DrawnTrial) -> float:
        """Throughput as a ratio to the dense baseline's, measured or predicted."""
        return self._expected("throughput_ratio", lambda trial: trial.throughput_ratio, drawn)

    def latency_p99(self, drawn: DrawnTrial) -> float:
        """Seconds of one call, measured or predicted."""
        return self._expected("latency_p99", lambda trial: trial.latency_p99, drawn)

    def _expected(
        self, name: str, read: Callable[[TrialRecord], float | None], drawn: DrawnTrial
    ) -> float:
        measured = self._by_shape.get(drawn.shape)
        if measured is not None and (value := read(measured)) is not None:
            return value
        return 10 ** self._regression(name, read).at(features_of_draw(drawn))

    def _regression(self, name: str, read: Callable[[TrialRecord], float | None]) -> "Regression":
        """Predicts log10 of a value that some trials have."""
        if name not in self._regressions:
            values = [read(trial) for trial in self._trials]
            known = [trial for trial, value in zip(self._trials, values, strict=True) if value]
            self._regressions[name] = Regression(
                self._sampler_cache.of_all(known, "features", features_of),
                np.log10([value for value in values if value]),
            )
        return self._regressions[name]

    def _known(self, trial: TrialRecord) -> list[float] | None:
        """Of a trial that has all of its values."""
        values = [(kind, kind.value(trial)) for kind in self._kinds]
        found = [kind.decades(value) for kind, value in values if value]
        return found if len(found) == len(values) else None

    def _of_trial(self, trial: TrialRecord) -> list[float]:
        found: list[float] = []
        for kind in self._kinds:
            value = kind.value(trial)
            if not value and kind.known == "measured":
                alike = self._by_shape.get(shape_of(trial))
                value = kind.expected(trial if alike is None else alike)
            found += [kind.decades(value)] if value else self._predicted(kind, [features_of(trial)])
        return found

    def _predicted(self, kind: ObjectiveKind, features: Sequence[Features]) -> list[float]:
        if not features:
            return []
        logs = self._regression(kind.name, kind.value).of(features).tolist()
        return [kind.decades(10**log) for log in logs]

    @cached_property
    def _by_shape(self) -> Mapping[str, TrialRecord]:
        measured = [trial for trial in self._trials if trial.throughput]
        shapes = self._sampler_cache.of_all(measured, "shape", shape_of)
        return dict(zip(shapes, measured, strict=True))


class Regression:
    """Ridge regression on two logarithms, with an offset per candidate."""

    def __init__(self, features: Sequence[Features], values: Array) -> None:
        names = sorted({name for name, _, _ in features})
        self._places = {name: place for place, name in enumerate(names)}
        self._centre = _numbers(features).mean(axis=0) if len(features) else np.zeros(2)
        self._level = float(np.mean(values)) if len(values) else 0.0
        penalties = [_SLOPE_PENALTY] * 2 + [_OFFSET_PENALTY] * len(names)
        rows = self._rows(features)
        normal = rows.T @ rows + np.diag(penalties)
        self._weights = np.linalg.solve(normal, rows.T @ (values - self._level))

    def at(self, features: Features) -> float:
        """The prediction; of a candidate that was never measured, without an offset."""
        return float(self.of([features])[0])

    def of(self, features: Sequence[Features]) -> Array:
        """The predictions `[N]`."""
        return self._level + self._rows(features) @ self._weights

    def _rows(self, features: Sequence[Features]) -> Array:
        places = np.array([self._places.get(name, -1) for name, _, _ in features])
        is_candidate = places[:, None] == np.arange(len(self._places))
        return np.hstack([_numbers(features) - self._centre, is_candidate])


def _numbers(features: Sequence[Features]) -> Array:
    """Logarithms of both counts `[N, 2]`."""
    return np.array([(own, dense) for _, own, dense in features]).reshape(-1, 2)


def features_of(trial: TrialRecord) -> Features:
    """What throughput is predicted from."""
    name = f"{trial.architecture} {trial.parametrization}"
    return name, _log(trial.parameters), _log(trial.dense_parameters)


def features_of_draw(drawn: DrawnTrial) -> Features:
    """The same of a draw."""
    model = drawn.spec.model
    name = f"{model.architecture.kind} {model.parametrization.family}"
    return name, _log(drawn.parameters), _log(drawn.dense_parameters)


def _log(value: float) -> float:
    return float(np.log10(max(value, 1e-9)))


def shape_of(trial: TrialRecord) -> str:
    """What trials have in common that take the same time."""
    model: Any = trial.spec["model"]
    return shape_words(model)
