"""One way to train, for originals and for all that is made of them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.linear import cached_forms
from models.model import after_step, parameter_groups
from models.quantization import Bits, round_, rounded_for_a_step, rounded_weights
from search.tasks import Split, Splits
from search.tasks.soft_targets import soft_classes

TEMPERATURE, TAUGHT_SHARE = 2.0, 0.5
"""How all contestants learn from their original, beside the labels."""
LAST_RATE = 0.1
"""The last epoch's learning rate, as a share of the first one's."""
CLIP_NORM = 1.0
_EVALUATION_BATCH = 1000


@dataclass(frozen=True)
class Trained:
    """The best epoch by validation, in shares of samples."""

    validation: float
    test: float
    epoch: int
    at_start: float
    """Test accuracy before the first epoch."""


def fit(
    module: nn.Module,
    splits: Splits[Split],
    *,
    batch_size: int,
    epochs: int,
    rate: float,
    seed: int,
    answers: Tensor | None = None,
    before_epoch: Callable[[float], None] = lambda _: None,
    counts_from: int = 0,
    bits: Bits | None = None,
    quantised_epochs: int = 0,
) -> Trained:
    """Train a module in place and leave it as it was in its best epoch.

    With few bits it is the rounded module that is judged, and that is left.

    Args:
        module: maps `[B, T, features]` to logits.
        splits: the task's data.
        batch_size: samples in each step.
        epochs: passes over the training split, along which the learning rate falls to a tenth.
        rate: Adam's in the first epoch.
        seed: of the samples' order.
        answers: logits of an original for the training split `[N, classes]`, to learn from.
        before_epoch: called with the share of epochs that are behind.
        counts_from: the first epoch whose result may be the best; 0 is what there was at the start.
        bits: what the module's numbers are rounded to; None: single precision.
        quantised_epochs: the last ones, in which gradients are those at the rounded numbers.
    """
    optimizer = torch.optim.Adam(parameter_groups(module, rate))
    rates = [group["lr"] for group in optimizer.param_groups]
    order = torch.Generator().manual_seed(seed)
    at_start = _accuracy(module, splits.test, bits)[0]
    best, best_state = (-1.0, 0.0, 0), _copy(module)
    if counts_from == 0:
        best = (*_accuracy(module, splits.validation, bits), 0)
    for epoch in range(1, epochs + 1):
        before_epoch((epoch - 1) / epochs)
        decay = LAST_RATE ** ((epoch - 1) / max(1, epochs - 1))
        for group, first in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = first * decay
        module.train()
        step_bits = bits if epoch > epochs - quantised_epochs else None
        for rows in torch.randperm(len(splits.train), generator=order).split(batch_size):
            optimizer.zero_grad()
            with rounded_for_a_step(module, step_bits):
                output, labels = module(splits.train.x[rows]), splits.train.y[rows]
                loss = F.cross_entropy(output, labels)
                if answers is not None:
                    taught = soft_classes(output, answers[rows], labels, TEMPERATURE)
                    loss = (1 - TAUGHT_SHARE) * loss + TAUGHT_SHARE * taught
                loss.backward()  # pyright: ignore[reportUnknownMemberType] -- untyped
            nn.utils.clip_grad_norm_(module.parameters(), CLIP_NORM)
            optimizer.step()  # pyright: ignore[reportUnknownMemberType] -- untyped
            after_step(module)
        found = (*_accuracy(module, splits.validation, bits), epoch)
        # Of equal accuracies the lower loss.
        if epoch >= counts_from and found[:2] > best[:2]:
            best, best_state = found, _copy(module)
    module.load_state_dict(best_state)
    if bits is not None:
        round_(module, bits)
    return Trained(best[0], _accuracy(module, splits.test)[0], best[2], at_start)


@torch.no_grad()
def answers_of(module: nn.Module, split: Split) -> Tensor:
    """Logits for all samples of a split, in its order `[N, classes]`."""
    module.eval()
    with cached_forms(module):
        return torch.cat([module(x) for x in split.x.split(_EVALUATION_BATCH)])


def _accuracy(module: nn.Module, split: Split, bits: Bits | None = None) -> tuple[float, float]:
    """The share of right answers, and minus the loss, of the module with rounded numbers."""
    with rounded_weights(module, bits):
        answers = answers_of(module, split)
    right = (answers.argmax(-1) == split.y).double().mean()
    return float(right), -float(F.cross_entropy(answers, split.y))


def _copy(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}
