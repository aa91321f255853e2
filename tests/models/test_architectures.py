"""Recurrent architectures against torch's own, the papers' equations and their starts."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from models.architectures import Gru, Lstm, Rnn, Urnn
from models.architectures.recurrent import Recurrent
from models.architectures.recurrent_network import RecurrentNetwork
from models.model import ModelSpec
from models.parametrizations import AnyParametrization, Dense, PackedRotations
from models.spec import Signature, kind_of

SIGNATURE = Signature(input_size=3, sequence_length=7, output_size=4, output_steps="every")
TORCHS = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


def spec_of(
    architecture: Recurrent,
    parametrization: AnyParametrization | None = None,
    signature: Signature = SIGNATURE,
) -> ModelSpec:
    return ModelSpec.model_validate(
        {
            "architecture": architecture,
            "parametrization": parametrization or Dense(),
            "signature": signature,
        }
    )


def network(spec: ModelSpec) -> RecurrentNetwork:
    """The model in double precision and evaluation, with biases and first states anywhere."""
    module = spec.build(seed=0).double().eval()
    assert isinstance(module, RecurrentNetwork)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.endswith("bias") or name == "initial_state":
                parameter.normal_(generator=generator)
    return module


def sequences(batch: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(batch, 7, 3, generator=generator, dtype=torch.float64)


@torch.no_grad()
def torchs_outputs(ours: RecurrentNetwork, spec: ModelSpec, x: torch.Tensor) -> torch.Tensor:
    """What torch's own stack makes of x with our numbers."""
    architecture = spec.architecture
    assert isinstance(architecture, Recurrent)
    size, layers, gates = architecture.hidden_size, architecture.layers, architecture.gates
    # Their GRU has its gates in the order reset, update, candidate.
    order = [1, 0, 2] if isinstance(architecture, Gru) else range(gates)
    rows = torch.cat([torch.arange(size) + size * gate for gate in order])
    options = {"nonlinearity": architecture.activation} if isinstance(architecture, Rnn) else {}
    theirs = TORCHS[kind_of(type(architecture))](
        3, size, num_layers=layers, batch_first=True, dtype=torch.float64, **options
    )
    weights = ours.recurrent.dense_weight().view(layers, gates * size, size)
    for layer in range(layers):
        projection = ours.get_submodule(f"inputs.{layer}")
        theirs.get_parameter(f"weight_hh_l{layer}").copy_(weights[layer, rows])
        theirs.get_parameter(f"weight_ih_l{layer}").copy_(projection.get_parameter("weight")[rows])
        theirs.get_parameter(f"bias_ih_l{layer}").copy_(projection.get_parameter("bias")[rows])
        theirs.get_parameter(f"bias_hh_l{layer}").zero_()
    assert ours.initial_state is not None
    starts = [part.unsqueeze(1).repeat(1, x.shape[0], 1) for part in ours.initial_state.unbind(1)]
    states, _ = theirs(x, starts[0] if len(starts) == 1 else tuple(starts))
    return ours.readout(states)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize(
    "architecture",
    [
        Rnn(hidden_size=5, activation="tanh"),
        Rnn(hidden_size=5, activation="relu"),
        Lstm(hidden_size=5, forget_bias=0.7),
        Gru(hidden_size=5, reset="after", carry_bias=0.7),
    ],
    ids=repr,
)
def test_dense_stacks_are_torchs_own(architecture: Recurrent, layers: int) -> None:
    """Their LSTM has the gates in our order, and their GRU keeps the state by z as ours by u."""
    spec = spec_of(architecture.model_copy(update={"layers": layers}))
    ours, x = network(spec), sequences()
    torch.testing.assert_close(ours(x), torchs_outputs(ours, spec, x), atol=1e-13, rtol=0)


def test_peephole_shows_the_new_cell_to_the_output_gate() -> None:
    ours, x = network(spec_of(Lstm(hidden_size=5, peephole=True))), sequences()
    peephole = ours.get_parameter("cells.0.peephole.weight")
    assert peephole.shape == (5, 5)
    weight = ours.recurrent.dense_weight()
    assert ours.initial_state is not None
    h, c = (part.expand(2, 5) for part in ours.initial_state[0])
    projections = ours.get_submodule("inputs.0")(x)
    for step in range(7):
        i, f, z, o = (
            h @ matrix.T + addend
            for matrix, addend in zip(weight, projections[:, step].chunk(4, dim=-1), strict=True)
        )
        c = f.sigmoid() * c + i.sigmoid() * z.tanh()
        h = (o + c @ peephole.T).sigmoid() * c.tanh()
        torch.testing.assert_close(ours(x)[:, step], ours.readout(h), atol=1e-13, rtol=0)


