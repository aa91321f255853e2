"""What a trial of a compressing study starts from: the original, and its conversion.

Everything here follows from the original's bytes, the trial and the training samples, and is done
on the CPU in one order: an attempt that begins anew finds the same numbers.
"""

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from models.checkpoint import load
from models.compression import ConversionReport, convert
from models.errors import CheckpointError
from models.network import Network
from search.tasks import Samples
from search.training.trial_spec import TrialSpec


@dataclass(frozen=True, eq=False)
class Converted:
    """The conversion of an original by a trial's configuration."""

    network: Network
    report: ConversionReport


def original_of(content: bytes, trial: TrialSpec) -> Network:
    """The network in an original's checkpoint, for the trial's task.

    Raises:
        CheckpointError: it is not the checkpoint that the trial names.
    """
    compression = trial.compression
    digest = hashlib.sha256(content).hexdigest()
    if compression is None or digest != compression.sha256:
        expected = "none" if compression is None else compression.sha256
        raise CheckpointError(f"the original has sha256 {digest}; the trial starts from {expected}")
    loaded = load(content)
    # Recurrent models run at any length, of which an upload says nothing.
    signature = trial.model.signature
    spec = loaded.spec.unrounded.model_copy(update={"signature": signature})
    network = spec.build(seed=0)
    network.load_state_dict(loaded.module.state_dict())
    return network


def converted(original: Network, trial: TrialSpec, samples: Samples) -> Converted:
    """The network of the trial's spec that answers as nearly as the original as it can.

    It is not rounded, for training goes on from it; its report tells of what it is at the trial's
    bits.

    Args:
        original: see `original_of`.
        trial: names the form.
        samples: the training split, of which the first are shown to the original.

    Raises:
        ConversionError: the original cannot be converted to it.
    """
    count = 0 if trial.compression is None else trial.compression.calibration_samples
    any_length = trial.model.architecture.any_length
    calibration = calibration_of(samples, count, any_length=any_length) if count else None
    network, report = convert(original, trial.model, calibration=calibration, rounds=False)
    return Converted(network, report)


def calibration_of(samples: Samples, count: int, *, any_length: bool = True) -> Tensor:
    """The first samples of a split, as many as come at once and `count` at most.

    Padding teaches nothing about a model's answers: of samples whose lengths differ these are the
    longer half, up to where the shortest of them ends, if the model runs at any length.
    """
    batch = samples.take(samples.batches(count, None)[0])
    if batch.lengths is None or not any_length:
        return batch.x
    steps = int(torch.median(batch.lengths))
    return batch.x[batch.lengths >= steps][:, :steps]
