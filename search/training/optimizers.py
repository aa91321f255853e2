"""The optimizers that the papers train with: how they are made, and their state as tensors."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Adagrad, Adam, Optimizer, RMSprop

from models.model import parameter_groups
from search.training.resume import Tensors
from search.training.trial_spec import OptimizerName, TrainingSpec

_Groups: TypeAlias = list[dict[str, Any]]


def _fused(groups: _Groups) -> bool | None:
    """One call per step on CPUs, where small models else spend more on calls than on numbers.

    What is left to torch on GPUs keeps its step counts on the CPU.
    """
    on_cpu = all(tensor.device.type == "cpu" for group in groups for tensor in group["params"])
    return True if on_cpu else None


def _adam(groups: _Groups, _training: TrainingSpec) -> Optimizer:
    return Adam(groups, fused=_fused(groups))


def _rmsprop(groups: _Groups, training: TrainingSpec) -> Optimizer:
    # With the least number in the place of 0 nothing is 0 / 0 where averages fade away.
    eps = training.rmsprop_eps or torch.finfo(torch.float32).tiny
    optimizer = RMSprop(groups, alpha=0.9, eps=eps)
    if training.rmsprop_start:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                start = torch.full_like(parameter, training.rmsprop_start, requires_grad=False)
                optimizer.state[parameter] = {"step": torch.zeros(()), "square_avg": start}
    return optimizer


def _adagrad(groups: _Groups, _training: TrainingSpec) -> Optimizer:
    return Adagrad(groups, fused=_fused(groups))


def _sgd(groups: _Groups, _training: TrainingSpec) -> Optimizer:
    return torch.optim.SGD(groups, fused=_fused(groups))


OPTIMIZERS: Final[Mapping[OptimizerName, Callable[[_Groups, TrainingSpec], Optimizer]]] = {
    "adam": _adam,
    "rmsprop": _rmsprop,
    "adagrad": _adagrad,
    "sgd": _sgd,
}
"""By name, as made of parameter groups. None of them decays weights: `decay_weights` does."""


STATES: Final[Mapping[OptimizerName, int]] = {"adam": 2, "rmsprop": 1, "adagrad": 1, "sgd": 0}
"""Numbers that each keeps of past steps for every parameter."""


def make_optimizer(module: nn.Module, training: TrainingSpec) -> Optimizer:
    """The trial's optimizer over all parameters, at the first epoch's learning rates.

    RMSprop is `v <- 0.9 v + 0.1 g^2`, `w <- w - lr g / (sqrt(v) + eps)`: the averages of the code
    of Arjovsky et al. (uRNN) and Miceli Barone (low-rank GRU), which start v at 1e-3 and have no
    eps. By default v starts at 0 and eps is 1e-8, as with torch: the first steps are then longer.
    """
    groups = [{**group} for group in parameter_groups(module, training.learning_rate)]
    return OPTIMIZERS[training.optimizer](groups, training)


@torch.no_grad()
def decay_weights(optimizer: Optimizer, weight_decay: float) -> None:
    """Shrink the weights by the learning rate times `weight_decay`, just before a step.

    The rate is the same for all: what scales the steps of a parameter scales its gradient alone.
    Decoupled from the gradient (Loshchilov and Hutter, ICLR 2019): with Adam this is AdamW. torch's
    other optimizers would put the decay into the gradient, where RMSprop and Adagrad divide it by
    the gradient's own size.
    """
    if weight_decay == 0:
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.mul_(1 - group["lr"] / group["scale"] * weight_decay)


def state_of(optimizer: Optimizer, module: nn.Module) -> Tensors:
    """What an optimizer keeps of past steps, by `<parameter>/<quantity>`."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in module.named_parameters()}
    return {
        f"{names[parameter]}/{quantity}": tensor
        for parameter, quantities in optimizer.state.items()
        for quantity, tensor in quantities.items()
    }


def restore_state(optimizer: Optimizer, module: nn.Module, state: Tensors) -> None:
    """Give an optimizer what `state_of` told of another of its kind.

    Raises:
        KeyError: the state names a parameter that the module does not have.
    """
    named = dict(module.named_parameters())
    for key, tensor in state.items():
        name, quantity = key.rsplit("/", 1)
        parameter = named[name]
        # torch keeps step counts on the CPU, wherever the parameters are.
        home = torch.device("cpu") if quantity == "step" else parameter.device
        optimizer.state[parameter][quantity] = tensor.to(home, copy=True)
