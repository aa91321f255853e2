"""A sampler that models the quality alone, because everything else is known before training.

Its core is pure: `search.samplers.modelling.acquisition` (`rank`, `spread`, `expected_final`,
`expected_gain`) over `search.samplers.modelling.gaussian_process`;
`search.samplers.modelling.encoding` makes features of configurations and
`search.samplers.modelling.costs` their costs.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from optuna.samplers import BaseSampler
from pydantic import Field

from search.samplers.modelling.acquisition import (
    Candidates,
    History,
    rank,
    spread,
    undominated,
)
from search.samplers.modelling.configurations_drawn import MutatingSource, RandomSource
from search.samplers.modelling.costs import Costs
from search.samplers.modelling.encoding import Encoding, values_of_draw, values_of_trial
from search.samplers.modelling.gaussian_process import Array
from search.samplers.modelling.predicted_errors import PredictedErrors
from search.samplers.sampler import Past, Sampler, SamplerContext, Space, WholeSampler
from search.spaces import DrawnTrial, NamedSource, Scalar, margins
from storage.records import Json, TrialRecord, TrialState

_DRAWS_TO_SPREAD = 8
_RANDOM_CANDIDATES = 150
_MUTATIONS = 4
_MOST_MUTATED = 25
"""Members of the front that candidates are mutations of, those of the newest trials."""


class KnownCost(Sampler):
    """Expected hypervolume at known cost: a Gaussian process on the error, all else exact.

    Parameters and bytes follow from the configuration, throughput and latency were measured for its
    shape or are predicted from counts. Of the candidates (random ones, and mutations of the
    front's) the one is suggested that is expected to add the most hypervolume. Stopped trials count
    with the error that they were heading for, running ones with the error that is predicted.
    """

    kind: Literal["known_cost"] = "known_cost"
    startup_trials: int = Field(
        default=10,
        ge=1,
        le=1_000_000,
        description="first suggestions, spread over sizes instead of modelled",
    )
    random_share: float = Field(
        default=0.1, ge=0, le=1, description="share of later suggestions that are random"
    )

    def build_for(self, study: SamplerContext, /, *, seed: int) -> BaseSampler:
        """A sampler for one suggestion, which follows from `seed` and the study's past."""

        def choose(number: int) -> Mapping[str, Scalar]:
            generator = np.random.default_rng(seed)
            return _Choice(study, study.past(), number, generator).choose(self).drawn

        return WholeSampler(study.space.dimensions, choose, seed=seed)

    def fault(self, _space: Space, objectives: Sequence[str], /) -> str | None:
        """Quality is no objective."""
        if "quality" in objectives:
            return None
        return (
            "known_cost models the quality, so that quality has to be an objective; "
            f"objectives are {', '.join(objectives)}"
        )


class _Choice:
    """One suggestion."""

    def __init__(
        self, study: SamplerContext, past: Past, number: int, generator: np.random.Generator
    ) -> None:
        self._study = study
        self._generator = generator
        own = [trial for trial in past.trials if trial.number < number and _was_begun(trial)]
        self._trials = [*study.knowledge.trials, *own]
        self._encoding = Encoding(study.space.dimensions)
        self._costs = Costs(
            study.objectives, self._trials, study.sampler_cache, file_bytes=study.file_bytes
        )
        self._predicted_errors = PredictedErrors(study, past, self._trials)

    def choose(self, sampler: KnownCost) -> DrawnTrial:
        """The configuration to train next."""
        if len(self._trials) < sampler.startup_trials:
            return self._spread()
        finished = [trial for trial in self._trials if trial.state == TrialState.COMPLETE]
        if not finished or self._generator.random() < sampler.random_share:
            return self._random()
        history = self._history()
        candidates = self._candidates(history)
        if not candidates:
            return self._random()
        costs = self._costs.of_draws(candidates)
        order: list[int] = rank(
            history,
            Candidates(features=self._encoding.rows(map(values_of_draw, candidates)), costs=costs),
            reference_error=self._predicted_errors.baseline,
            reference_costs=self._reference(history.costs, costs),
        ).tolist()
        ranked = (candidates[index] for index in order)
        allowed = (drawn for drawn in ranked if not self._study.is_refused(drawn))
        return next(allowed, candidates[order[0]])

    def _random(self) -> DrawnTrial:
        """A random configuration that is not refused, if a few draws find one."""
        drawn = self._draw()
        for _ in range(_DRAWS_TO_SPREAD):
            if not self._study.is_refused(drawn):
                break
            drawn = self._draw()
        return drawn

    def _spread(self) -> DrawnTrial:
        """Of a few random configurations the one whose sizes are farthest from all so far."""
        draws = [self._draw() for _ in range(_DRAWS_TO_SPREAD)]
        draws = [drawn for drawn in draws if not self._study.is_refused(drawn)] or draws
        taken = np.array([_sizes(trial) for trial in self._trials]).reshape(-1, 2)
        return draws[spread(taken, np.array([_sizes_of_draw(drawn) for drawn in draws]))]

    def _draw(self) -> DrawnTrial:
        return self._study.space.draw(RandomSource(self._generator))

    def _candidates(self, history: History) -> list[DrawnTrial]:
        """Random configurations and mutations of the front's, without what was tried before."""
        drawn = [self._draw() for _ in range(_RANDOM_CANDIDATES)]
        drawn += self._mutations(history)
        recollect = self._study.sampler_cache.of
        tried = {recollect(one, "key", _key_of_trial) for one in self._trials if _is_own(one)}
        fresh = [one for one in drawn if _key(values_of_draw(one)) not in tried]
        return [one for one in fresh if self._keeps_limits(one)]

    def _mutations(self, history: History) -> Iterator[DrawnTrial]:
        complete = _mask(trial.state == TrialState.COMPLETE for trial in self._trials)
        points = np.column_stack([history.costs, history.errors])[complete]
        front: list[int] = np.flatnonzero(complete)[undominated(points)].tolist()
        for index in front[-_MOST_MUTATED:]:
            if not _is_own(self._trials[index]):
                yield self._study.space.draw(NamedSource(_scalars(self._trials[index].drawn)))
            values = values_of_trial(self._trials[index])
            values |= _scalars(self._trials[index].drawn)
            for _ in range(_MUTATIONS):
                yield self._study.space.draw(MutatingSource(values, self._generator))

    def _keeps_limits(self, drawn: DrawnTrial) -> bool:
        """Whether count and size are within the limits, and the predicted speed as well."""
        limits = self._study.limits
        expected = _Expected(
            parameters=drawn.spec.model.parameter_count(),
            bytes=None if limits.bytes is None else self._study.file_bytes(drawn.spec),
            throughput_ratio=None
            if limits.min_throughput_ratio is None
            else self._costs.throughput_ratio(drawn),
            latency_p99=None if limits.latency_seconds is None else self._costs.latency_p99(drawn),
        )
        return all(margin <= 0 for margin in margins(limits, expected))

    def _history(self) -> History:
        known = [self._predicted_errors.known_error(trial) for trial in self._trials]
        # What is known of other studies' trials counts for the model, and is on no front of this.
        states = [trial.state for trial in self._trials]
        own = [_is_own(trial) for trial in self._trials]
        return History(
            features=np.array(
                [self._study.sampler_cache.of(one, "row", self._row) for one in self._trials]
            ),
            costs=self._costs.of_trials(self._trials),
            errors=np.array([error for error, _ in known]),
            noise_weights=np.array([weight for _, weight in known]),
            finished=_mask(
                s == TrialState.COMPLETE and o for s, o in zip(states, own, strict=True)
            ),
            running=_mask(not state.has_ended for state in states),
        )

    def _row(self, trial: TrialRecord) -> Array:
        return np.array(self._encoding.row(values_of_trial(trial)))

    def _reference(self, taken: Array, offered: Array) -> Array:
        """The dearest of all trials and candidates: far beyond it, only extremes would count."""
        return np.concatenate([taken, offered]).max(axis=0) + 0.05


@dataclass(frozen=True, kw_only=True)
class _Expected:
    """What is known or predicted of a draw, as far as there are limits on it."""

    parameters: int
    bytes: int | None
    throughput_ratio: float | None
    latency_p99: float | None


def _is_own(trial: TrialRecord) -> bool:
    """Whether a trial is of the study itself, see `Knowledge`."""
    return trial.number >= 0


def _scalars(values: Mapping[str, Json]) -> dict[str, Scalar]:
    return {n: value for n, value in values.items() if isinstance(value, bool | int | float | str)}


def _was_begun(trial: TrialRecord) -> bool:
    """Whether a trial tells or will tell something of the quality: it was not refused or broken."""
    if trial.state == TrialState.INFEASIBLE:
        return trial.dispatched
    return trial.state not in (TrialState.FAILED, TrialState.CANCELLED)


def _sizes(trial: TrialRecord) -> tuple[float, float]:
    return math.log10(max(1, trial.parameters)), math.log10(max(1, trial.dense_parameters))


def _sizes_of_draw(drawn: DrawnTrial) -> tuple[float, float]:
    model = drawn.spec.model
    counts = model.parameter_count(), model.dense_twin().parameter_count()
    return math.log10(max(1, counts[0])), math.log10(max(1, counts[1]))


def _key(values: Mapping[str, Scalar | None]) -> frozenset[tuple[str, Scalar | None]]:
    return frozenset(values.items())


def _key_of_trial(trial: TrialRecord) -> frozenset[tuple[str, Scalar | None]]:
    return _key(values_of_trial(trial))


def _mask(flags: Iterator[bool]) -> NDArray[np.bool_]:
    return np.fromiter(flags, dtype=np.bool_)
