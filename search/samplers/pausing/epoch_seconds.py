"""How long epochs take, for a sampler that compares trials by that."""

from collections.abc import Mapping, Sequence
from typing import final

import numpy as np

from search.samplers.modelling.costs import (
    Regression,
    features_of,
    features_of_draw,
    shape_of,
    shape_of_draw,
)
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
        features: dict[str, tuple[str, float, float]] = {}
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

    def of_trial(self, trial: TrialRecord) -> float:
        """Of one of its epochs."""
        if self._regression is None:
            return 1.0
        return self._of(shape_of(trial), features_of(trial), self._regression)

    def of_draw(self, drawn: DrawnTrial) -> float:
        """Of one of its epochs."""
        if self._regression is None:
            return 1.0
        return self._of(shape_of_draw(drawn), features_of_draw(drawn), self._regression)

    def _of(self, shape: str, features: tuple[str, float, float], regression: Regression) -> float:
        known = self._known.get(shape)
        return 10 ** regression.at(*features) if known is None else known
