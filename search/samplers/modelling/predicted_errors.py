"""What errors a study's trials ended with, or are heading for."""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from search.samplers.modelling.acquisition import expected_final
from search.samplers.modelling.axes import natural_log_error
from search.samplers.modelling.sampler_cache import is_settled
from search.samplers.sampler import Past, SamplerContext
from search.stopping import best_so_far
from storage.records import TrialRecord, TrialState

_EARLY_NOISE, _LATE_NOISE = 4.0, 2.0
"""By how much more noise an extrapolated error has: before a ninth of the epochs, and later."""


class PredictedErrors:
    """The errors, as natural logarithms, of trials that a sampler knows."""

    def __init__(self, study: SamplerContext, past: Past, trials: Sequence[TrialRecord]) -> None:
        self._metric, self._epochs = study.metric, study.epochs
        self._samples = past.validation_samples
        self._validations: Mapping[int, Mapping[int, float]] = {
            **study.knowledge.validations,
            **past.validations,
        }
        self._past, self._trials = past, trials
        self._sampler_cache = study.sampler_cache
        self.baseline = self._log_error(study.metric.baseline)
        """What a trial has that learned nothing."""
        bound = study.region.value("quality")
        self.reference = self.baseline if bound is None else self._log_error(bound)
        """From where gains count."""

    def known_error(self, trial: TrialRecord) -> tuple[float, float]:
        """The error of a trial, NaN where nothing tells it yet, and how much noise is in that.

        A trial that was cut short has the error that a line through the curves of those that were
        not says it would have ended with.
        """
        if trial.state == TrialState.COMPLETE and trial.quality is not None:
            return self._log_error(trial.quality), 1.0
        if trial.state == TrialState.INFEASIBLE:
            return self.baseline, 1.0
        errors = self.curve(trial)
        epoch = len(errors)
        if epoch == 0:
            return math.nan, 1.0
        longer = [curve for curve in self._ends if len(curve) >= epoch]
        error = expected_final(
            errors[-1],
            np.array([curve[epoch - 1] for curve in longer]),
            np.array([curve[-1] for curve in longer]),
        )
        return error, _EARLY_NOISE if epoch < self._epochs / 9 else _LATE_NOISE

    def curve(self, trial: TrialRecord) -> Sequence[float]:
        """The lowest log error after each epoch, those of the trial that it continues first."""
        if not is_settled(trial):
            return self._curve(trial)
        return self._sampler_cache.of(trial, f"errors of {self._samples}", self._curve)

    @cached_property
    def _ends(self) -> Sequence[Sequence[float]]:
        return [self.curve(trial) for trial in self._trials if trial.state == TrialState.COMPLETE]

    @cached_property
    def _by_number(self) -> Mapping[int, TrialRecord]:
        return {trial.number: trial for trial in self._past.trials}

    def _curve(self, trial: TrialRecord) -> Sequence[float]:
        values: list[float] = []
        part: TrialRecord | None = trial
        while part is not None:
            curve = self._validations.get(part.number, {})
            values = [*(curve[epoch] for epoch in sorted(curve)), *values]
            part = None if part.continues is None else self._by_number.get(part.continues)
        return best_so_far([self._log_error(value) for value in values])

    def _log_error(self, quality: float) -> float:
        return natural_log_error(quality, self._metric, samples=self._samples)
