"""The core of the known_cost sampler, driven as `search.samplers.known_cost` drives it."""

import math
from collections.abc import Sequence

import numpy as np

from search.samplers.acquisition import (
    Candidates,
    History,
    expected_final,
    rank,
    spread,
    undominated,
)
from search.samplers.gaussian_process import Array
from search.samplers.known_cost import KnownCost
from tests.benchmarks.search_efficiency.replay import LEAST_ERROR, Configuration, State, Trial
from tests.benchmarks.search_efficiency.table import (
    ARCHITECTURES,
    LEARNING_RATES,
    LEVELS,
    PARAMETRIZATIONS,
    SIZES,
    Structure,
    Table,
)

# The sampler's own constants; its fields are taken from its spec.
_DRAWS_TO_SPREAD = 8
_RANDOM_CANDIDATES = 150
_MUTATIONS = 4
_MOST_MUTATED = 25
_BASELINE_ERROR = 0.9
_EARLY_NOISE, _LATE_NOISE = 4.0, 2.0


class KnownCosts:
    """Proposes what is expected to add the most hypervolume at costs that are exact.

    The first trials are each the farthest in costs of a few random draws; afterwards one in ten is
    random. Candidates are random draws and the front's members with one choice changed. Stopped and
    running trials count with what they are expected to end with.
    """

    def __init__(self, table: Table, sampler: KnownCost, *, seed: int) -> None:
        self._table = table
        self._startup_trials, self._random_share = sampler.startup_trials, sampler.random_share
        self._random = np.random.default_rng(seed)
        self._structures = {structure: i for i, structure in enumerate(table.structures)}
        self._costs = np.log10([table.parameters, 1 / table.samples_per_second]).T

    def propose(self, trials: Sequence[Trial]) -> Configuration:
        """The next configuration, by the seed and all trials so far."""
        complete = [trial for trial in trials if trial.state is State.COMPLETE]
        if len(trials) < self._startup_trials:
            draws = [self._draw() for _ in range(_DRAWS_TO_SPREAD)]
            taken = self._costs_of([trial.configuration for trial in trials])
            return draws[spread(taken, self._costs_of(draws))]
        if not complete or self._random.random() < self._random_share:
            return self._draw()
        history = self._history(trials, complete)
        drawn = [self._draw() for _ in range(_RANDOM_CANDIDATES)]
        drawn += self._mutations(history, trials)
        tried = {trial.configuration for trial in trials}
        candidates = [each for each in drawn if each not in tried]
        if not candidates:
            return self._draw()
        costs = self._costs_of(candidates)
        order = rank(
            history,
            Candidates(features=self._features(candidates), costs=costs),
            reference_error=math.log(_BASELINE_ERROR),
            reference_costs=np.concatenate([history.costs, costs]).max(axis=0) + 0.05,
        )
        return candidates[int(order[0])]

    def refuse(self) -> None:
        """Only random proposals repeat what was tried: the next one is drawn anew."""

    def ended(self, trial: Trial) -> None:
        """Nothing to do: the next proposal looks at all trials."""

    def _history(self, trials: Sequence[Trial], complete: Sequence[Trial]) -> History:
        configurations = [trial.configuration for trial in trials]
        epochs = self._table.epochs
        return History(
            features=self._features(configurations),
            costs=self._costs_of(configurations),
            errors=np.array([_final_error(trial, complete) for trial in trials]),
            noise_weights=np.array([_noise_weight(trial, epochs=epochs) for trial in trials]),
            finished=np.array([trial.state is State.COMPLETE for trial in trials]),
            running=np.array([trial.state is State.RUNNING for trial in trials]),
        )

    def _mutations(self, history: History, trials: Sequence[Trial]) -> list[Configuration]:
        """Of the front's newest members."""
        points = np.column_stack([history.costs, history.errors])[history.finished]
        finished = np.flatnonzero(history.finished)
        front = finished[undominated(points)][-_MOST_MUTATED:]
        return [
            self._mutated(trials[index].configuration) for index in front for _ in range(_MUTATIONS)
        ]

    def _costs_of(self, configurations: Sequence[Configuration]) -> Array:
        return self._costs[[each.structure for each in configurations]]

    def _features(self, configurations: Sequence[Configuration]) -> Array:
        """`[N, D]`: numbers on [0, 1], options as one-hot columns of height 1 / sqrt 2."""
        return np.array([self._feature_row(each) for each in configurations])

    def _feature_row(self, configuration: Configuration) -> list[float]:
        structure = self._table.structures[configuration.structure]
        height = 0.5**0.5
        return [
            SIZES.index(structure.hidden_size) / (len(SIZES) - 1),
            structure.level / (LEVELS - 1),
            configuration.learning_rate / (len(LEARNING_RATES) - 1),
            *(height * (structure.architecture == kind) for kind in ARCHITECTURES),
            *(height * (structure.parametrization == kind) for kind in PARAMETRIZATIONS),
        ]

    def _draw(self) -> Configuration:
        """Each choice by itself, as in random search."""
        parametrization = str(self._random.choice(PARAMETRIZATIONS))
        return self._configuration(
            str(self._random.choice(ARCHITECTURES)),
            int(self._random.choice(SIZES)),
            parametrization,
            int(self._random.integers(LEVELS)),
            int(self._random.integers(len(LEARNING_RATES))),
        )

    def _mutated(self, configuration: Configuration) -> Configuration:
        """One choice drawn anew."""
        old = self._table.structures[configuration.structure]
        other = self._draw()
        new = self._table.structures[other.structure]
        choices = [
            (old.architecture, new.architecture),
            (old.hidden_size, new.hidden_size),
            (old.parametrization, new.parametrization),
            (old.level, int(self._random.integers(LEVELS))),
            (configuration.learning_rate, other.learning_rate),
        ]
        changed = int(self._random.integers(len(choices)))
        picked = [pair[index == changed] for index, pair in enumerate(choices)]
        return self._configuration(*picked)  # pyright: ignore[reportArgumentType] -- by position

    def _configuration(
        self, architecture: str, size: int, parametrization: str, level: int, learning_rate: int
    ) -> Configuration:
        level = 0 if parametrization == "dense" else level
        structure = Structure(architecture, size, parametrization, level)
        return Configuration(self._structures[structure], learning_rate)


def _log_error(accuracy: float) -> float:
    return math.log(max(1 - accuracy, LEAST_ERROR))


def _final_error(trial: Trial, complete: Sequence[Trial]) -> float:
    """What it ends with, or is expected to; NaN before its first epoch."""
    if not trial.accuracy:
        return math.nan
    error = _log_error(trial.accuracy[-1])
    if trial.state is State.COMPLETE:
        return error
    reached = len(trial.accuracy) - 1
    then = np.array([_log_error(other.accuracy[reached]) for other in complete])
    end = np.array([_log_error(other.accuracy[-1]) for other in complete])
    return expected_final(error, then, end)


def _noise_weight(trial: Trial, *, epochs: int) -> float:
    if trial.state is State.COMPLETE:
        return 1.0
    return _EARLY_NOISE if len(trial.accuracy) < epochs / 9 else _LATE_NOISE
