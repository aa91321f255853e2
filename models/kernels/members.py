"""One call of an operator for many models: what `torch.vmap` does with our operators.

A rule gets each tensor with the place of its members' axis, None where all members share it. It
gives results, and the places of their members' axes.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

Rule = Callable[..., tuple[Any, Any]]


def is_stacked() -> bool:
    """Whether what is computed now is carried over the members of a stack."""
    functorch = cast(Any, torch._C)._functorch  # pyright: ignore[reportPrivateUsage] -- nothing public says it
    return functorch.maybe_current_level() is not None


def folded(tensor: Tensor, axis: int | None, members: int) -> Tensor:
    """With the members' axis folded into the first one, which counts models or matrices."""
    own = tensor.expand(members, *tensor.shape) if axis is None else tensor.movedim(axis, 0)
    return own.flatten(0, 1)


def unfolded(tensor: Tensor, members: int) -> Tensor:
    """With the members' axis in front, of what was computed with it folded."""
    return tensor.view(members, -1, *tensor.shape[1:])


def any_learns(arguments: Sequence[Any]) -> bool:
    """Whether gradients are wanted of any of the members' tensors.

    Who calls for one member does not see it: its tensors stand for those of all.
    """
    tensors = (one for one in arguments if isinstance(one, Tensor))
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
