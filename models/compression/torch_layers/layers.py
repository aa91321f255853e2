"""Drop-ins for torch's own layers, with structured matrices: the same calls, the same answers."""

from collections.abc import Sequence
from typing import ClassVar, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from models.architectures.inputs import InputLayer
from models.architectures.recurrent_network import Cell, RecurrentLayers
from models.backends.call import State
from models.compression.moments import WatchedForm
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


class CompressedRecurrent(RecurrentLayers):
    """In the place of an `nn.RNN`, `nn.LSTM` or `nn.GRU`, with the same arguments and results.

    The recurrent matrices of all layers, directions and gates are one structured stack, layer by
    layer, forwards first; biases that torch keeps twice are added up.
    """

    parts_of_a_state: ClassVar[int] = 1

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
        super().__init__(
            recurrent,
            inputs,
            cells,
            state_parts=self.parts_of_a_state,
            directions=1 + bidirectional,
            dropout=dropout,
        )
        self.bidirectional = bidirectional
        self.batch_first = batch_first
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
        outputs, ends = self.run_layers(x, state)
        if single:
            ends = [tuple(part.squeeze(0) for part in end) for end in ends]
            return outputs.squeeze(1), _joined(ends)
        return (outputs.transpose(0, 1) if self.batch_first else outputs), _joined(ends)

    def _packed(self, packed: PackedSequence, hx: Hidden | None) -> tuple[PackedSequence, Hidden]:
        x, lengths = pad_packed_sequence(packed)
        state = self._state(hx, x, single=False)
        if isinstance(self.recurrent.cached_form, WatchedForm):
            outputs, ends = self._run_apart(x, state, lengths)
        else:
            outputs, ends = self.run_layers(x, state, lengths.to(x.device))
        order = packed.sorted_indices
        if order is not None:
            outputs, lengths = outputs[:, order], lengths[order.cpu()]
        data = pack_padded_sequence(outputs, lengths).data
        result = PackedSequence(data, packed.batch_sizes, order, packed.unsorted_indices)
        return result, _joined(ends)

    def _run_apart(
        self, x: Tensor, state: Sequence[State], lengths: Tensor
    ) -> tuple[Tensor, list[State]]:
        """As `run_layers`, sequences of one length at a time, so that no matrix reads padding."""
        places = [
            (lengths == length).nonzero().flatten() for length in sorted(set(map(int, lengths)))
        ]
        outputs: list[Tensor] = []
        ends: list[list[State]] = []
        for chosen in places:
            steps, here = int(lengths[chosen[0]]), chosen.to(x.device)
            own = [tuple(part[here] for part in parts) for parts in state]
            states, last = self.run_layers(x[:steps, here], own)
            outputs.append(F.pad(states, (0, 0, 0, 0, 0, len(x) - steps)))
            ends.append(last)
        order = torch.cat(places).argsort().to(x.device)
        joined = [
            tuple(torch.cat(part)[order] for part in zip(*cell, strict=True))
            for cell in zip(*ends, strict=True)
        ]
        return torch.cat(outputs, dim=1)[:, order], joined

    def _state(self, hx: Hidden | None, x: Tensor, *, single: bool) -> list[State]:
        """Each cell's, parts `[B, n]`."""
        shape = (len(self.cells), x.shape[1], self.hidden_size)
        if hx is None:
            return [(x.new_zeros(shape[1:]),) * self.state_parts] * shape[0]
        parts = (hx,) if isinstance(hx, Tensor) else hx
        parts = tuple(part.unsqueeze(1) for part in parts) if single else parts
        if len(parts) != self.state_parts or any(part.shape != shape for part in parts):
            shapes = ", ".join(str(list(part.shape)) for part in parts)
            raise InputError(
                f"a state of {len(parts)} parts ({shapes}) does not fit; "
                f"allowed are {self.state_parts} of {list(shape)}"
            )
        return list(zip(*(part.unbind(0) for part in parts), strict=True))

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

    parts_of_a_state: ClassVar[int] = 2


def _joined(ends: Sequence[State]) -> Hidden:
    """Each cell's last state as torch's layers give them."""
    parts = [torch.stack(part) for part in zip(*ends, strict=True)]
    return parts[0] if len(parts) == 1 else (parts[0], parts[1])
