from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor

from models import checkpoint
from models.architectures import Highway
from models.architectures.batch_norm import BatchNorm
from models.architectures.feed_forward import FeedForwardNetwork
from models.architectures.highway import NormalisedHighwayStack, NormalisedProduct
from models.forms import LowRankForm
from models.math.initialisation import normal_, uniform_
from models.model import ModelSpec
from models.parametrizations import (
    AnyParametrization,
    Dense,
    HouseholderSvd,
    LowRank,
    LowRankDiagonal,
)
from models.spec import Signature

Array = NDArray[np.float64]

SIZE, LAYERS = 6, 3
SIGNATURE = Signature(input_size=3, sequence_length=4, output_size=5)
PIXELS = Signature(input_size=28, sequence_length=28, output_size=10)

PARAMETRIZATIONS: dict[str, AnyParametrization] = {
    "dense": Dense(),
    "householder_svd": HouseholderSvd(m1=2, m2=3, r=0.3),
    "low_rank": LowRank(d=2),
    "low_rank_diagonal": LowRankDiagonal(d=2),
    "tied": LowRank.model_validate({"d": 2, "tied": True}),
    "tied_diagonal": LowRankDiagonal.model_validate({"d": 2, "tied": True}),
}
UNDROPPED: dict[str, float] = {
    "input_dropout": 0.0,
    "layer_dropout": 0.0,
    "inner_dropout": 0.0,
    "readout_dropout": 0.0,
}


@pytest.fixture(params=PARAMETRIZATIONS)
def parametrization(request: pytest.FixtureRequest) -> AnyParametrization:
    return PARAMETRIZATIONS[request.param]


def spec_of(parametrization: AnyParametrization, **fields: Any) -> ModelSpec:
    architecture = {"kind": "highway", "hidden_size": SIZE, "layers": LAYERS, **fields}
    return ModelSpec.model_validate(
        {"architecture": architecture, "parametrization": parametrization, "signature": SIGNATURE}
    )


def network(parametrization: AnyParametrization, **fields: Any) -> FeedForwardNetwork:
    """In double precision, with random biases, scales and running statistics."""
    module = spec_of(parametrization, **fields).build(seed=0).double()
    assert isinstance(module, FeedForwardNetwork)
    generator = torch.Generator().manual_seed(1)
    for name, tensor in module.state_dict().items():
        if name.endswith(("bias", "mean")):
            normal_(tensor, 0.5, generator=generator)
        elif name.endswith(("scale", "std")):
            uniform_(tensor, 0.5, 2.0, generator=generator)
    return module


def normalised(parametrization: AnyParametrization, **fields: Any) -> FeedForwardNetwork:
    return network(parametrization, stack="batch_normalised", **fields)


def batch(size: int) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(size, 4, 3, dtype=torch.float64, generator=generator)


def numbers(tensor: Tensor) -> Array:
    return tensor.detach().numpy()


def tensor_of(model: FeedForwardNetwork, name: str) -> Array:
    return numbers(model.state_dict()[name])


def sigmoid(z: Array) -> Array:
    return 1 / (1 + np.exp(-z))


def mixed(x: Array, h: Array, tau: Array) -> Array:
    return np.maximum(h, 0) * sigmoid(tau) + x * (1 - sigmoid(tau))


def read_out(model: FeedForwardNetwork, x: Array) -> Array:
    return x @ tensor_of(model, "readout.weight").T + tensor_of(model, "readout.bias")


def projected(model: FeedForwardNetwork, x: Tensor) -> Array:
    matrix = numbers(model.input.get_parameter("weight"))
    return numbers(x).reshape(len(x), -1) @ matrix.T


def test_plain_output_is_that_of_the_formula(parametrization: AnyParametrization) -> None:
    model, x = network(parametrization), batch(3)
    weights = numbers(model.hidden.dense_weight())
    biases = tensor_of(model, "bias").reshape(-1, SIZE)
    state = np.maximum(projected(model, x) + tensor_of(model, "input.bias"), 0)
    for layer in range(LAYERS):
        h, tau = (state @ weights[i].T + biases[i] for i in (2 * layer, 2 * layer + 1))
        state = mixed(state, h, tau)
    np.testing.assert_allclose(numbers(model(x)), read_out(model, state), rtol=0, atol=1e-12)