def test_urnn_is_that_of_the_paper_in_complex_numbers() -> None:
    """Arjovsky, Shah, Bengio, eqs. 7 and 8, with numpy's complex arrays; two layers."""
    size = 4
    spec = spec_of(Urnn(hidden_size=size, layers=2))
    ours, x = network(spec), sequences()
    assert ours.initial_state is not None
    outputs = ours(x).detach().numpy()
    below = x.numpy()
    for layer in range(2):
        real_form = ours.recurrent.dense_weight()[layer].detach().numpy()
        w = real_form[:size, :size] + 1j * real_form[size:, :size]
        v = ours.get_parameter(f"inputs.{layer}.weight").detach().numpy()
        bias = ours.get_parameter(f"cells.{layer}.bias").detach().numpy()
        start = ours.initial_state[layer, 0].detach().numpy()
        z = np.tile(start[:size] + 1j * start[size:], (2, 1))
        states = []
        for step in range(7):
            addend = below[:, step] @ v.T
            z = z @ w.T + addend[:, :size] + 1j * addend[:, size:]
            z = z * np.maximum(abs(z) + bias, 0) / (abs(z) + 1e-5)
            states.append(np.concatenate((z.real, z.imag), axis=1))
        below = np.stack(states, axis=1)
    readout = ours.readout.get_parameter("weight").detach().numpy()
    expected = below @ readout.T + ours.readout.get_parameter("bias").detach().numpy()
    np.testing.assert_allclose(outputs, expected, atol=1e-12)


def test_leak_is_the_slope_of_the_activation_below_zero() -> None:
    x = sequences()

    def output(**fields: object) -> torch.Tensor:
        return network(spec_of(Rnn.model_validate({"hidden_size": 5, **fields})))(x)

    assert torch.equal(output(leak=0.0), output(activation="relu"))
    assert torch.equal(output(leak=1.0), output(activation="identity"))
    assert not torch.allclose(output(leak=0.1), output(leak=0.2))
    # With leak 1 the model is affine, so that its value between two inputs is the mean of theirs.
    model = network(spec_of(Rnn(hidden_size=5, leak=1.0)))
    torch.testing.assert_close(model(x / 2), (model(x) + model(torch.zeros_like(x))) / 2)


