"""The gated recurrent unit, in both of its published forms."""

from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from models.architectures.recurrent import Recurrent
from models.architectures.recurrent_network import Cell, RecurrentNetwork
from models.backends.loops import State, gru_sequence_reset_after, gru_sequence_reset_before
from models.forms import Form
from models.kernels.calls import KEPT_GATES, Kind
from models.kernels.structs import CellName
from models.parametrizations import Parametrization
from models.spec import Signature

Reset = Literal["before", "after"]
_Sequence = Callable[[Form, Tensor, State], Iterator[State]]

_SEQUENCES: Mapping[Reset, tuple[CellName, _Sequence]] = {
    "before": ("gru_reset_before", gru_sequence_reset_before),
    "after": ("gru_reset_after", gru_sequence_reset_after),
}


class Gru(Recurrent):
    """`h_t = u * h_{t-1} + (1 - u) * q` with update gate u, reset gate r and candidate q.

    `u = sigmoid(W_u h + U_u x + b_u)` carries the state, r likewise; the parametrization stores
    W_u, W_r and W_q. The reset is applied to the state, `q = tanh(W_q (r * h) + U_q x + b_q)`, or
    to what the matrix made of it, `q = tanh(r * (W_q h) + U_q x + b_q)`. The two are the same only
    for a diagonal W_q.
    """

    title: ClassVar[str] = "GRU"
    compiled: ClassVar[bool] = True
    paper: ClassVar[str] = (
        "Cho et al.: Learning Phrase Representations using RNN Encoder-Decoder for Statistical "
        "Machine Translation (EMNLP 2014, arXiv:1406.1078); with low-rank matrices Miceli Barone "
        "(2016, arXiv:1603.03116)"
    )
    gates: ClassVar[int] = 3

    kind: Literal["gru"] = "gru"
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

    candidate_bias: bool = Field(
        default=False,
        description=(
            "whether a bias of its own is added to W_q h before r acts on it, as torch.nn.GRU "
            "does; for reset = 'after'"
        ),
    )

    @model_validator(mode="after")
    def _candidate_bias_needs_its_reset(self) -> Self:
        if self.candidate_bias and self.reset != "after":
            raise ValueError(
                f"candidate_bias is for reset = 'after'; with {self.reset!r} allowed is false"
            )
        return self

    def parameter_count(self, signature: Signature, parametrization: Parametrization) -> int:
        """Matrices, biases, first states and the readout, and n for each candidate bias."""
        biases = self.layers * self.hidden_size if self.candidate_bias else 0
        return super().parameter_count(signature, parametrization) + biases

    def paper_count(self, signature: Signature, parametrization: Parametrization) -> int:
        """As the low-rank paper's tables count: one input matrix of the three, and no h_0.

        The paper does not say so; its printed numbers come out exactly this way.
        """
        repeated = sum(
            (self.gates - 1) * slot.out_features * slot.in_features
            for slot in self.plain_inputs(signature)
        )
        start = self.layers * self.hidden_size if self.learned_initial_state else 0
        return super().paper_count(signature, parametrization) - repeated - start

    @property
    def kept_gates(self) -> int:
        """With reset = 'after' W_q h is kept beside the gates."""
        cell, _ = _SEQUENCES[self.reset]
        return KEPT_GATES[cell]

    def cell(self, *, generator: torch.Generator) -> "GruCell":  # noqa: ARG002 -- draws nothing
        """The recurrence that `reset` names, with a candidate bias of 0 where there is one."""
        bias = nn.Parameter(torch.zeros(self.hidden_size)) if self.candidate_bias else None
        return GruCell(self.reset, candidate_bias=bias)

    def initialise(self, network: RecurrentNetwork, *, generator: torch.Generator) -> None:  # noqa: ARG002
        """b_u at carry_bias."""
        with torch.no_grad():
            for layer in network.inputs:
                bias = layer.get_parameter("bias")
                bias[: self.hidden_size].fill_(self.carry_bias)


class GruCell(Cell):
    """Gates in the order update, reset, candidate."""

    candidate_bias: nn.Parameter | None

    def __init__(self, reset: Reset, *, candidate_bias: nn.Parameter | None = None) -> None:
        """A candidate bias `[n]` is for the reset after the matrix."""
        super().__init__()
        name, self.sequence = _SEQUENCES[reset]
        self.kind = Kind(name, "tanh", 0.0)
        self.register_parameter("candidate_bias", candidate_bias)

    @property
    def recurrent_bias(self) -> Tensor | None:
        """The candidate's, and 0 for the other gates, `[3, n]`."""
        if self.candidate_bias is None:
            return None
        return F.pad(self.candidate_bias.unsqueeze(0), (0, 0, 2, 0))

    def forward(self, form: Form, projections: Tensor, initial: State) -> Iterator[State]:
        """See `models.backends.loops`."""
        return self.sequence(form, projections, initial)
