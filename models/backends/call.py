"""What a backend is given: one layer's sequence."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from models.forms.form import Form
from models.kernels.calls import Kind, Packed
from models.kernels.choice import Backend

State: TypeAlias = tuple[Tensor, ...]
"""A cell's state: tensors `[B, n]`, of which the first, h, is what the next layer reads."""

Loop: TypeAlias = Callable[..., Iterator[State]]
"""Form, projections `[T, B, G*n]` and the first state -> T states; with a keyword
`candidate_bias` where a GRU has one."""


@dataclass(frozen=True, eq=False)
class PlainInputs:
    """Inputs x `[T, B, I]` with a plain matrix `[G*n, I]` and bias `[G*n]` for all gates."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None

    def projections(self) -> Tensor:
        """What they add to the gates, `[T, B, G*n]`."""
        return F.linear(self.x, self.weight, self.bias)

    def tensors(self) -> tuple[Tensor, ...]:
        """All that gradients may be wanted of."""
        return tuple(part for part in (self.x, self.weight, self.bias) if part is not None)


@dataclass(frozen=True, eq=False)
class ProjectedInputs:
    """What the inputs add to the gates `[T, B, G*n]`, computed already."""

    addends: Tensor

    def projections(self) -> Tensor:
        """What they add to the gates, `[T, B, G*n]`."""
        return self.addends

    def tensors(self) -> tuple[Tensor, ...]:
        """All that gradients may be wanted of."""
        return (self.addends,)


Inputs: TypeAlias = PlainInputs | ProjectedInputs


class SequenceCall(NamedTuple):
    """One layer's sequence."""

    kind: Kind | None
    """What the kernels call the cell; None where only its loop computes it."""
    loop: Loop
    """The cell in torch's operations, step by step."""
    form: Form
    """The recurrent matrices."""
    inputs: Inputs
    """What the cell reads."""
    initial: State
    """The state before the first step, each part `[B, n]`."""
    return_sequences: bool = True
    """Whether all states are wanted, or the last one alone."""
    lengths: Tensor | None = None
    """int64 `[B]`, from 1 to T: a sample's state stays after its length. None where all are T."""
    candidate_bias: Tensor | None = None
    """`[n]`, which a GRU that resets after its matrix adds to `W_q h`."""
    rescaling: Tensor | None = None
    """`[n]`, the bias of the uRNN's rescaling; None of all other cells."""
    packed: Packed | None = None
    """The matrices as `pack` gave them, where it did."""

    @property
    def state(self) -> Tensor:
        """H before the first step, `[B, n]`."""
        return self.initial[0]

    def learns(self) -> bool:
        """Whether a backward pass may follow."""
        if not torch.is_grad_enabled():
            return False
        biases = (self.candidate_bias, self.rescaling)
        tensors = (*self.form.tensors(), *self.inputs.tensors(), *self.initial, *biases)
        return any(tensor is not None and tensor.requires_grad for tensor in tensors)


class SequenceBackend(Protocol):
    """Who computes sequences."""

    name: Backend

    def takes(self, call: SequenceCall) -> bool:
        """Whether it computes this call, as it is and as it would be run now."""
        ...

    def run(self, call: SequenceCall) -> tuple[Tensor, State]:
        """All h `[T, B, n]` (without `return_sequences` nothing of use), and the last state."""
        ...
