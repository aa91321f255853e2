import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from models import checkpoint
from models.architectures import Highway, Mlp, Resnet
from models.architectures.feed_forward import FeedForward, FeedForwardNetwork
from models.errors import CheckpointError, InputError, SignatureError
from models.linear import StructuredAffine
from models.math.activations import Activation
from models.math.initialisation import normal_
from models.model import ModelSpec, after_step, parameter_groups
from models.network import observed
from models.parametrizations import (
    AnyParametrization,
    Dense,
    HouseholderSvd,
    LowRank,
    LowRankDiagonal,
)
from models.spec import Signature
from tests.conformance.variants import Corner

Array = NDArray[np.float64]

SIGNATURE = Signature(input_size=3, sequence_length=4, output_size=5)
PIXELS = Signature(input_size=28, sequence_length=28, output_size=10)

ARCHITECTURES: list[FeedForward] = [
    Mlp(hidden_size=6, layers=3),
    Resnet(hidden_size=6, blocks=2),
    Highway(hidden_size=6, layers=3),
    Highway(hidden_size=6, layers=2, stack="batch_normalised"),
]
PARAMETRIZATIONS: list[AnyParametrization] = [
    Dense(),
    HouseholderSvd(m1=6, m2=2, r=0.3),
    LowRank(d=2),
    LowRankDiagonal(d=2),
]


def kind(spec: FeedForward | AnyParametrization) -> str:
    return "-".join(str(value) for value in spec.model_dump().values() if isinstance(value, str))


def spec_of(
    architecture: FeedForward,
    parametrization: AnyParametrization,
    signature: Signature = SIGNATURE,
) -> ModelSpec:
    return ModelSpec.model_validate(
        {
            "architecture": architecture.model_dump(),
            "parametrization": parametrization,
            "signature": signature,
        }
    )


def network(
    architecture: FeedForward,
    parametrization: AnyParametrization,
    signature: Signature = SIGNATURE,
) -> FeedForwardNetwork:
    """In double precision, with biases that are not 0."""
    module = spec_of(architecture, parametrization, signature).build(seed=0).double()
    assert isinstance(module, FeedForwardNetwork)
    generator = torch.Generator().manual_seed(1)
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):
            normal_(parameter, 1.0, generator=generator)
    return module


def batch(size: int, signature: Signature = SIGNATURE) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    shape = (size, signature.sequence_length, signature.input_size)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def numbers(tensor: Tensor) -> Array:
    return tensor.detach().numpy()


FUNCTIONS: dict[Activation, Callable[[Array], Array]] = {
    "leaky_relu": lambda z: np.where(z > 0, z, 0.3 * z),
    "abs": np.abs,
    "relu": lambda z: np.maximum(z, 0),
    "tanh": np.tanh,
    "identity": lambda z: z,
}


def by_hand(model: FeedForwardNetwork, x: Tensor, f: Callable[[Array], Array]) -> Array:
    """One sample after the other, one matrix after the other; blocks of two with `+ x`."""
    w_in, b_in = (numbers(model.input.get_parameter(name)) for name in ("weight", "bias"))
    weights, biases = numbers(model.hidden.dense_weight()), numbers(model.bias)
    w_out, b_out = (numbers(model.readout.get_parameter(name)) for name in ("weight", "bias"))
    outputs: list[Array] = []
    for sample in numbers(x):
        h = f(w_in @ np.concatenate(list(sample)) + b_in)
        if model.hidden.slot.residual:
            for i in range(0, len(weights), 2):
                inner = f(weights[i] @ h + biases[i])
                h = f(h + weights[i + 1] @ inner + biases[i + 1])
        else:
            for weight, bias in zip(weights, biases, strict=True):
                h = f(weight @ h + bias)
        outputs.append(w_out @ h + b_out)
    return np.stack(outputs)


@pytest.mark.parametrize("parametrization", PARAMETRIZATIONS, ids=kind)
@pytest.mark.parametrize("variant", [Mlp, Resnet])
def test_output_is_that_of_the_formula(
    variant: type[Mlp | Resnet], parametrization: AnyParametrization
) -> None:
    x = batch(3)
    for activation, f in FUNCTIONS.items():
        fields = {"hidden_size": 6, "activation": activation, "leak": 0.3}
        model = network(variant.model_validate(fields), parametrization)
        np.testing.assert_allclose(numbers(model(x)), by_hand(model, x, f), rtol=0, atol=1e-12)


def staircase_entries(size: int, count: int) -> int:
    return sum(size - k for k in range(count))


