"""What a configuration costs apart from training it: parameters exactly, throughput if measured."""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np

from search.samplers.modelling.gaussian_process import Array
from search.samplers.modelling.sampler_cache import SamplerCache
from search.spaces import DrawnTrial
from storage.records import TrialRecord

_SLOPE_PENALTY, _OFFSET_PENALTY = 0.01, 0.1
"""Ridge penalties, in units of one observation: of slopes, and of a candidate's own offset."""


class Costs:
    """The cost objectives of trials and draws: log10 parameters, -log10 throughput.

    A shape that was measured has that throughput. For others log10 throughput is predicted by
    ridge regression on the logarithms of the parameter counts, the model's own and its dense
    baseline's, with an offset per candidate: both are closed formulas, and follow the multiply-adds
    of a parametrization, which would need the model to be laid out.
    """

    def __init__(
        self,
        objectives: Sequence[str],
        trials: Sequence[TrialRecord],
        sampler_cache: SamplerCache | None = None,
    ) -> None:
        self._sampler_cache = sampler_cache or SamplerCache()
        self._columns = [name for name in ("parameters", "throughput") if name in objectives]
        self._measured = [trial for trial in trials if trial.throughput]
        self._by_shape = {self._shape(trial): trial for trial in self._measured}

    def of_draws(self, drawn: Sequence[DrawnTrial]) -> Array:
        """`[M, C]`."""
        return self._table([self._of_draw(one) for one in drawn])

    def of_trials(self, trials: Sequence[TrialRecord]) -> Array:
        """`[N, C]`."""
        return self._table([self._of_trial(trial) for trial in trials])

    def throughput_ratio(self, drawn: DrawnTrial) -> float:
        """Throughput as a ratio to the dense baseline's, measured or predicted."""
        measured = self._by_shape.get(_shape(drawn.spec.model.model_dump(mode="json")))
        if measured is not None and measured.throughput_ratio is not None:
            return measured.throughput_ratio
        return 10 ** self._ratios.at(*_features_of_draw(drawn))

    @cached_property
    def _speeds(self) -> "_Regression":
        values = [trial.throughput or 1.0 for trial in self._measured]
        return _Regression([_features(trial) for trial in self._measured], np.log10(values))

    @cached_property
    def _ratios(self) -> "_Regression":
        rows = [trial for trial in self._measured if trial.throughput_ratio]
        values = [trial.throughput_ratio or 1.0 for trial in rows]
        return _Regression([_features(trial) for trial in rows], np.log10(values))

    def _table(self, costs: list[dict[str, float]]) -> Array:
        rows = [[cost[name] for name in self._columns] for cost in costs]
        return np.array(rows).reshape(len(costs), len(self._columns))

    def _of_trial(self, trial: TrialRecord) -> dict[str, float]:
        if "throughput" not in self._columns:
            return {"parameters": _log(trial.parameters)}
        if trial.throughput:
            speed = _log(trial.throughput)
        else:
            speed = self._speed(self._shape(trial), _features(trial))
        return {"parameters": _log(trial.parameters), "throughput": -speed}

    def _of_draw(self, drawn: DrawnTrial) -> dict[str, float]:
        features = _features_of_draw(drawn)
        if "throughput" not in self._columns:
            return {"parameters": features[1]}
        speed = self._speed(_shape(drawn.spec.model.model_dump(mode="json")), features)
        return {"parameters": features[1], "throughput": -speed}

    def _shape(self, trial: TrialRecord) -> str:
        return self._sampler_cache.of(trial, "shape", _shape_of_trial)

    def _speed(self, shape: str, features: tuple[str, float, float]) -> float:
        measured = self._by_shape.get(shape)
        if measured is not None and measured.throughput:
            return _log(measured.throughput)
        return self._speeds.at(*features)


class _Regression:
    """Ridge regression on two logarithms, with an offset per candidate."""

    def __init__(self, features: Sequence[tuple[str, float, float]], values: Array) -> None:
        self._names = sorted({name for name, _, _ in features})
        self._centre = np.array([[own, dense] for _, own, dense in features]).reshape(-1, 2)
        self._centre = self._centre.mean(axis=0) if len(features) else np.zeros(2)
        self._level = float(np.mean(values)) if len(values) else 0.0
        rows = np.array([self._row(*row) for row in features]).reshape(len(features), -1)
        penalties = [_SLOPE_PENALTY] * 2 + [_OFFSET_PENALTY] * len(self._names)
        if len(features):
            normal = rows.T @ rows + np.diag(penalties)
            self._weights = np.linalg.solve(normal, rows.T @ (values - self._level))
        else:
            self._weights = np.zeros(len(penalties))

    def at(self, name: str, own: float, dense: float) -> float:
        """The prediction; of a candidate that was never measured, without an offset."""
        return self._level + float(np.array(self._row(name, own, dense)) @ self._weights)

    def _row(self, name: str, own: float, dense: float) -> list[float]:
        numbers = np.array([own, dense]) - self._centre
        return [*numbers.tolist(), *(float(name == known) for known in self._names)]


def _features(trial: TrialRecord) -> tuple[str, float, float]:
    """What throughput is predicted from: the candidate and the logarithms of both counts."""
    name = f"{trial.architecture} {trial.parametrization}"
    return name, _log(trial.parameters), _log(trial.dense_parameters)


def _features_of_draw(drawn: DrawnTrial) -> tuple[str, float, float]:
    model = drawn.spec.model
    name = f"{model.architecture.kind} {model.parametrization.family}"
    return name, _log(model.parameter_count()), _log(model.dense_twin().parameter_count())


def _log(value: float) -> float:
    return float(np.log10(max(value, 1e-9)))


def _shape_of_trial(trial: TrialRecord) -> str:
    model: Any = trial.spec["model"]
    return _shape(model)


def _shape(model: Mapping[str, Any]) -> str:
    """What models share that have the same tensors: all but the reals of the parametrization.

    `ModelSpec.shape_key` says it exactly, and takes too long for hundreds of candidates.
    """
    return json.dumps(
        [model["architecture"], _without_reals(model["parametrization"])], sort_keys=True
    )


def _without_reals(document: Any) -> Any:
    """A document without its real numbers, those of its layers included."""
    if isinstance(document, list):
        return [_without_reals(one) for one in cast(list[Any], document)]
    if not isinstance(document, dict):
        return document
    fields = cast(dict[str, Any], document)
    return {n: _without_reals(value) for n, value in fields.items() if not isinstance(value, float)}
