"""A model of ours as a module of plain torch.nn layers, which runs without any code of ours."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from models.architectures import Gru, Lstm, Mlp, Resnet, Rnn
from models.architectures.architecture import Architecture
from models.architectures.feed_forward import Perceptron
from models.architectures.recurrent import Recurrent
from models.compression.torch_layers.to_torch import to_torch
from models.math.activations import activation_of
from models.model import ModelSpec
from models.network import Network
from models.spec import Signature


def plain_network(network: Network, spec: ModelSpec) -> nn.Module:
    """A module that computes what a network does in evaluation, from what `to_torch` gives.

    It maps `[B, T, input_size]`, or tokens `[B, T]`, to what the network answers.

    Raises:
        ConversionError: see `to_torch`.
    """
    return plain_module(spec, to_torch(network, spec))


def plain_module(spec: ModelSpec, state: Mapping[str, Tensor]) -> nn.Module:
    """The same of tensors that `to_torch` gave for a model of this spec."""
    module = _MODULES[type(spec.architecture)](spec.architecture, spec.signature, state)
    # Modules begin in torch's default type, to which loading would round the numbers.
    module.to(state["readout.weight"].dtype).load_state_dict(state)
    return module.eval()


class PlainRecurrent(nn.Module):
    """An `nn.RNN`, `nn.LSTM` or `nn.GRU` that an `nn.Linear` reads, as `to_torch` names them."""

    def __init__(
        self,
        architecture: Recurrent,
        signature: Signature,
        state: Mapping[str, Tensor],
        *,
        layers: Callable[..., nn.RNNBase],
    ) -> None:
        super().__init__()
        size = architecture.hidden_size
        self.answers_every_step = signature.output_steps == "every"
        self.embedding = (
            None
            if signature.vocabulary is None
            else nn.Embedding(signature.vocabulary, signature.input_size)
        )
        self.rnn = layers(signature.input_size, size, architecture.layers, batch_first=True)
        self.readout = nn.Linear(size, signature.output_size)
        self.h_0 = nn.Parameter(torch.empty_like(state["h_0"])) if "h_0" in state else None
        self.c_0 = nn.Parameter(torch.empty_like(state["c_0"])) if "c_0" in state else None

    def forward(self, x: Tensor) -> Tensor:
        """Answers to a batch."""
        if self.embedding is not None:
            x = self.embedding(x)
        starts = [
            start.expand(-1, x.shape[0], -1).contiguous()
            for start in (self.h_0, self.c_0)
            if start is not None
        ]
        # Of a cell with one part the layer takes the part; zeros it makes by itself.
        first = tuple(starts) if len(starts) > 1 else next(iter(starts), None)
        states, _ = self.rnn(x, first)
        return self.readout(states if self.answers_every_step else states[:, -1])


class PlainLayers(nn.Module):
    """`nn.Linear` layers with an activation between them, as `to_torch` names them."""

    def __init__(
        self,
        architecture: Perceptron,
        signature: Signature,
        _state: Mapping[str, Tensor],
        *,
        residual: bool,
    ) -> None:
        super().__init__()
        size = architecture.hidden_size
        self.input = nn.Linear(signature.sequence_length * signature.input_size, size)
        self.hidden = nn.ModuleList(
            nn.Linear(size, size) for _ in range(architecture.hidden_slot().layers)
        )
        self.readout = nn.Linear(size, signature.output_size)
        self.activation = activation_of(architecture.activation, leak=architecture.leak)
        self.residual = residual

    def forward(self, x: Tensor) -> Tensor:
        """Answers to a batch."""
        x = self.activation(self.input(x.flatten(1)))
        if not self.residual:
            for layer in self.hidden:
                x = self.activation(layer(x))
            return self.readout(x)
        layers = list(self.hidden)
        for first, second in zip(layers[::2], layers[1::2], strict=True):
            x = self.activation(x + second(self.activation(first(x))))
        return self.readout(x)


def _rnn(architecture: Rnn, signature: Signature, state: Mapping[str, Tensor]) -> nn.Module:
    layers = partial(nn.RNN, nonlinearity=architecture.activation)
    return PlainRecurrent(architecture, signature, state, layers=layers)


_MODULES: Mapping[
    type[Architecture], Callable[[Any, Signature, Mapping[str, Tensor]], nn.Module]
] = {
    Gru: partial(PlainRecurrent, layers=nn.GRU),
    Lstm: partial(PlainRecurrent, layers=nn.LSTM),
    Mlp: partial(PlainLayers, residual=False),
    Resnet: partial(PlainLayers, residual=True),
    Rnn: _rnn,
}
"""For each architecture that `to_torch` writes, its module."""