@pytest.mark.parametrize(
    ("size", "layers", "count"), [(32, 40, 32), (32, 40, 8), (128, 30, 16), (128, 100, 16)]
)
def test_svd_mlp_has_as_many_numbers_as_its_formula(size: int, layers: int, count: int) -> None:
    """The source counts the 1 x 1 reflectors of m = n too, which are not trained."""
    spec = spec_of(Mlp(hidden_size=size, layers=layers), HouseholderSvd(m1=count, m2=count), PIXELS)
    ends = 784 * size + size + 10 * size + 10
    paper = ends + layers * (2 * staircase_entries(size, count) + size + size)
    untrained = 2 * layers if count == size else 0
    assert spec.paper_count() == paper
    assert spec.parameter_count() == paper - untrained
    assert sum(p.numel() for p in spec.build_on_meta().parameters()) == paper - untrained


def test_dense_counts_are_those_of_the_formula() -> None:
    mlp = spec_of(Mlp(hidden_size=32, layers=40), Dense(), PIXELS)
    expected = 784 * 32 + 32 + 40 * (32 * 32 + 32) + 10 * 32 + 10
    resnet = spec_of(Resnet(hidden_size=32, blocks=20), Dense(), PIXELS)
    for spec in (mlp, resnet):
        assert spec.parameter_count() == spec.paper_count() == expected
        assert sum(p.numel() for p in spec.build_on_meta().parameters()) == expected


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=kind)
def test_input_matrix_can_be_structured_too(architecture: FeedForward) -> None:
    """12 inputs make it square for 12 units alone."""
    for size, choice, structured in [
        (6, "none", False),
        (6, "square", False),
        (12, "square", True),
        (6, "all", True),
    ]:
        changes = {"hidden_size": size, "structured_inputs": choice}
        spec = spec_of(architecture.model_copy(update=changes), HouseholderSvd(m1=2, m2=3))
        model = spec.build(seed=0)
        assert isinstance(model, FeedForwardNetwork)
        assert isinstance(model.input, StructuredAffine) == structured
        assert list(spec.architecture.slots(SIGNATURE)) == ["hidden", "input"][: 1 + structured]
        assert spec.parameter_count() == sum(p.numel() for p in model.parameters())
        assert model(torch.zeros(2, 4, 3)).shape == (2, 5)


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=kind)
def test_an_answer_at_every_step_is_refused(architecture: FeedForward) -> None:
    every = SIGNATURE.model_copy(update={"output_steps": "every"})
    spec = spec_of(architecture, Dense(), every)
    for attempt in (spec.check, spec.build, spec.build_on_meta):
        with pytest.raises(SignatureError, match="output_steps = 'every' does not fit, allowed is"):
            attempt()
    stored = checkpoint.save_bytes(spec_of(architecture, Dense()).build(seed=0), spec)
    with pytest.raises(CheckpointError, match=r"its spec is not valid: .* 'every' does not fit"):
        checkpoint.load(stored)


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=kind)
def test_only_sequences_of_the_signatures_length_are_read(architecture: FeedForward) -> None:
    assert not architecture.any_length
    model = spec_of(architecture, Dense()).build(seed=0)
    for size in (3, 1, 0):
        assert model(torch.zeros(size, 4, 3)).shape == (size, 5)
    for shape in [(2, 3, 3), (2, 5, 3), (2, 4, 4), (2, 12), (2, 3, 4), (2, 0, 3)]:
        with pytest.raises(InputError, match=r"allowed is \[batch, 4, 3\]") as refusal:
            model(torch.zeros(shape))
        assert str(list(shape)) in str(refusal.value)
    with pytest.raises(InputError, match="float64"):
        model(torch.zeros(2, 4, 3, dtype=torch.float64))


def test_suggested_svd_resnet_learns_with_every_parameter() -> None:
    """Singular values of exactly 0 in both layers of a block would keep all gradients at 0."""
    architecture = Resnet(hidden_size=8, blocks=2)
    suggested = HouseholderSvd.suggest(Corner(0.0), architecture.hidden_slot(), largest=8)
    assert suggested.sigma_star == 0
    model = network(architecture, suggested)
    optimizer = torch.optim.Adam(parameter_groups(model, 0.01))
    x = batch(16)
    y = x.sum((1, 2)).gt(0).long()
    losses: list[float] = []
    for step in range(30):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        if step == 0:
            for name, parameter in model.named_parameters():
                assert parameter.grad is not None, name
                assert parameter.grad.abs().max() > 0, name
        optimizer.step()
        after_step(model)
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_hundred_svd_layers_keep_the_gradients_norm(dtype: torch.dtype) -> None:
    """Orthogonal matrices, as all singular values start at 1, and slopes of 1 and -1."""
    architecture = Mlp(hidden_size=32, layers=100, activation="abs")
    model = spec_of(architecture, HouseholderSvd(m1=32, m2=32)).build(seed=0).to(dtype)
    with observed(model) as probe:
        output = model(batch(8).to(dtype))
        output.square().mean().backward()
    assert output.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert probe.last is not None
    assert probe.last > 0
    precision = 1e-3 if dtype is torch.float32 else 1e-10
    assert probe.first == pytest.approx(probe.last, rel=precision)


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=kind)
def test_probe_reads_the_gradients_that_autograd_finds(architecture: FeedForward) -> None:
    model = network(architecture, HouseholderSvd(m1=3, m2=3, r=0.2)).eval()
    x = batch(4)
    with observed(model) as probe:
        model(x).square().sum().backward()
    first = model.entry(model.input(x.flatten(1))).detach().requires_grad_()
    last = model.stack(first, model.hidden.form(), model.bias)
    loss = model.readout(last).square().sum()
    gradients = torch.autograd.grad(loss, (first, last))
    assert probe.first == pytest.approx(gradients[0].norm(dim=1).sum().item(), rel=1e-12)
    assert probe.last == pytest.approx(gradients[1].norm(dim=1).sum().item(), rel=1e-12)


