"""ln B(w), against the formula written down with numpy's norms."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from models.architectures import Gru, Rnn
from models.generalization import generalization_term
from models.model import ModelSpec
from models.parametrizations import Dense, HouseholderSvd, LowRank, PackedRotations
from models.spec import Signature
from models.stacked import StackedNetwork

SIGNATURE = Signature(input_size=3, sequence_length=20, output_size=4)


def spec_of(architecture: Any, parametrization: Any, **signature: Any) -> ModelSpec:
    changed = SIGNATURE.model_copy(update=signature)
    return ModelSpec(architecture=architecture, parametrization=parametrization, signature=changed)


@pytest.mark.parametrize(
    "parametrization",
    [
        Dense(),
        Dense(initialisation="orthogonal"),
        LowRank(d=2),
        PackedRotations(count=2),
        HouseholderSvd(m1=3, m2=2, r=0.4),
    ],
    ids=str,
)
@pytest.mark.parametrize("scale", [1.0, 1.3])
def test_the_term_is_the_formula(parametrization: Any, scale: float) -> None:
    network = spec_of(Rnn(hidden_size=6, activation="relu"), parametrization).build(seed=0)
    network = network.double()
    with torch.no_grad():
        network.get_parameter("inputs.0.bias").fill_(scale)
        for name, parameter in network.named_parameters():
            if name == "recurrent.weight":
                parameter.mul_(scale)
    w = network.get_submodule("recurrent").dense_weight()[0].detach().numpy()  # type: ignore[operator]
    weight, bias = (network.get_parameter(f"inputs.0.{name}") for name in ("weight", "bias"))
    m = np.column_stack([weight.detach().numpy(), bias.detach().numpy()])
    y = network.get_parameter("readout.weight").detach().numpy()
    t, n = 20, 6
    spectral = {name: np.linalg.norm(one, 2) for name, one in (("w", w), ("m", m), ("y", y))}
    term = t**2 * n * math.log(n) * max(spectral["w"] ** (2 * t - 2), 1)
    term *= spectral["m"] ** 2 * spectral["y"] ** 2
    term *= (
        t**2 * np.linalg.norm(w) ** 2
        + np.linalg.norm(m) ** 2 / spectral["m"] ** 2
        + np.linalg.norm(y) ** 2 / spectral["y"] ** 2
    )
    found = generalization_term(network, steps=t)
    assert found is not None
    assert found.item() == pytest.approx(math.log(term), rel=1e-9)


def test_a_long_sequence_overflows_nothing() -> None:
    network = spec_of(Rnn(hidden_size=6), Dense()).build(seed=0)
    with torch.no_grad():
        network.get_parameter("recurrent.weight").mul_(10)
    found = generalization_term(network, steps=100_000)
    assert found is not None
    assert math.isfinite(found.item())


@pytest.mark.parametrize(
    "spec",
    [
        spec_of(Gru(hidden_size=6), Dense()),
        spec_of(Rnn(hidden_size=6, layers=2), Dense()),
        spec_of(Rnn(hidden_size=6), Dense(), output_steps="every"),
        spec_of(Rnn(hidden_size=6), Dense(), vocabulary=9),
        spec_of(Rnn(hidden_size=1), Dense()),
        spec_of(Rnn(hidden_size=6, structured_inputs="all"), HouseholderSvd(m1=2, m2=2, r=0.1)),
        spec_of(Rnn(hidden_size=300), Dense()),
    ],
    ids=["gates", "layers", "every step", "embedding", "one unit", "structured", "large"],
)
def test_what_the_theorem_does_not_speak_of_has_no_term(spec: ModelSpec) -> None:
    assert generalization_term(spec.build(seed=0), steps=20) is None


def test_members_of_a_stack_have_their_own() -> None:
    specs = [spec_of(Rnn(hidden_size=6), LowRank(d=rank)) for rank in (1, 3)]
    networks = [spec.build(seed=seed) for seed, spec in enumerate(specs)]
    nobody = [torch.Generator() for _ in specs]
    states = [network.state_dict() for network in networks]
    stack = StackedNetwork(specs, states, generators=nobody)
    wanted = [generalization_term(network, steps=20) for network in networks]
    assert stack.generalization_terms(steps=20) == pytest.approx(
        [one.item() for one in wanted if one is not None], rel=1e-5
    )
