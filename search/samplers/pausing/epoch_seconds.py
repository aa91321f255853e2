"""How long epochs take, for a sampler that compares trials by that."""

import math
from collections.abc import Mapping, Sequence
from typing import final

import numpy as np

from search.samplers.modelling.costs import (
    Features,
    Regression,
    features_of,
    features_of_draw,
    shape_of,
)
from search.samplers.modelling.gaussian_process import Array
from search.spaces import DrawnTrial
from storage.records import TrialRecord

_SHAPES_TO_PREDICT = 5
_LEAST_SECONDS = 1e-4


@final
class EpochSeconds:
    """How long an epoch of a shape takes: as measured, or predicted from other shapes'.

    All are 1 where nothing is known of enough shapes.
    """

    def __init__(self, trials: Sequence[TrialRecord], seconds: Mapping[int, float]) -> None:
        """`seconds`: number of a trial -> the median of its epochs'."""
        measured: dict[str, list[float]] = {}
        features: dict[str, Features] = {}
        for trial in trials:
            if trial.number in seconds:
                shape = shape_of(trial)
                measured.setdefault(shape, []).append(max(seconds[trial.number], _LEAST_SECONDS))
                features[shape] = features_of(trial)
        self._known = {shape: float(np.median(values)) for shape, values in measured.items()}
        self._regression: Regression | None = None
        if len(self._known) >= _SHAPES_TO_PREDICT:
            logs = np.log10([self._known[shape] for shape in features])
            self._regression = Regression([*features.values()], logs)

    def of_trials(self, trials: Sequence[TrialRecord]) -> Array:
        """`[N]`, of one epoch of each."""
        if self._regression is None:
            return np.ones(len(trials))
        return self._of([(shape_of(one), features_of(one)) for one in trials], self._regression)

    def of_draws(self, drawn: Sequence[DrawnTrial]) -> Array:
        """`[M]`, of one epoch of each."""
        if self._regression is None:
            return np.ones(len(drawn))
        return self._of([(one.shape, features_of_draw(one)) for one in drawn], self._regression)

    def _of(self, models: Sequence[tuple[str, Features]], regression: Regression) -> Array:
        predicted = 10 ** regression.of([features for _, features in models])
        known = [self._known.get(shape, math.nan) for shape, _ in models]
        return np.where(np.isnan(known), predicted, known)
