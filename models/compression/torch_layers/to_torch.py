"""A model of ours as the tensors of plain torch.nn layers."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from models.architectures import Gru, Lstm, Mlp, Resnet, Rnn
from models.architectures.architecture import Architecture
from models.architectures.recurrent import Recurrent
from models.compression.networks import fold
from models.compression.torch_layers.names import CellName, reordered
from models.errors import ConversionError
from models.model import ModelSpec
from models.network import Network
from models.spec import kind_of


def to_torch(network: Network, spec: ModelSpec) -> dict[str, Tensor]:
    """A state dict that modules made of plain torch.nn layers load, without this project.

    Recurrent models: `rnn.weight_ih_l0` and so on of an `nn.RNN`, `nn.LSTM` or `nn.GRU` called
    `rnn`, `readout.weight` and `readout.bias` of an `nn.Linear`, `embedding.weight` of an
    `nn.Embedding` where tokens are read, and where the first state is trained `h_0` (and `c_0`)
    `[layers, 1, n]`, to be handed to the layer for every sample. An MLP or ResNet: `input`,
    `hidden.0` and so on, and `readout`, each an `nn.Linear`. Structured matrices are folded first.

    Raises:
        ConversionError: no plain layer computes the same; says what.
    """
    reason = torch_fault(spec.architecture)
    if reason is not None:
        raise ConversionError(reason)
    write = _WRITERS[type(spec.architecture)]
    dense, baseline = fold(network, spec)
    return {
        name: tensor.detach().clone().contiguous()
        for name, tensor in write(dense, baseline.architecture).items()
    }


def torch_fault(architecture: Architecture) -> str | None:
    """Why no plain torch.nn layers compute what an architecture does; None where they do."""
    match architecture:
        case Rnn(activation=activation) if activation not in ("tanh", "relu"):
            return (
                f"activation = {activation!r} is not offered by nn.RNN; allowed are 'tanh' and "
                "'relu'"
            )
        case Lstm(peephole=True):
            return "nn.LSTM has no peephole; allowed is peephole = false"
        case Gru(reset=reset) if reset != "after":
            return f"reset = {reset!r} is not what nn.GRU does; allowed is 'after'"
        case _ if type(architecture) not in _WRITERS:
            allowed = ", ".join(sorted(kind_of(variant) for variant in _WRITERS))
            return (
                f"{kind_of(type(architecture))} has no counterpart among plain torch.nn layers; "
                f"allowed are {allowed}"
            )
        case _:
            return None


def _recurrent(network: Network, architecture: Recurrent, cell: CellName) -> dict[str, Tensor]:
    plain = _plain_tensors(network)
    size, gates = architecture.hidden_size, architecture.gates
    state: dict[str, Tensor] = {}
    if "embedding.weight" in plain:
        state["embedding.weight"] = plain["embedding.weight"]
    for layer, stack in enumerate(torch.split(plain["recurrent.weight"], gates)):
        bias = reordered(plain[f"inputs.{layer}.bias"], cell)
        inner = torch.zeros_like(bias)
        if f"cells.{layer}.candidate_bias" in plain:
            inner[2 * size :] = plain[f"cells.{layer}.candidate_bias"]
        state |= {
            f"rnn.weight_ih_l{layer}": reordered(plain[f"inputs.{layer}.weight"], cell),
            f"rnn.weight_hh_l{layer}": reordered(stack.flatten(0, 1), cell),
            f"rnn.bias_ih_l{layer}": bias,
            f"rnn.bias_hh_l{layer}": inner,
        }
    state |= {name: plain[name] for name in ("readout.weight", "readout.bias")}
    if "initial_state" in plain:
        for part, name in enumerate(("h_0", "c_0")[: architecture.state_parts]):
            state[name] = plain["initial_state"][:, part].unsqueeze(1)
    return state


def _linears(network: Network, _: Architecture) -> dict[str, Tensor]:
    plain = _plain_tensors(network)
    state = {f"input.{part}": plain[f"input.{part}"] for part in ("weight", "bias")}
    for layer, (weight, bias) in enumerate(zip(plain["hidden.weight"], plain["bias"], strict=True)):
        state |= {f"hidden.{layer}.weight": weight, f"hidden.{layer}.bias": bias}
    return state | {f"readout.{part}": plain[f"readout.{part}"] for part in ("weight", "bias")}


def _plain_tensors(network: Network) -> dict[str, Tensor]:
    """All tensors, those of input matrices by one name whether they are a slot or not."""
    state = network.state_dict()
    plain: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if name.endswith(".linear.weight"):
            plain[name.replace(".linear.", ".")] = tensor.flatten(0, 1)
        elif name.endswith(".weight.direction"):
            owner = name.removesuffix(".direction")
            plain[owner] = network.get_submodule(owner)()
        elif not name.endswith(".weight.gain"):
            plain[name] = tensor
    return plain


_WRITERS: Mapping[type[Architecture], Callable[[Network, Any], dict[str, Tensor]]] = {
    Gru: partial(_recurrent, cell="gru"),
    Lstm: partial(_recurrent, cell="lstm"),
    Mlp: _linears,
    Resnet: _linears,
    Rnn: partial(_recurrent, cell="rnn"),
}
