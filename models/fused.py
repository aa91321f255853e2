"""Networks for inference alone: what a network computes, without what it is stored as."""

import copy
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

from models.architectures.highway import NormalisedMiddle
from models.errors import ModelError
from models.forms import Form
from models.kernels.choice import Backend
from models.linear import StructuredLinear, cache_forms, clear_forms, stored_matrices
from models.math.weight_norm import NormalisedRows
from models.network import Network


def fuse(network: Network) -> "FusedNetwork":
    """A copy of a network, as it is now, that answers faster and learns no more.

    Structured weights are there in the form that is applied, low rank plus a diagonal or dense by
    `factored_form_pays`, and packed for the kernels where these run; what they were made of is
    gone. To store a network, save the one that was fused: a checkpoint holds structured weights.
    """
    folds = not any(isinstance(part, NormalisedMiddle) for part in network.modules())
    with torch.no_grad():
        frozen: dict[int, Any] = {
            id(part): FrozenLinear(part, fold=folds) for part in stored_matrices(network)
        }
        # A deep copy takes what its memo has for an object in the object's place.
        copied = copy.deepcopy(network, frozen)
        copied.probe = None
        clear_forms(copied)
        for part in list(copied.modules()):
            _freeze_(part)
    return FusedNetwork(copied)


class FusedNetwork(nn.Module):
    """A network that answers and does not learn; see `fuse`. It has no parameters."""

    def __init__(self, network: Network) -> None:
        """`network` is for this one alone, and has buffers only."""
        super().__init__()
        self.network = network
        super().train(mode=False)
        cache_forms(network)

    @torch.inference_mode()
    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """As the network that was fused answers in evaluation mode.

        Raises:
            InputError: x has another shape or type.
        """
        return self.network(x, lengths)

    @torch.inference_mode()
    def backends(self, *, batch_size: int = 1) -> tuple[Backend, ...]:
        """What runs the network, see `Network.backends`."""
        return self.network.backends(batch_size=batch_size)

    def train(self, mode: bool = True) -> Self:
        """Stay as it is.

        Raises:
            ModelError: a mode is asked for in which it would learn.
        """
        if mode:
            raise ModelError(
                "a fused network cannot be trained: what its weights were made of is gone; "
                "train the network that was fused, and fuse that again"
            )
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Packed matrices are of one device and type: they are packed anew after a move."""
        clear_forms(self.network)
        moved = super()._apply(fn, recurse)  # pyright: ignore[reportUnknownMemberType] -- untyped
        cache_forms(self.network)
        return moved


class FrozenLinear(StructuredLinear):
    """The matrices of a structured weight, as they were, in the form that is applied."""

    def __init__(self, linear: StructuredLinear, *, fold: bool) -> None:
        """With `fold` it is the form in which the matrices answer fastest."""
        super().__init__(linear.slot)
        form = linear.form().for_inference() if fold else linear.form()
        for index, tensor in enumerate(form.tensors()):
            own = tensor.detach().clone(memory_format=torch.contiguous_format)
            self.register_buffer(f"part_{index}", own, persistent=False)
        # The buffers are moved; a form would keep what they were.
        self._empty = form.rebuild([tensor.to("meta") for tensor in form.tensors()])

    def make_form(self) -> Form:
        """The matrices themselves."""
        return self._empty.rebuild(tuple(self.buffers()))

    def degrees_of_freedom(self) -> int:
        """None: nothing is free any more."""
        return 0


def _freeze_(part: nn.Module) -> None:
    """Make buffers of a module's own parameters, and a matrix of rows that are normalised."""
    for name, child in list(part.named_children()):
        if isinstance(child, NormalisedRows):
            matrix = child().detach()
            delattr(part, name)
            part.register_buffer(name, matrix, persistent=False)
    for name, parameter in list(part.named_parameters(recurse=False)):
        delattr(part, name)
        part.register_buffer(name, parameter.detach(), persistent=False)
