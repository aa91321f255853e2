"""What is differentiated in the place of a task's own loss, and the penalty on the readout."""

from collections.abc import Callable, Mapping
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from models.linear import Affine
from search.tasks import Criterion, Meter, Metric, squared_hinge
from search.training.trial_spec import LossName, TrainingSpec

_LOSSES: Final[Mapping[LossName, Callable[[Tensor, Tensor], Tensor] | None]] = {
    "task": None,
    "squared_hinge": squared_hinge,
}
"""By name; None is the task's own."""


@final
class _Trained:
    """A task whose models are trained on another loss; what it measures stays the same."""

    def __init__(self, task: Criterion, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        self._task, self._loss = task, loss

    @property
    def metric(self) -> Metric:
        """The task's own."""
        return self._task.metric

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The other loss."""
        return self._loss(output, target)

    def soft_loss(
        self, output: Tensor, teacher: Tensor, target: Tensor, temperature: float
    ) -> Tensor:
        """The task's own."""
        return self._task.soft_loss(output, teacher, target, temperature)

    def meter(self) -> Meter:
        """The task's own."""
        return self._task.meter()


def criterion_of(task: Criterion, training: TrainingSpec) -> Criterion:
    """The task as a trial is trained for it, and held-out losses are of the same kind."""
    loss = _LOSSES[training.loss]
    return task if loss is None else _Trained(task, loss)


def readout_penalty(network: nn.Module, weight: float) -> Tensor:
    """`weight * ||Y||_F / numel(Y)` of the readout's matrix Y, a scalar.

    The norm is not squared (Miceli Barone's code for the Highway network). With no weight it is 0.
    """
    readout = network.get_submodule("readout")
    assert isinstance(readout, Affine)
    matrix = readout.plain_weight()
    norms: Any = torch.linalg
    return weight / matrix.numel() * norms.vector_norm(matrix)
