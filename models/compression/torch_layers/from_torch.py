"""A plain torch state dict to a model of ours, recognised by names and shapes."""

import itertools
import re
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from models.architectures import AnyArchitecture, Gru, Lstm, Mlp, Rnn
from models.compression.target import refuse_not_finite
from models.compression.torch_layers.names import (
    RECURRENT_TENSOR,
    RecurrentWeights,
    read_recurrent,
)
from models.errors import ConversionError
from models.math.activations import Activation
from models.model import ModelSpec
from models.network import Network
from models.parametrizations import Dense
from models.spec import Signature


def from_torch(
    state: Mapping[str, Tensor],
    *,
    nonlinearity: Activation | None = None,
    output_steps: Literal["last", "every"] = "last",
    sequence_length: int = 1,
) -> tuple[Network, ModelSpec]:
    """The model that plain tensors make up, with plain matrices, and its spec.

    Recognised, whatever stands before the names: one `nn.RNN`, `nn.LSTM` or `nn.GRU` of any number
    of layers with one `nn.Linear` that reads its last layer, and, if `embed` is in its name, an
    `nn.Embedding` in front; or `nn.Linear` layers alone, of which all but the first and the last
    are square.

    Args:
        state: tensors by name, as `module.state_dict()` gives them.
        nonlinearity: what a state dict does not tell: of an `nn.RNN` (tanh if None), or between
            linear layers (relu if None).
        output_steps: whether the readout reads the last step, or every step.
        sequence_length: steps of a sample. Linear layers read all of them at once.

    Raises:
        ConversionError: lists the tensors that are missing, too many or of a wrong shape, or says
            what has no counterpart here.
    """
    for name, tensor in state.items():
        if not tensor.is_floating_point():
            raise ConversionError(
                f"{name} has type {tensor.dtype}; allowed are floating point numbers"
            )
        refuse_not_finite(name, tensor)
    recurrent: dict[str, dict[str, Tensor]] = {}
    others: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if match := RECURRENT_TENSOR.fullmatch(name):
            part = name.removeprefix(match["prefix"])
            recurrent.setdefault(match["prefix"], {})[part] = tensor
        else:
            others[name] = tensor
    linears = _linears(others)
    if not recurrent:
        return _perceptron(linears, nonlinearity or "relu", output_steps, sequence_length)
    if len(recurrent) > 1:
        raise ConversionError(
            "there are several recurrent stacks: "
            f"{', '.join(prefix or 'unnamed' for prefix in recurrent)}; allowed is one"
        )
    ((prefix, tensors),) = recurrent.items()
    if reverse := sorted(name for name in tensors if name.endswith("_reverse")):
        raise ConversionError(
            f"{prefix}{reverse[0]}: a bidirectional stack has no counterpart among our "
            "architectures; allowed is one direction (`models.compress` takes both)"
        )
    weights = read_recurrent(tensors, prefix)
    return _recurrent(weights, linears, nonlinearity, output_steps, sequence_length)


_Linear = tuple[Tensor, Tensor | None]


def _linears(tensors: Mapping[str, Tensor]) -> dict[str, _Linear]:
    """Weights `[out, in]` with their biases by prefix, in their own order.

    Raises:
        ConversionError: a tensor is neither; lists all that are not.
    """
    found: dict[str, _Linear] = {}
    for name, tensor in tensors.items():
        if re.fullmatch(r"(.*\.)?weight", name) and tensor.dim() == 2:
            bias = tensors.get(f"{name.removesuffix('weight')}bias")
            if bias is None or list(bias.shape) == [tensor.shape[0]]:
                found[name.removesuffix("weight")] = (tensor, bias)
    known = {f"{prefix}{part}" for prefix in found for part in ("weight", "bias")}
    if left := [f"{name} {list(tensors[name].shape)}" for name in tensors if name not in known]:
        raise ConversionError(
            f"tensors of no known layer: {', '.join(left)}; allowed are those of nn.RNN, nn.LSTM, "
            "nn.GRU, nn.Linear and, with `embed` in its name, nn.Embedding"
        )
    return found


