"""Any of Optuna's samplers, told of trials that are not in its study."""

from collections.abc import Container, Sequence
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from search.samplers.adapters.frozen import frozen
from search.samplers.sampler import SamplerContext


def informed(sampler: BaseSampler, study: SamplerContext) -> BaseSampler:
    """The sampler as it is, or one that sees what the study knows of others before its own trials.

    Optuna's study stays as it is: its numbers are the study's; warm-start trials are on no front.
    """
    known = [frozen(trial, study) for trial in study.knowledge.trials]
    warm_start = [trial for trial in known if trial is not None]
    return _Informed(sampler, warm_start) if warm_start else sampler


class _Informed(BaseSampler):
    """Asks another sampler about the study with the warm-start trials in it."""

    def __init__(self, inner: BaseSampler, warm_start: Sequence[FrozenTrial]) -> None:
        self._inner = inner
        self._warm_start = warm_start

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """The joint space of all trials."""
        return self._inner.infer_relative_search_space(self._widened(study), trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The inner sampler's joint suggestion."""
        return self._inner.sample_relative(self._widened(study), trial, search_space)

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """The inner sampler's suggestion for one dimension."""
        study = self._widened(study)
        return self._inner.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """What the inner sampler does before a trial."""
        self._inner.before_trial(study, trial)

    def after_trial(
        self,
        study: Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """What the inner sampler does after a trial."""
        self._inner.after_trial(study, trial, state, values)

    def _widened(self, study: Study) -> Study:
        return _Widened(study, self._warm_start)


class _Widened(Study):
    """A study as it is, but for its list of trials, which begins with those of the warm start."""

    def __init__(self, study: Study, warm_start: Sequence[FrozenTrial]) -> None:
        # The same study on the same storage: it is opened already.
        self.__dict__.update(vars(study))
        self._warm_start = warm_start

    def get_trials(
        self, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """All trials, the warm-start trials first."""
        return self._get_trials(deepcopy, states)

    def _get_trials(
        self,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
        use_cache: bool = False,
    ) -> list[FrozenTrial]:
        first = [trial for trial in self._warm_start if states is None or trial.state in states]
        return first + super()._get_trials(deepcopy, states, use_cache)
