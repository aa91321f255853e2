"""Recurrent networks: cells, the layers of them, and what stands around these."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from models.architectures.inputs import InputLayer
from models.backends.call import Inputs, PlainInputs, ProjectedInputs, SequenceCall, State
from models.backends.sequences import choose, pack, run_sequence
from models.embedding import Embedding
from models.errors import InputError
from models.forms import BiasedForm, Form, MaskedForm
from models.hooks import CachesForms
from models.kernels.calls import Kind, Packed
from models.kernels.choice import Backend
from models.linear import Affine, StructuredLinear
from models.math.dropout import dropout
from models.network import Network

DropoutMasks = Literal["tied", "per_gate"]


class Cell(nn.Module, ABC):
    """A recurrence with what it owns beside its matrices."""

    kind: Kind | None = None
    """What the kernels call it; None where only `forward` computes it."""

    @property
    def recurrent_bias(self) -> Tensor | None:
        """What is added to the recurrent matrices' products, `[G, n]`; most cells have nothing."""
        return None

    @property
    def rescaling(self) -> Tensor | None:
        """`[n]`, the bias of the uRNN's rescaling; None in all other cells."""
        return None

    def call(
        self,
        form: Form,
        inputs: Inputs,
        initial: State,
        *,
        return_sequences: bool = True,
        lengths: Tensor | None = None,
        carries: bool = True,
        packed: Packed | None = None,
    ) -> SequenceCall:
        """This cell's sequence, for a backend; see `SequenceCall`."""
        bias = self.recurrent_bias
        return SequenceCall(
            kind=self.kind,
            loop=self,
            form=form if bias is None else BiasedForm(form, bias),
            inputs=inputs,
            initial=initial,
            return_sequences=return_sequences,
            lengths=lengths,
            carries=carries,
            rescaling=self.rescaling,
            packed=packed,
        )

    @abstractmethod
    def forward(self, form: Form, projections: Tensor, initial: State) -> Iterator[State]:
        """Projections `[T, B, G*n]` -> T states; see `models.backends.loops`."""


@dataclass(frozen=True)
class _Applied:
    """A cell's recurrent matrices in the form in which they are applied."""

    form: Form
    packed: Packed | None = None

    def __deepcopy__(self, _: dict[int, object]) -> "_Applied":
        """Itself: nothing about it ever changes, and packed matrices cannot be copied."""
        return self


