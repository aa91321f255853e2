"""The least that a step can take: its products at the machine's peak, its gates at its tanh's."""

from collections.abc import Mapping
from dataclasses import dataclass

from models.architectures.feed_forward import FeedForwardNetwork
from models.architectures.recurrent_network import RecurrentNetwork
from models.linear import StructuredLinear
from models.parametrizations.householder_svd import HouseholderSvdLinear
from tests.benchmarks.cpu.cases import Case, Mode
from tests.benchmarks.cpu.machine import Peak

_PASSES = {"train": 3, "infer": 1}
"""Backward, each matrix is applied once to gradients and once to make its own."""


# tanh and sigmoid, which is made of tanh, per unit and step.
_TANHS = {"rnn": 1, "gru": 3, "lstm": 5, "highway": 1}


def least_ms(case: Case, mode: Mode, peak: Peak) -> float:
    """Both one after the other: they need the same units of the processor."""
    tanhs = activations(case) / peak.billion_tanh_per_second / 1e9
    return 1e3 * (flops(case, mode) / peak.gflops / 1e9 + tanhs)


def activations(case: Case) -> int:
    """Evaluations of tanh, those of the forward pass alone: they can be kept."""
    architecture = case.architecture
    if architecture.get("activation", "tanh") != "tanh":
        return 0
    each = _TANHS.get(architecture["kind"], 0) * architecture["hidden_size"]
    layers = architecture.get("layers", 1)
    return each * layers * case.batch * case.steps


def flops(case: Case, mode: Mode) -> float:
    """Of matrices in the form in which ours are applied.

    Making factors, cheap activations and the readout of the last step are not counted. Inputs need
    no gradient.
    """
    found, passes = _products(case), _PASSES[mode]
    return passes * found.hidden + max(1, passes - 1) * found.entrance


@dataclass(frozen=True)
class _Products:
    """Flops of applying each matrix once, and what they are applied to."""

    hidden: float
    entrance: float
    structured: StructuredLinear
    parameters: int
    recurrent: bool


def _products(case: Case) -> _Products:
    network = case.spec.build(seed=0)
    size = case.architecture["hidden_size"]
    recurrent = isinstance(network, RecurrentNetwork)
    if recurrent:
        structured, samples = network.recurrent, case.steps * case.batch
        entrance = network.recurrent.num_matrices * size * case.inputs
    else:
        assert isinstance(network, FeedForwardNetwork)
        structured, samples = network.hidden, case.batch
        entrance = size * case.inputs * case.steps
    return _Products(
        hidden=2.0 * samples * structured.multiply_adds(),
        entrance=2.0 * samples * entrance,
        structured=structured,
        parameters=sum(parameter.numel() for parameter in network.parameters()),
        recurrent=recurrent,
    )


@dataclass(frozen=True)
class Least:
    """What a phase cannot do without."""

    flops: float = 0.0
    tanhs: float = 0.0
    moved: float = 0.0
    """bytes between processor and memory, or the caches: states, inputs and outputs once, weights
    once in each step"""
    by_memory: bool = False
    """whether moving is all that it does"""

    def milliseconds(self, peak: Peak) -> float:
        """Its products and gates one after the other, or its bytes as memory is copied."""
        if self.by_memory:
            return 1e3 * self.moved / peak.gigabytes_per_second / 1e9
        return 1e3 * (self.flops / peak.gflops + self.tanhs / peak.billion_tanh_per_second) / 1e9


def least_of_phases(case: Case) -> Mapping[str, Least]:
    """By the phases' names; flops and tanhs of a training step's phases add up to `least_ms`.

    Making the factors of a singular value decomposition is counted beside them.
    """
    found, tanhs = _products(case), float(activations(case))
    inside, outside = (found.entrance, 0.0) if found.recurrent else (0.0, found.entrance)
    size = case.architecture["hidden_size"]
    weights = 4.0 * found.structured.multiply_adds()
    layers = case.steps if found.recurrent else case.architecture.get("layers", 1)
    states = 4.0 * case.batch * size * layers
    # A stack's weights are as many as its layers have; a sequence's are read in each step.
    read = states + weights * (case.steps if found.recurrent else 1)
    making = _making(found.structured)
    return {
        "whole step": Least(3 * found.hidden + 2 * found.entrance, tanhs),
        "factors": Least(making),
        "their gradients": Least(2 * making),
        "forward": Least(found.hidden + inside, tanhs, read),
        "backward, data": Least(found.hidden, 0.0, read),
        "backward, weights": Least(found.hidden + inside, 0.0, states + weights),
        # Adam reads the gradient, and reads and writes the weight and two averages.
        "optimizer": Least(moved=28.0 * found.parameters, by_memory=True),
        "rest: ends, autograd, Python": Least(2 * outside),
        "inference": Least(found.hidden + found.entrance, tanhs, read - states),
    }


def _making(structured: StructuredLinear) -> float:
    """Flops of the factors of a decomposition by reflectors, 0 of what is not made of them.

    Pairs of reflectors meet once in a product of both and once in the solution with it.
    """
    if not isinstance(structured, HouseholderSvdLinear):
        return 0.0
    rank = structured.u.count + structured.v.count
    size = structured.out_features
    return 2.0 * structured.num_matrices * size * rank**2
