"""The jobs of a study by its task: those that train models, and those of a network of others."""

from collections.abc import Sequence

from search.graphs.model_outputs import ModelOutputs
from search.graphs.network_trial import NetworkTrial
from search.running import StudyContext
from search.spaces import NetworkSpace
from search.studies import StudySpec
from search.training.jobs import PrepareJob
from search.training.network_jobs import (
    EvaluateJob,
    MeasureNetworkJob,
    NetworkShape,
    PrepareNetworkJob,
)
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
            one.name: (one.compensated_sensitivity, one.plain_sensitivity) for one in offered.layers
        },
    )


def measure_network_job(
    spec: StudySpec, task: ModelOutputs, trials: Sequence[TrialRecord], *, device: str
) -> MeasureNetworkJob:
    """The job that measures the files of some trials on a device, each shape once."""
    shapes = {
        trial.shape_key: NetworkShape(
            trial=trial.number,
            shape_key=trial.shape_key,
            network=NetworkTrial.model_validate(trial.spec),
        )
        for trial in reversed(trials)
    }
    return MeasureNetworkJob(
        task=task,
        costs=spec.network_costs,
        shapes=tuple(reversed(shapes.values())),
        latency=spec.needs_latency,
        batch_size=spec.throughput.batch_size,
        threads=spec.throughput.threads,
        device=device,
    )
