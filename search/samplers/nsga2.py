"""NSGA-II over several objectives."""

from typing import Literal

from optuna.samplers import BaseSampler, NSGAIISampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from pydantic import Field

from search.samplers.informed import informed
from search.samplers.sampler import Sampler, Surroundings


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
        return _Generations(population_size=self.population, seed=seed)

    def build_for(self, study: Surroundings, /, *, seed: int) -> BaseSampler:
        """The same for every study, told of what the study knows of others."""
        return informed(self.build(seed), study)


class _Generations(NSGAIISampler):
    """Optuna's sampler, with generations that follow from the trials alone.

    Optuna notes generations and parents in attributes of its own tables, which are lost when those
    are rebuilt. Here generation g is the g-th `population_size` of the complete trials by number.
    """

    def get_trial_generation(self, study: Study, trial: FrozenTrial) -> int:  # noqa: ARG002
        """The generation that a trial belongs to that is asked for now."""
        return len(_complete(study)) // self._size

    def get_population(self, study: Study, generation: int) -> list[FrozenTrial]:
        """The complete trials of a generation."""
        first = generation * self._size
        return _complete(study)[first : first + self._size]

    def get_parent_population(self, study: Study, generation: int) -> list[FrozenTrial]:
        """The parents of a generation: the elite of all before it, none for the first."""
        parents: list[FrozenTrial] = []
        for earlier in range(generation):
            parents = self._elite_population_selection_strategy(
                study, self.get_population(study, earlier) + parents
            )
        return parents

    @property
    def _size(self) -> int:
        assert self.population_size is not None
        return self.population_size


def _complete(study: Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=[TrialState.COMPLETE])
