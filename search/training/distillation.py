"""Learning from the original's answers while a trial is trained, see `Distillation`."""

import torch
from torch import Tensor, nn

from models.backends.loops import State
from models.network import Network
from search.tasks import Batch, Batches, Criterion
from search.training.compression import Distillation


class Teacher:
    """An original, whose answers a trial's loss compares the model's with.

    It answers as it does when it is used: without dropout, and without gradients.
    """

    def __init__(self, network: Network, distillation: Distillation, device: torch.device) -> None:
        self._network: nn.Module = network.to(device).eval().requires_grad_(False)
        self._step = network.step
        self._distillation = distillation
        self.carried: State = ()
        """The state in which it ended the last batch, where the next one goes on from it."""

    def loss(
        self, output: Tensor, batch: Batch, own: Tensor, *, task: Criterion, carries_state: bool
    ) -> Tensor:
        """The loss that is differentiated: `own`, the task's, and the distance from the answers."""
        weight = self._distillation.distillation_weight
        with torch.no_grad():
            answer = self._answer(batch, carries_state=carries_state)
        soft = task.soft_loss(output, answer, batch.y, self._distillation.temperature)
        return (1 - weight) * own + weight * soft

    @torch.no_grad()
    def answers(
        self, batches: Batches, carried: State, *, carries_state: bool
    ) -> tuple[Tensor, State]:
        """What it answers to the batches of K students `[K, B, ...]`, and where it ends in each.

        Args:
            batches: theirs.
            carried: where it ended their last ones, parts `[K, B, n]`.
            carries_state: whether it goes on from there.
        """
        members, x = len(batches.x), batches.x.flatten(0, 1)

        def each(of_all: Tensor) -> Tensor:
            return of_all.view(members, -1, *of_all.shape[1:])

        if not carries_state:
            lengths = None if batches.lengths is None else batches.lengths.flatten()
            return each(self._network(x, lengths=lengths).contiguous()), ()
        answers, state = self._step(x, tuple(part.flatten(0, 1) for part in carried))
        return each(answers.contiguous()), tuple(each(part) for part in state)

    def _answer(self, batch: Batch, *, carries_state: bool) -> Tensor:
        if not carries_state:
            return self._network(batch.x, lengths=batch.lengths)
        answer, self.carried = self._step(batch.x, self.carried)
        return answer
