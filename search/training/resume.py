"""The file from which a trial that was cut off goes on, number for number."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pydantic import Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from models.errors import CheckpointError
from models.spec import Spec
from search.documents.gradients import ProbedGradient
from search.training.jobs import TrainJob

_FORMAT: Final = "reflectory-resume-3"

Tensors = dict[str, Tensor]

GROUPS: Final = (
    *("model", "best", "best_unrounded"),
    *("optimizer", "best_optimizer"),
    *("rng", "carried"),
)
"""What the name of each tensor begins with, before a colon."""


class Position(Spec):
    """How far training is, and the best epoch so far."""

    epoch: int = Field(default=1, ge=0, description="the epoch underway; in 0 nothing is trained")
    batch: int = Field(default=0, ge=0, description="batches of it that are done")
    pass_batches: int = Field(
        default=0,
        ge=0,
        description="batches of the pass over the samples underway that earlier epochs had, where "
        "an epoch is so many updates",
    )
    loss_sum: float = Field(default=0.0, description="their finite losses, each times its samples")
    loss_samples: int = Field(default=0, ge=0, description="samples in `loss_sum`")
    recovered_batches: int = Field(default=0, ge=0, description="those that needed recovery")
    gradient_first: float | None = Field(
        default=None, description="see `EpochReport`; null until the epoch's last batch is done"
    )
    gradient_last: float | None = Field(default=None, description="likewise")
    probes: tuple[ProbedGradient, ...] = Field(default=(), description="see `EpochReport`")
    seconds: float = Field(default=0.0, ge=0, description="what they took")
    best_epoch: int = Field(default=0, ge=0, description="0 too while no epoch is over")
    best_quality: float | None = Field(default=None, description="null while no epoch is over")
    best_loss: float | None = Field(
        default=None, description="the best epoch's mean validation loss; null if it is no number"
    )
    stale_epochs: int = Field(
        default=0, ge=0, description="epochs that are over since the last better validation metric"
    )
    plateau_epochs: int = Field(
        default=0, ge=0, description="the same, or since the last of `plateau_steps`"
    )
    plateau_steps: int = Field(
        default=0, ge=0, description="how often the learning rate was lowered by `Plateau`"
    )

    @property
    def epochs_trained(self) -> int:
        """Epochs that are over."""
        return max(0, self.epoch - 1)


@dataclass(frozen=True)
class ResumeState:
    """Everything that training's next number follows from, the data and the job excepted.

    The learning rate follows from the epoch, and the order of an epoch's data from the generator's
    state at the beginning of the pass over them that is underway when it begins.
    """

    position: Position
    model: Tensors
    """The module's state."""
    best: Tensors
    """The module's state at the best epoch; empty while no epoch is over."""
    optimizer: Tensors
    """By `<parameter>/<quantity>`."""
    generators: Tensors
    """Generator states by name; `order` is the one from which the epoch underway is drawn."""
    carried: Tensors
    """The parts of the state in which the model ended the last batch, by number, where the next one
    goes on from it; behind them those of the model that it learns from; else empty."""
    best_optimizer: Tensors = field(default_factory=dict[str, Tensor])
    """As `optimizer`, at the best epoch, where training may go on from there; else empty."""
    best_unrounded: Tensors = field(default_factory=dict[str, Tensor])
    """As `best`, before it was rounded to few bits, where training may go on from there; else
    empty."""


def to_bytes(state: ResumeState, *, job: TrainJob) -> bytes:
    """Write a state as safetensors, with the position and the job's identity in the metadata."""
    tensors = {
        f"{group}:{name}": tensor.detach().contiguous()
        for group, members in _groups(state).items()
        for name, tensor in members.items()
    }
    metadata = {
        "format": _FORMAT,
        "job": _identity(job),
        "position": state.position.model_dump_json(),
    }
    return save_tensors(tensors, metadata)


def from_bytes(content: bytes, *, job: TrainJob) -> ResumeState:
    """Read what `to_bytes` wrote for the same job; the tensors are on the CPU.

    Raises:
        CheckpointError: The bytes are damaged, are something else, or belong to another trial.
    """
    try:
        tensors = load_tensors(content)
        position = position_in(_metadata(content), job=job)
        groups: dict[str, Tensors] = {name: {} for name in GROUPS}
        for key, tensor in tensors.items():
            group, name = key.split(":", 1)
            groups[group][name] = tensor
    except (SafetensorError, ValidationError, ValueError, KeyError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"the resume file is damaged: {error}") from error
    return ResumeState(
        position,
        model=groups["model"],
        best=groups["best"],
        best_unrounded=groups["best_unrounded"],
        optimizer=groups["optimizer"],
        best_optimizer=groups["best_optimizer"],
        generators=groups["rng"],
        carried=groups["carried"],
    )


def position_in(metadata: Mapping[str, str], *, job: TrainJob) -> Position:
    """How far training is, by the metadata of a resume file of the same job.

    Raises:
        CheckpointError: they are of something else, or belong to another trial.
        KeyError, ValidationError: there is no position among them.
    """
    if metadata.get("format") != _FORMAT:
        raise CheckpointError(
            f"not a resume file: its format is {metadata.get('format')!r}, expected {_FORMAT!r}"
        )
    if metadata.get("job") != _identity(job):
        raise CheckpointError(
            f"the resume file belongs to another trial: {metadata.get('job')}; "
            f"expected is {_identity(job)}"
        )
    return Position.model_validate_json(metadata["position"])


def _groups(state: ResumeState) -> dict[str, Tensors]:
    return {
        "model": state.model,
        "best": state.best,
        "best_unrounded": state.best_unrounded,
        "optimizer": state.optimizer,
        "best_optimizer": state.best_optimizer,
        "rng": state.generators,
        "carried": state.carried,
    }


def _identity(job: TrainJob) -> str:
    """What the numbers follow from: the task and the trial, not how long it trains."""
    return json.dumps(
        {"task": job.task.model_dump(mode="json"), "trial": job.trial.model_dump(mode="json")},
        sort_keys=True,
    )


def _metadata(content: bytes) -> dict[str, str]:
    """Read the metadata from safetensors' header, which its own loader of bytes does not give out.

    The header is JSON behind its length as 8 little-endian bytes.
    """
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]).get("__metadata__", {})