def factor_arrays(
    model: FeedForwardNetwork,
) -> tuple[Array, Array, Array] | None:
    """R `[n, d]`, L `[d, n]` and D `[n]` of each matrix as rows are multiplied, if it has them."""
    factors = model.hidden.make_form()
    if model.hidden.inner_size is None:
        return None
    assert isinstance(factors, LowRankForm)
    right = numbers(factors.right).repeat(factors.shared_by, axis=0).transpose(0, 2, 1)
    left = numbers(factors.left).transpose(0, 2, 1)
    none = np.zeros((len(left), SIZE))
    return right, left, none if factors.diagonal is None else numbers(factors.diagonal)


def inner_statistics(model: FeedForwardNetwork, layer: int, name: str) -> Array:
    """Of each gate `[2, d]`; of the one R both times where they share it."""
    found = tensor_of(model, f"stack.products.{layer}.middle.norm.{name}")
    return np.broadcast_to(found.reshape(-1, 2), (2, 2))


def folded_layer(model: FeedForwardNetwork, layer: int, gate: int) -> tuple[Array, Array]:
    """W_eff `[n, n]`, which rows are multiplied by, and b_eff: one affine map for a gate."""
    k0, k1, epsilon, i = 0.7, 0.7, 1e-4, 2 * layer + gate
    place = slice(gate * SIZE, (gate + 1) * SIZE)
    mean, std = (tensor_of(model, f"stack.products.{layer}.norm.{s}") for s in ("mean", "std"))
    scale = tensor_of(model, "stack.scale")[layer, place]
    bias = tensor_of(model, "bias")[layer, place]
    gain = scale / (std[place] + epsilon)
    factors = factor_arrays(model)
    if factors is None:
        matrix = k0 * numbers(model.hidden.dense_weight())[i].T
        return matrix * gain, -mean[place] * gain + bias
    right, left, diagonal = (stack[i] for stack in factors)
    inner_mean, inner_std = (inner_statistics(model, layer, s)[gate] for s in ("mean", "std"))
    narrow = right / (inner_std + epsilon)
    matrix = k0 * k1 * narrow @ left + k0 * np.diag(diagonal)
    shift = -k1 * (inner_mean / (inner_std + epsilon)) @ left - mean[place]
    return matrix * gain, shift * gain + bias


def test_normalised_stack_at_test_time_is_the_folded_dense_one(
    parametrization: AnyParametrization,
) -> None:
    """Every normalisation, mask and scale goes into one matrix and one bias for each gate."""
    model, x = normalised(parametrization).eval(), batch(3)
    mean, std, scale, bias = (
        tensor_of(model, f"entry.0.{name}") for name in ("mean", "std", "scale", "bias")
    )
    state = np.maximum((projected(model, x) - mean) / (std + 1e-4) * scale + bias, 0)
    for layer in range(LAYERS):
        (w_h, b_h), (w_tau, b_tau) = (folded_layer(model, layer, gate) for gate in (0, 1))
        state = mixed(state, state @ w_h + b_h, state @ w_tau + b_tau)
    np.testing.assert_allclose(numbers(model(x)), read_out(model, state), rtol=1e-11, atol=1e-11)


def batch_normal(x: Array) -> Array:
    return (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-4)


def test_normalised_stack_in_training_is_that_of_the_formula(
    parametrization: AnyParametrization,
) -> None:
    model, x = normalised(parametrization, **UNDROPPED), batch(7)
    weights, factors = numbers(model.hidden.dense_weight()), factor_arrays(model)
    scales = tensor_of(model, "stack.scale").reshape(-1, SIZE)
    biases = tensor_of(model, "bias").reshape(-1, SIZE)
    normal = batch_normal(projected(model, x))
    state = np.maximum(
        normal * tensor_of(model, "entry.0.scale") + tensor_of(model, "entry.0.bias"), 0
    )
    for layer in range(LAYERS):
        gates: list[Array] = []
        for i in (2 * layer, 2 * layer + 1):
            if factors is None:
                product = state @ weights[i].T
            else:
                right, left, diagonal = (stack[i] for stack in factors)
                product = batch_normal(state @ right) @ left + state * diagonal
            gates.append(batch_normal(product) * scales[i] + biases[i])
        state = mixed(state, *gates)
    np.testing.assert_allclose(numbers(model(x)), read_out(model, state), rtol=1e-9, atol=1e-9)


