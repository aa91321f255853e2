"""A Gaussian process per objective, for small spaces without conditional dimensions."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from optuna.samplers import BaseSampler, GPSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, create_trial
from optuna.trial import TrialState as OptunaState
from pydantic import Field
from threadpoolctl import threadpool_limits  # pyright: ignore[reportMissingTypeStubs]

from search.dimension import Scalar
from search.samplers.axes import cost_of
from search.samplers.branching import branches_of
from search.samplers.distributions import distribution_of
from search.samplers.frozen import CONSTRAINTS
from search.samplers.memory import has_ended, suggested
from search.samplers.outlook import Outlook
from search.samplers.sampler import Past, Sampler, Space, Surroundings, WholeSampler
from storage.records import TrialRecord, TrialState

MOST_TRIALS = 200
"""Trials that the processes are fitted to, and the most that a study may have: the time of a
suggestion grows with them, see `tests.benchmarks.asks`."""

_NEVER_TRIED = (TrialState.FAILED, TrialState.CANCELLED)


class Gp(Sampler):
    """Gaussian processes and the expected hypervolume that a trial adds (logEHVI of Optuna).

    For one architecture with one parametrization, whose dimensions every configuration has;
    `branches` makes such spaces of others. A process models the logarithm of each objective, and
    another one by how much limits are broken or kept.
    """

    kind: Literal["gp"] = "gp"
    startup_trials: int = Field(
        default=10, ge=1, description="random suggestions before the processes are used"
    )

    def build_for(self, study: Surroundings, /, *, seed: int) -> BaseSampler:
        """A sampler for one suggestion, which follows from `seed` and the study's past."""

        def choose(number: int) -> Mapping[str, Scalar]:
            sampler = GPSampler(
                seed=seed, n_startup_trials=self.startup_trials, warn_independent_sampling=False
            )
            trials = _Known(study=study, past=study.past(), number=number).frozen()
            directions = [StudyDirection.MINIMIZE] * len(study.objectives)
            # Optuna limits torch to one thread by itself: the others' cores are for training.
            with threadpool_limits(1, user_api="blas"):
                return suggested(sampler, study.space, trials, directions)

        return WholeSampler(study.space.dimensions, choose, seed=seed)

    def fault(self, space: Space, _objectives: Sequence[str], /) -> str | None:
        """More than one candidate, or dimensions that only some configurations have."""
        first, *others = branches_of(space)
        if others:
            return (
                "gp searches one architecture with one parametrization; here are "
                f"{1 + len(others)} candidates, each of which is searched by "
                '{"kind": "branches", "sampler": {"kind": "gp"}}'
            )
        if not first.conditional:
            return None
        return (
            "gp searches dimensions that every configuration has; of "
            f"{first} only some have {', '.join(first.conditional)}"
        )

    def most_trials(self) -> int:
        """As many as its processes are fitted to."""
        return MOST_TRIALS


@dataclass(frozen=True, kw_only=True)
class _Known:
    """What the processes are fitted to: the newest trials, foreign ones before a study's own."""

    study: Surroundings
    past: Past
    number: int

    def frozen(self) -> list[FrozenTrial]:
        """The trials as Optuna knows them: with costs for values, and limits as a constraint.

        A stopped trial has the error that it was heading for. One that was refused tells nothing
        but that: it has the mean of the others' costs.
        """
        own = [trial for trial in self.past.trials if trial.number < self.number]
        own = [trial for trial in own if trial.state not in _NEVER_TRIED and self._is_whole(trial)]
        running = [trial for trial in own if not has_ended(trial)]
        ended = [*self.study.knowledge.trials, *(trial for trial in own if has_ended(trial))]
        ended = ended[-MOST_TRIALS:]
        costs = self._costs(ended)
        limited = any(trial.state == TrialState.INFEASIBLE for trial in ended)
        return [
            *(self._ended(t, row, limited=limited) for t, row in zip(ended, costs, strict=True)),
            *(self._frozen(trial, state=OptunaState.RUNNING) for trial in running),
        ]

    def _is_whole(self, trial: TrialRecord) -> bool:
        """Whether it has all dimensions; a preset may lie outside the space."""
        return self.study.space.dimensions.keys() <= trial.drawn.keys()

    def _ended(self, trial: TrialRecord, costs: Sequence[float], *, limited: bool) -> FrozenTrial:
        constraints = {CONSTRAINTS: [self._violation(trial)]} if limited else {}
        return self._frozen(trial, values=costs, system_attrs=constraints)

    def _frozen(self, trial: TrialRecord, **fields: Any) -> FrozenTrial:
        dimensions = self.study.space.dimensions
        distributions = {name: distribution_of(one) for name, one in dimensions.items()}
        params = {name: trial.drawn[name] for name in dimensions}
        return create_trial(params=params, distributions=distributions, **fields)

    def _costs(self, ended: Sequence[TrialRecord]) -> list[list[float]]:
        """Every objective of every trial as a cost."""
        outlook = Outlook(self.study, self.past, ended)
        rows = [list(self._known_costs(trial, outlook)) for trial in ended]
        table = np.array(rows).reshape(len(ended), len(self.study.objectives))
        known = ~np.isnan(table)
        means = np.where(known, table, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        return np.where(known, table, means).tolist()

    def _known_costs(self, trial: TrialRecord, outlook: Outlook) -> Iterator[float]:
        """What is known of a trial, NaN for what is not."""
        was_refused = trial.state == TrialState.INFEASIBLE and not trial.dispatched
        error = math.nan if was_refused else outlook.known_error(trial)[0]
        values = {"parameters": float(trial.parameters), "throughput": trial.throughput}
        for name in self.study.objectives:
            value = values.get(name)
            if name == "quality":
                yield error
            else:
                yield math.nan if value is None else cost_of(name, value, self.study.metric)

    def _violation(self, trial: TrialRecord) -> float:
        """By how much a trial breaks the limits: a negative margin where it keeps them."""
        if trial.state == TrialState.INFEASIBLE:
            return min(1.0, trial.violation or 1.0)
        most, least = self.study.most_parameters, self.study.least_throughput_ratio
        margins = [-1.0]
        if most is not None:
            margins.append(trial.parameters / most - 1)
        if least is not None and trial.throughput_ratio:
            margins.append(least / trial.throughput_ratio - 1)
        return min(0.0, max(margins))
