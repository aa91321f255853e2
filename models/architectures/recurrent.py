"""What recurrent architectures have in common: fields, slots, counts and the network."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from models.architectures.architecture import Architecture
from models.architectures.inputs import (
    InputLayer,
    StructuredInputs,
    input_layer,
    is_structured,
)
from models.backends.call import Inputs, PlainInputs, ProjectedInputs, SequenceCall, State
from models.backends.sequences import choose, pack, run_sequence
from models.draw import Draw
from models.embedding import Embedding
from models.errors import InputError
from models.forms import Form, MaskedForm
from models.hooks import CachesForms
from models.kernels.calls import Kind, Packed
from models.kernels.choice import Backend
from models.linear import Affine, StructuredLinear
from models.network import Network
from models.parametrizations import Parametrization
from models.spec import Signature, Slot

DropoutMasks = Literal["tied", "per_gate"]


class Cell(nn.Module, ABC):
    """A recurrence with what it owns beside its matrices."""

    kind: Kind | None = None
    """What the kernels call it; None where only `forward` computes it."""

    candidate_bias: Tensor | None
    """`[n]`, which some GRUs add to what a matrix made of the state; None in all other cells."""

    @property
    def rescaling(self) -> Tensor | None:
        """`[n]`, the bias of the uRNN's rescaling; None in all other cells."""
        return None

    def __init__(self) -> None:
        """A cell without a candidate bias."""
        super().__init__()
        self.register_parameter("candidate_bias", None)

    def call(
        self,
        form: Form,
        inputs: Inputs,
        initial: State,
        *,
        return_sequences: bool = True,
        lengths: Tensor | None = None,
        packed: Packed | None = None,
    ) -> SequenceCall:
        """This cell's sequence, for a backend; see `SequenceCall`."""
        return SequenceCall(
            kind=self.kind,
            loop=self,
            form=form,
            inputs=inputs,
            initial=initial,
            return_sequences=return_sequences,
            lengths=lengths,
            candidate_bias=self.candidate_bias,
            rescaling=self.rescaling,
            packed=packed,
        )

    @abstractmethod
    def forward(self, form: Form, projections: Tensor, initial: State) -> Iterator[State]:
        """Projections `[T, B, G*n]` -> T states; see `models.backends.loops`."""


