"""NSGA-II over several objectives."""

from typing import Literal

from optuna.samplers import BaseSampler, NSGAIISampler
from optuna.study import Study
from optuna.trial import FrozenTrial
from pydantic import Field

from search.samplers.adapters.generations import Generations
from search.samplers.adapters.informed import informed
from search.samplers.sampler import Sampler, SamplerContext


class Nsga2(Sampler):
    """NSGA-II (Deb et al. 2002): uniform crossover of parents that are chosen by rank and crowding.

    Parents are complete trials alone. Dimensions that only some candidates have are drawn at
    random: crossover is over those that all complete trials share.
    """

    kind: Literal["nsga2"] = "nsga2"
    population: int = Field(
        default=20,
        ge=2,
        le=10_000,
        description="complete trials per generation; the first generation is random",
    )

    def build(self, seed: int) -> BaseSampler:
        """A sampler for one suggestion, which follows from `seed` and the trials told so far."""
        return _ByCrowding(population_size=self.population, seed=seed)

    def build_for(self, study: SamplerContext, /, *, seed: int) -> BaseSampler:
        """The same for every study, told of what the study knows of others."""
        return informed(self.build(seed), study)


class _ByCrowding(Generations, NSGAIISampler):
    def elite(
        self,
        study: Study,
        candidates: list[FrozenTrial],
        *,
        generation: int,  # noqa: ARG002
    ) -> list[FrozenTrial]:
        """By rank and crowding, in which there is no chance."""
        return self._elite_population_selection_strategy(study, candidates)
