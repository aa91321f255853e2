"""How far answers are from the original's.

Hinton, Vinyals, Dean: Distilling the Knowledge in a Neural Network (arXiv:1503.02531). Gradients of
distributions that are softened by T shrink with its square, so that the divergence counts T² times.
"""

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

AnswerKind: TypeAlias = Literal["probabilities", "logits", "events", "numbers"]
"""Distributions over the last axis; their logits; single probabilities of events; anything else."""

_SMALLEST = 1e-7
"""Probabilities below it count as this one, whose logarithm is finite."""

Loss: TypeAlias = Callable[[Tensor, Tensor, float], Tensor]
"""Of an answer, the original's answer `[..., n]` and T."""


def _logits(answer: Tensor, wanted: Tensor, temperature: float) -> Tensor:
    """`T² KL`, the mean over distributions."""
    student = F.log_softmax(answer / temperature, -1)
    teacher = F.log_softmax(wanted / temperature, -1)
    return temperature**2 * (teacher.exp() * (teacher - student)).sum(-1).mean()


def _probabilities(answer: Tensor, wanted: Tensor, temperature: float) -> Tensor:
    # Logarithms of probabilities are logits of the same distribution.
    student, teacher = (one.clamp_min(_SMALLEST).log() for one in (answer, wanted))
    return _logits(student, teacher, temperature)


def _events(answer: Tensor, wanted: Tensor, temperature: float) -> Tensor:
    """`T² KL` of the two outcomes of each event, the mean over events."""
    student, teacher = (torch.logit(one, eps=1e-6) / temperature for one in (answer, wanted))
    yes, no = F.logsigmoid(teacher), F.logsigmoid(-teacher)
    divergence = yes.exp() * (yes - F.logsigmoid(student))
    divergence = divergence + no.exp() * (no - F.logsigmoid(-student))
    return temperature**2 * divergence.mean()


def _numbers(answer: Tensor, wanted: Tensor, _temperature: float) -> Tensor:
    """Squared error as a share of the variance; numbers have no temperature."""
    spread = (wanted - wanted.mean()).square().sum()
    return (answer - wanted).square().sum() / spread.clamp_min(1e-12)


LOSSES: Mapping[AnswerKind, Loss] = {
    "events": _events,
    "logits": _logits,
    "numbers": _numbers,
    "probabilities": _probabilities,
}


def answers_loss(
    answers: Mapping[str, Tensor],
    wanted: Mapping[str, Tensor],
    kinds: Mapping[str, AnswerKind],
    temperature: float = 1.0,
) -> Tensor:
    """The sum over the outputs that are named, of `T² KL` or of the squared error."""
    parts = [
        LOSSES[kind](answers[name].float(), wanted[name].float(), temperature)
        for name, kind in kinds.items()
    ]
    return torch.stack(parts).sum()
