"""Structured weights in models that `torch.compile` traces as one graph, forward and backward."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from models.architectures import Gru, Rnn, Urnn
from models.architectures.recurrent import Recurrent
from models.model import ModelSpec
from models.parametrizations import (
    AnyParametrization,
    FactorizedSvd,
    Householder,
    HouseholderSvd,
    LowRank,
    LowRankDiagonal,
    PackedRotations,
    PerLayer,
    RotationSvd,
    UnitaryFft,
    UnitaryFull,
)
from models.spec import Signature

# Tracing an autograd.Function, torch makes an instance of it and warns itself against that.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*autograd.function.Function.*should not be instantiated:DeprecationWarning"
)

SIGNATURE = Signature(input_size=3, sequence_length=4, output_size=2)


def outputs_and_gradients(
    run: Callable[..., Any], network: nn.Module, x: torch.Tensor
) -> list[torch.Tensor]:
    network.zero_grad()
    y: torch.Tensor = run(x)
    y.square().sum().backward()
    gradients = [parameter.grad for parameter in network.parameters()]
    return [y.detach(), *[gradient.clone() for gradient in gradients if gradient is not None]]


@pytest.mark.parametrize(
    ("architecture", "parametrization"),
    [
        pytest.param(Rnn(hidden_size=6), Householder(m=6), id="ornn"),
        pytest.param(Rnn(hidden_size=96), Householder(m=3), id="ornn-factored"),
        pytest.param(Rnn(hidden_size=1), Householder(m=1), id="ornn-1x1"),
        pytest.param(Gru(hidden_size=6, layers=2), HouseholderSvd(m1=2, m2=6), id="svd-gru"),
        pytest.param(
            Gru(hidden_size=6, reset="after", candidate_bias=True), LowRank(d=2), id="biased-gru"
        ),
        pytest.param(
            Rnn(hidden_size=96), HouseholderSvd(m1=3, m2=2, bound="clip"), id="svd-factored"
        ),
        pytest.param(Rnn(hidden_size=6), FactorizedSvd(margin=0.1), id="factorized-cayley"),
        pytest.param(
            Rnn(hidden_size=6),
            FactorizedSvd(orthogonal_map="exponential"),
            id="factorized-exponential",
        ),
        pytest.param(Urnn(hidden_size=6), UnitaryFull(), id="unitary-cayley"),
        pytest.param(
            Urnn(hidden_size=6),
            UnitaryFull(orthogonal_map="exponential"),
            id="unitary-exponential",
        ),
        pytest.param(Urnn(hidden_size=6), UnitaryFft(), id="unitary-fft"),
        pytest.param(Rnn(hidden_size=6, activation="abs"), PackedRotations(count=3), id="dizzy"),
        pytest.param(Gru(hidden_size=7, layers=2), PackedRotations(count=7), id="dizzy-gru"),
        pytest.param(
            Rnn(hidden_size=6, activation="abs"), RotationSvd(count_u=3, count_v=2), id="dizzy-svd"
        ),
        pytest.param(
            Gru(hidden_size=6, layers=2),
            LowRankDiagonal(d=2, tied=True, weight_norm=True),
            id="low-rank-diagonal-tied-normalised",
        ),
        pytest.param(
            Gru(hidden_size=6, reset="after"), LowRank(d=2, tied=True), id="low-rank-tied"
        ),
        pytest.param(
            Gru(hidden_size=6, layers=3),
            PerLayer(layers=(LowRank(d=2, tied=True), HouseholderSvd(m1=2, m2=3), LowRank(d=1))),
            id="each-layer-its-own",
        ),
    ],
)
def test_a_traced_model_computes_the_same(
    architecture: Recurrent, parametrization: AnyParametrization
) -> None:
    spec = ModelSpec.model_validate(
        {"architecture": architecture, "parametrization": parametrization, "signature": SIGNATURE}
    )
    network = spec.build(seed=0).double()
    x = torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plain = outputs_and_gradients(network, network, x)
    torch.compiler.reset()
    traced = torch.compile(network, backend="aot_eager", fullgraph=True)
    found = outputs_and_gradients(traced, network, x)
    assert len(found) == len(plain) == 1 + len(list(network.parameters()))
    for one, other in zip(found, plain, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)