class RecurrentLayers(nn.Module, CachesForms):
    """Layers of cells over projected inputs, in one direction or in both.

    The inputs of all steps and gates are projected in one product per cell, the form of all
    recurrent matrices is made once per forward pass, and only then do the steps run. Matrices,
    input layers and cells stand layer by layer, forwards before backwards.
    """

    def __init__(
        self,
        recurrent: StructuredLinear,
        inputs: Sequence[InputLayer],
        cells: Sequence[Cell],
        *,
        state_parts: int,
        directions: int = 1,
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        dropout_masks: DropoutMasks = "per_gate",
        layer_dropout: float = 0.0,
    ) -> None:
        """There is an input layer and a cell for each layer and direction.

        Args:
            recurrent: the recurrent matrices of all cells.
            inputs: what projects the inputs of each cell.
            cells: the recurrences.
            state_parts: tensors `[B, n]` that make up a cell's state.
            directions: 1, or 2 where a second cell of each layer reads the sequences backwards.
            dropout: share of the numbers between layers that is dropped.
            input_dropout: share of a cell's input projections dropped, whole steps at once.
            recurrent_dropout: share of the state hidden from the recurrent matrices.
            dropout_masks: whether all gates share one recurrent mask, or each has its own.
            layer_dropout: share of the numbers that enter each layer, the first one too.
        """
        super().__init__()
        self.recurrent = recurrent
        self.inputs = nn.ModuleList(inputs)
        self.cells = nn.ModuleList(cells)
        self.state_parts = state_parts
        self.directions = directions
        self.dropout = dropout
        self.input_dropout = input_dropout
        self.recurrent_dropout = recurrent_dropout
        self.dropout_masks: DropoutMasks = dropout_masks
        self.layer_dropout = layer_dropout
        self._cached: list[_Applied] | None = None

    def run_layers(
        self,
        x: Tensor,
        initial: Sequence[State],
        lengths: Tensor | None = None,
        *,
        return_sequences: bool = True,
        carries: bool = True,
    ) -> tuple[Tensor, list[State]]:
        """Run all steps of all layers.

        Args:
            x: `[T, B, in]`.
            initial: each cell's state before its first step, parts `[B, n]`.
            lengths: int64 `[B]`, how long each sequence is, if they differ; see `SequenceCall`.
            return_sequences: whether the last layer's states of all steps are wanted.
            carries: whether the last states are gone on from; see `SequenceCall`.

        Returns:
            The last layer's `[T, B, directions*n]` (of no use behind a sequence's end, and without
            `return_sequences`), and each cell's last state.
        """
        applied = self._cached or self._make()
        ends: list[State] = []
        for first in range(0, len(applied), self.directions):
            above = first + self.directions < len(applied)
            # Where the last state alone is needed no other one is kept.
            every = return_sequences or above
            x = dropout(x, self.layer_dropout, training=self.training)
            sides: list[Tensor] = []
            for place in range(first, first + self.directions):
                backwards = place > first
                call = self._cell(place).call(
                    self._masked(applied[place].form, x),
                    self._project(place, _reversed(x, lengths) if backwards else x),
                    initial[place],
                    return_sequences=every,
                    lengths=lengths,
                    carries=carries,
                    packed=applied[place].packed,
                )
                states, end = run_sequence(call)
                sides.append(_reversed(states, lengths) if backwards and every else states)
                ends.append(end)
            x = sides[0] if self.directions == 1 else torch.cat(sides, dim=-1)
            if above:
                x = dropout(x, self.dropout, training=self.training)
        return x, ends

    def cache(self) -> None:
        """Keep the cells' forms, packed for the kernels where these run."""
        applied = self._make()
        one = applied[0].form.tensors()[0].new_empty(1, 1, 1)
        state = (one.expand(1, 1, self.recurrent.in_features)[0],) * self.state_parts
        self._cached = [
            _Applied(form, pack(self._cell(place).call(form, self._sized(place, one), state)))
            for place, form in enumerate(part.form for part in applied)
        ]

    def clear(self) -> None:
        """Keep them no longer."""
        self._cached = None

    def backends(self, *, batch_size: int = 1) -> tuple[Backend, ...]:
        """What would run the cells' sequences now, each named once; it is asked as it will be run.

        Whether the module trains and whether gradients are kept decide, too.
        """
        applied = self._cached or self._make()
        one = applied[0].form.tensors()[0].new_empty(1, 1, 1)
        state = (one[0].expand(batch_size, self.recurrent.in_features),) * self.state_parts
        masked = self.training and self.recurrent_dropout
        found: list[Backend] = []
        for place, part in enumerate(applied):
            if part.packed is not None:
                found.append("cpp")
                continue
            form = MaskedForm(part.form, one) if masked else part.form
            found.append(choose(self._cell(place).call(form, self._sized(place, one), state)))
        return tuple(dict.fromkeys(found))

    def _cell(self, place: int) -> Cell:
        return cast(Cell, self.cells[place])

    def _make(self) -> list[_Applied]:
        return [_Applied(form) for form in self.recurrent.form().split(self.recurrent.slot.gates)]

    def _masked(self, form: Form, x: Tensor) -> Form:
        if not (self.training and self.recurrent_dropout):
            return form
        masks = 1 if self.dropout_masks == "tied" else self.recurrent.slot.gates
        ones = x.new_ones(masks, x.shape[1], self.recurrent.in_features)
        return MaskedForm(form, dropout(ones, self.recurrent_dropout))

    def _project(self, place: int, x: Tensor) -> Inputs:
        project = cast(InputLayer, self.inputs[place])
        if self.training and self.input_dropout:
            projections = project(x)
            ones = projections.new_ones(*projections.shape[:2], 1)
            return ProjectedInputs(projections * dropout(ones, self.input_dropout))
        parts = project.plain_parts()
        return ProjectedInputs(project(x)) if parts is None else PlainInputs(x, *parts)

    def _sized(self, place: int, one: Tensor) -> Inputs:
        """Inputs of the right sizes alone; `one` is `[1, 1, 1]`."""
        project = cast(InputLayer, self.inputs[place])
        parts = None if self.training and self.input_dropout else project.plain_parts()
        if parts is None:
            gates, size = self.recurrent.slot.gates, self.recurrent.in_features
            return ProjectedInputs(one.expand(1, 1, gates * size))
        return PlainInputs(one.expand(1, 1, project.in_features), *parts)


