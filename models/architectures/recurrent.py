"""What recurrent architectures have in common: fields, slots, counts and how they are built."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Self

import torch
from pydantic import Field
from torch import nn

from models.architectures.architecture import Architecture
from models.architectures.inputs import StructuredInputs, input_layer, is_structured
from models.architectures.recurrent_network import Cell, DropoutMasks, RecurrentNetwork
from models.embedding import Embedding
from models.kernels.sequence import LEAST_KEPT_SIZE, MOST_KEPT
from models.linear import Affine
from models.math.initialisation import uniform_
from models.parameter_sampler import ParameterSampler
from models.parametrizations import Parametrization
from models.spec import Signature, Slot


def _is_unused(value: object) -> bool:
    """Whether documents leave a field out: those of earlier models stay what they were."""
    return not value


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
    layer_dropout: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        exclude_if=_is_unused,
        description=(
            "share of the numbers dropped that enter each layer and the readout, drawn for each "
            "unit, step and sample; what a layer gives its own next step stays whole (Zaremba, "
            "Sutskever and Vinyals, arXiv:1409.2329)"
        ),
    )
    symbol_dropout: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        exclude_if=_is_unused,
        description=(
            "share of the symbols, or of the features, hidden from the first layer, the same for "
            "all steps of a sequence or window (Gal and Ghahramani, arXiv:1512.05287)"
        ),
    )
    start: float | None = Field(
        default=None,
        gt=0,
        le=1,
        exclude_if=_is_unused,
        description=(
            "where all parameters start, biases and first states too: uniform within ± this, as "
            "the language model of Gal's code with 0.04; null: as the architecture and the "
            "parametrization say"
        ),
    )

    @classmethod
    def suggest(cls, sampler: ParameterSampler, signature: Signature) -> Self:  # noqa: ARG003 -- one range
        """hidden_size log-uniform from 16 to 128."""
        return cls(hidden_size=sampler.integer("hidden_size", 16, 128, log=True))

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
        structured = [
            parametrization.for_slot(slot).parameter_count(slot) for slot in slots.values()
        ]
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
            per_layer += self._kept_numbers(signature.sequence_length * batch_size)
        if self.input_dropout:
            per_layer += 2 * self.gates * self.state_size
        between = (self.layers - 1) * self.state_size
        if self.layer_dropout:
            # Masks, and what is left, of all that enters a layer or the readout.
            between += 2 * (signature.input_size + self.layers * self.state_size)
        if self.symbol_dropout:
            between += 2 * signature.input_size
        answered = 3 * self.state_size if signature.output_steps == "every" else 0
        return signature.sequence_length * (self.layers * per_layer + between + answered)

    def build(
        self,
        signature: Signature,
        parametrization: Parametrization,
        *,
        generator: torch.Generator,
    ) -> RecurrentNetwork:
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
            layer_dropout=self.layer_dropout,
            symbol_dropout=self.symbol_dropout,
        )
        self.initialise(network, generator=generator)
        if self.start is not None:
            for parameter in network.parameters():
                uniform_(parameter, -self.start, self.start, generator=generator)
        return network

    @abstractmethod
    def cell(self, *, generator: torch.Generator) -> Cell:
        """One layer's recurrence."""

    def initialise(self, network: RecurrentNetwork, *, generator: torch.Generator) -> None:
        """Change the start of what the network owns, in place."""

    @property
    def state_size(self) -> int:
        """Numbers of the vector h."""
        return self.hidden_size

    @property
    def masks_steps(self) -> bool:
        """All but symbols and the state, which have one mask for a whole sequence."""
        return any((self.input_dropout, self.layer_dropout, self.readout_dropout))

    def state_numbers(self) -> int:
        """The parts of every layer's state."""
        return self.layers * self.state_parts * self.state_size

    def keeps_each_step(self, batch_size: int) -> bool:  # noqa: ARG002 -- see the LSTM's
        """Whether a training step keeps what each single operation made, and not states alone."""
        return self.recurrent_dropout > 0

    @property
    def kept_gates(self) -> int:
        """Rows of n that our kernels keep of a step where they keep its gates, see `sequence`."""
        return 0

    def _kept_numbers(self, samples: int) -> int:
        """At most so many of each of these steps of samples."""
        kept = self.kept_gates * self.state_size
        is_kept = self.state_size >= LEAST_KEPT_SIZE and 4 * samples * kept <= MOST_KEPT
        return kept if is_kept else 0

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
