"""A Gaussian process per objective, for small spaces without conditional dimensions."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from optuna.samplers import BaseSampler, GPSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, create_trial
from optuna.trial import TrialState as OptunaState
from pydantic import Field
from threadpoolctl import threadpool_limits  # pyright: ignore[reportMissingTypeStubs]

from search.documents.objectives import OBJECTIVE_KINDS
from search.samplers.adapters.distributions import distribution_of
from search.samplers.adapters.frozen import CONSTRAINTS
from search.samplers.adapters.in_memory import has_ended, suggested
from search.samplers.modelling.branching import branches_of
from search.samplers.modelling.predicted_errors import PredictedErrors
from search.samplers.sampler import Sampler, SamplerContext, Space, WholeSampler
from search.spaces import Scalar, margins
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
        default=10,
        ge=1,
        le=1_000_000,
        description="random suggestions before the processes are used",
    )

    def build_for(self, study: SamplerContext, /, *, seed: int) -> BaseSampler:
        """A sampler for one suggestion, which follows from `seed` and the study's past."""

        def choose(number: int) -> Mapping[str, Scalar]:
            sampler = GPSampler(
                seed=seed, n_startup_trials=self.startup_trials, warn_independent_sampling=False
            )
            directions = [StudyDirection.MINIMIZE] * len(study.objectives)
            # Optuna limits torch to one thread by itself: the others' cores are for training.
            with threadpool_limits(1, user_api="blas"):
                return suggested(sampler, study.space, _known(study, number), directions)

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


def _known(study: SamplerContext, number: int) -> list[FrozenTrial]:
    """What the processes are fitted to: the newest trials, warm-start trials before a study's own.

    Optuna's sampler learns of complete trials alone, so that it is told of all that ended as such:
    with costs for values, and limits as a constraint. A stopped trial has the error that it was
    heading for. One that was refused tells nothing but that: it has the mean of the others' costs.
    """
    past, dimensions = study.past(), study.space.dimensions
    distributions = {name: distribution_of(one) for name, one in dimensions.items()}

    def as_optuna_has_it(trial: TrialRecord, **fields: Any) -> FrozenTrial:
        params = {name: trial.drawn[name] for name in dimensions}
        return create_trial(params=params, distributions=distributions, **fields)

    own = [
        trial
        for trial in past.trials
        if trial.number < number
        and trial.state not in _NEVER_TRIED
        # A preset may lie outside the space.
        and dimensions.keys() <= trial.drawn.keys()
    ]
    ended = [*study.knowledge.trials, *filter(has_ended, own)][-MOST_TRIALS:]
    predicted_errors = PredictedErrors(study, past, ended)
    costs = np.array([_costs(trial, study, predicted_errors) for trial in ended])
    known = ~np.isnan(costs)
    means = np.where(known, costs, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    limited = any(
        trial.state == TrialState.INFEASIBLE or trial.violation is not None for trial in ended
    )
    return [
        *(
            as_optuna_has_it(
                trial,
                values=row,
                system_attrs={CONSTRAINTS: [_violation(trial, study)]} if limited else {},
            )
            for trial, row in zip(ended, np.where(known, costs, means).tolist(), strict=True)
        ),
        *(
            as_optuna_has_it(trial, state=OptunaState.RUNNING)
            for trial in own
            if not has_ended(trial)
        ),
    ]


def _costs(
    trial: TrialRecord, study: SamplerContext, predicted_errors: PredictedErrors
) -> list[float]:
    """Every objective of a trial as a cost, NaN where it is not known."""
    was_refused = trial.state == TrialState.INFEASIBLE and not trial.dispatched
    costs: dict[str, float] = {
        "quality": math.nan if was_refused else predicted_errors.known_error(trial)[0]
    }
    for kind in OBJECTIVE_KINDS.values():
        if kind.known != "trained":
            value = kind.for_sampler(trial)
            costs[kind.name] = math.nan if value is None else kind.decades(value)
    return [costs[name] for name in study.objectives]


def _violation(trial: TrialRecord, study: SamplerContext) -> float:
    """By how much a trial breaks the limits: a negative margin where it keeps them."""
    if trial.state == TrialState.INFEASIBLE or trial.violation is not None:
        return min(1.0, trial.violation or 1.0)
    return min(0.0, max([-1.0, *margins(study.limits, trial)]))
