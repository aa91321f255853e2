"""Drop-ins for torch's layers, which hold the same plain matrices to begin with."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from models.architectures.gru import GruCell
from models.architectures.inputs import InputLayer, StructuredInputs, is_structured
from models.architectures.lstm import LstmCell
from models.architectures.recurrent_network import Cell
from models.architectures.rnn import RnnCell
from models.compression.fit.dense import fit_dense_
from models.compression.target import Target, refuse_not_finite
from models.compression.torch_layers.layers import (
    CompressedGRU,
    CompressedLinear,
    CompressedLSTM,
    CompressedRecurrent,
    CompressedRNN,
)
from models.compression.torch_layers.names import CellName, RecurrentWeights, read_recurrent
from models.errors import ConversionError
from models.kernels.calls import Kind
from models.linear import Affine, StructuredAffine, StructuredLinear
from models.math.activations import activation_of
from models.math.initialisation import generator_of
from models.parametrizations import Dense
from models.spec import Slot

_RECURRENT: Mapping[CellName, type[CompressedRecurrent]] = {
    "rnn": CompressedRNN,
    "gru": CompressedGRU,
    "lstm": CompressedLSTM,
}


def is_replaceable(layer: nn.Module) -> bool:
    """Whether a layer is one of torch's own that have a drop-in; subclasses may do anything."""
    return type(layer) in _DROP_INS


def drop_in(name: str, layer: nn.Module, inputs: StructuredInputs) -> nn.Module:
    """A drop-in with the layer's numbers, in its type, on its device, and as trainable.

    Raises:
        ConversionError: numbers are not finite, or the layer has projections; names it.
    """
    for key, tensor in layer.state_dict().items():
        refuse_not_finite(f"{name}.{key}" if name else key, tensor)
    like = next(layer.parameters())
    if not like.is_floating_point():
        raise ConversionError(f"{name} has type {like.dtype}; allowed are floating point numbers")
    made = _DROP_INS[type(layer)](name, layer, inputs)
    return made.to(like.device, like.dtype).train(layer.training)


def _linear(_name: str, layer: nn.Linear, _inputs: StructuredInputs) -> CompressedLinear:
    slot = Slot(out_features=layer.out_features, in_features=layer.in_features)
    # torch declares the bias as a parameter, but it may be None.
    bias = layer.state_dict().get("bias")
    made = CompressedLinear(
        _dense(slot, layer.weight.unsqueeze(0)),
        None if bias is None else nn.Parameter(bias.detach().clone()),
    )
    made.linear.requires_grad_(layer.weight.requires_grad)
    if made.bias is not None:
        made.bias.requires_grad_(layer.bias.requires_grad)
    return made


def _recurrent(name: str, layer: nn.RNNBase, inputs: StructuredInputs) -> CompressedRecurrent:
    prefix = f"{name}." if name else ""
    weights = read_recurrent(layer.state_dict(), prefix)
    size, gates = weights.hidden_size, weights.gates
    stack = Slot(out_features=size, in_features=size, gates=gates, layers=len(weights.inputs))
    nonlinearity: Any = getattr(layer, "nonlinearity", "tanh")
    made = _RECURRENT[weights.cell](
        _dense(stack, weights.recurrent),
        [_input(weights, place, inputs) for place in range(len(weights.inputs))],
        [_cell(weights, place, nonlinearity) for place in range(len(weights.inputs))],
        bidirectional=weights.directions == 2,
        batch_first=layer.batch_first,
        dropout=layer.dropout,
    )
    _train_alike_(made, layer)
    return made


def _train_alike_(made: CompressedRecurrent, layer: nn.RNNBase) -> None:
    """Make trainable what comes of a trainable tensor of torch's, and nothing else, in place."""
    recurrent = [parameters[1] for parameters in layer.all_weights]
    # The matrices of all layers are one parameter.
    made.recurrent.requires_grad_(any(weight.requires_grad for weight in recurrent))
    for inputs, cell, (weight, _, *biases) in zip(
        made.inputs, made.cells, layer.all_weights, strict=True
    ):
        inputs.requires_grad_(weight.requires_grad)
        if biases:
            inputs.get_parameter("bias").requires_grad_(any(bias.requires_grad for bias in biases))
            # A cell's own bias is a part of the second one.
            cell.requires_grad_(biases[1].requires_grad)


def _input(weights: RecurrentWeights, place: int, inputs: StructuredInputs) -> InputLayer:
    matrix = weights.inputs[place]
    size = weights.hidden_size
    slot = Slot(
        out_features=size,
        in_features=matrix.shape[1],
        gates=weights.gates,
        auxiliary=True,
        layer=place,
    )
    bias = None if weights.biases is None else weights.biases[place]
    layer: InputLayer
    if is_structured(slot, inputs):
        stack = matrix.view(weights.gates, size, -1)
        layer = StructuredAffine(_dense(slot, stack), bias=bias is not None)
    else:
        layer = Affine(
            matrix.shape[1],
            size,
            num_matrices=weights.gates,
            bias=bias is not None,
            generator=generator_of(0),
        )
        layer.weight = nn.Parameter(matrix.detach().clone())
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().clone())
    return layer


def _cell(weights: RecurrentWeights, place: int, nonlinearity: Any) -> Cell:
    biases = weights.candidate_biases
    bias = None if biases is None else nn.Parameter(biases[place].detach().clone())
    return _CELLS[weights.cell](nonlinearity, bias)


def _rnn_cell(nonlinearity: Any, _: nn.Parameter | None) -> Cell:
    return RnnCell(activation_of(nonlinearity, leak=0.0), kind=Kind("rnn", nonlinearity, 0.0))


def _lstm_cell(_nonlinearity: Any, _: nn.Parameter | None) -> Cell:
    return LstmCell(None)


def _gru_cell(_: Any, bias: nn.Parameter | None) -> Cell:
    return GruCell("after", candidate_bias=bias)


_CELLS: Mapping[CellName, Callable[[Any, nn.Parameter | None], Cell]] = {
    "rnn": _rnn_cell,
    "gru": _gru_cell,
    "lstm": _lstm_cell,
}


def _dense(slot: Slot, weight: Tensor) -> StructuredLinear:
    linear = Dense().build(slot, generator=generator_of(0)).to(weight.device, weight.dtype)
    fit_dense_(linear, Target(slot=slot, weight=weight.detach()))
    return linear


_DROP_INS: Mapping[type[nn.Module], Callable[[str, Any, StructuredInputs], nn.Module]] = {
    nn.Linear: _linear,
    nn.RNN: _recurrent,
    nn.LSTM: _recurrent,
    nn.GRU: _recurrent,
}
