"""The activations that architectures offer."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Activation = Literal["leaky_relu", "abs", "relu", "tanh", "identity"]


def activation_of(name: Activation, *, leak: float) -> Callable[[Tensor], Tensor]:
    """The function of that name; `leak` is the slope of leaky_relu below 0."""
    functions: dict[Activation, Callable[[Tensor], Tensor]] = {
        "leaky_relu": partial(F.leaky_relu, negative_slope=leak),
        "abs": modulus,
        "relu": torch.relu,
        "tanh": torch.tanh,
        "identity": _identity,
    }
    return functions[name]


def modulus(x: Tensor) -> Tensor:
    """|x| with slope 1 at 0, where `torch.abs` has slope 0 and loses the gradient's norm."""
    return torch.where(x < 0, -x, x)


def _identity(x: Tensor) -> Tensor:
    return x
