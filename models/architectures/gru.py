"""The gated recurrent unit, in both of its published forms."""

from collections.abc import Mapping
from typing import ClassVar, Literal, Self, get_args

import torch
from pydantic import Field

from models.architectures.architecture import Architecture
from models.architectures.recurrent import RecurrentNetwork, recurrent_count
from models.draw import Draw
from models.ops.initialisation import generator_of
from models.ops.recurrence import Sequence, gru_sequence_reset_after, gru_sequence_reset_before
from models.parametrizations import Parametrization
from models.spec import Signature

Reset = Literal["before", "after"]
GATES = ("update", "reset", "candidate")

_SEQUENCES: Mapping[Reset, Sequence] = {
    "before": gru_sequence_reset_before,
    "after": gru_sequence_reset_after,
}


class Gru(Architecture):
    """`h_t = u * h_{t-1} + (1 - u) * q` with update gate u, reset gate r and candidate q.

    `u = sigmoid(W_u h + U_u x + b_u)` carries the state, r likewise; the parametrization stores
    W_u, W_r and W_q. The reset is applied to the state, `q = tanh(W_q (r * h) + U_q x + b_q)`, or
    to what the matrix made of it, `q = tanh(r * (W_q h) + U_q x + b_q)`. The two are the same only
    for a diagonal W_q.
    """

    title: ClassVar[str] = "GRU"
    paper: ClassVar[str] = (
        "Cho et al.: Learning Phrase Representations using RNN Encoder-Decoder for Statistical "
        "Machine Translation (EMNLP 2014, arXiv:1406.1078); with low-rank matrices Miceli Barone "
        "(2016, arXiv:1603.03116)"
    )

    kind: Literal["gru"] = "gru"
    hidden_size: int = Field(default=64, ge=1, le=65536, description="size n of the state")
    reset: Reset = Field(
        default="before", description="whether r acts before or after the candidate's matrix"
    )
    carry_bias: float = Field(
        default=0.0,
        description=(
            "start of b_u: the larger, the longer the state is kept; the papers take 4 for the "
            "memory and addition tasks and 5 for permuted pixels, both with hundreds of steps"
        ),
    )
    learned_initial_state: bool = Field(
        default=True, description="whether h_0 is trained; else it is 0"
    )

    @classmethod
    def suggest(cls, draw: Draw, signature: Signature) -> Self:  # noqa: ARG003 -- one range
        """hidden_size log-uniform from 16 to 128, and where the reset acts."""
        hidden_size = draw.integer("hidden_size", 16, 128, log=True)
        reset = draw.choice("reset", get_args(Reset))
        return cls.model_validate({"hidden_size": hidden_size, "reset": reset})

    def slots(self, signature: Signature) -> Mapping[str, tuple[int, int]]:  # noqa: ARG002
        """The three recurrent matrices."""
        return dict.fromkeys(GATES, (self.hidden_size, self.hidden_size))

    def parameter_count(self, signature: Signature, parametrization: Parametrization) -> int:
        """`3 (c_W + n ni + n) + n no + no`, and n for a learned start."""
        matrix = parametrization.parameter_count(self.hidden_size, self.hidden_size)
        return recurrent_count(
            signature,
            self.hidden_size,
            gates=len(GATES),
            matrices=len(GATES) * matrix,
            inputs=len(GATES),
            start=self.learned_initial_state,
        )

    def paper_count(self, signature: Signature, parametrization: Parametrization) -> int:
        """As the low-rank paper's tables count: one input matrix of the three, and no h_0."""
        matrix = parametrization.paper_count(self.hidden_size, self.hidden_size)
        return recurrent_count(
            signature,
            self.hidden_size,
            gates=len(GATES),
            matrices=len(GATES) * matrix,
            inputs=1,
            start=False,
        )

    def build(
        self,
        signature: Signature,
        parametrization: Parametrization,
        *,
        generator: torch.Generator | None = None,
    ) -> RecurrentNetwork:
        """U and readout Glorot-uniform, b_u at carry_bias, other biases and h_0 at 0."""
        generator = generator or generator_of(None)
        size = self.hidden_size
        network = RecurrentNetwork(
            signature,
            parametrization.build(size, size, copies=len(GATES), generator=generator),
            sequence=_SEQUENCES[self.reset],
            learned_initial_state=self.learned_initial_state,
            generator=generator,
        )
        with torch.no_grad():
            network.input.bias[:size].fill_(self.carry_bias)
        return network
