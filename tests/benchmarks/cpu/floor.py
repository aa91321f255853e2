"""The least that a step can take: its multiply-adds at the machine's peak."""

from models.architectures.feed_forward import FeedForwardNetwork
from models.architectures.recurrent import RecurrentNetwork
from tests.benchmarks.cpu.cases import Case, Mode

_PASSES = {"train": 3, "infer": 1}
"""Backward, each matrix is applied once to gradients and once to make its own."""


def flops(case: Case, mode: Mode) -> float:
    """Of matrices in the form in which ours are applied; nothing else is counted.

    Making factors, activations and the readout of the last step come on top. Inputs need no
    gradient.
    """
    network = case.spec.build(seed=0)
    size = case.architecture["hidden_size"]
    if isinstance(network, RecurrentNetwork):
        structured, samples = network.recurrent, case.steps * case.batch
        entrance = network.recurrent.copies * size * case.inputs
    else:
        assert isinstance(network, FeedForwardNetwork)
        structured, samples = network.hidden, case.batch
        entrance = size * case.inputs * case.steps
    passes = _PASSES[mode]
    return 2.0 * samples * (passes * structured.multiply_adds() + max(1, passes - 1) * entrance)
