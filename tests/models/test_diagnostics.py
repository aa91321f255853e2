"""What is read off a model in training: gradients at both ends, singular values, penalties."""

import pytest
import torch

from models.architectures import Lstm, Mlp, Resnet, Rnn
from models.linear import StructuredLinear
from models.model import ModelSpec, penalty, spectral_margin
from models.network import Network, observed
from models.parametrizations import Dense, HouseholderSvd, LowRank, PackedRotations, RotationSvd
from models.spec import Signature

SIGNATURE = Signature(input_size=3, sequence_length=5, output_size=4)


def model_of(architecture: object, parametrization: object) -> Network:
    spec = ModelSpec.model_validate(
        {
            "architecture": architecture,
            "parametrization": parametrization,
            "signature": SIGNATURE,
        }
    )
    return spec.build(seed=0).double()


def sequences(batch: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(batch, 5, 3, generator=generator, dtype=torch.float64)


@torch.no_grad()
def test_spectral_margin_is_the_largest_over_all_matrices() -> None:
    architecture = Rnn(hidden_size=6, layers=2, structured_inputs="square")
    model = model_of(architecture, HouseholderSvd(m1=3, m2=2, r=0.4))
    assert spectral_margin(model) == 0
    for name in ("recurrent.p", "inputs.1.linear.p"):
        model.get_parameter(name).normal_(generator=torch.Generator().manual_seed(1))
    matrices = [m.dense_weight() for m in model.modules() if isinstance(m, StructuredLinear)]
    assert sum(len(stack) for stack in matrices) == 3
    margins = [(torch.linalg.svdvals(stack) - 1).abs().max().item() for stack in matrices]
    assert spectral_margin(model) == pytest.approx(max(margins), abs=1e-12)


@pytest.mark.parametrize("parametrization", [Dense(), LowRank(d=2), PackedRotations(count=2)])
def test_spectral_margin_is_known_or_computed(parametrization: object) -> None:
    model = model_of(Rnn(hidden_size=6), parametrization)
    recurrent = model.get_submodule("recurrent")
    assert isinstance(recurrent, StructuredLinear)
    values = torch.linalg.svdvals(recurrent.dense_weight().detach())
    expected = (values - 1).abs().max().item()
    assert spectral_margin(model) == pytest.approx(expected, abs=1e-12)


def test_spectral_margin_of_a_negative_singular_value_is_that_of_its_size() -> None:
    model = model_of(Rnn(hidden_size=6), RotationSvd(count_u=2, count_v=3))
    with torch.no_grad():
        model.get_parameter("recurrent.s").mul_(-1)
    assert spectral_margin(model) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("architecture", "parametrization", "centre"),
    [
        (Resnet(hidden_size=6, blocks=2), Dense(), 0.0),
        (Resnet(hidden_size=6, blocks=2), LowRank(d=2), 0.0),
        (Resnet(hidden_size=6, blocks=2), HouseholderSvd(m1=3, m2=3, r=0.1, sigma_star=0.0), 0.0),
        (Resnet(hidden_size=6, blocks=2), HouseholderSvd(m1=3, m2=3, r=0.1, sigma_star=0.5), 0.5),
        (Resnet(hidden_size=6, blocks=2), PackedRotations(count=2), 1.0),
        (Mlp(hidden_size=6, layers=2), Dense(), 1.0),
        (Rnn(hidden_size=6), HouseholderSvd(m1=3, m2=3, r=0.1, sigma_star=0.9), 0.9),
    ],
    ids=str,
)
def test_spectral_margin_is_the_distance_from_sigma_star(
    architecture: object, parametrization: object, centre: float
) -> None:
    model = model_of(architecture, parametrization)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(".p"):
                parameter.normal_(generator=torch.Generator().manual_seed(1))
    values = [
        torch.linalg.svdvals(part.dense_weight().detach())
        for part in model.modules()
        if isinstance(part, StructuredLinear)
    ]
    expected = max((one - centre).abs().max().item() for one in values)
    assert spectral_margin(model) == pytest.approx(expected, abs=1e-12)


