"""The single-matrix recurrent network."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from models.architectures.architecture import Architecture
from models.architectures.recurrent import RecurrentNetwork, recurrent_count
from models.draw import Draw
from models.ops.initialisation import generator_of, uniform_
from models.ops.recurrence import rnn_sequence
from models.parametrizations import Parametrization
from models.spec import Signature

Activation = Literal["leaky_relu", "abs", "relu", "tanh"]


class Rnn(Architecture):
    """`h_t = phi(W h_{t-1} + M x_t + b)`, `o_t = Y h_t + c`; the parametrization stores W.

    With householder_svd this is Spectral-RNN, with packed_rotations and abs DizzyRNN.
    """

    title: ClassVar[str] = "RNN"
    paper: ClassVar[str] = "Elman: Finding structure in time (Cognitive Science 14, 1990)"

    kind: Literal["rnn"] = "rnn"
    hidden_size: int = Field(default=64, ge=1, le=65536, description="size n of the state")
    activation: Activation = Field(
        default="leaky_relu", description="phi; leaky_relu and abs keep norms best"
    )
    leak: float = Field(
        default=0.1, ge=0, le=1, description="slope of leaky_relu below 0; 1 makes the model linear"
    )
    learned_initial_state: bool = Field(
        default=True, description="whether h_0 is trained; else it is 0"
    )

    @classmethod
    def suggest(cls, draw: Draw, signature: Signature) -> Self:  # noqa: ARG003 -- one range
        """hidden_size log-uniform from 16 to 128."""
        return cls(hidden_size=draw.integer("hidden_size", 16, 128, log=True))

    def slots(self, signature: Signature) -> Mapping[str, tuple[int, int]]:  # noqa: ARG002
        """The recurrent matrix."""
        return {"recurrent": (self.hidden_size, self.hidden_size)}

    def parameter_count(self, signature: Signature, parametrization: Parametrization) -> int:
        """`c_W + n ni + n + no n + no`, and n for a learned start."""
        matrix = parametrization.parameter_count(self.hidden_size, self.hidden_size)
        return self._count(signature, matrix)

    def paper_count(self, signature: Signature, parametrization: Parametrization) -> int:
        """As the Spectral-RNN paper's UCR table counts: the same, 1 x 1 reflectors included."""
        matrix = parametrization.paper_count(self.hidden_size, self.hidden_size)
        return self._count(signature, matrix)

    def _count(self, signature: Signature, matrix: int) -> int:
        return recurrent_count(
            signature,
            self.hidden_size,
            gates=1,
            matrices=matrix,
            inputs=1,
            start=self.learned_initial_state,
        )

    def build(
        self,
        signature: Signature,
        parametrization: Parametrization,
        *,
        generator: torch.Generator | None = None,
    ) -> RecurrentNetwork:
        """M and Y Glorot-uniform, b = c = 0, h_0 of U(±sqrt(3 / (2 n)))."""
        generator = generator or generator_of(None)
        size = self.hidden_size
        network = RecurrentNetwork(
            signature,
            parametrization.build(size, size, generator=generator),
            sequence=partial(rnn_sequence, activation=_activation(self.activation, self.leak)),
            learned_initial_state=self.learned_initial_state,
            generator=generator,
        )
        if network.initial_state is not None:
            limit = math.sqrt(3 / (2 * size))
            uniform_(network.initial_state, -limit, limit, generator=generator)
        return network


def modulus(x: Tensor) -> Tensor:
    """|x| with slope 1 at 0, where `torch.abs` has slope 0 and loses the gradient's norm."""
    return torch.where(x < 0, -x, x)


def _activation(name: Activation, leak: float) -> Callable[[Tensor], Tensor]:
    functions: dict[Activation, Callable[[Tensor], Tensor]] = {
        "leaky_relu": partial(F.leaky_relu, negative_slope=leak),
        "abs": modulus,
        "relu": torch.relu,
        "tanh": torch.tanh,
    }
    return functions[name]