class RecurrentNetwork(RecurrentLayers, Network):
    """Layers of cells, what they begin with, and the readout."""

    initial_state: nn.Parameter | None

    def __init__(
        self,
        *,
        input_size: int,
        embedding: Embedding | None,
        recurrent: StructuredLinear,
        inputs: Sequence[InputLayer],
        cells: Sequence[Cell],
        readout: Affine,
        initial_state: nn.Parameter | None,
        state_parts: int,
        every_step: bool,
        input_dropout: float,
        recurrent_dropout: float,
        dropout_masks: DropoutMasks,
        readout_dropout: float,
        layer_dropout: float,
        symbol_dropout: float,
    ) -> None:
        """`initial_state` is `[layers, parts, n]`; there are as many inputs and cells as layers."""
        super().__init__(
            recurrent,
            inputs,
            cells,
            state_parts=state_parts,
            input_dropout=input_dropout,
            recurrent_dropout=recurrent_dropout,
            dropout_masks=dropout_masks,
            layer_dropout=layer_dropout,
        )
        self.input_size = input_size
        self.embedding = embedding
        self.readout = readout
        self._answer_size = readout.multiply_adds() // readout.in_features
        self.register_parameter("initial_state", initial_state)
        self.every_step = every_step
        self.readout_dropout = readout_dropout
        self.symbol_dropout = symbol_dropout

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """`[B, T, input_size]` -> `[B, output_size]`, or `[B, T, output_size]` for every step.

        T may differ from the signature's length; B may be 0. With an embedding x is `[B, T]` int64.

        Args:
            x: the sequences.
            lengths: `[B]` int64, from 1 to T: how long each sequence is, if they differ. The answer
                is then the one after a sequence's own last step; answers behind it mean nothing.

        Raises:
            InputError: x or the lengths have another shape or type.
        """
        self._check_input(x)
        if lengths is not None:
            self._check_lengths(lengths, x)
        return self._run(x, (), lengths)[0]

    def first_states(self) -> tuple[Tensor, ...]:
        """Zeros, or what was learned."""
        if self.initial_state is not None:
            return self.initial_state.detach().unbind(1)
        zeros = self.readout.plain_weight().new_zeros(len(self.cells), self.recurrent.in_features)
        return (zeros.detach(),) * self.state_parts

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """See `Network.step`."""
        self._check_input(x)
        self._check_state(state, x)
        return self._run(x, state, None)

    def _run(self, x: Tensor, state: State, lengths: Tensor | None) -> tuple[Tensor, State]:
        numbers = self._shown(x, x if self.embedding is None else self.embedding(x))
        states, ends = self.run_layers(
            numbers.transpose(0, 1),
            [self._start(numbers, layer, state) for layer in range(len(self.cells))],
            lengths,
            return_sequences=self.every_step,
            carries=lengths is None,
        )
        outputs = (
            self._watched(states, lengths) if self.every_step else self.watch_last(ends[-1][0])
        )
        outputs = dropout(outputs, self.layer_dropout, training=self.training)
        # Samples come first in what is returned. The swap costs a copy, so the smaller is swapped.
        answers_are_smaller = self._answer_size < self.readout.in_features
        if self.every_step and not answers_are_smaller:
            outputs = outputs.transpose(0, 1)
        answers = self.readout(dropout(outputs, self.readout_dropout, training=self.training))
        if self.every_step and answers_are_smaller:
            answers = answers.transpose(0, 1)
        return answers, tuple(part for end in ends for part in end)

    def _shown(self, x: Tensor, numbers: Tensor) -> Tensor:
        """What the first layer sees of the inputs' numbers `[B, T, input_size]`."""
        if not (self.training and self.symbol_dropout):
            return numbers
        symbols = self.input_size if self.embedding is None else self.embedding.vocabulary
        mask = dropout(numbers.new_ones(len(numbers), symbols), self.symbol_dropout)
        if self.embedding is None:
            return numbers * mask.unsqueeze(1)
        return numbers * mask.gather(1, x).unsqueeze(-1)

    def _watched(self, states: Tensor, lengths: Tensor | None) -> Tensor:
        """All states `[T, B, n]`, the last one shown to the probe, if there is one.

        It is the one after the longest sequence: in a stack others' batches may be longer.
        """
        if self.probe is not None and lengths is None:
            states = torch.cat((states[:-1], self.watch_last(states[-1])[None]))
        elif self.probe is not None and lengths is not None:
            last = lengths.max().unsqueeze(0) - 1
            watched = self.watch_last(states.index_select(0, last)[0])
            steps = torch.arange(len(states), device=states.device)
            states = torch.where((steps == last)[:, None, None], watched, states)
        return states

    def _start(self, x: Tensor, layer: int, state: State) -> State:
        """The state before the first step; `state` holds all layers' where they go on."""
        size = self.recurrent.in_features
        if state:
            first, *others = state[layer * self.state_parts :][: self.state_parts]
            return (self.watch_first(first) if layer == 0 else first, *others)
        if self.initial_state is None:
            parts = x.new_zeros(self.state_parts, x.shape[0], size)
        else:
            parts = self.initial_state[layer].unsqueeze(1).expand(-1, x.shape[0], size)
        first, *others = parts.unbind(0)
        return (self.watch_first(first) if layer == 0 else first, *others)

    def _check_input(self, x: Tensor) -> None:
        if self.embedding is not None:
            return self._check_tokens(x)
        features, dtype = self.input_size, self.readout.plain_weight().dtype
        if x.dim() != 3 or x.shape[2] != features or x.shape[1] == 0:
            raise InputError(
                f"input of shape {list(x.shape)} does not fit; "
                f"allowed is [batch, steps >= 1, {features}]"
            )
        if x.dtype != dtype:
            raise InputError(f"input of type {x.dtype} does not fit; the model has {dtype}")

    def _check_tokens(self, x: Tensor) -> None:
        if x.dim() != 2 or x.shape[1] == 0 or x.dtype != torch.int64:
            raise InputError(
                f"input of shape {list(x.shape)} and type {x.dtype} does not fit; "
                "allowed are tokens [batch, steps >= 1] of type torch.int64"
            )

    def _check_lengths(self, lengths: Tensor, x: Tensor) -> None:
        if lengths.shape != x.shape[:1] or lengths.dtype != torch.int64:
            raise InputError(
                f"lengths of shape {list(lengths.shape)} and type {lengths.dtype} do not fit; "
                f"allowed are [{x.shape[0]}] of type torch.int64"
            )

    def _check_state(self, state: State, x: Tensor) -> None:
        shape = (x.shape[0], self.recurrent.in_features)
        count = len(self.cells) * self.state_parts
        if state and (len(state) != count or any(part.shape != shape for part in state)):
            shapes = ", ".join(str(list(part.shape)) for part in state)
            raise InputError(
                f"a state of {len(state)} parts ({shapes}) does not fit; allowed are none, "
                f"or {count} of {list(shape)}"
            )


def _reversed(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Each sequence of `[T, B, ...]` backwards within its own length, padding left behind it."""
    if lengths is None:
        return x.flip(0)
    steps = torch.arange(x.shape[0], device=x.device).unsqueeze(1)
    ends = lengths.unsqueeze(0)
    order = torch.where(steps < ends, ends - 1 - steps, steps)
    return x.gather(0, order.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
