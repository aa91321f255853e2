"""The jobs of a study by its task: those that train models, and those of a network of others."""

from search.graphs.model_outputs import ModelOutputs
from search.graphs.network_trial import NetworkTrial
from search.running import StudyContext
from search.spaces import NetworkSpace
from search.studies import StudySpec
from search.training.jobs import EvaluateJob, PrepareJob, PrepareNetworkJob
from storage.records import TrialRecord


def prepare_job(spec: StudySpec) -> PrepareJob | PrepareNetworkJob:
    """What is done once before anything is asked."""
    if isinstance(spec.task, ModelOutputs):
        return PrepareNetworkJob(task=spec.task, costs=spec.network_costs)
    return PrepareJob(task=spec.task)


def evaluate_job(study: StudyContext, task: ModelOutputs, trial: TrialRecord) -> EvaluateJob:
    """What is done for a trial of a network of others, in a study that is prepared."""
    assert isinstance(study.space, NetworkSpace)
    offered = study.space.offered
    assert offered is not None
    return EvaluateJob(
        task=task,
        trial=NetworkTrial.model_validate(trial.spec),
        number=trial.number,
        costs=study.spec.network_costs,
        sensitivities={
            one.name: (one.compensated_sensitivity, one.plain_sensitivity)
            for one in offered.layers
        },
    )