def test_abs_with_rotations_keeps_the_norm_of_state_and_gradient() -> None:
    """DizzyRNN, with its stacked square input matrices as rotations too."""
    architecture = Rnn(hidden_size=6, layers=2, activation="abs", structured_inputs="square")
    signature = SIGNATURE.model_copy(update={"input_size": 6, "output_steps": "last"})
    spec = spec_of(architecture, PackedRotations(count=3), signature)
    assert set(spec.architecture.slots(signature)) == {"recurrent", "inputs.0", "inputs.1"}
    model = network(spec)
    seen: list[torch.Tensor] = []

    def keep(state: torch.Tensor) -> torch.Tensor:
        seen.append(state)
        return state

    model.watch_last = keep
    with torch.no_grad():
        model.get_parameter("initial_state").zero_()
        for layer in range(2):
            model.get_parameter(f"inputs.{layer}.bias").zero_()
    x = torch.randn(1, 1, 6, dtype=torch.float64, requires_grad=True)
    model(x)
    (last,) = seen
    # From a first state of 0, one step passes the input on through two rotations and two |.|.
    assert last.norm().item() == pytest.approx(x.norm().item(), rel=1e-12)
    upstream = torch.randn(1, 6, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(last, x, upstream)
    assert gradient.norm().item() == pytest.approx(upstream.norm().item(), rel=1e-12)


def test_a_hundred_rotations_and_moduli_keep_a_gradients_norm() -> None:
    architecture = Rnn(hidden_size=6, activation="abs")
    signature = SIGNATURE.model_copy(update={"output_steps": "last"})
    model = network(spec_of(architecture, PackedRotations(count=3), signature))
    with torch.no_grad():
        model.get_parameter("inputs.0.bias").zero_()
    ends: list[torch.Tensor] = []
    model.watch_last = lambda state: ends.append(state) or state
    model(torch.zeros(1, 100, 3, dtype=torch.float64))
    upstream = torch.randn(1, 6, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(ends[0], [model.get_parameter("initial_state")], upstream)
    start = model.get_parameter("initial_state")
    assert ends[0].norm().item() == pytest.approx(start.norm().item(), rel=1e-12)
    assert gradient.norm().item() == pytest.approx(upstream.norm().item(), rel=1e-12)


def built(architecture: Recurrent, **fields: object) -> RecurrentNetwork:
    spec = spec_of(architecture.model_copy(update={"hidden_size": 64, "layers": 2, **fields}))
    module = spec.build(seed=0)
    assert isinstance(module, RecurrentNetwork)
    return module


@pytest.mark.parametrize("layer", [0, 1])
def test_gates_start_as_named(layer: int) -> None:
    gru = built(Gru(carry_bias=4.0)).get_parameter(f"inputs.{layer}.bias")
    assert gru.tolist() == [4.0] * 64 + [0.0] * 128
    lstm = built(Lstm(forget_bias=1.5)).get_parameter(f"inputs.{layer}.bias")
    assert lstm.tolist() == [0.0] * 64 + [1.5] * 64 + [0.0] * 128
    assert Lstm().forget_bias == 1.0
    assert built(Rnn()).get_parameter(f"inputs.{layer}.bias").tolist() == [0.0] * 64
    urnn = built(Urnn())
    assert urnn.get_submodule(f"inputs.{layer}")._parameters["bias"] is None
    bias = urnn.get_parameter(f"cells.{layer}.bias").abs()
    assert 0.009 < bias.max().item() <= 0.01


def test_first_states_and_readout_start_as_the_papers_say() -> None:
    for gated in (built(Gru()), built(Lstm())):
        assert not gated.get_parameter("initial_state").any()
    for ungated in (built(Rnn()), built(Urnn())):
        assert not ungated.readout.get_parameter("bias").any()
        largest = ungated.get_parameter("initial_state").abs().max().item()
        assert 0.9 < largest / math.sqrt(3 / (2 * 64)) <= 1


def test_plain_matrices_start_glorot_uniform_gate_by_gate() -> None:
    for model, fans in ((built(Rnn()), 64 + 3), (built(Gru()), 64 + 3), (built(Urnn()), 128 + 3)):
        weight = model.get_parameter("inputs.0.weight")
        assert 0.95 < weight.abs().max().item() / math.sqrt(6 / fans) <= 1
        assert weight.std().item() == pytest.approx(math.sqrt(2 / fans), rel=0.1)
        readout = model.readout.get_parameter("weight")
        fans = readout.shape[0] + readout.shape[1]
        assert 0.95 < readout.abs().max().item() / math.sqrt(6 / fans) <= 1


def test_gaussian_input_matrices_have_variance_one_over_n() -> None:
    model = built(Rnn(input_initialisation="gaussian"), hidden_size=256)
    weight = model.get_parameter("inputs.1.weight")
    assert weight.std().item() == pytest.approx(256**-0.5, rel=0.02)
    kurtosis = (weight / weight.std()).pow(4).mean().item()
    assert kurtosis == pytest.approx(3, rel=0.05)  # 1.8 for a uniform distribution


@pytest.mark.parametrize("architecture", [Rnn(), Lstm(), Gru(), Urnn()], ids=repr)
def test_without_a_learned_start_the_state_starts_at_zero(architecture: Recurrent) -> None:
    small = architecture.model_copy(update={"hidden_size": 5, "layers": 2})
    fixed = spec_of(small.model_copy(update={"learned_initial_state": False}))
    learned = spec_of(small)
    numbers = 10 if isinstance(architecture, Lstm | Urnn) else 5
    assert learned.parameter_count() - fixed.parameter_count() == 2 * numbers
    model, twin = fixed.build(seed=0), learned.build(seed=0)
    assert "initial_state" not in model.state_dict()
    twin.load_state_dict(
        {"initial_state": torch.zeros(twin.get_parameter("initial_state").shape)}
        | model.state_dict()
    )
    x = torch.randn(2, 7, 3)
    assert torch.equal(model(x), twin(x))
