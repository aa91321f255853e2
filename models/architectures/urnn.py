"""The unitary recurrent network: complex states that keep their norm."""

import math
from collections.abc import Iterator
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from models.architectures.recurrent import Recurrent
from models.architectures.recurrent_network import Cell, RecurrentNetwork
from models.backends.loops import State, urnn_sequence
from models.forms import Form
from models.math.initialisation import uniform_
from models.spec import Signature, Slot


class Urnn(Recurrent):
    """`z_t = rescale(W z_{t-1} + V x_t)` with complex z, `o_t = U (re z_t | im z_t) + c`.

    `rescale(z) = z max(|z| + b, 0) / (|z| + 1e-5)`. The parametrization stores the complex W:
    unitary_fft gives the uRNN (and RC-uRNN, which is the same one trained longer), unitary_full
    the FC-uRNN.
    """

    title: ClassVar[str] = "uRNN"
    paper: ClassVar[str] = (
        "Arjovsky, Shah, Bengio: Unitary Evolution Recurrent Neural Networks (ICML 2016, "
        "arXiv:1511.06464); Wisdom et al.: Full-Capacity Unitary Recurrent Neural Networks (NIPS "
        "2016, arXiv:1611.00035)"
    )

    compiled: ClassVar[bool] = True

    kind: Literal["urnn"] = "urnn"

    def cell(self, *, generator: torch.Generator) -> "UrnnCell":
        """The recurrence, with b of U(±0.01)."""
        return UrnnCell(self.hidden_size, generator=generator)

    def initialise(self, network: RecurrentNetwork, *, generator: torch.Generator) -> None:
        """h_0 of U(±sqrt(3 / (2 n)))."""
        if network.initial_state is not None:
            limit = math.sqrt(3 / (2 * self.hidden_size))
            uniform_(network.initial_state, -limit, limit, generator=generator)

    @property
    def state_size(self) -> int:
        """Real and imaginary parts."""
        return 2 * self.hidden_size

    def saved_numbers(self, signature: Signature, *, batch_size: int) -> int:
        """With what the inputs add to each step, and its gradient: no kernel projects them.

        Loops over steps keep more, which the matrices tell: see `kept_numbers` of complex ones.
        """
        projected = signature.sequence_length * self.layers * 2 * self.state_size
        return super().saved_numbers(signature, batch_size=batch_size) + projected

    @property
    def input_bias(self) -> bool:
        """None: the bias is b, inside the rescaling."""
        return False

    def recurrent_slot(self) -> Slot:
        """Complex matrices."""
        size = self.hidden_size
        return Slot(out_features=size, in_features=size, layers=self.layers, field="complex")


class UrnnCell(Cell):
    """The rescaling of the states' moduli, with its bias b `[n]`."""

    def __init__(self, size: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.empty(size))
        uniform_(self.bias, -0.01, 0.01, generator=generator)

    @property
    def rescaling(self) -> Tensor:
        """The cell's own b `[n]`."""
        return self.bias

    def forward(self, form: Form, projections: Tensor, initial: State) -> Iterator[State]:
        """See `models.backends.loops.urnn_sequence`."""
        return urnn_sequence(form, projections, initial, bias=self.bias)
