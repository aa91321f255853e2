"""Generations that follow from the trials alone, for Optuna's genetic samplers.

Optuna notes generations and parents in attributes of its own tables, which are lost when those are
rebuilt. Here generation g is the g-th `population_size` of the complete trials by number, without
presets that lie outside the space and originals: they have nothing to cross.
"""

from abc import abstractmethod

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseGASampler
from optuna.search_space import intersection_search_space
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState


class Generations(BaseGASampler):
    """To be put before one of Optuna's samplers, whose selection it uses."""

    def infer_relative_search_space(
        self,
        study: Study,
        trial: FrozenTrial,  # noqa: ARG002
    ) -> dict[str, BaseDistribution]:
        """The dimensions that all of them share."""
        shared = intersection_search_space(_complete(study))
        return {name: one for name, one in shared.items() if not one.single()}

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
            candidates = self.get_population(study, earlier) + parents
            parents = self.elite(study, candidates, generation=earlier + 1)
        return parents

    @abstractmethod
    def elite(
        self, study: Study, candidates: list[FrozenTrial], *, generation: int
    ) -> list[FrozenTrial]:
        """The parents of a generation, out of the last one and its parents.

        It is selected anew for every suggestion, and has to be the same for all of a generation.
        """

    @property
    def _size(self) -> int:
        assert self.population_size is not None
        return self.population_size


def _complete(study: Study) -> list[FrozenTrial]:
    complete = study.get_trials(deepcopy=False, states=[TrialState.COMPLETE])
    return [trial for trial in complete if trial.params]
