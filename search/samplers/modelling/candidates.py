"""Configurations that a sampler may suggest: random, spread over sizes, or like the best."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from search.samplers.modelling.acquisition import MARGIN, spread
from search.samplers.modelling.configurations_drawn import MutatingSource, RandomSource
from search.samplers.modelling.costs import Costs
from search.samplers.modelling.encoding import values_of_draw, values_of_trial
from search.samplers.modelling.gaussian_process import Array
from search.samplers.sampler import SamplerContext
from search.spaces import DrawnTrial, NamedSource, PinnedSource, Scalar, Source, margins
from storage.records import Json, TrialRecord, TrialState
from storage.repositories.trial_summaries import TrialSummary

_DRAWS_TO_SPREAD = 8
_RANDOM_CANDIDATES = 150
_MUTATIONS = 4
_MOST_MUTATED = 25
"""Members of the front that candidates are mutations of, those of the newest trials."""


@final
class CandidateDraws:
    """Draws configurations of one study's space."""

    def __init__(
        self,
        study: SamplerContext,
        trials: Sequence[TrialRecord],
        costs: Costs,
        generator: np.random.Generator,
        *,
        in_vain: Sequence[TrialRecord],
        pins: Mapping[str, Scalar],
    ) -> None:
        """`trials` are all that were begun, the warm start's among them; see `was_in_vain`.

        What is drawn has the values of `pins`, by dimension.
        """
        self._pins = pins
        self._study = study
        self._trials = trials
        self._in_vain = in_vain
        self._vain_keys = set(study.sampler_cache.of_all(in_vain, "key", _key_of_trial))
        self._costs = costs
        self._generator = generator

    def random(self) -> DrawnTrial:
        """A random configuration that is of some use, if a few draws find one."""
        drawn = self._draw()
        for _ in range(_DRAWS_TO_SPREAD):
            if self._is_of_use(drawn):
                break
            drawn = self._draw()
        return drawn

    def spread(self) -> DrawnTrial:
        """Of a few random configurations the one whose sizes are farthest from all so far.

        Those that were refused count as well: else the corner that limits forbid would always be
        the farthest.
        """
        draws = [self._draw() for _ in range(_DRAWS_TO_SPREAD)]
        of_use = [drawn for drawn in draws if self._is_of_use(drawn)]
        draws = [drawn for drawn in of_use if self._keeps_limits(drawn)] or of_use or draws
        seen = (*self._trials, *self._in_vain)
        taken = np.array([_sizes(trial) for trial in seen]).reshape(-1, 2)
        return draws[spread(taken, np.array([_sizes_of_draw(drawn) for drawn in draws]))]

    def fresh(self, front: Sequence[int]) -> list[DrawnTrial]:
        """Random configurations and mutations of the front's, which were not begun before.

        Where a study replicates, those that are complete are among them, too. What breaks a limit,
        as far as that is known or predicted, is not. `front` are places among the trials.
        """
        # Of one shape there is less to choose from.
        if self._pins:
            front = front[-_MOST_MUTATED // 3 :]
        count = _RANDOM_CANDIDATES // 3 if self._pins else _RANDOM_CANDIDATES
        drawn = [self._draw() for _ in range(count)]
        drawn += self._mutations(front)
        replicates = self._study.replicates
        tried = [
            one
            for one in self._trials
            if is_own(one) and not (replicates and one.state == TrialState.COMPLETE)
        ]
        keys = self._vain_keys.union(self._study.sampler_cache.of_all(tried, "key", _key_of_trial))
        fresh = [one for one in drawn if _key(values_of_draw(one)) not in keys]
        return [one for one in fresh if self._keeps_limits(one)]

    def _is_of_use(self, drawn: DrawnTrial) -> bool:
        """Whether it is not refused, and none like it was in vain."""
        if self._study.is_refused(drawn):
            return False
        return _key(values_of_draw(drawn)) not in self._vain_keys

    def _draw(self) -> DrawnTrial:
        return self._pinned(RandomSource(self._generator))

    def _pinned(self, source: Source) -> DrawnTrial:
        return self._study.space.draw(PinnedSource(self._pins, source))

    def _mutations(self, front: Sequence[int]) -> Iterator[DrawnTrial]:
        for index in front[-_MOST_MUTATED:]:
            if not is_own(self._trials[index]) and not self._pins:
                yield self._study.space.draw(NamedSource(_scalars(self._trials[index].drawn)))
            values = values_of_trial(self._trials[index])
            values |= _scalars(self._trials[index].drawn)
            for _ in range(_MUTATIONS):
                yield self._pinned(MutatingSource(values, self._generator))

    def _keeps_limits(self, drawn: DrawnTrial) -> bool:
        """Whether count and size are within the limits, and the predicted speed as well."""
        limits = self._study.limits
        expected = _Expected(
            parameters=drawn.parameters,
            bytes=None if limits.bytes is None else self._study.file_bytes(drawn.spec),
            throughput_ratio=None
            if limits.min_throughput_ratio is None
            else self._costs.throughput_ratio(drawn),
            latency_p99=None if limits.latency_seconds is None else self._costs.latency_p99(drawn),
        )
        return all(margin <= 0 for margin in margins(limits, expected))


@dataclass(frozen=True, kw_only=True)
class _Expected:
    """What is known or predicted of a draw, as far as there are limits on it."""

    parameters: int
    bytes: int | None
    throughput_ratio: float | None
    latency_p99: float | None


def is_own(trial: TrialRecord) -> bool:
    """Whether a trial is of the study itself, see `Knowledge`."""
    return trial.number >= 0


def stands(trial: TrialRecord | TrialSummary) -> bool:
    """Whether a trial is complete and may be on a front: no limit was found broken later."""
    return trial.state is TrialState.COMPLETE and trial.violation is None


def was_in_vain(trial: TrialRecord) -> bool:
    """Whether a trial was refused before it trained, or failed: there is no use in another one."""
    if trial.state is TrialState.INFEASIBLE:
        return not trial.dispatched
    return trial.state is TrialState.FAILED


def farthest_costs(taken: Array, offered: Array, bounds: Array) -> Array:
    """From where gains count `[C]`: the bounds of a region of interest, where they come first.

    Else the dearest of all trials and candidates: far beyond it, only extremes would count.
    """
    return np.minimum(np.concatenate([taken, offered]).max(axis=0) + MARGIN, bounds)


def was_begun(trial: TrialRecord) -> bool:
    """Whether a trial tells or will tell something of the quality: it was not refused or broken."""
    if trial.state == TrialState.INFEASIBLE:
        return trial.dispatched
    return trial.state not in (TrialState.FAILED, TrialState.CANCELLED)


def _scalars(values: Mapping[str, Json]) -> dict[str, Scalar]:
    return {n: value for n, value in values.items() if isinstance(value, bool | int | float | str)}


def _sizes(trial: TrialRecord) -> tuple[float, float]:
    return math.log10(max(1, trial.parameters)), math.log10(max(1, trial.dense_parameters))


def _sizes_of_draw(drawn: DrawnTrial) -> tuple[float, float]:
    return math.log10(max(1, drawn.parameters)), math.log10(max(1, drawn.dense_parameters))


def _key(values: Mapping[str, Scalar | None]) -> frozenset[tuple[str, Scalar | None]]:
    return frozenset(values.items())


def _key_of_trial(trial: TrialRecord) -> frozenset[tuple[str, Scalar | None]]:
    return _key(values_of_trial(trial))
