"""The long short-term memory."""

from collections.abc import Iterator
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from models.architectures.recurrent import Recurrent
from models.architectures.recurrent_network import Cell, RecurrentNetwork
from models.backends.loops import State, lstm_sequence
from models.backends.sequences import vendor_trains_lstm
from models.forms import Form
from models.kernels.calls import KEPT_GATES, Kind
from models.linear import Affine
from models.parametrizations import Parametrization
from models.spec import Signature


class Lstm(Recurrent):
    """`c_t = f * c_{t-1} + i * z`, `h_t = o * tanh(c_t)` with gates i, f, o and candidate z.

    `i = sigmoid(W_i h + U_i x + b_i)`, f and o likewise, `z = tanh(W_z h + U_z x + b_z)`; the
    parametrization stores W_i, W_f, W_z and W_o.
    """

    title: ClassVar[str] = "LSTM"
    compiled: ClassVar[bool] = True
    paper: ClassVar[str] = (
        "Hochreiter, Schmidhuber: Long Short-Term Memory (Neural Computation 9, 1997), with the "
        "forget gate of Gers, Schmidhuber, Cummins (2000); with low-rank matrices Miceli Barone "
        "(2016, arXiv:1603.03116)"
    )
    gates: ClassVar[int] = 4
    state_parts: ClassVar[int] = 2

    kind: Literal["lstm"] = "lstm"
    forget_bias: float = Field(
        default=1.0, description="start of b_f: the larger, the longer the cell is kept"
    )
    peephole: bool = Field(
        default=False,
        description=(
            "whether a plain matrix V_o adds V_o c_t to the output gate, as in the code of the "
            "uRNN and low-rank papers"
        ),
    )

    def parameter_count(self, signature: Signature, parametrization: Parametrization) -> int:
        """Matrices, biases, first states and the readout, and n^2 for each peephole."""
        peepholes = self.layers * self.hidden_size**2 if self.peephole else 0
        return super().parameter_count(signature, parametrization) + peepholes

    def keeps_each_step(self, batch_size: int) -> bool:
        """With a peephole, too, and where torch's own kernel trains, which keeps about as much."""
        by_vendor = vendor_trains_lstm(batch_size, self.hidden_size)
        return self.peephole or by_vendor or super().keeps_each_step(batch_size)

    @property
    def kept_gates(self) -> int:
        """All of them."""
        return KEPT_GATES["lstm"]

    def cell(self, *, generator: torch.Generator) -> "LstmCell":
        """The recurrence, with a Glorot-uniform peephole where there is one."""
        size = self.hidden_size
        return LstmCell(
            Affine(size, size, bias=False, generator=generator) if self.peephole else None
        )

    def initialise(self, network: RecurrentNetwork, *, generator: torch.Generator) -> None:  # noqa: ARG002
        """b_f at forget_bias."""
        size = self.hidden_size
        with torch.no_grad():
            for layer in network.inputs:
                layer.get_parameter("bias")[size : 2 * size].fill_(self.forget_bias)


class LstmCell(Cell):
    """Gates in the order input, forget, candidate, output, which is torch's."""

    def __init__(self, peephole: Affine | None) -> None:
        super().__init__()
        self.kind = Kind("lstm", "tanh", 0.0) if peephole is None else None
        self.peephole = peephole

    def forward(self, form: Form, projections: Tensor, initial: State) -> Iterator[State]:
        """See `models.backends.loops.lstm_sequence`."""
        return lstm_sequence(form, projections, initial, peephole=self.peephole)
