"""What happens to gradients between the backward pass and the optimizer's step."""

from torch import nn

from search.training.trial_spec import TrainingSpec


def clip_gradients(module: nn.Module, training: TrainingSpec) -> float:
    """Clip the gradients in place: each component by `clip_value`, then all by `clip_norm`.

    Returns the norm of all gradients together, as it is between the two. Where that is NaN or Inf
    the gradients are of no use afterwards.
    """
    parameters = list(module.parameters())
    if training.clip_value is not None:
        nn.utils.clip_grad_value_(parameters, training.clip_value)
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = nn.utils.get_total_norm(gradients)
    if training.clip_norm is not None:
        nn.utils.clip_grads_with_norm_(parameters, training.clip_norm, norm)
    return norm.item()


def shrink_instead(module: nn.Module, factor: float) -> None:
    """Put `factor` times the parameters in the place of their gradients.

    The step that follows shrinks the weights, until what overflowed does so no more. It is not
    clipped. Source: the code of Miceli Barone, Low-rank passthrough neural networks (2018).
    """
    for parameter in module.parameters():
        if parameter.requires_grad:
            parameter.grad = factor * parameter.detach()
