"""Our rows as Optuna knows trials."""

from collections.abc import Mapping, Sequence

import optuna
from optuna.trial import FrozenTrial, create_trial

from search.documents.objectives import OBJECTIVE_KINDS, Objective
from search.samplers.adapters.distributions import distribution_of
from search.samplers.sampler import SamplerContext
from storage.records import TrialRecord, TrialState

STATES: Mapping[TrialState, optuna.trial.TrialState] = {
    TrialState.QUEUED: optuna.trial.TrialState.RUNNING,
    TrialState.RUNNING: optuna.trial.TrialState.RUNNING,
    TrialState.PAUSED: optuna.trial.TrialState.RUNNING,
    TrialState.COMPLETE: optuna.trial.TrialState.COMPLETE,
    TrialState.STOPPED: optuna.trial.TrialState.PRUNED,
    TrialState.INFEASIBLE: optuna.trial.TrialState.PRUNED,
    TrialState.FAILED: optuna.trial.TrialState.FAIL,
    TrialState.CANCELLED: optuna.trial.TrialState.FAIL,
}

# Optuna 5 writes one attribute per constraint, which its dashboard (0.21) does not show; it reads
# this older form, which Optuna's samplers and `best_trials` honour as well. Writing both would
# count a violation twice.
CONSTRAINTS = "constraints"


def values_of(trial: TrialRecord, objectives: Sequence[Objective]) -> list[float] | None:
    """What a trial is worth to samplers, by objective; null where one of them is not known."""
    found = [OBJECTIVE_KINDS[name].for_sampler(trial) for name in objectives]
    values = [value for value in found if value is not None]
    return values if len(values) == len(objectives) else None


def frozen(trial: TrialRecord, study: SamplerContext, *, ended: bool = True) -> FrozenTrial | None:
    """The trial with its values, or as one that runs; none of one that lacks an objective.

    It has the number -1 until a study gives it one: Optuna's search for the dimensions that trials
    share leaves out what is below that.
    """
    values = values_of(trial, study.objectives)
    state = STATES[trial.state] if ended else optuna.trial.TrialState.RUNNING
    complete = state == optuna.trial.TrialState.COMPLETE
    if complete and values is None:
        return None
    violated = ended and trial.violation is not None
    dimensions = study.space.dimensions
    return create_trial(
        state=state,
        params=dict(trial.drawn),
        distributions={name: distribution_of(dimensions[name]) for name in trial.drawn},
        values=values if complete else None,
        system_attrs={CONSTRAINTS: [trial.violation]} if violated else {},
    )
