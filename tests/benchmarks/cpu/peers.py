"""Who takes part in a recurrent case: ours, torch's own, and the ways between and before them."""

from functools import partial

import torch
from torch import Tensor, nn

from models.architectures.recurrent_network import Cell, RecurrentNetwork
from models.backends.call import PlainInputs
from models.backends.sequences import VENDOR, choose
from models.backends.vendor import vendor_computes
from models.forms import DenseForm
from models.linear import cache_forms
from models.math.activations import activation_of
from tests.benchmarks.cpu.cases import Case, Mode
from tests.benchmarks.cpu.contestant import (
    LOOP,
    OURS,
    TORCH,
    Contestant,
    Data,
    Factories,
    data_of,
    on_backend,
    step_of,
)
from tests.benchmarks.cpu.reflectors import ReflectorLoop

_LOOP_ROUNDS = 3
_REFLECTOR_ROUNDS = 1


def contestants(case: Case, mode: Mode) -> Factories:
    """By name; nothing is built before it is asked for."""
    data = data_of(case)
    found = {
        TORCH: partial(_torch, case, data, mode),
        OURS: partial(_ours, case, data, mode),
    }
    if case.parametrization["kind"] != "dense":
        found["ours, dense baseline"] = partial(_dense_baseline, case, data, mode)
    kind = _layer(_network(case)).kind
    if kind is not None and vendor_computes(kind):
        found["torch's kernel on our W"] = partial(_materialised, case, data, mode)
    found["ours, torch backend"] = partial(_torch_backend, case, data, mode)
    if case.reflector_loop and mode == "train":
        found[LOOP] = partial(_reflectors, case, data, mode, lean=False)
        found[f"{LOOP}, lean"] = partial(_reflectors, case, data, mode, lean=True)
    return found


def _network(case: Case) -> RecurrentNetwork:
    network = case.spec.build(seed=0)
    assert isinstance(network, RecurrentNetwork)
    return network


def _layer(network: RecurrentNetwork) -> Cell:
    cell = network.cells[0]
    assert isinstance(cell, Cell)
    return cell


def _ours(case: Case, data: Data, mode: Mode) -> Contestant:
    return _running(_network(case), data, mode)


def _dense_baseline(case: Case, data: Data, mode: Mode) -> Contestant:
    network = case.spec.dense_twin().build(seed=0)
    assert isinstance(network, RecurrentNetwork)
    contestant = _running(network, data, mode)
    return Contestant(contestant.run, backend=contestant.backend)


def _running(network: RecurrentNetwork, data: Data, mode: Mode) -> Contestant:
    """The network as users run it: held for inference."""
    if mode == "infer":
        cache_forms(network)
    with torch.set_grad_enabled(mode == "train"):
        inputs = PlainInputs(data.x.transpose(0, 1), *_input_parts(network))
        initial = _initial(network, data.x.shape[0])
        backend = choose(_layer(network).call(network.recurrent.form(), inputs, initial))
    return Contestant(step_of(network, network, data, mode), network, backend)


def _torch_backend(case: Case, data: Data, mode: Mode) -> Contestant:
    network = _network(case)
    if mode == "infer":
        # Not `hold`, which would pack for our kernels.
        network.recurrent.cache()
        held = network.recurrent.form()
        network.recurrent.cached_form = held.rebuild([part.detach() for part in held.tensors()])
    forward = on_backend("torch", network)
    return Contestant(step_of(network, forward, data, mode), network, "torch", _LOOP_ROUNDS)


def _materialised(case: Case, data: Data, mode: Mode) -> Contestant:
    network = _network(case)
    cell = _layer(network)
    held = network.recurrent.form().whole().detach() if mode == "infer" else None

    def forward(x: Tensor) -> Tensor:
        weight = network.recurrent.form().whole() if held is None else held
        states = x.transpose(0, 1)
        initial = _initial(network, x.shape[0])
        inputs = PlainInputs(states, *_input_parts(network))
        _, last = VENDOR.run(cell.call(DenseForm(weight), inputs, initial))
        return network.readout(last[0])

    return Contestant(step_of(network, forward, data, mode), network, "vendor")


def _reflectors(case: Case, data: Data, mode: Mode, *, lean: bool) -> Contestant:
    network = _network(case)
    activation = activation_of(case.architecture["activation"], leak=0.1)

    def forward(x: Tensor) -> Tensor:
        loop = ReflectorLoop(network.recurrent, lean=lean)
        weight, bias = _input_parts(network)
        (state,) = _initial(network, x.shape[0])
        for addend in nn.functional.linear(x.transpose(0, 1), weight, bias).unbind(0):
            state = activation(loop.apply(state, 0) + addend)
        return network.readout(state)

    return Contestant(step_of(network, forward, data, mode), network, "torch", _REFLECTOR_ROUNDS)


class _Plain(nn.Module):
    """torch's own layer with the readout of the last step, in the layout it prefers."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        size, kind = case.architecture["hidden_size"], case.architecture["kind"]
        torch.manual_seed(0)
        match kind:
            case "rnn":
                nonlinearity = "tanh" if case.architecture["activation"] == "tanh" else "relu"
                self.cells = nn.RNN(case.inputs, size, nonlinearity=nonlinearity)
            case "gru":
                self.cells = nn.GRU(case.inputs, size)
            case _:
                self.cells = nn.LSTM(case.inputs, size)
        self.readout = nn.Linear(size, case.outputs)

    def forward(self, x: Tensor) -> Tensor:
        """`[T, B, I]` -> `[B, O]`."""
        states, _ = self.cells(x)
        return self.readout(states[-1])


def _torch(case: Case, data: Data, mode: Mode) -> Contestant:
    module = _Plain(case)
    data = Data(data.x.transpose(0, 1).contiguous(), data.cotangent)
    return Contestant(step_of(module, module, data, mode), backend="vendor")


def _input_parts(network: RecurrentNetwork) -> tuple[Tensor, Tensor | None]:
    layer = network.inputs[0]
    parts = getattr(layer, "plain_parts")()  # noqa: B009 -- a method of every input layer
    assert parts is not None
    return parts


def _initial(network: RecurrentNetwork, batch: int) -> tuple[Tensor, ...]:
    assert network.initial_state is not None
    parts = network.initial_state[0].unsqueeze(1).expand(-1, batch, -1)
    return tuple(part.contiguous() for part in parts.unbind(0))
