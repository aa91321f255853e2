"""Unitary matrices by Fourier transforms compute what they compute as a whole."""

from collections.abc import Iterator
from unittest import mock

import pytest
import torch
from torch import Tensor

from models import checkpoint
from models.architectures import Urnn
from models.forms import DenseForm, FourierForm, MaskedForm, fourier_form_pays
from models.fused import fuse
from models.linear import StructuredLinear
from models.math.complex_matrices import real_form
from models.math.unitary import fourier_product, hashed_order
from models.model import ModelSpec
from models.onnx.export import export
from models.onnx.verify import verify
from models.parametrizations import UnitaryFft, unitary_fft
from models.spec import Signature, Slot

SIZES = (1, 2, 7, 16, 30)


@pytest.fixture
def always() -> Iterator[None]:
    """Transforms at every size."""
    with mock.patch.object(unitary_fft, "fourier_form_pays", return_value=True):
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
    assert torch.allclose(form.whole(), as_a_whole(linear), atol=1e-12)
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