class Recurrent(Architecture):
    """Layers of one cell: `U x_t + b` is added to G recurrent matrices' products, `o = Y h + c`.

    Each layer reads the states h of the one below; the last one is read out.
    """

    gates: ClassVar[int] = 1
    """Recurrent matrices of a cell."""
    state_parts: ClassVar[int] = 1
    """Tensors of n numbers that make up a state."""

    hidden_size: int = Field(default=64, ge=1, le=65536, description="size n of the state")
    layers: int = Field(
        default=1, ge=1, le=128, description="recurrent layers, each of which reads the one below"
    )
    structured_inputs: StructuredInputs = Field(
        default="none",
        description=(
            "which input matrices the parametrization stores too: none, those that are square "
            "(as in DizzyRNN), or all, with counts and ranks cut to what they hold"
        ),
    )
    input_weight_norm: bool = Field(
        default=False,
        description=(
            "whether rows of plain input matrices are kept as g v / |v| (Miceli Barone, A.2)"
        ),
    )
    learned_initial_state: bool = Field(
        default=True, description="whether the first state is trained; else it is 0"
    )
    input_dropout: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="share of a layer's input projections dropped, whole steps of a sample at once",
    )
    recurrent_dropout: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description=(
            "share of the state hidden from the recurrent matrices, the same for all steps of a "
            "sequence (Gal and Ghahramani, arXiv:1512.05287)"
        ),
    )
    dropout_masks: DropoutMasks = Field(
        default="per_gate",
        description="whether all gates share one recurrent mask, or each has its own",
    )
    readout_dropout: float = Field(
        default=0.0, ge=0, lt=1, description="share of the state hidden from the readout"
    )

    @classmethod
    def suggest(cls, draw: Draw, signature: Signature) -> Self:  # noqa: ARG003 -- one range
        """hidden_size log-uniform from 16 to 128."""
        return cls(hidden_size=draw.integer("hidden_size", 16, 128, log=True))

    def slots(self, signature: Signature) -> Mapping[str, Slot]:
        """The recurrent matrices of all gates and layers, then structured input matrices."""
        inputs = {
            f"inputs.{layer}": slot
            for layer, slot in enumerate(self._input_slots(signature))
            if is_structured(slot, self.structured_inputs)
        }
        return {"recurrent": self.recurrent_slot(), **inputs}

    def parameter_count(self, signature: Signature, parametrization: Parametrization) -> int:
        """Recurrent and input matrices, biases, first states, embedding and readout."""
        slots = self.slots(signature)
        structured = [parametrization.fitted(slot).parameter_count(slot) for slot in slots.values()]
        plain = [self._plain_input_count(slot) for slot in self.plain_inputs(signature)]
        table = (signature.vocabulary or 0) * signature.input_size
        ends = table + self._readout_count(signature)
        return sum((*structured, *plain)) + self._vector_count() + ends

    def saved_numbers(self, signature: Signature, *, batch_size: int) -> int:
        """States of all steps, and what else the steps keep."""
        if self.keeps_each_step(batch_size):
            per_layer = (3 * self.gates + 4) * self.state_size
        else:
            per_layer = self.state_parts * self.state_size
        if self.input_dropout:
            per_layer += 2 * self.gates * self.state_size
        between = (self.layers - 1) * self.state_size
        answered = 3 * self.state_size if signature.output_steps == "every" else 0
        return signature.sequence_length * (self.layers * per_layer + between + answered)

    def build(
        self,
        signature: Signature,
        parametrization: Parametrization,
        *,
        generator: torch.Generator,
    ) -> "RecurrentNetwork":
        """Plain matrices Glorot-uniform, biases and first states 0, or as the variant says."""
        network = RecurrentNetwork(
            input_size=signature.input_size,
            embedding=(
                None
                if signature.vocabulary is None
                else Embedding(signature.vocabulary, signature.input_size, generator=generator)
            ),
            recurrent=parametrization.build(self.recurrent_slot(), generator=generator),
            inputs=[
                input_layer(
                    slot,
                    parametrization,
                    self.structured_inputs,
                    bias=self.input_bias,
                    weight_norm=self.input_weight_norm,
                    generator=generator,
                )
                for slot in self._input_slots(signature)
            ],
            cells=[self.cell(generator=generator) for _ in range(self.layers)],
            readout=Affine(self.state_size, signature.output_size, generator=generator),
            initial_state=(
                nn.Parameter(torch.zeros(self.layers, self.state_parts, self.state_size))
                if self.learned_initial_state
                else None
            ),
            state_parts=self.state_parts,
            every_step=signature.output_steps == "every",
            input_dropout=self.input_dropout,
            recurrent_dropout=self.recurrent_dropout,
            dropout_masks=self.dropout_masks,
            readout_dropout=self.readout_dropout,
        )
        self.initialise(network, generator=generator)
        return network

    @abstractmethod
    def cell(self, *, generator: torch.Generator) -> Cell:
        """One layer's recurrence."""

    def initialise(self, network: "RecurrentNetwork", *, generator: torch.Generator) -> None:
        """Change the start of what the network owns, in place."""

    @property
    def state_size(self) -> int:
        """Numbers of the vector h."""
        return self.hidden_size

    def keeps_each_step(self, batch_size: int) -> bool:  # noqa: ARG002 -- see the LSTM's
        """Whether a training step keeps what each single operation made, and not states alone."""
        return self.recurrent_dropout > 0

    @property
    def input_bias(self) -> bool:
        """Whether input layers have a bias."""
        return True

    def recurrent_slot(self) -> Slot:
        """All recurrent matrices."""
        size = self.hidden_size
        return Slot(out_features=size, in_features=size, gates=self.gates, layers=self.layers)

    def plain_inputs(self, signature: Signature) -> list[Slot]:
        """The input matrices that the parametrization does not store."""
        return [
            slot
            for slot in self._input_slots(signature)
            if not is_structured(slot, self.structured_inputs)
        ]

    def _input_slots(self, signature: Signature) -> list[Slot]:
        state = self.state_size
        sizes = [signature.input_size, *[state] * (self.layers - 1)]
        return [
            Slot(
                out_features=state,
                in_features=size,
                gates=self.gates,
                auxiliary=True,
                layer=layer,
            )
            for layer, size in enumerate(sizes)
        ]

    def _plain_input_count(self, slot: Slot) -> int:
        gains = slot.out_features if self.input_weight_norm else 0
        return slot.num_matrices * (slot.out_features * slot.in_features + gains)

    def _vector_count(self) -> int:
        """Biases of all gates, and learned first states."""
        start = self.state_parts * self.state_size if self.learned_initial_state else 0
        return self.layers * (self.gates * self.hidden_size + start)

    def _readout_count(self, signature: Signature) -> int:
        return (self.state_size + 1) * signature.output_size


@dataclass(frozen=True)
class _Layer:
    """A layer's recurrent matrices in the form in which they are applied."""

    form: Form
    packed: Packed | None = None

    def __deepcopy__(self, _: dict[int, object]) -> "_Layer":
        """Itself: nothing about it ever changes, and packed matrices cannot be copied."""
        return self