def _recurrent(
    weights: RecurrentWeights,
    linears: dict[str, _Linear],
    nonlinearity: Activation | None,
    output_steps: Literal["last", "every"],
    sequence_length: int,
) -> tuple[Network, ModelSpec]:
    tables = [name for name, (_, bias) in linears.items() if "embed" in name and bias is None]
    table = linears.pop(tables[0])[0] if len(tables) == 1 else None
    if len(linears) != 1:
        raise ConversionError(
            f"beside the recurrent stack there are {len(linears)} linear layers"
            f"{_names(linears)}; allowed is one, the readout"
        )
    ((name, (weight, bias)),) = linears.items()
    if weight.shape[1] != weights.hidden_size:
        raise ConversionError(
            f"{name}weight has shape {list(weight.shape)}; a readout of {weights.hidden_size} "
            f"units has [outputs, {weights.hidden_size}]"
        )
    if table is not None and table.shape[1] != weights.input_size:
        raise ConversionError(
            f"{tables[0]}weight has shape {list(table.shape)}; the recurrent stack reads "
            f"{weights.input_size} numbers per step"
        )
    spec = ModelSpec(
        architecture=_architecture(weights, nonlinearity),
        parametrization=Dense(),
        signature=Signature(
            input_size=weights.input_size,
            sequence_length=sequence_length,
            output_size=weight.shape[0],
            output_steps=output_steps,
            vocabulary=None if table is None else table.shape[0],
        ),
    )
    state: dict[str, Tensor] = {"recurrent.weight": weights.recurrent}
    for layer, matrix in enumerate(weights.inputs):
        state[f"inputs.{layer}.weight"] = matrix
        state[f"inputs.{layer}.bias"] = (
            matrix.new_zeros(len(matrix)) if weights.biases is None else weights.biases[layer]
        )
        if weights.candidate_biases is not None:
            state[f"cells.{layer}.candidate_bias"] = weights.candidate_biases[layer]
    state |= {"readout.weight": weight, "readout.bias": _or_zeros(bias, weight)}
    if table is not None:
        state["embedding.weight"] = table
    return _loaded(spec, state), spec


def _architecture(weights: RecurrentWeights, nonlinearity: Activation | None) -> AnyArchitecture:
    size, layers = weights.hidden_size, weights.layers
    if weights.cell != "rnn" and nonlinearity not in (None, "tanh"):
        raise ConversionError(
            f"nonlinearity = {nonlinearity!r} is not that of an {weights.cell.upper()}; "
            "allowed are None and 'tanh'"
        )
    match weights.cell:
        case "rnn":
            return Rnn(
                hidden_size=size,
                layers=layers,
                activation=nonlinearity or "tanh",
                learned_initial_state=False,
            )
        case "lstm":
            return Lstm(hidden_size=size, layers=layers, learned_initial_state=False)
        case "gru":
            return Gru(
                hidden_size=size,
                layers=layers,
                reset="after",
                candidate_bias=weights.candidate_biases is not None,
                learned_initial_state=False,
            )


def _perceptron(
    linears: dict[str, _Linear],
    activation: Activation,
    output_steps: Literal["last", "every"],
    sequence_length: int,
) -> tuple[Network, ModelSpec]:
    """Input matrix, hidden layers, readout: linear layers in the order of their numbers."""
    if len(linears) < 3:
        raise ConversionError(
            f"there are {len(linears)} linear layers{_names(linears)} and no recurrent stack; "
            "allowed are at least three: one that reads the input, square ones, and the readout"
        )
    names = sorted(linears, key=_by_number)
    if not _chained([linears[name][0] for name in names]):
        names = list(linears)
    first, *hidden, last = names
    size = linears[first][0].shape[0]
    if not _chained([linears[name][0] for name in names]) or any(
        linears[name][0].shape[0] != size for name in hidden
    ):
        shapes = ", ".join(f"{name}weight {list(linears[name][0].shape)}" for name in names)
        raise ConversionError(
            f"linear layers {shapes} are no multi-layer perceptron of ours; allowed are "
            "[n, inputs], [n, n] as often as there are, and [outputs, n]"
        )
    reads = linears[first][0].shape[1]
    if reads % sequence_length:
        raise ConversionError(
            f"{first}weight reads {reads} numbers, which is no multiple of sequence_length = "
            f"{sequence_length}"
        )
    spec = ModelSpec(
        architecture=Mlp(hidden_size=size, layers=len(hidden), activation=activation),
        parametrization=Dense(),
        signature=Signature(
            input_size=reads // sequence_length,
            sequence_length=sequence_length,
            output_size=linears[last][0].shape[0],
            output_steps=output_steps,
        ),
    )
    biases = {name: _or_zeros(bias, weight) for name, (weight, bias) in linears.items()}
    state = {
        "input.weight": linears[first][0],
        "input.bias": biases[first],
        "hidden.weight": torch.stack([linears[name][0] for name in hidden]),
        "bias": torch.stack([biases[name] for name in hidden]),
        "readout.weight": linears[last][0],
        "readout.bias": biases[last],
    }
    return _loaded(spec, state), spec


def _loaded(spec: ModelSpec, state: Mapping[str, Tensor]) -> Network:
    types = {tensor.dtype for tensor in state.values()}
    if len(types) > 1:
        raise ConversionError(
            f"tensors of types {', '.join(sorted(map(str, types)))}; allowed is one type"
        )
    network = spec.build(seed=0).to(types.pop())
    network.load_state_dict(dict(state), strict=True)
    return network.eval()


def _chained(weights: list[Tensor]) -> bool:
    """Whether each matrix reads as many numbers as the one before it writes."""
    return all(b.shape[1] == a.shape[0] for a, b in itertools.pairwise(weights))


def _by_number(name: str) -> list[tuple[int, str]]:
    """Layer 10 behind layer 9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _or_zeros(bias: Tensor | None, weight: Tensor) -> Tensor:
    return weight.new_zeros(len(weight)) if bias is None else bias


def _names(linears: Mapping[str, object]) -> str:
    return f" ({', '.join(f'{name}weight' for name in linears)})" if linears else ""