@pytest.mark.parametrize("variant", [Mlp, Resnet])
def test_dropout_acts_in_training_alone_and_keeps_the_mean(variant: type[Mlp | Resnet]) -> None:
    """With f the identity the expected output is the output without dropout."""
    fields = {"hidden_size": 6, "activation": "identity"}
    plain = network(variant.model_validate(fields), Dense())
    dropped = network(variant.model_validate({**fields, "dropout": 0.2}), Dense())
    x = batch(1)
    assert torch.equal(dropped.eval()(x), plain(x))
    torch.manual_seed(0)
    samples = dropped.train()(x.expand(200_000, -1, -1))
    assert samples.std(dim=0).min() > 0.1
    error = samples.std(dim=0) / 200_000**0.5
    assert ((samples.mean(dim=0) - plain(x)[0]).abs() < 5 * error).all()


@pytest.mark.parametrize(
    ("architecture", "masks", "passed"),
    [
        (Mlp(hidden_size=6, layers=3, activation="identity", dropout=0.2), 3, 0.0),
        (Resnet(hidden_size=6, blocks=1, activation="identity", dropout=0.2), 2, 1.0),
        (Highway(hidden_size=6, layers=1, transform_bias=1e9, layer_dropout=0.2), 1, 0.0),
    ],
    ids=["mlp", "resnet", "highway"],
)
def test_dropout_is_before_every_hidden_matrix(
    architecture: FeedForward, masks: int, passed: float
) -> None:
    """Identities in a row: a unit gets through k masks with 0.8^k, then 1 / 0.8^k times as large.

    What passes by a residual block gets through them all.
    """
    spec = spec_of(architecture, Dense(initialisation="identity"))
    model = spec.build(seed=0).double()
    assert isinstance(model, FeedForwardNetwork)
    x = 1 + torch.rand(5000, 6, dtype=torch.float64)
    torch.manual_seed(0)
    last = model.stack(x, model.hidden.form(), model.bias)
    kept = last > passed * x
    torch.testing.assert_close(last, passed * x + torch.where(kept, x / 0.8**masks, 0))
    assert kept.double().mean().item() == pytest.approx(0.8**masks, abs=0.02)


def test_hidden_matrices_from_hes_start_keep_a_relus_mean_square() -> None:
    spec = spec_of(Mlp(hidden_size=256, layers=12), Dense(initialisation="he_normal"))
    model = spec.build(seed=0)
    assert isinstance(model, FeedForwardNetwork)
    weight = model.hidden.get_parameter("weight")
    assert weight.std().item() == pytest.approx(math.sqrt(2 / 256), rel=0.01)
    assert weight.abs().max() > 4 * weight.std()  # of a uniform distribution no more than 1.8
    x = torch.randn(200, 256, generator=torch.Generator().manual_seed(1))
    for matrix in weight:
        x = (x @ matrix.mT).relu()
    assert 0.1 < x.square().mean().item() < 10  # from Glorot's start it is 2e-4


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=kind)
def test_factors_are_made_once_per_pass(
    architecture: FeedForward, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = network(architecture, HouseholderSvd(m1=2, m2=2))
    make, calls = model.hidden.make_form, list[None]()

    def counted() -> object:
        calls.append(None)
        return make()

    monkeypatch.setattr(model.hidden, "make_form", counted)
    for passes in (1, 2):
        model(batch(2))
        assert len(calls) == passes


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=kind)
def test_compiled_model_gives_the_same_outputs(architecture: FeedForward) -> None:
    model = network(architecture, LowRankDiagonal(d=2)).eval()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    x = batch(3)
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-12, atol=1e-12)
    torch.compiler.reset()