class RecurrentNetwork(Network, CachesForms):
    """Layers of cells over projected inputs, and the readout.

    The inputs of all steps and gates are projected in one product per layer, the form of all
    recurrent matrices is made once per forward pass, and only then do the steps run.
    """

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
    ) -> None:
        """`initial_state` is `[layers, parts, n]`; there are as many inputs and cells as layers."""
        super().__init__()
        self.input_size = input_size
        self.embedding = embedding
        self.recurrent = recurrent
        self.inputs = nn.ModuleList(inputs)
        self.cells = nn.ModuleList(cells)
        self._cached: list[_Layer] | None = None
        self.readout = readout
        self.register_parameter("initial_state", initial_state)
        self.state_parts = state_parts
        self.every_step = every_step
        self.input_dropout = input_dropout
        self.recurrent_dropout = recurrent_dropout
        self.dropout_masks: DropoutMasks = dropout_masks
        self.readout_dropout = readout_dropout

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

    def continued(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """See `Network.continued`."""
        self._check_input(x)
        self._check_state(state, x)
        return self._run(x, state, None)

    def _run(self, x: Tensor, state: State, lengths: Tensor | None) -> tuple[Tensor, State]:
        numbers = x if self.embedding is None else self.embedding(x)
        below = h = numbers.transpose(0, 1)
        ends: list[Tensor] = []
        layers = self._cached or [_Layer(form) for form in self._layer_forms()]
        for index, (layer, project, cell) in enumerate(
            zip(layers, self._projects, self._recurrences, strict=True)
        ):
            call = cell.call(
                self._masked(layer.form, numbers),
                self._inputs(project, below),
                self._start(numbers, index, state),
                # Whoever needs the last state alone keeps no other one.
                return_sequences=self.every_step or lengths is not None or index + 1 < len(layers),
                packed=layer.packed,
            )
            below, last = run_sequence(call)
            h = last[0]
            ends += last
        if self.every_step:
            outputs = self._watched(below)
        else:
            outputs = self.watch_last(h if lengths is None else _at_last(below, lengths))
        return self.readout(F.dropout(outputs, self.readout_dropout, self.training)), tuple(ends)

    def cache(self) -> None:
        """Keep the layers' forms, packed for the kernels where these run."""
        cached: list[_Layer] = []
        state = self.readout.plain_weight().new_empty(1, self.recurrent.in_features)
        for form, project, cell in zip(
            self._layer_forms(), self._projects, self._recurrences, strict=True
        ):
            inputs = self._inputs(project, state.new_empty(1, 1, project.in_features))
            call = cell.call(form, inputs, (state,) * self.state_parts)
            cached.append(_Layer(form, pack(call)))
        self._cached = cached

    def clear(self) -> None:
        """Keep them no longer."""
        self._cached = None

    def backends(self, *, batch_size: int = 1) -> tuple[Backend, ...]:
        """What would run the layers' sequences now, each named once; it is asked as it will be run.

        Whether the network trains and whether gradients are kept decide, too.
        """
        one = self.readout.plain_weight().new_empty(1)
        state, mask = one.expand(batch_size, self.recurrent.in_features), one.expand(1, 1, 1)
        masked = self.training and self.recurrent_dropout
        layers = self._cached or [_Layer(form) for form in self._layer_forms()]
        found: list[Backend] = []
        for layer, project, cell in zip(layers, self._projects, self._recurrences, strict=True):
            if layer.packed is not None:
                found.append("cpp")
                continue
            parts = None if self.training and self.input_dropout else project.plain_parts()
            inputs = (
                ProjectedInputs(mask)
                if parts is None
                else PlainInputs(one.expand(1, 1, project.in_features), *parts)
            )
            form = MaskedForm(layer.form, mask) if masked else layer.form
            found.append(choose(cell.call(form, inputs, (state,) * self.state_parts)))
        return tuple(dict.fromkeys(found))

    @property
    def _projects(self) -> Sequence[InputLayer]:
        return cast(Sequence[InputLayer], self.inputs)

    @property
    def _recurrences(self) -> Sequence[Cell]:
        return cast(Sequence[Cell], self.cells)

    def _layer_forms(self) -> Sequence[Form]:
        return self.recurrent.form().split(self.recurrent.slot.gates)

    def _masked(self, form: Form, x: Tensor) -> Form:
        if not (self.training and self.recurrent_dropout):
            return form
        masks = 1 if self.dropout_masks == "tied" else self.recurrent.slot.gates
        ones = x.new_ones(masks, x.shape[0], self.recurrent.in_features)
        return MaskedForm(form, F.dropout(ones, self.recurrent_dropout))

    def _inputs(self, project: InputLayer, below: Tensor) -> Inputs:
        if self.training and self.input_dropout:
            projections = project(below)
            ones = projections.new_ones(*projections.shape[:2], 1)
            return ProjectedInputs(projections * F.dropout(ones, self.input_dropout))
        parts = project.plain_parts()
        return ProjectedInputs(project(below)) if parts is None else PlainInputs(below, *parts)

    def _watched(self, states: Tensor) -> Tensor:
        """All states `[B, T, n]`, the last one shown to the probe, if there is one."""
        if self.probe is not None:
            states = torch.cat((states[:-1], self.watch_last(states[-1])[None]))
        return states.transpose(0, 1)

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


def _at_last(states: Tensor, lengths: Tensor) -> Tensor:
    """Of all states `[T, B, n]` each sequence's own last one, `[B, n]`."""
    last = (lengths - 1).view(1, -1, 1).expand(1, -1, states.shape[-1])
    return states.gather(0, last).squeeze(0)
