"""A sampler that models the quality alone, because everything else is known before training.

Its core is pure: `search.samplers.modelling.acquisition` (`rank`, `spread`, `expected_final`,
`expected_gain`) over `search.samplers.modelling.gaussian_process`;
`search.samplers.modelling.encoding` makes features of configurations and
`search.samplers.modelling.costs` their costs.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from optuna.samplers import BaseSampler
from pydantic import Field

from search.samplers.modelling.acquisition import Candidates, History, rank, undominated
from search.samplers.modelling.candidates import (
    CandidateDraws,
    farthest_costs,
    is_own,
    stands,
    was_begun,
    was_in_vain,
)
from search.samplers.modelling.costs import Costs
from search.samplers.modelling.encoding import Encoding, values_of_draw, values_of_trial
from search.samplers.modelling.gaussian_process import Array
from search.samplers.modelling.predicted_errors import PredictedErrors
from search.samplers.sampler import Past, Sampler, SamplerContext, Space, WholeSampler
from search.spaces import DrawnTrial, Scalar
from storage.records import TrialRecord, TrialState


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
        known = [trial for trial in past.trials if trial.number < number]
        in_vain = [trial for trial in known if was_in_vain(trial)]
        self._trials = [*study.knowledge.trials, *filter(was_begun, known)]
        self._encoding = Encoding(study.space.dimensions)
        # Those in vain tell how fast their shapes are, too: for limits, the most.
        measured = [*self._trials, *in_vain]
        self._costs = Costs(
            study.objectives, measured, study.sampler_cache, file_bytes=study.file_bytes
        )
        self._draws = CandidateDraws(
            study,
            self._trials,
            self._costs,
            generator,
            in_vain=in_vain,
            pins=study.pins(number),
        )
        self._predicted_errors = PredictedErrors(study, past, self._trials)

    def choose(self, sampler: KnownCost) -> DrawnTrial:
        """The configuration to train next."""
        if len(self._trials) < sampler.startup_trials:
            return self._draws.spread()
        finished = [trial for trial in self._trials if trial.state == TrialState.COMPLETE]
        if not finished or self._generator.random() < sampler.random_share:
            return self._draws.random()
        history = self._history()
        candidates = self._draws.fresh(self._front(history))
        if not candidates:
            return self._draws.random()
        costs = self._costs.of_draws(candidates)
        order: list[int] = rank(
            history,
            Candidates(features=self._encoding.rows(map(values_of_draw, candidates)), costs=costs),
            reference_error=self._predicted_errors.reference,
            reference_costs=farthest_costs(
                history.costs, costs, self._costs.bounds(self._study.region)
            ),
            baseline_error=self._predicted_errors.baseline,
        ).tolist()
        ranked = (candidates[index] for index in order)
        allowed = (drawn for drawn in ranked if not self._study.is_refused(drawn))
        return next(allowed, candidates[order[0]])

    def _front(self, history: History) -> list[int]:
        """Places of the trials that stand and that no other one dominates."""
        complete = _mask(map(stands, self._trials))
        points = np.column_stack([history.costs, history.errors])[complete]
        return np.flatnonzero(complete)[undominated(points)].tolist()

    def _history(self) -> History:
        known = [self._predicted_errors.known_error(trial) for trial in self._trials]
        # What is known of other studies' trials counts for the model, and is on no front of this.
        states = [trial.state for trial in self._trials]
        return History(
            features=np.array(self._study.sampler_cache.of_all(self._trials, "row", self._row)),
            costs=self._costs.of_trials(self._trials),
            errors=np.array([error for error, _ in known]),
            noise_weights=np.array([weight for _, weight in known]),
            finished=_mask(stands(trial) and is_own(trial) for trial in self._trials),
            running=_mask(not state.has_ended for state in states),
        )

    def _row(self, trial: TrialRecord) -> Array:
        return np.array(self._encoding.row(values_of_trial(trial)))


def _mask(flags: Iterator[bool]) -> NDArray[np.bool_]:
    return np.fromiter(flags, dtype=np.bool_)
