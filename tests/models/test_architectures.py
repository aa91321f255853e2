import math

import pytest
import torch
from torch import nn

from models.architectures import Gru, Rnn
from models.architectures.recurrent import RecurrentNetwork
from models.model import ModelSpec
from models.parametrizations import Dense, PackedRotations
from models.spec import Signature

SIGNATURE = Signature(input_size=3, sequence_length=7, output_size=4, output_steps="every")


def network(spec: ModelSpec) -> RecurrentNetwork:
    module = spec.build(seed=0).double()
    assert isinstance(module, RecurrentNetwork)
    assert module.initial_state is not None
    return module


def dense(architecture: Rnn | Gru) -> ModelSpec:
    return ModelSpec(architecture=architecture, parametrization=Dense(), signature=SIGNATURE)


@torch.no_grad()
def test_gru_with_reset_after_is_torchs_gru() -> None:
    """Their update gate keeps the state like ours; their gates stand in the order r, z, n."""
    ours = network(dense(Gru(hidden_size=5, reset="after", carry_bias=0.7)))
    ours.input.bias.copy_(torch.randn(15, dtype=torch.float64))
    assert ours.initial_state is not None
    ours.initial_state.copy_(torch.randn(5, dtype=torch.float64))
    order = torch.cat([torch.arange(5) + 5 * gate for gate in (1, 0, 2)])
    theirs = nn.GRU(3, 5, batch_first=True, dtype=torch.float64)
    theirs.get_parameter("weight_hh_l0").copy_(ours.recurrent.dense_weight().flatten(0, 1)[order])
    theirs.get_parameter("weight_ih_l0").copy_(ours.input.weight[order])
    theirs.get_parameter("bias_ih_l0").copy_(ours.input.bias[order])
    theirs.get_parameter("bias_hh_l0").zero_()
    x = torch.randn(2, 7, 3, dtype=torch.float64)
    states, _ = theirs(x, ours.initial_state.expand(1, 2, 5).contiguous())
    torch.testing.assert_close(ours(x), ours.readout(states), atol=1e-13, rtol=0)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@torch.no_grad()
def test_rnn_is_torchs_rnn(activation: str) -> None:
    ours = network(dense(Rnn.model_validate({"hidden_size": 5, "activation": activation})))
    theirs = nn.RNN(3, 5, nonlinearity=activation, batch_first=True, dtype=torch.float64)
    theirs.get_parameter("weight_hh_l0").copy_(ours.recurrent.dense_weight()[0])
    theirs.get_parameter("weight_ih_l0").copy_(ours.input.weight)
    theirs.get_parameter("bias_ih_l0").copy_(ours.input.bias)
    theirs.get_parameter("bias_hh_l0").zero_()
    x = torch.randn(2, 7, 3, dtype=torch.float64)
    assert ours.initial_state is not None
    states, _ = theirs(x, ours.initial_state.expand(1, 2, 5).contiguous())
    torch.testing.assert_close(ours(x), ours.readout(states), atol=1e-13, rtol=0)


def test_leak_is_the_slope_of_the_activation_below_zero() -> None:
    x = torch.randn(2, 7, 3, dtype=torch.float64)

    def output(**fields: object) -> torch.Tensor:
        return network(dense(Rnn.model_validate({"hidden_size": 5, **fields})))(x)

    assert torch.equal(output(leak=0.0), output(activation="relu"))
    assert not torch.allclose(output(leak=0.1), output(leak=0.2))
    # With leak 1 the model is affine, so that its value between two inputs is the mean of theirs.
    model = network(dense(Rnn(hidden_size=5, leak=1.0)))
    torch.testing.assert_close(model(x / 2), (model(x) + model(torch.zeros_like(x))) / 2)


def test_abs_with_rotations_keeps_the_norm_of_state_and_gradient() -> None:
    spec = ModelSpec(
        architecture=Rnn(hidden_size=6, activation="abs"),
        parametrization=PackedRotations(count=3),
        signature=SIGNATURE,
    )
    model = network(spec)
    start = torch.randn(1, 6, dtype=torch.float64, requires_grad=True)
    silence = torch.zeros(50, 1, 6, dtype=torch.float64)
    *_, last = model.sequence(model.recurrent.factors(), silence, start)
    upstream = torch.randn(1, 6, dtype=torch.float64)
    last.backward(upstream)
    assert start.grad is not None
    assert last.norm().item() == pytest.approx(start.norm().item(), rel=1e-12)
    assert start.grad.norm().item() == pytest.approx(upstream.norm().item(), rel=1e-12)


def test_starts_are_those_of_the_papers() -> None:
    gru = network(dense(Gru(hidden_size=64, carry_bias=4.0)))
    update, reset, candidate = gru.input.bias.chunk(3)
    assert gru.initial_state is not None
    assert update.tolist() == [4.0] * 64
    assert not torch.cat((reset, candidate, gru.initial_state, gru.readout.bias)).any()
    rnn = network(dense(Rnn(hidden_size=64)))
    limit = math.sqrt(3 / (2 * 64))
    assert rnn.initial_state is not None
    assert 0.8 * limit < rnn.initial_state.abs().max().item() <= limit
    assert not torch.cat((rnn.input.bias, rnn.readout.bias)).any()
    for weight, fans in ((gru.input.weight, 64 + 3), (rnn.readout.weight, 64 + 4)):
        assert 0.9 < weight.abs().max().item() / math.sqrt(6 / fans) <= 1


def test_without_a_learned_start_the_state_starts_at_zero() -> None:
    spec = dense(Rnn(hidden_size=5, learned_initial_state=False))
    learned = dense(Rnn(hidden_size=5))
    assert learned.parameter_count() - spec.parameter_count() == 5
    model, twin = spec.build(seed=0), network(learned).float()
    assert "initial_state" not in model.state_dict()
    assert twin.initial_state is not None
    with torch.no_grad():
        twin.initial_state.zero_()
    x = torch.randn(2, 7, 3)
    assert torch.equal(model(x), twin(x))
