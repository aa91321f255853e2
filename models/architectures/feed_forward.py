"""What feed-forward architectures have in common: fields, slots, counts and the network."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from models.architectures.architecture import Architecture
from models.architectures.inputs import StructuredInputs, input_layer, is_structured
from models.backends.stacks import choose_for_stack, run_stack
from models.errors import InputError, SignatureError
from models.forms import Form
from models.kernels.calls import Kind
from models.kernels.choice import Backend
from models.kernels.structs import StackName
from models.linear import Affine, StructuredLinear
from models.math.activations import Activation, activation_of
from models.math.dropout import dropout
from models.network import Network
from models.parametrizations import Parametrization
from models.spec import Signature, Slot, kind_of


class Stack(nn.Module, ABC):
    """How the hidden layers follow each other, with what they own beside matrices and biases."""

    @property
    def kind(self) -> Kind | None:
        """What the kernels call this stack as it runs now, where they compute it."""
        return None

    @abstractmethod
    def forward(self, x: Tensor, form: Form, bias: Tensor) -> Tensor:
        """What the last layer makes of `[B, n]`; `bias` is `[L, gates*n]`."""


class FeedForward(Architecture):
    """A whole sequence is read as one vector, which square layers of n units pass on.

    The parametrization stores the square matrices of all layers together, so that what it needs to
    make them is done for all at once.
    """

    any_length: ClassVar[bool] = False

    hidden_size: int = Field(default=64, ge=1, le=65536, description="units n of a hidden layer")
    structured_inputs: StructuredInputs = Field(
        default="none",
        description=(
            "whether the parametrization stores the input matrix too: never, if it is square, or "
            "always, with counts and ranks cut to what it holds"
        ),
    )

    def check(self, signature: Signature) -> None:
        """The task asks for one answer per sequence of numbers."""
        if signature.output_steps != "last":
            raise SignatureError(
                f"{kind_of(type(self))} reads a sequence as a whole and answers it once; "
                f"output_steps = {signature.output_steps!r} does not fit, allowed is 'last'"
            )
        if signature.vocabulary is not None:
            raise SignatureError(
                f"{kind_of(type(self))} reads numbers; tokens (vocabulary = "
                f"{signature.vocabulary}) do not fit, allowed is a task without a vocabulary"
            )

    @abstractmethod
    def hidden_slot(self) -> Slot:
        """All matrices of the hidden layers."""

    @abstractmethod
    def entry(self) -> Callable[[Tensor], Tensor]:
        """What makes the first hidden layer's input of what the input matrix gave."""

    @abstractmethod
    def hidden_stack(self, hidden: StructuredLinear) -> Stack:
        """The hidden layers around their matrices."""

    @property
    def input_bias(self) -> bool:
        """Whether the input matrix has a bias."""
        return True

    @property
    def end_dropouts(self) -> tuple[float, float]:
        """Shares of the sequence and of the last layer that input matrix and readout do not see."""
        return 0.0, 0.0

    def vector_count(self) -> int:
        """Biases of the input matrix and the hidden layers, and whatever else is no matrix."""
        slot = self.hidden_slot()
        return (slot.num_matrices + self.input_bias) * slot.out_features

    def slots(self, signature: Signature) -> Mapping[str, Slot]:
        """The hidden layers' matrices, then the input matrix where it is structured."""
        slots = {"hidden": self.hidden_slot()}
        if is_structured(entrance := self._input_slot(signature), self.structured_inputs):
            slots["input"] = entrance
        return slots

    def parameter_count(self, signature: Signature, parametrization: Parametrization) -> int:
        """Input and hidden matrices, biases and other vectors, and the readout."""
        slots = self.slots(signature)
        structured = [
            parametrization.for_slot(slot).parameter_count(slot) for slot in slots.values()
        ]
        entrance = self._input_slot(signature)
        plain = 0 if "input" in slots else entrance.out_features * entrance.in_features
        readout = (self.hidden_size + 1) * signature.output_size
        return sum(structured) + plain + self.vector_count() + readout

    def saved_numbers(self, signature: Signature, *, batch_size: int) -> int:  # noqa: ARG002
        """The sequence as it is seen, and what each layer keeps of its vector."""
        layers = self.hidden_slot().layers
        seen = 2 * signature.sequence_length * signature.input_size
        return seen + self.hidden_size * (2 + layers * self.saved_per_unit)

    @property
    def saved_per_unit(self) -> int:
        """Numbers that a training step keeps for each unit of a hidden layer."""
        return 2

    def build(
        self,
        signature: Signature,
        parametrization: Parametrization,
        *,
        generator: torch.Generator,
    ) -> "FeedForwardNetwork":
        """Plain matrices Glorot-uniform, biases 0, or as the variant says."""
        hidden = parametrization.build(self.hidden_slot(), generator=generator)
        input_dropout, readout_dropout = self.end_dropouts
        network = FeedForwardNetwork(
            sequence_shape=(signature.sequence_length, signature.input_size),
            projection=input_layer(
                self._input_slot(signature),
                parametrization,
                self.structured_inputs,
                bias=self.input_bias,
                generator=generator,
            ),
            entry=self.entry(),
            hidden=hidden,
            stack=self.hidden_stack(hidden),
            readout=Affine(self.hidden_size, signature.output_size, generator=generator),
            input_dropout=input_dropout,
            readout_dropout=readout_dropout,
        )
        self.initialise(network)
        return network

    def initialise(self, network: "FeedForwardNetwork") -> None:
        """Change the start of what the network owns, in place."""

    def _input_slot(self, signature: Signature) -> Slot:
        return Slot(
            out_features=self.hidden_size,
            in_features=signature.sequence_length * signature.input_size,
            auxiliary=True,
        )


