"""Which trials can be trained in the same calls."""

import hashlib
import json

from models import stacked
from search.tasks import Language
from search.training.jobs import TrainJob
from search.training.trial_spec import TrainingSpec


def stack_key(job: TrainJob) -> str:
    """A digest (hex) that trials share which `train_stack` computes together; nothing is built.

    Equal are the task, the model but for what `models.stacked.stack_key` leaves out (counts, ranks
    and real numbers of its parametrization), its bits, the batch size, the optimizer, the loss with
    its penalty on the readout, and what is learned from: an original, or the samples alone.
    All else may differ: seeds, learning rates and their decay, weight decay, clipping, recovery,
    budgets, the epochs in which rounding is learned from, temperature and weight of distillation,
    and what training starts with.

    Some trials have a key of their own and are trained alone: those whose epochs are so many
    updates, for passes of several would end at different batches; those with another RMSprop than
    the one that is computed for several; and those that draw a mask for each step of lines, which
    several have padded to the longest of all.
    """
    compression = job.trial.compression
    original = None
    if compression is not None and compression.distillation is not None:
        original = compression.sha256
    document: dict[str, object] = {
        "task": job.task.model_dump(mode="json"),
        "model": stacked.stack_key(job.trial.model),
        "batch_size": job.trial.training.batch_size,
        "optimizer": job.trial.training.optimizer,
        "original": original,
    }
    training = job.trial.training
    if training.loss != "task" or training.readout_penalty:
        document["loss"] = [training.loss, training.readout_penalty]
    if (
        training.epoch_updates is not None
        or _has_its_own_optimizer(training)
        or _draws_by_length(job)
    ):
        document["alone"] = [job.number, job.trial.model_dump(mode="json")]
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _draws_by_length(job: TrainJob) -> bool:
    """Whether what is drawn for a batch depends on how long the batch is padded."""
    pads_batches = isinstance(job.task, Language) and job.task.batching == "sentences"
    return pads_batches and job.trial.model.architecture.masks_steps


def _has_its_own_optimizer(training: TrainingSpec) -> bool:
    return training.optimizer == "rmsprop" and training.has_own_rmsprop
