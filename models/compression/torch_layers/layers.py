"""Drop-ins for torch's own layers, with structured matrices: the same calls, the same answers."""

from collections.abc import Sequence
from typing import ClassVar, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from models.architectures.inputs import InputLayer
from models.architectures.recurrent import Cell
from models.backends.call import Inputs, PlainInputs, ProjectedInputs, State
from models.backends.sequences import run_sequence
from models.errors import InputError
from models.linear import StructuredLinear

Hidden: TypeAlias = Tensor | tuple[Tensor, Tensor]
"""h `[layers*directions, B, n]`, or (h, c) of an LSTM."""


class CompressedLinear(nn.Module):
    """In the place of an `nn.Linear`: `x W^T + b` with a structured W."""

    bias: nn.Parameter | None

    def __init__(self, linear: StructuredLinear, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.linear = linear
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self.register_parameter("bias", bias)

    @property
    def weight(self) -> Tensor:
        """W `[out, in]`, for readers of an `nn.Linear`'s own; made anew each time."""
        return self.linear.dense_weight()[0]

    def forward(self, x: Tensor) -> Tensor:
        """`[..., in]` -> `[..., out]`."""
        result = self.linear.apply_weight(x)
        return result if self.bias is None else result + self.bias


class CompressedRecurrent(nn.Module):
    """In the place of an `nn.RNN`, `nn.LSTM` or `nn.GRU`, with the same arguments and results.

    The recurrent matrices of all layers, directions and gates are one structured stack, layer by
    layer, forwards first; biases that torch keeps twice are added up.
    """

    state_parts: ClassVar[int] = 1

    def __init__(
        self,
        recurrent: StructuredLinear,
        inputs: Sequence[InputLayer],
        cells: Sequence[Cell],
        *,
        bidirectional: bool,
        batch_first: bool,
        dropout: float,
    ) -> None:
        """There is an input layer and a cell for each layer and direction."""
        super().__init__()
        self.recurrent = recurrent
        self.inputs = nn.ModuleList(inputs)
        self.cells = nn.ModuleList(cells)
        self.bidirectional = bidirectional
        self.batch_first = batch_first
        self.dropout = dropout
        self.directions = 1 + bidirectional
        self.input_size = inputs[0].in_features
        self.hidden_size = recurrent.in_features
        self.num_layers = len(cells) // self.directions

    def forward(
        self, input: Tensor | PackedSequence, hx: Hidden | None = None
    ) -> tuple[Tensor | PackedSequence, Hidden]:
        """All states of the last layer and the last state of each, as torch's layer gives them.

        Args:
            input: `[T, B, I]`, `[B, T, I]` with `batch_first`, `[T, I]` for a single sequence, or
                packed sequences.
            hx: the state before the first step; 0 without one.

        Raises:
            InputError: a shape does not fit.
        """
        if isinstance(input, PackedSequence):
            return self._packed(input, hx)
        if input.dim() not in (2, 3) or input.shape[-1] != self.input_size:
            raise InputError(
                f"input of shape {list(input.shape)} does not fit; allowed are [steps, "
                f"{self.input_size}] and sequences of three dimensions whose last is "
                f"{self.input_size}"
            )
        single = input.dim() == 2
        x = input.unsqueeze(1) if single else input.transpose(0, 1) if self.batch_first else input
        state = self._state(hx, x, single=single)
        outputs, last = self._run(x, state, None)
        if single:
            return outputs.squeeze(1), self._joined([part.squeeze(1) for part in last])
        return (outputs.transpose(0, 1) if self.batch_first else outputs), self._joined(last)

    def _packed(self, packed: PackedSequence, hx: Hidden | None) -> tuple[PackedSequence, Hidden]:
        x, lengths = pad_packed_sequence(packed)
        outputs, last = self._run(x, self._state(hx, x, single=False), lengths.to(x.device))
        order = packed.sorted_indices
        if order is not None:
            outputs, lengths = outputs[:, order], lengths[order.cpu()]
        data = pack_padded_sequence(outputs, lengths).data
        result = PackedSequence(data, packed.batch_sizes, order, packed.unsorted_indices)
        return result, self._joined(last)

    def _run(self, x: Tensor, state: State, lengths: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        """Outputs `[T, B, directions*n]` and the last state, parts `[layers*directions, B, n]`.

        With lengths what stands behind a sequence's end is of no use.
        """
        forms = self.recurrent.form().split(self.recurrent.slot.gates)
        ends: list[State] = []
        for layer in range(self.num_layers):
            sides: list[Tensor] = []
            for direction in range(self.directions):
                place = layer * self.directions + direction
                cell = cast(Cell, self.cells[place])
                call = cell.call(
                    forms[place],
                    self._inputs(place, _reversed(x, lengths) if direction else x),
                    tuple(part[place] for part in state),
                    lengths=lengths,
                )
                states, end = run_sequence(call)
                sides.append(_reversed(states, lengths) if direction else states)
                ends.append(end)
            x = sides[0] if len(sides) == 1 else torch.cat(sides, dim=-1)
            if layer + 1 < self.num_layers:
                x = F.dropout(x, self.dropout, self.training)
        return x, [torch.stack(part) for part in zip(*ends, strict=True)]

    def _inputs(self, place: int, x: Tensor) -> Inputs:
        project = cast(InputLayer, self.inputs[place])
        parts = project.plain_parts()
        return ProjectedInputs(project(x)) if parts is None else PlainInputs(x, *parts)

    def _state(self, hx: Hidden | None, x: Tensor, *, single: bool) -> State:
        """Parts `[layers*directions, B, n]`."""
        shape = (len(self.cells), x.shape[1], self.hidden_size)
        if hx is None:
            return tuple(x.new_zeros(shape) for _ in range(self.state_parts))
        parts = (hx,) if isinstance(hx, Tensor) else hx
        parts = tuple(part.unsqueeze(1) for part in parts) if single else parts
        if len(parts) != self.state_parts or any(part.shape != shape for part in parts):
            shapes = ", ".join(str(list(part.shape)) for part in parts)
            raise InputError(
                f"a state of {len(parts)} parts ({shapes}) does not fit; "
                f"allowed are {self.state_parts} of {list(shape)}"
            )
        return parts

    def _joined(self, parts: Sequence[Tensor]) -> Hidden:
        return parts[0] if len(parts) == 1 else (parts[0], parts[1])

    def flatten_parameters(self) -> None:
        """Nothing: there is no cuDNN buffer to make; callers of torch's layers may ask for it."""

    def extra_repr(self) -> str:
        """Sizes, for printing."""
        return (
            f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}, "
            f"batch_first={self.batch_first}, bidirectional={self.bidirectional}"
        )


class CompressedRNN(CompressedRecurrent):
    """In the place of an `nn.RNN`."""


class CompressedGRU(CompressedRecurrent):
    """In the place of an `nn.GRU`."""


class CompressedLSTM(CompressedRecurrent):
    """In the place of an `nn.LSTM`; its states are (h, c)."""

    state_parts: ClassVar[int] = 2


def _reversed(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Each sequence of `[T, B, ...]` backwards within its own length, padding left behind it."""
    if lengths is None:
        return x.flip(0)
    steps = torch.arange(x.shape[0], device=x.device).unsqueeze(1)
    ends = lengths.unsqueeze(0)
    order = torch.where(steps < ends, ends - 1 - steps, steps)
    return x.gather(0, order.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