class Perceptron(FeedForward):
    """Layers of one matrix each, all with one activation: `x_0 = f(W_in x + b)` and so on."""

    activation: Activation = Field(default="leaky_relu", description="f of every layer")
    leak: float = Field(
        default=0.1, ge=0, le=1, description="slope of leaky_relu below 0; 1 makes f linear"
    )
    dropout: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="share of a layer's units hidden from the next matrix, the readout included",
    )

    @property
    def saved_per_unit(self) -> int:
        """Masks are kept, too, and single operations keep their results."""
        return 4 if self.dropout else super().saved_per_unit

    def entry(self) -> Callable[[Tensor], Tensor]:
        """The activation."""
        return activation_of(self.activation, leak=self.leak)

    @property
    def end_dropouts(self) -> tuple[float, float]:
        """The sequence is seen whole."""
        return 0.0, self.dropout


class PerceptronStack(Stack):
    """Layers of one activation, with dropout before each matrix."""

    name: ClassVar[StackName]

    def __init__(self, activation: Activation, *, leak: float, dropout: float) -> None:
        super().__init__()
        self.activation = activation_of(activation, leak=leak)
        self.dropout = dropout
        self._kind = Kind(self.name, activation, leak)

    @property
    def kind(self) -> Kind | None:
        """The layers, while nothing is dropped between them."""
        return None if self.training and self.dropout else self._kind


class FeedForwardNetwork(Network):
    """An input matrix over the flattened sequence, the hidden layers, and the readout.

    The form of all hidden matrices is made once per forward pass.
    """

    def __init__(
        self,
        *,
        sequence_shape: tuple[int, int],
        projection: nn.Module,
        entry: Callable[[Tensor], Tensor],
        hidden: StructuredLinear,
        stack: Stack,
        readout: Affine,
        input_dropout: float,
        readout_dropout: float,
    ) -> None:
        """`sequence_shape` is steps and features per step; biases of the hidden layers start at 0.

        `projection` is the input matrix.
        """
        super().__init__()
        slot = hidden.slot
        self.sequence_shape = sequence_shape
        self.input = projection
        self.entry = entry
        self.hidden = hidden
        self.bias = nn.Parameter(torch.zeros(slot.layers, slot.gates * slot.out_features))
        self.stack = stack
        self.readout = readout
        self.input_dropout = input_dropout
        self.readout_dropout = readout_dropout

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """`[B, T, input_size]` -> `[B, output_size]`; T is the signature's, B may be 0.

        Where samples have `lengths` of their own, the padding behind them is read like all else.

        Raises:
            InputError: x has another shape or type.
        """
        self._check_input(x)
        seen = dropout(x.flatten(1), self.input_dropout, training=self.training)
        first = self.watch_first(self.entry(self.input(seen)))
        form = self.hidden.form()
        last = self.watch_last(run_stack(self.stack.kind, self.stack, first, form, self.bias))
        return self.readout(dropout(last, self.readout_dropout, training=self.training))

    def backends(self, *, batch_size: int = 1) -> tuple[Backend, ...]:  # noqa: ARG002 -- any size
        """What would run the hidden layers now."""
        like = self.readout.plain_weight()
        return (choose_for_stack(self.stack.kind, self.hidden.form(), like),)

    def _check_input(self, x: Tensor) -> None:
        dtype = self.readout.plain_weight().dtype
        if x.dim() != 3 or tuple(x.shape[1:]) != self.sequence_shape:
            steps, features = self.sequence_shape
            raise InputError(
                f"input of shape {list(x.shape)} does not fit; "
                f"allowed is [batch, {steps}, {features}]"
            )
        if x.dtype != dtype:
            raise InputError(f"input of type {x.dtype} does not fit; the model has {dtype}")


def affine_layers(form: Form, bias: Tensor, *, gates: int) -> list[tuple[Form, Tensor]]:
    """Each layer's matrices with the addend that their `matmul` takes; bias is `[L, gates*n]`."""
    layers = form.split(gates)
    # A step with a batch of one, which every batch takes as its own.
    rows = bias.view(len(layers), 1, 1, -1).unbind(0)
    return [(layer, layer.addends(row)[0]) for layer, row in zip(layers, rows, strict=True)]
