"""The single-matrix recurrent network."""

import math
from collections.abc import Callable, Iterator
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from models.architectures.recurrent import Recurrent
from models.architectures.recurrent_network import Cell, RecurrentNetwork
from models.backends.loops import State, rnn_sequence
from models.forms import Form
from models.kernels.calls import Kind
from models.linear import Affine
from models.math.activations import Activation, activation_of
from models.math.initialisation import uniform_


class Rnn(Recurrent):
    """`h_t = phi(W h_{t-1} + M x_t + b)`, `o_t = Y h_t + c`; the parametrization stores W.

    With a dense W this is the RNN, with relu and an identity or orthogonal start the IRNN, with
    householder the oRNN, with householder_svd Spectral-RNN (svdRNN), with factorized_svd the
    factorized RNN, and with packed_rotations or rotation_svd and abs DizzyRNN.
    """

    title: ClassVar[str] = "RNN"
    compiled: ClassVar[bool] = True
    paper: ClassVar[str] = "Elman: Finding structure in time (Cognitive Science 14, 1990)"

    kind: Literal["rnn"] = "rnn"
    activation: Activation = Field(
        default="leaky_relu", description="phi; leaky_relu and abs keep norms best"
    )
    leak: float = Field(
        default=0.1, ge=0, le=1, description="slope of leaky_relu below 0; 1 makes the model linear"
    )
    input_initialisation: Literal["glorot_uniform", "gaussian"] = Field(
        default="glorot_uniform",
        description="start of plain input matrices: Glorot-uniform, or N(0, 1 / n) as in DizzyRNN",
    )

    def cell(self, *, generator: torch.Generator) -> "RnnCell":  # noqa: ARG002 -- draws nothing
        """The recurrence with its activation."""
        return RnnCell(
            activation_of(self.activation, leak=self.leak),
            kind=Kind("rnn", self.activation, self.leak),
        )

    def initialise(self, network: RecurrentNetwork, *, generator: torch.Generator) -> None:
        """h_0 of U(±sqrt(3 / (2 n))); M as `input_initialisation` says."""
        if network.initial_state is not None:
            limit = math.sqrt(3 / (2 * self.hidden_size))
            uniform_(network.initial_state, -limit, limit, generator=generator)
        if self.input_initialisation == "gaussian":
            for layer in network.inputs:
                if isinstance(layer, Affine):
                    layer.draw_normal_(self.hidden_size**-0.5, generator=generator)


class RnnCell(Cell):
    """An activation over one recurrent matrix."""

    def __init__(self, activation: Callable[[Tensor], Tensor], *, kind: Kind | None = None) -> None:
        """`kind` is what the kernels call the cell with this activation."""
        super().__init__()
        self.kind = kind
        self.activation = activation

    def forward(self, form: Form, projections: Tensor, initial: State) -> Iterator[State]:
        """See `models.backends.loops.rnn_sequence`."""
        return rnn_sequence(form, projections, initial, activation=self.activation)
