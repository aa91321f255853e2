"""How good members are on held-out samples."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from models.backends.loops import State
from search.errors import TrainingDiverged
from search.tasks import EVALUATION_ROWS, Meter, Samples
from search.training.stacks.engine import Networks, listed, settle
from search.training.stacks.member import Found, Member


@torch.no_grad()
def evaluate(
    networks: Networks,
    members: Sequence[Member],
    samples: Samples,
    *,
    batch: Callable[[], AbstractContextManager[None]],
) -> list[Found | TrainingDiverged]:
    """All metrics of a split and its loss, of each member, or why there are none.

    Args:
        networks: those of the members, in their order.
        members: at least one; all have one task and device.
        samples: the split.
        batch: encloses the device's work on each batch.
    """
    device = members[0].device
    sums = [_Sum(member) for member in members]
    carried: State = ()
    counts = 0
    with networks.for_inference():
        for named in samples.batches(EVALUATION_ROWS, None):
            with batch():
                taken = samples.take(named)
                outputs, carried = networks.answer(samples, taken, carried)
                finite = listed(torch.isfinite(outputs).flatten(1).all(1))
                losses = networks.losses(outputs, taken.y)
                for place, one in enumerate(sums):
                    one.add(
                        outputs[place],
                        taken.y,
                        losses[place] * taken.counts,
                        is_finite=finite[place],
                    )
                counts += taken.counts
                settle(device)
            if all(one.diverged for one in sums):
                break
    return [one.found(counts) for one in sums]


class _Sum:
    """What is added up of one member."""

    def __init__(self, member: Member) -> None:
        self._member, self._loss = member, 0.0
        self._meter: Meter = member.task.meter()
        self.diverged: TrainingDiverged | None = None

    def add(self, output: Tensor, y: Tensor, loss: float, *, is_finite: bool) -> None:
        if self.diverged is not None:
            return
        if not is_finite:
            bad = int((~torch.isfinite(output)).sum())
            self.diverged = TrainingDiverged(
                f"epoch {self._member.progress.epoch}: {bad} of {output.numel()} "
                f"predictions of a batch of held-out samples are NaN or Inf"
            )
            return
        self._meter.add(output, y)
        self._loss += loss

    def found(self, counts: int) -> Found | TrainingDiverged:
        if self.diverged is not None:
            return self.diverged
        name = self._member.task.metric.name
        values = dict(self._meter.values())
        if not math.isfinite(values[name]):
            return TrainingDiverged(
                f"epoch {self._member.progress.epoch}: {name} on held-out samples is {values[name]}"
            )
        return Found(values, self._loss / counts if math.isfinite(self._loss) else None)
