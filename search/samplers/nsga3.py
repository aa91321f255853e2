"""NSGA-III over several objectives."""

import math
import warnings
from collections.abc import Sequence
from typing import Literal

import numpy as np
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, NSGAIIISampler
from optuna.storages import InMemoryStorage
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, create_trial
from pydantic import Field

from search.samplers.adapters.frozen import CONSTRAINTS
from search.samplers.adapters.generations import Generations
from search.samplers.adapters.informed import informed
from search.samplers.modelling.axes import costs_of
from search.samplers.sampler import Sampler, SamplerContext, Space

_MOST_DIVISIONS = 100


class Nsga3(Sampler):
    """NSGA-III (Deb & Jain 2014): parents are chosen by rank, and to be near all reference points.

    Reference points are spread evenly over the trade-offs between the objectives' logarithms. As
    with `nsga2`, parents are complete trials alone, and dimensions that only some candidates have
    are drawn at random.
    """

    kind: Literal["nsga3"] = "nsga3"
    population: int = Field(
        default=20,
        ge=2,
        le=10_000,
        description="complete trials per generation; the first generation is random",
    )
    dividing_parameter: int | None = Field(
        default=None,
        ge=1,
        le=_MOST_DIVISIONS,
        description="into how many parts reference points divide the way from one objective to "
        "another: p give p + 1 points between two objectives and (p + 1)(p + 2) / 2 among three. "
        "Null: as many as make at most one point per member of the population (of 20: 19 between "
        "two objectives, 4 among three)",
    )

    def build_for(self, study: SamplerContext, /, *, seed: int) -> BaseSampler:
        """A sampler for one suggestion, which follows from `seed` and the trials told so far."""
        divisions = self.dividing_parameter or self.divisions(len(study.objectives))
        sampler = _ByReferencePoints(study, self.population, divisions, seed=seed)
        return informed(sampler, study)

    def fault(self, _space: Space, objectives: Sequence[str], /) -> str | None:
        """A single objective, for which there is one reference point."""
        if len(objectives) > 1:
            return None
        return (
            "nsga3 spreads trials over trade-offs, so that it needs two objectives or more; "
            f"objectives are {', '.join(objectives)}, for which nsga2 is the same without them"
        )

    def divisions(self, objectives: int) -> int:
        """The most divisions that make no more points than the population has members.

        p divisions make `C(M + p - 1, p)` points of M objectives (Deb & Jain 2014, equation 3);
        with more points than members, some would stand for nobody.
        """
        fitting = (
            p
            for p in range(_MOST_DIVISIONS, 1, -1)
            if math.comb(objectives + p - 1, p) <= self.population
        )
        return next(fitting, 1)


class _ByReferencePoints(Generations, NSGAIIISampler):
    """Optuna's sampler, which selects among costs.

    Optuna 5.0 measures the distance to reference points without regard to the directions of a
    study, as though all objectives were minimised; and counts and speeds over several decades
    would gather near one point.
    """

    def __init__(
        self, study: SamplerContext, population: int, divisions: int, *, seed: int
    ) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            super().__init__(population_size=population, dividing_parameter=divisions, seed=seed)
        self._sampler_context = study
        self._divisions = divisions
        self._of_costs = _minimising(len(study.objectives))

    def elite(
        self,
        study: Study,  # noqa: ARG002
        candidates: list[FrozenTrial],
        *,
        generation: int,
    ) -> list[FrozenTrial]:
        """By rank and reference points; chance follows from the study's seed and the generation."""
        words = np.random.SeedSequence([self._sampler_context.seed, generation])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            chooser = NSGAIIISampler(
                population_size=self._size,
                dividing_parameter=self._divisions,
                seed=int(words.generate_state(1)[0]),
            )
        select = chooser._elite_population_selection_strategy  # pyright: ignore[reportPrivateUsage]
        costs = [self._as_costs(trial) for trial in candidates]
        places = {id(cost): place for place, cost in enumerate(costs)}
        return [candidates[places[id(cost)]] for cost in select(self._of_costs, costs)]

    def _as_costs(self, trial: FrozenTrial) -> FrozenTrial:
        known = self._sampler_context
        broken = trial.system_attrs.get(CONSTRAINTS)
        return create_trial(
            values=costs_of(trial.values, known.objectives, known.metric),
            system_attrs={} if broken is None else {CONSTRAINTS: broken},
        )


def _minimising(objectives: int) -> Study:
    """An empty study whose objectives are all costs."""
    storage = InMemoryStorage()
    storage.create_new_study([StudyDirection.MINIMIZE] * objectives, study_name="costs")
    return Study(study_name="costs", storage=storage)
