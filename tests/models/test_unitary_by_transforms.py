"""Unitary matrices by Fourier transforms compute what they compute as a whole."""

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from models import checkpoint
from models.architectures import Urnn
from models.architectures.recurrent_network import RecurrentNetwork
from models.exports.onnx.export import export
from models.exports.onnx.verify import verify
from models.forms import (
    DenseForm,
    Form,
    FourierForm,
    MaskedForm,
    TransformForm,
    fourier,
    fourier_form_pays,
)
from models.fused import fuse
from models.kernels.choice import prefer
from models.kernels.library import library
from models.kernels.unitary import transforms
from models.linear import StructuredLinear
from models.math.complex_matrices import real_form
from models.math.unitary import fourier_product, hashed_order
from models.model import ModelSpec
from models.network import Network
from models.parametrizations import UnitaryFft, UnitaryFull, unitary_fft
from models.spec import Signature, Slot

SIZES = (1, 2, 7, 16, 30)


needs_kernels = pytest.mark.skipif(library() is None, reason="no C++ compiler here")


@pytest.fixture
def always() -> Iterator[None]:
    """Transforms at every size, in loops, too."""
    with (
        mock.patch.object(unitary_fft, "fourier_form_pays", return_value=True),
        mock.patch.object(fourier, "fourier_form_pays", return_value=True),
    ):
        yield


def linear_of(size: int, layers: int = 1) -> StructuredLinear:
    slot = Slot(out_features=size, in_features=size, layers=layers, field="complex")
    return UnitaryFft().build(slot, generator=torch.Generator().manual_seed(1)).double()


def as_a_whole(linear: StructuredLinear) -> Tensor:
    phases, reflections = linear.get_parameter("phases"), linear.get_parameter("reflections")
    places = torch.tensor(hashed_order(linear.slot.in_features)).argsort()
    weight = fourier_product(phases, reflections, places)
    return real_form(weight.real, weight.imag)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("size", SIZES)
def test_products_and_gradients_are_those_of_the_matrix(size: int) -> None:
    linear = linear_of(size, layers=2)
    form = linear.form()
    assert isinstance(form, FourierForm)
    loop = form.for_loop()
    assert isinstance(loop, TransformForm)
    for one in (form, loop):
        assert torch.allclose(one.whole(), as_a_whole(linear), atol=1e-12)
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(5, 2 * size, generator=generator, dtype=torch.float64, requires_grad=True)
    addends = torch.randn(1, 5, 4 * size, generator=generator, dtype=torch.float64)
    dense = DenseForm(as_a_whole(linear))
    found, expected = (
        torch.cat(one.matmul(x, one.addends(addends)[0]), dim=-1) for one in (form, dense)
    )
    assert torch.allclose(found, expected, atol=1e-12)
    leaves = [x, *linear.parameters()]
    gradients = [torch.autograd.grad(result.square().sum(), leaves) for result in (found, expected)]
    for one, other in zip(*gradients, strict=True):
        assert torch.allclose(one, other, atol=1e-10)


@pytest.mark.usefixtures("always")
def test_parts_and_masks_are_those_of_the_matrix() -> None:
    linear = linear_of(6, layers=3)
    form, dense = linear.form(), DenseForm(as_a_whole(linear))
    x = torch.randn(4, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mask = torch.randint(0, 2, (3, 4, 12), generator=torch.Generator().manual_seed(1)).double()
    pairs = [
        (form.select(1, 2), dense.select(1, 2)),
        *zip(form.split(1), dense.split(1), strict=True),
        (form.rebuild(form.tensors()), dense),
        (form.for_loop().select(1, 3), dense.select(1, 3)),
        (form.for_loop().rebuild(form.for_loop().tensors()), dense),
        (MaskedForm(form, mask), MaskedForm(dense, mask)),
        (MaskedForm(form, mask[:1]), MaskedForm(dense, mask[:1])),
    ]
    for one, other in pairs:
        for found, expected in zip(one.matmul(x), other.matmul(x), strict=True):
            assert torch.allclose(found, expected, atol=1e-12)
    assert form.matmul(x[:0])[0].shape == (0, 12)
    half = linear.bfloat16().form().matmul(x.bfloat16())[0]
    assert half.dtype == torch.bfloat16
    assert torch.allclose(half.double(), dense.matmul(x)[0], atol=0.2)


def test_a_large_network_is_trained_fused_exported_and_counted_by_transforms() -> None:
    size = next(size for size in range(1, 4096) if fourier_form_pays(size, by_kernel=False))
    signature = Signature(input_size=2, sequence_length=4, output_size=3)
    spec = ModelSpec(
        architecture=Urnn(hidden_size=size), parametrization=UnitaryFft(), signature=signature
    )
    network = spec.build(seed=0)
    recurrent = network.get_submodule("recurrent")
    assert isinstance(recurrent, StructuredLinear)
    assert isinstance(recurrent.form(), FourierForm)
    # The matrix in its real form has 4 n^2 entries.
    assert recurrent.multiply_adds() < 4 * size**2 / 5
    x = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0))
    answer = network(x)
    gradients = torch.autograd.grad(answer.sum(), list(network.parameters()))
    with mock.patch.object(unitary_fft, "fourier_form_pays", return_value=False):
        expected = network(x)
        other = torch.autograd.grad(expected.sum(), list(network.parameters()))
    assert torch.allclose(answer, expected, atol=1e-5)
    for one, two in zip(gradients, other, strict=True):
        assert torch.allclose(one, two, atol=1e-4 * max(1.0, float(two.abs().max())))
    network.eval()
    fused = fuse(network)
    assert torch.allclose(fused(x), expected, atol=1e-5)
    # No buffer of the size of the matrix is left.
    assert max(buffer.numel() for buffer in fused.buffers()) < size**2
    assert torch.equal(checkpoint.load(checkpoint.save_bytes(network, spec)).module(x), network(x))
    verify(export(network, spec), network, spec)


