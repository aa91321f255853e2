"""What a model loses when it learns from another's answers in place of the samples' own.

Hinton, Vinyals, Dean: Distilling the Knowledge in a Neural Network (arXiv:1503.02531). Gradients of
distributions that are softened by T shrink with its square, so that the divergence counts T^2 times
and keeps its weight beside the task's own loss.
"""

from torch import Tensor
from torch.nn import functional as F

from search.tasks.samples import IGNORED


def soft_classes(output: Tensor, teacher: Tensor, target: Tensor, temperature: float) -> Tensor:
    """`T^2 KL(softmax(teacher / T) || softmax(output / T))`, the mean over answers that count.

    Logits are `[..., classes]` and targets `[...]`: the steps that a task ignores are left out.
    """
    counted = target != IGNORED
    student = F.log_softmax(output[counted] / temperature, dim=-1)
    wanted = F.log_softmax(teacher[counted] / temperature, dim=-1)
    divergence = F.kl_div(student, wanted, reduction="batchmean", log_target=True)
    return temperature**2 * divergence


def soft_labels(output: Tensor, teacher: Tensor, _target: Tensor, temperature: float) -> Tensor:
    """`T^2 KL` of each label's own two outcomes, the mean over samples and labels `[B, L]`."""
    student, wanted = output / temperature, teacher / temperature
    yes, no = F.logsigmoid(wanted), F.logsigmoid(-wanted)
    divergence = yes.exp() * (yes - F.logsigmoid(student))
    divergence = divergence + no.exp() * (no - F.logsigmoid(-student))
    return temperature**2 * divergence.mean()


def soft_numbers(output: Tensor, teacher: Tensor, _target: Tensor, _temperature: float) -> Tensor:
    """Mean squared difference of predictions `[..., K]`; numbers have no temperature."""
    return F.mse_loss(output, teacher)