def test_running_statistics_move_by_a_tenth_in_training_alone() -> None:
    norm = BatchNorm(2, affine=False).double()
    x = torch.tensor([[1.0, 10.0], [3.0, 10.0], [5.0, 40.0]], dtype=torch.float64)
    for _ in range(2):
        norm(x)
    mean, std = numbers(x).mean(axis=0), numbers(x).std(axis=0)
    np.testing.assert_allclose(numbers(norm.mean), 0.19 * mean, rtol=1e-12)
    np.testing.assert_allclose(numbers(norm.std), 0.81 + 0.19 * std, rtol=1e-12)
    before = norm.mean.clone(), norm.std.clone()
    expected = (x - before[0]) / (before[1] + 1e-4)
    torch.testing.assert_close(norm.eval()(x), expected)
    assert torch.equal(norm.mean, before[0])
    assert torch.equal(norm.std, before[1])


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_what_overflows_leaves_the_running_statistics(value: float) -> None:
    """They would never come back from it; a std overflows before its mean does."""
    norm = BatchNorm(2, affine=False)
    norm(torch.tensor([[value, 1.0], [0.0, 3.0]]))
    np.testing.assert_allclose(norm.mean, [0, 0.2], rtol=1e-6)
    np.testing.assert_allclose(norm.std, [1, 1], rtol=1e-6)


def seen_by_the_gates(model: FeedForwardNetwork, layer: int, x: Tensor) -> Tensor:
    """`W x` of both gates before normalisation, `[2, B, n]`, in a pass with the state x."""
    assert isinstance(model.stack, NormalisedHighwayStack)
    product = model.stack.products[layer]
    assert isinstance(product, NormalisedProduct)
    found: list[Tensor] = []
    handle = product.norm.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0]))
    product(x, model.hidden.form().split(2)[layer])
    handle.remove()
    return torch.stack(found[0].chunk(2, dim=1))


def test_masks_are_zero_or_one_in_training_and_shared_by_both_gates() -> None:
    model = normalised(Dense(initialisation="identity"))
    x = 1 + torch.rand(2000, SIZE, dtype=torch.float64)
    torch.manual_seed(0)
    h, tau = seen_by_the_gates(model, 1, x)
    kept = h != 0
    torch.testing.assert_close(h, torch.where(kept, x, 0))
    assert torch.equal(h, tau)
    assert kept.double().mean().item() == pytest.approx(0.7, abs=0.02)
    h, tau = seen_by_the_gates(model.eval(), 1, x)
    torch.testing.assert_close(h, 0.7 * x)
    torch.testing.assert_close(tau, 0.7 * x)


@pytest.mark.parametrize("tied", [False, True])
def test_mask_of_the_narrow_middle_is_zero_or_one_and_shared_by_both_gates(tied: bool) -> None:
    parametrization = LowRank.model_validate({"d": SIZE, "tied": tied})
    model = normalised(parametrization, layer_dropout=0.0)
    identity = torch.eye(SIZE, dtype=torch.float64)
    with torch.no_grad():
        for name in ("left", "right"):
            model.hidden.get_parameter(name).copy_(identity)
    x = torch.randn(2000, SIZE, dtype=torch.float64)
    torch.manual_seed(0)
    h, tau = seen_by_the_gates(model, 1, x)
    kept = h != 0
    torch.testing.assert_close(h, torch.where(kept, torch.from_numpy(batch_normal(numbers(x))), 0))
    assert torch.equal(h, tau)
    assert kept.double().mean().item() == pytest.approx(0.7, abs=0.02)


@pytest.mark.parametrize("fields", [{"layer_dropout": 0.5}, {"stack": "batch_normalised"}])
def test_what_passes_through_is_never_dropped(fields: dict[str, Any]) -> None:
    model = network(LowRankDiagonal(d=2), **fields)
    with torch.no_grad():
        model.bias[:, SIZE:] = -1e9
    x = torch.randn(4, SIZE, dtype=torch.float64)
    assert torch.equal(model.stack(x, model.hidden.form(), model.bias), x)


@pytest.mark.parametrize(
    ("fields", "ends"),
    [
        ({}, (0.0, 0.0)),
        ({"stack": "batch_normalised"}, (0.2, 0.5)),
        ({"stack": "batch_normalised", "input_dropout": 0.0, "readout_dropout": 0.1}, (0.0, 0.1)),
        ({"input_dropout": 0.3, "readout_dropout": 0.4}, (0.3, 0.4)),
    ],
)
def test_rates_at_the_ends_are_the_stacks_own_or_as_given(
    fields: dict[str, Any], ends: tuple[float, float]
) -> None:
    model = network(Dense(), **fields)
    assert (model.input_dropout, model.readout_dropout) == ends


def test_inner_dropout_is_refused_where_there_is_no_inner_mask() -> None:
    with pytest.raises(ValidationError, match=r"inner_dropout = 0\.2 is for the batch_normalised"):
        spec_of(LowRank(d=2), inner_dropout=0.2)


