"""What a configuration costs apart from training it: exactly, or as measured, or as predicted."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

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
        self._by_shape = {self._shape(trial): trial for trial in trials if trial.throughput}
        self._regressions: dict[str, Regression] = {}

    def of_draws(self, drawn: Sequence[DrawnTrial]) -> Array:
        """`[M, C]`."""
        return self._table([self._of_draw(one) for one in drawn])

    def of_trials(self, trials: Sequence[TrialRecord]) -> Array:
        """`[N, C]`."""
        what = f"costs in {', '.join(kind.name for kind in self._kinds)}"
        recollect = self._sampler_cache.of
        return self._table(
            [
                recollect(trial, what, self._known)
                if all(kind.value(trial) for kind in self._kinds)
                else self._of_trial(trial)
                for trial in trials
            ]
        )

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
        measured = self._by_shape.get(shape_of_draw(drawn))
        if measured is not None and (value := read(measured)) is not None:
            return value
        return 10 ** self._regression(name, read).at(*features_of_draw(drawn))

    def _regression(self, name: str, read: Callable[[TrialRecord], float | None]) -> "Regression":
        """Predicts log10 of a value that some trials have."""
        if name not in self._regressions:
            known = [(trial, value) for trial in self._trials if (value := read(trial))]
            self._regressions[name] = Regression(
                [self._sampler_cache.of(trial, "features", features_of) for trial, _ in known],
                np.log10([value for _, value in known]),
            )
        return self._regressions[name]

    def _table(self, costs: list[list[float]]) -> Array:
        return np.array(costs).reshape(len(costs), len(self._kinds))

    def _known(self, trial: TrialRecord) -> list[float]:
        """Of a trial that has all of its values."""
        return [kind.decades(kind.value(trial) or math.nan) for kind in self._kinds]

    def _of_trial(self, trial: TrialRecord) -> list[float]:
        found: list[float] = []
        for kind in self._kinds:
            value = kind.value(trial)
            if not value and kind.known == "measured":
                alike = self._by_shape.get(self._shape(trial))
                value = kind.expected(trial if alike is None else alike)
            found.append(self._cost(kind, value, features_of(trial)))
        return found

    def _of_draw(self, drawn: DrawnTrial) -> list[float]:
        measured = [kind for kind in self._kinds if kind.known == "measured"]
        alike = self._by_shape.get(shape_of_draw(drawn)) if measured else None
        features = features_of_draw(drawn)
        found: list[float] = []
        for kind in self._kinds:
            if kind.known == "exact":
                value = self._exact[kind.name](drawn)
            else:
                value = None if alike is None else kind.value(alike)
            found.append(self._cost(kind, value, features))
        return found

    def _cost(
        self, kind: ObjectiveKind, value: float | None, features: tuple[str, float, float]
    ) -> float:
        if value:
            return kind.decades(value)
        return kind.decades(10 ** self._regression(kind.name, kind.value).at(*features))

    def _shape(self, trial: TrialRecord) -> str:
        return self._sampler_cache.of(trial, "shape", shape_of)


class Regression:
    """Ridge regression on two logarithms, with an offset per candidate."""

    def __init__(self, features: Sequence[tuple[str, float, float]], values: Array) -> None:
        self._names = np.array(sorted({name for name, _, _ in features}), dtype=object)
        numbers = np.array([[own, dense] for _, own, dense in features]).reshape(-1, 2)
        self._centre = numbers.mean(axis=0) if len(features) else np.zeros(2)
        self._level = float(np.mean(values)) if len(values) else 0.0
        penalties = [_SLOPE_PENALTY] * 2 + [_OFFSET_PENALTY] * len(self._names)
        rows = self._rows(features)
        normal = rows.T @ rows + np.diag(penalties)
        self._weights = np.linalg.solve(normal, rows.T @ (values - self._level))

    def at(self, name: str, own: float, dense: float) -> float:
        """The prediction; of a candidate that was never measured, without an offset."""
        return self._level + float((self._rows([(name, own, dense)]) @ self._weights)[0])

    def _rows(self, features: Sequence[tuple[str, float, float]]) -> Array:
        names = np.array([name for name, _, _ in features], dtype=object)
        numbers = np.array([[own, dense] for _, own, dense in features]).reshape(-1, 2)
        return np.hstack([numbers - self._centre, names[:, None] == self._names])


def features_of(trial: TrialRecord) -> tuple[str, float, float]:
    """What throughput is predicted from: the candidate and the logarithms of both counts."""
    name = f"{trial.architecture} {trial.parametrization}"
    return name, _log(trial.parameters), _log(trial.dense_parameters)


def features_of_draw(drawn: DrawnTrial) -> tuple[str, float, float]:
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


def shape_of_draw(drawn: DrawnTrial) -> str:
    """The same of a draw."""
    return shape_words(drawn.spec.model.model_dump(mode="json"))
