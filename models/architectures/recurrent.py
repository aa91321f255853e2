"""The network around a recurrence: input projection, learned start, steps, readout."""

import torch
from torch import Tensor, nn

from models.errors import InputError
from models.linear import Affine, StructuredLinear
from models.network import Network
from models.ops.recurrence import Sequence
from models.spec import Signature


class RecurrentNetwork(Network):
    """`o = Y h + c` on the states of a recurrence over `U x + b`, with G recurrent matrices.

    The inputs of all steps and gates are projected in one product, the factors of the recurrent
    matrices are made once per forward pass, and only then do the steps run.
    """

    initial_state: nn.Parameter | None

    def __init__(
        self,
        signature: Signature,
        recurrent: StructuredLinear,
        *,
        sequence: Sequence,
        learned_initial_state: bool,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        hidden_size = recurrent.out_features
        self.every_step = signature.output_steps == "every"
        self.sequence = sequence
        self.recurrent = recurrent
        self.input = Affine(
            signature.input_size, hidden_size, copies=recurrent.copies, generator=generator
        )
        self.readout = Affine(hidden_size, signature.output_size, generator=generator)
        self.register_parameter(
            "initial_state",
            nn.Parameter(torch.zeros(hidden_size)) if learned_initial_state else None,
        )

    def forward(self, x: Tensor) -> Tensor:
        """`[B, T, input_size]` -> `[B, output_size]`, or `[B, T, output_size]` for every step.

        T may differ from the signature's length; B may be 0.

        Raises:
            InputError: x has another shape or type.
        """
        self._check_input(x)
        projections = self.input(x.transpose(0, 1))
        state = self.watch_first(self._start(x))
        states = self.sequence(self.recurrent.factors(), projections, state)
        if self.every_step:
            every = list(states)
            every[-1] = self.watch_last(every[-1])
            return self.readout(torch.stack(every, dim=1))
        for following in states:
            state = following
        return self.readout(self.watch_last(state))

    def _start(self, x: Tensor) -> Tensor:
        shape = x.shape[0], self.recurrent.in_features
        if self.initial_state is None:
            return x.new_zeros(shape)
        return self.initial_state.expand(shape)

    def _check_input(self, x: Tensor) -> None:
        weight = self.input.weight
        if x.dim() != 3 or x.shape[2] != weight.shape[1] or x.shape[1] == 0:
            raise InputError(
                f"input of shape {list(x.shape)} does not fit; "
                f"allowed is [batch, steps >= 1, {weight.shape[1]}]"
            )
        if x.dtype != weight.dtype:
            raise InputError(f"input of type {x.dtype} does not fit; the model has {weight.dtype}")


def recurrent_count(
    signature: Signature, hidden_size: int, *, gates: int, matrices: int, inputs: int, start: bool
) -> int:
    """Numbers of a recurrent network: `matrices + inputs n ni + gates n + n no + no + n [h0]`.

    `matrices` is the count of all recurrent matrices; `inputs` is how many input matrices are
    counted.
    """
    ends = hidden_size * signature.output_size + signature.output_size
    projections = hidden_size * (inputs * signature.input_size + gates)
    return matrices + projections + ends + (hidden_size if start else 0)
