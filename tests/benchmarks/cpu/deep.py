"""Who takes part in a feed-forward case: ours, `nn.Linear` layers, and the papers' loop."""

from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.architectures.feed_forward import FeedForwardNetwork
from models.linear import cache_forms
from tests.benchmarks.cpu.cases import Case, Mode
from tests.benchmarks.cpu.contestant import (
    LOOP,
    OURS,
    TORCH,
    Contestant,
    Data,
    Factories,
    data_of,
    step_of,
)
from tests.benchmarks.cpu.reflectors import ReflectorLoop

_REFLECTOR_ROUNDS = 3
_LEAK = 0.1


def contestants(case: Case, mode: Mode) -> Factories:
    """By name; nothing is built before it is asked for."""
    data = data_of(case)
    found = {
        TORCH: partial(_torch, case, data, mode),
        OURS: partial(_ours, case, data, mode),
        "ours, dense baseline": partial(_dense_baseline, case, data, mode),
    }
    if case.reflector_loop and mode == "train":
        found[LOOP] = partial(_reflectors, case, data, mode, lean=False)
        found[f"{LOOP}, lean"] = partial(_reflectors, case, data, mode, lean=True)
    return found


def _network(case: Case) -> FeedForwardNetwork:
    network = case.spec.build(seed=0)
    assert isinstance(network, FeedForwardNetwork)
    return network


def _ours(case: Case, data: Data, mode: Mode) -> Contestant:
    network = _network(case)
    if mode == "infer":
        cache_forms(network)
    return Contestant(step_of(network, network, data, mode), network)


def _dense_baseline(case: Case, data: Data, mode: Mode) -> Contestant:
    network = case.spec.dense_twin().build(seed=0)
    if mode == "infer":
        cache_forms(network)
    return Contestant(step_of(network, network, data, mode))


def _reflectors(case: Case, data: Data, mode: Mode, *, lean: bool) -> Contestant:
    network = _network(case)

    def forward(x: Tensor) -> Tensor:
        loop = ReflectorLoop(network.hidden, lean=lean)
        state = network.entry(network.input(x.flatten(1)))
        for layer, bias in enumerate(network.bias.unbind(0)):
            state = F.leaky_relu(loop.apply(state, layer) + bias, _LEAK)
        return network.readout(state)

    return Contestant(step_of(network, forward, data, mode), network, rounds=_REFLECTOR_ROUNDS)


class _PlainMlp(nn.Module):
    """`nn.Linear` layers in a row."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        size, layers = case.architecture["hidden_size"], case.architecture["layers"]
        self.entrance = nn.Linear(case.inputs * case.steps, size)
        self.layers = nn.ModuleList(nn.Linear(size, size) for _ in range(layers))
        self.readout = nn.Linear(size, case.outputs)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, T, I]` -> `[B, O]`."""
        x = F.leaky_relu(self.entrance(x.flatten(1)), _LEAK)
        for layer in self.layers:
            x = F.leaky_relu(layer(x), _LEAK)
        return self.readout(x)


class _PlainResnet(nn.Module):
    """`x <- f(x + W_b f(W_a x + b_a) + b_b)`."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        size, blocks = case.architecture["hidden_size"], case.architecture["blocks"]
        self.entrance = nn.Linear(case.inputs * case.steps, size)
        self.first = nn.ModuleList(nn.Linear(size, size) for _ in range(blocks))
        self.second = nn.ModuleList(nn.Linear(size, size) for _ in range(blocks))
        self.readout = nn.Linear(size, case.outputs)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, T, I]` -> `[B, O]`."""
        x = F.leaky_relu(self.entrance(x.flatten(1)), _LEAK)
        for first, second in zip(self.first, self.second, strict=True):
            x = F.leaky_relu(x + second(F.leaky_relu(first(x), _LEAK)), _LEAK)
        return self.readout(x)


class _PlainHighway(nn.Module):
    """`x <- h * tau + x * (1 - tau)`, both gates in one product."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        size, layers = case.architecture["hidden_size"], case.architecture["layers"]
        self.entrance = nn.Linear(case.inputs * case.steps, size)
        self.layers = nn.ModuleList(nn.Linear(size, 2 * size) for _ in range(layers))
        self.readout = nn.Linear(size, case.outputs)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, T, I]` -> `[B, O]`."""
        x = torch.relu(self.entrance(x.flatten(1)))
        for layer in self.layers:
            h, tau = cast(Tensor, layer(x)).chunk(2, dim=-1)
            x = torch.lerp(x, h.relu(), tau.sigmoid())
        return self.readout(x)


_PLAIN = {"mlp": _PlainMlp, "resnet": _PlainResnet, "highway": _PlainHighway}


def _torch(case: Case, data: Data, mode: Mode) -> Contestant:
    torch.manual_seed(0)
    module = _PLAIN[case.architecture["kind"]](case)
    return Contestant(step_of(module, module, data, mode))