def test_carry_bias_starts_as_named(parametrization: AnyParametrization) -> None:
    for fields, start in [({}, -1.0), ({"transform_bias": -3.0}, -3.0)]:
        for stack in ("plain", "batch_normalised"):
            model = spec_of(parametrization, stack=stack, **fields).build(seed=0)
            h, tau = model.get_parameter("bias").chunk(2, dim=1)
            assert h.tolist() == [[0.0] * SIZE] * LAYERS
            assert tau.tolist() == [[start] * SIZE] * LAYERS


@pytest.mark.parametrize(
    ("parametrization", "count"),
    [
        (LowRank(d=256), 6_078_474),
        (LowRankDiagonal(d=256), 6_088_714),
        (Dense(), 11_321_354),
    ],
)
def test_counts_of_the_papers_mnist_stacks(parametrization: AnyParametrization, count: int) -> None:
    architecture = Highway(hidden_size=1024, layers=5, stack="batch_normalised")
    spec = ModelSpec(architecture=architecture, parametrization=parametrization, signature=PIXELS)
    assert spec.parameter_count() == spec.paper_count() == count
    assert sum(p.numel() for p in spec.build_on_meta().parameters()) == count


@pytest.mark.parametrize("stack", ["plain", "batch_normalised"])
def test_formula_is_the_number_of_trainable_numbers(
    parametrization: AnyParametrization, stack: str
) -> None:
    spec = spec_of(parametrization, stack=stack)
    assert spec.parameter_count() == sum(p.numel() for p in spec.build(seed=0).parameters())


def test_one_sample_in_training_has_finite_gradients(parametrization: AnyParametrization) -> None:
    """Its std is 0: all that is normalised is 0."""
    model = normalised(parametrization)
    model(batch(1)).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    assert all(buffer.isfinite().all() for buffer in model.buffers())


def test_no_sample_in_training_leaves_the_running_statistics(
    parametrization: AnyParametrization,
) -> None:
    model = normalised(parametrization)
    before = [buffer.clone() for buffer in model.buffers()]
    output = model(batch(0))
    assert output.shape == (0, 5)
    output.sum().backward()
    assert all(map(torch.equal, before, model.buffers()))


def test_running_statistics_come_back_from_a_checkpoint(
    parametrization: AnyParametrization,
) -> None:
    spec = spec_of(parametrization, stack="batch_normalised")
    model, x = spec.build(seed=0), batch(9).float()
    fresh = model.eval()(x)
    model.train()(x)
    loaded = checkpoint.load(checkpoint.save_bytes(model, spec)).module
    assert not torch.allclose(model.eval()(x), fresh)
    assert torch.equal(loaded.eval()(x), model.eval()(x))


# The compiler makes an instance of each autograd.Function that it meets, which torch warns of.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_normalised_stack_in_training_can_be_compiled() -> None:
    plain, model = (normalised(LowRankDiagonal(d=2), **UNDROPPED) for _ in range(2))
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    x = batch(5)
    torch.testing.assert_close(compiled(x), plain(x), rtol=1e-12, atol=1e-12)
    for moved, expected in zip(model.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(moved, expected, rtol=1e-12, atol=1e-12)
    torch.compiler.reset()


def test_gradients_of_batch_normalisation_are_those_of_its_formula() -> None:
    norm = BatchNorm(3, affine=False).double()
    torch.manual_seed(0)
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(norm, (x,))


def test_a_constant_column_is_normalised_to_zero_and_its_gradient_is_finite() -> None:
    x = torch.tensor([[2.0, 1.0], [2.0, 3.0]], dtype=torch.float64, requires_grad=True)
    normal = BatchNorm(2, affine=False).double()(x)
    assert normal[:, 0].tolist() == [0, 0]
    weights = torch.tensor([[1.0, 0.0], [3.0, 0.0]], dtype=torch.float64)
    (normal * weights).sum().backward()
    assert x.grad is not None
    # What is left of the gradient where only the mean is taken away, over 0 + 1e-4.
    np.testing.assert_allclose(numbers(x.grad), [[-1e4, 0], [1e4, 0]], rtol=1e-12)


def test_a_single_sample_in_training_leaves_the_running_statistics(
    parametrization: AnyParametrization,
) -> None:
    """It does not differ from itself, and is often the last batch before a validation."""
    model = normalised(parametrization)
    norms = [part for part in model.modules() if isinstance(part, BatchNorm)]
    before = [norm.std.clone() for norm in norms]
    model(batch(1))
    assert all(torch.equal(old, norm.std) for old, norm in zip(before, norms, strict=True))
    model(batch(2))
    assert not any(torch.equal(old, norm.std) for old, norm in zip(before, norms, strict=True))
