"""What a backend is given: one layer's sequence."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

from models.forms.form import Form
from models.kernels.calls import Kind, Packed
from models.kernels.choice import Backend
from models.math.products import affine

State: TypeAlias = tuple[Tensor, ...]
"""A cell's state: tensors `[B, n]`, of which the first, h, is what the next layer reads."""

Loop: TypeAlias = Callable[..., Iterator[State]]
"""Form, projections `[T, B, G*n]` and the first state -> T states."""


NARROW_INPUTS = 20
"""So many at most: their matrix `[G*n, I]` has few columns."""
LARGE_PROJECTION = 1 << 18
"""Numbers of a projection, below which its order makes no difference to speak of."""


@dataclass(frozen=True, eq=False)
class PlainInputs:
    """Inputs x `[T, B, I]` with a plain matrix `[G*n, I]` and bias `[G*n]` for all gates."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None

    def projections(self) -> Tensor:
        """What they add to the gates, `[T, B, G*n]`."""
        if not self._is_narrow():
            return affine(self.x, self.weight, self.bias)
        # The gradient of a matrix is made in the matrix's own order, and few columns take CPUs
        # twice as long as few rows.
        rows, matrix = self.x.flatten(0, -2), self.weight.t().contiguous()
        sums = rows @ matrix if self.bias is None else torch.addmm(self.bias, rows, matrix)
        return sums.view(*self.x.shape[:-1], len(self.weight))

    def _is_narrow(self) -> bool:
        *samples, inputs = self.x.shape
        on_cpu = self.x.device.type == "cpu"
        return (
            on_cpu
            and 1 < inputs <= NARROW_INPUTS
            and math.prod(samples) * len(self.weight) >= LARGE_PROJECTION
        )

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
    """The recurrent matrices, with the biases of their products where there are some."""
    inputs: Inputs
    """What the cell reads."""
    initial: State
    """The state before the first step, each part `[B, n]`."""
    return_sequences: bool = True
    """Whether all states are wanted, or the last one alone."""
    lengths: Tensor | None = None
    """int64 `[B]`, from 1 to T: a sample's last state is that after its own length, and its states
    behind that are of no use. None where all are T."""
    carries: bool = True
    """Whether the last state is gone on from; else of a ragged batch's h alone has to be right."""
    rescaling: Tensor | None = None
    """`[n]`, the bias of the uRNN's rescaling; None of all other cells."""
    packed: Packed | None = None
    """The matrices as `pack` gave them, where it did."""

    @property
    def state(self) -> Tensor:
        """H before the first step, `[B, n]`."""
        return self.initial[0]

    @property
    def ends_are_states(self) -> bool:
        """Whether all that is wanted of the last state is among the states h of all steps."""
        return len(self.initial) == 1 or not self.carries

    def learns(self) -> bool:
        """Whether a backward pass may follow."""
        if not torch.is_grad_enabled():
            return False
        own = () if self.rescaling is None else (self.rescaling,)
        tensors = (*self.form.tensors(), *self.inputs.tensors(), *self.initial, *own)
        return any(tensor.requires_grad for tensor in tensors)


def with_own_ends(states: Tensor, last: State, lengths: Tensor | None) -> tuple[Tensor, State]:
    """All h `[T, B, n]`, and of the last state the h that each sample has after its own length."""
    if lengths is None:
        return states, last
    ends = (lengths - 1).view(1, -1, 1).expand(1, -1, states.shape[-1])
    return states, (states.gather(0, ends).squeeze(0), *last[1:])


class SequenceBackend(Protocol):
    """Who computes sequences."""

    name: Backend

    def takes(self, call: SequenceCall) -> bool:
        """Whether it computes this call, as it is and as it would be run now."""
        ...

    def run(self, call: SequenceCall) -> tuple[Tensor, State]:
        """All h `[T, B, n]` (without `return_sequences` nothing of use), and the last state."""
        ...