def test_spectral_margin_is_not_computed_for_matrices_that_take_long() -> None:
    large = Rnn(hidden_size=257)
    assert spectral_margin(model_of(large, LowRank(d=1))) is None
    assert spectral_margin(model_of(large, PackedRotations(count=1))) == 0


def test_penalty_is_the_sum_over_all_linear_maps_and_layers() -> None:
    """`0.5 lambda sum |s - 1|^2` (Dorobantu, Stromhaug, Renteria), over W and square M alike."""
    architecture = Rnn(hidden_size=6, layers=2, structured_inputs="square")
    model = model_of(architecture, RotationSvd(count_u=2, count_v=3, penalty=0.3))
    names = ["recurrent.s", "inputs.1.linear.s"]
    assert model.get_parameter(names[0]).shape == (2, 6)
    with torch.no_grad():
        for name in names:
            model.get_parameter(name).normal_(generator=torch.Generator().manual_seed(1))
    found = penalty(model)
    assert found is not None
    parameters = [model.get_parameter(name) for name in names]
    expected = sum(0.15 * (s - 1).square().sum().item() for s in parameters)
    assert found.item() == pytest.approx(expected, rel=1e-6)
    for parameter, gradient in zip(parameters, torch.autograd.grad(found, parameters), strict=True):
        torch.testing.assert_close(gradient, 0.3 * (parameter - 1), check_dtype=False)


def test_no_penalty_where_none_asks() -> None:
    assert penalty(model_of(Lstm(hidden_size=6), Dense())) is None


def test_probe_watches_a_fixed_start_too() -> None:
    """|dL/dh_0| is there without a learned h_0, and is that of one which happens to be 0."""
    fixed = model_of(Lstm(hidden_size=6, learned_initial_state=False), Dense())
    learned = model_of(Lstm(hidden_size=6), Dense())
    learned.load_state_dict(
        {"initial_state": torch.zeros(1, 2, 6, dtype=torch.float64)} | fixed.state_dict()
    )
    learned(sequences(1)).square().sum().backward()
    expected = learned.get_parameter("initial_state").grad
    assert expected is not None
    with observed(fixed) as probe:
        fixed(sequences(1)).square().sum().backward()
    assert probe.first == pytest.approx(expected[0, 0].norm().item(), rel=1e-12)


@pytest.mark.parametrize("architecture", [Rnn(hidden_size=6), Mlp(hidden_size=6)], ids=repr)
def test_probe_tells_of_the_last_backward_pass_in_its_context(architecture: object) -> None:
    model = model_of(architecture, Dense())
    with observed(model) as probe:
        assert (probe.first, probe.last) == (None, None)
        model(sequences(2))
        assert (probe.first, probe.last) == (None, None)
        model(sequences(2)).square().sum().backward()
        once = probe.first, probe.last
        model(sequences(2)).square().sum().mul(10).backward()
        assert probe.first == pytest.approx(10 * (once[0] or 0))
        assert probe.last == pytest.approx(10 * (once[1] or 0))
    after = probe.first, probe.last
    model(sequences(2)).square().sum().backward()
    assert (probe.first, probe.last) == after


def test_probe_does_not_change_outputs_or_gradients() -> None:
    model, x = model_of(Lstm(hidden_size=6, layers=2), LowRank(d=2)), sequences(3)
    plain = model(x)
    expected = torch.autograd.grad(plain.sum(), list(model.parameters()))
    with observed(model):
        watched = model(x)
        found = torch.autograd.grad(watched.sum(), list(model.parameters()))
    assert torch.equal(plain, watched)
    assert all(map(torch.equal, expected, found))


def test_probe_of_a_vanishing_gradient_reads_its_power() -> None:
    """A linear recurrence of 1/2: after T steps |dL/dh_0| is 2^-T of |dL/dh_T|."""
    model = model_of(Rnn(hidden_size=6, activation="identity"), Dense(initialisation="identity"))
    with torch.no_grad():
        model.get_parameter("recurrent.weight").mul_(0.5)
    with observed(model) as probe:
        model(torch.zeros(2, 40, 3, dtype=torch.float64)).sum().backward()
    assert probe.first is not None
    assert probe.last is not None
    assert probe.first / probe.last == pytest.approx(2.0**-40, rel=1e-12)
