"""The least that a step can take: its products at the machine's peak, its gates at its tanh's."""

from models.architectures.feed_forward import FeedForwardNetwork
from models.architectures.recurrent_network import RecurrentNetwork
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
    network = case.spec.build(seed=0)
    size = case.architecture["hidden_size"]
    if isinstance(network, RecurrentNetwork):
        structured, samples = network.recurrent, case.steps * case.batch
        entrance = network.recurrent.num_matrices * size * case.inputs
    else:
        assert isinstance(network, FeedForwardNetwork)
        structured, samples = network.hidden, case.batch
        entrance = size * case.inputs * case.steps
    passes = _PASSES[mode]
    return 2.0 * samples * (passes * structured.multiply_adds() + max(1, passes - 1) * entrance)
