"""Drop-ins for torch's own layers, with structured matrices: the same calls, the same answers."""

from collections.abc import Sequence
from typing import ClassVar, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from models.architectures.inputs import InputLayer
from models.architectures.recurrent import Cell
from models.errors import InputError
from models.linear import StructuredLinear
from models.ops.factors import Factors
from models.ops.recurrence import State
from models.ops.sequences import Inputs, PlainInputs, ProjectedInputs, run_sequence

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
        steps = torch.full((x.shape[1],), x.shape[0])
        outputs, last = self._run(x, state, steps)
        if single:
            return outputs.squeeze(1), self._joined([part.squeeze(1) for part in last])
        return (outputs.transpose(0, 1) if self.batch_first else outputs), self._joined(last)

    def _packed(self, packed: PackedSequence, hx: Hidden | None) -> tuple[PackedSequence, Hidden]:
        x, lengths = pad_packed_sequence(packed)
        order = packed.sorted_indices
        state = self._state(hx, x, single=False)
        if order is not None:
            # Longest first: whoever has ended stands behind all who go on.
            x, lengths = x[:, order], lengths[order.cpu()]
            state = tuple(part[:, order] for part in state)
        outputs, last = self._run(x, state, lengths)
        again = pack_padded_sequence(outputs, lengths)
        if packed.unsorted_indices is not None:
            last = [part[:, packed.unsorted_indices] for part in last]
        result = PackedSequence(
            again.data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices
        )
        return result, self._joined(last)

    def _run(self, x: Tensor, state: State, lengths: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Outputs `[T, B, directions*n]` and the last state, parts `[layers*directions, B, n]`."""
        factors = self.recurrent.factors().split(self.recurrent.slot.gates)
        ends: list[State] = []
        for layer in range(self.num_layers):
            sides: list[Tensor] = []
            for direction in range(self.directions):
                place = layer * self.directions + direction
                seen = _reversed(x, lengths) if direction else x
                states, end = self._run_one(
                    place, factors[place], seen, tuple(part[place] for part in state), lengths
                )
                sides.append(_reversed(states, lengths) if direction else states)
                ends.append(end)
            x = sides[0] if len(sides) == 1 else torch.cat(sides, dim=-1)
            if layer + 1 < self.num_layers:
                x = F.dropout(x, self.dropout, self.training)
        return x, [torch.stack(part) for part in zip(*ends, strict=True)]

    def _run_one(
        self, place: int, factors: Factors, x: Tensor, state: State, lengths: Tensor
    ) -> tuple[Tensor, State]:
        """One layer in one direction; sequences come longest first, 0 stands behind their ends."""
        cell = cast(Cell, self.cells[place])
        outputs: list[Tensor] = []
        ends: list[State] = []
        begin = 0
        numbers = [int(length) for length in lengths]
        for end in sorted(set(numbers)):
            going = sum(length > begin for length in numbers)
            ends.append(tuple(part[going:] for part in state))
            state = tuple(part[:going].contiguous() for part in state)
            inputs = self._inputs(place, x[begin:end, :going])
            states, state = run_sequence(
                cell.kind,
                cell,
                factors,
                inputs,
                state,
                every=True,
                candidate_bias=cell.candidate_bias,
            )
            outputs.append(F.pad(states, (0, 0, 0, x.shape[1] - going)))
            begin = end
        ends.append(state)
        whole = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        return whole, tuple(torch.cat(part[::-1]) for part in zip(*ends, strict=True))

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


def _reversed(x: Tensor, lengths: Tensor) -> Tensor:
    """Each sequence of `[T, B, ...]` backwards within its own length, padding left behind it."""
    steps = torch.arange(x.shape[0], device=x.device).unsqueeze(1)
    ends = lengths.to(x.device).unsqueeze(0)
    order = torch.where(steps < ends, ends - 1 - steps, steps)
    return x.gather(0, order.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