def network_of(size: int, **fields: Any) -> tuple[RecurrentNetwork, Tensor]:
    """A network, and what it reads."""
    spec = ModelSpec(
        architecture=Urnn(hidden_size=size, **fields),
        parametrization=UnitaryFft(),
        signature=Signature(input_size=2, sequence_length=6, output_size=3),
    )
    network = spec.build(seed=0)
    assert isinstance(network, RecurrentNetwork)
    return network, torch.randn(5, 6, 2, generator=torch.Generator().manual_seed(0))


def form_of(network: RecurrentNetwork) -> Form:
    return network.recurrent.form()


@needs_kernels
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize(
    "fields",
    [{}, {"layers": 2}, {"input_dropout": 0.3}, {"learned_initial_state": False}],
    ids=lambda fields: "-".join(fields) or "plain",
)
@pytest.mark.parametrize("size", [2, 12, 37])
def test_a_network_computes_by_the_kernel_what_torchs_operations_do(
    size: int, fields: dict[str, Any], ragged: bool
) -> None:
    network, x = network_of(size, **fields)
    lengths = torch.tensor([1, 6, 3, 2, 6]) if ragged else None
    assert isinstance(form_of(network), FourierForm)
    assert network.backends() == ("cpp",)

    def trained(target: Network, x: Tensor) -> list[Tensor]:
        torch.manual_seed(1)
        answer = target(x, lengths)
        total = answer.square().sum()
        return [answer, *torch.autograd.grad(total, list(target.parameters()))]

    ours = trained(network, x)
    torch.manual_seed(1)
    with prefer("torch"):
        assert network.backends() == ("torch",)
        theirs = trained(network, x)
    for one, other in zip(ours, theirs, strict=True):
        scale = max(1.0, float(other.detach().abs().max()))
        torch.testing.assert_close(one, other, atol=1e-5 * scale, rtol=0)


@needs_kernels
def test_states_are_carried_from_call_to_call() -> None:
    network, x = network_of(10, layers=2)
    whole, end = network.step(x, ())
    _, middle = network.step(x[:, :4], ())
    parts, last = network.step(x[:, 4:], middle)
    torch.testing.assert_close(parts, whole)
    torch.testing.assert_close(last, end)


@needs_kernels
def test_the_bias_alone_may_learn() -> None:
    network, x = network_of(10)
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    bias = network.get_parameter("cells.0.bias")
    bias.requires_grad_()
    (found,) = torch.autograd.grad(network(x).sum(), bias)
    with prefer("torch"):
        (expected,) = torch.autograd.grad(network(x).sum(), bias)
    torch.testing.assert_close(found, expected)


@needs_kernels
def test_where_there_is_no_kernel_small_matrices_are_applied_as_a_whole() -> None:
    network, _ = network_of(10)
    assert isinstance(form_of(network), FourierForm)
    assert isinstance(form_of(network.double()), DenseForm)
    assert network.backends() == ("torch",)
    large, _ = network_of(521)
    assert isinstance(form_of(large).for_loop(), TransformForm)
    assert large.backends() == ("torch",)
    with prefer("torch"):
        assert isinstance(form_of(network_of(10)[0]), DenseForm)


@needs_kernels
def test_masked_matrices_run_in_a_loop_made_once() -> None:
    network, x = network_of(10, recurrent_dropout=0.3)
    assert network.train().backends() == ("torch",)
    assert network.eval().backends() == ("cpp",)
    mask = MaskedForm(form_of(network), torch.ones(1, 5, 20))
    assert isinstance(mask.for_loop().inner, DenseForm)
    network.train()(x).sum().backward()


@needs_kernels
def test_matrices_of_other_kinds_run_in_a_loop() -> None:
    spec = ModelSpec(
        architecture=Urnn(hidden_size=10),
        parametrization=UnitaryFull(),
        signature=Signature(input_size=2, sequence_length=6, output_size=3),
    )
    network = spec.build(seed=0)
    assert isinstance(network, RecurrentNetwork)
    assert network.backends() == ("torch",)


def test_what_runs_is_counted() -> None:
    """The kernel where it has a transform, else what torch's operations apply."""
    for size in (2, 60, 127, 512, 521):
        given = FourierForm(torch.zeros(2, 3, size), torch.ones(2, 2, 2 * size), torch.arange(size))
        if not transforms(size):
            assert given.multiply_adds() == given.for_loop().multiply_adds()
        elif size > 2:
            assert given.multiply_adds() < 2 * 4 * size**2
