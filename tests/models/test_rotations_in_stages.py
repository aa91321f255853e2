"""Packed rotations that are applied stage by stage compute what their matrices compute."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
import torch
from pydantic import TypeAdapter
from torch import Tensor

from models import checkpoint
from models.architectures import AnyArchitecture
from models.exports.onnx.export import export
from models.exports.onnx.verify import verify
from models.forms import DenseForm, Form, MaskedForm, RotatedForm, joined, rotated_form_pays
from models.fused import fuse
from models.linear import StructuredLinear
from models.model import ModelSpec
from models.network import Network
from models.parametrizations import (
    PackedRotations,
    RotationSvd,
    packed_rotations,
    rotation_svd,
)
from models.parametrizations.parametrization import Family
from models.spec import Signature, Slot

SIZES = (2, 3, 8, 15)
LARGE = next(size for size in range(2, 4096) if rotated_form_pays(4, size))
ARCHITECTURES: list[dict[str, Any]] = [
    {"kind": "rnn", "layers": 2},
    {"kind": "rnn", "activation": "abs", "recurrent_dropout": 0.3},
    {"kind": "gru", "reset": "before", "input_dropout": 0.2},
    {"kind": "gru", "reset": "after"},
    {"kind": "lstm"},
    {"kind": "mlp", "layers": 3},
    {"kind": "resnet", "blocks": 2},
    {"kind": "highway", "layers": 3},
]


@contextmanager
def staged(always: bool) -> Iterator[None]:
    """Stages at every size, or matrices at every size."""
    with (
        mock.patch.object(packed_rotations, "rotated_form_pays", return_value=always),
        mock.patch.object(rotation_svd, "rotated_form_pays", return_value=always),
    ):
        yield


def member(kind: str, size: int) -> Family:
    most = size - 1 + size % 2
    if kind == "packed_rotations":
        return PackedRotations(count=min(3, most))
    return RotationSvd(count_u=min(2, most), count_v=min(3, most))


def linear_of(kind: str, size: int, layers: int = 1) -> StructuredLinear:
    slot = Slot(out_features=size, in_features=size, layers=layers, gates=2)
    linear = member(kind, size).build(slot, generator=torch.Generator().manual_seed(1)).double()
    with torch.no_grad():
        for parameter in linear.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, dtype=torch.float64))
    return linear


def forms_of(linear: StructuredLinear) -> tuple[Form, Form]:
    """As stages, and as matrices."""
    with staged(True):
        form = linear.form()
    with staged(False):
        dense = linear.form()
    assert isinstance(form, RotatedForm)
    assert isinstance(dense, DenseForm)
    return form, dense


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["packed_rotations", "rotation_svd"])
def test_products_and_gradients_are_those_of_the_matrix(kind: str, size: int) -> None:
    linear = linear_of(kind, size)
    forms = forms_of(linear)
    x = torch.randn(5, size, dtype=torch.float64, requires_grad=True)
    addends = torch.randn(1, 5, 2 * size, dtype=torch.float64)
    leaves = [x, *linear.parameters()]
    results = [torch.cat(form.matmul(x, form.addends(addends)[0]), dim=-1) for form in forms]
    torch.testing.assert_close(*results)
    gradients = [torch.autograd.grad(result.square().sum(), leaves) for result in results]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("kind", ["packed_rotations", "rotation_svd"])
def test_parts_masks_and_layers_are_those_of_the_matrix(kind: str) -> None:
    form, dense = forms_of(linear_of(kind, 6, layers=3))
    x = torch.randn(4, 6, dtype=torch.float64)
    mask = torch.randint(0, 2, (6, 4, 6)).double()
    parts, dense_parts = form.split(2), dense.split(2)
    stacked = joined(parts, gates=2)
    assert isinstance(stacked, RotatedForm)
    mixed = joined([parts[0], dense_parts[1], parts[2]], gates=2)
    pairs = [
        *zip(parts, dense_parts, strict=True),
        (form.select(1, 3), dense.select(1, 3)),
        (form.rebuild(form.tensors()), dense),
        (form.for_loop(), dense),
        (stacked, dense),
        (mixed, dense),
        (mixed.for_loop(), dense),
        (MaskedForm(form, mask), MaskedForm(dense, mask)),
        (MaskedForm(form, mask).for_loop(), MaskedForm(dense, mask)),
    ]
    for one, other in pairs:
        torch.testing.assert_close(one.matmul(x), other.matmul(x))


def trained(network: Network, x: Tensor) -> tuple[Tensor, ...]:
    """The answer, and all gradients."""
    torch.manual_seed(0)
    answer = network(x)
    gradients = torch.autograd.grad(answer.square().sum(), list(network.parameters()))
    return answer.detach(), *gradients


@pytest.mark.parametrize("kind", ["packed_rotations", "rotation_svd"])
@pytest.mark.parametrize(
    "architecture", ARCHITECTURES, ids=lambda a: "-".join(map(str, a.values()))
)
def test_a_network_is_trained_fused_kept_and_exported_in_stages(
    architecture: dict[str, Any], kind: str
) -> None:
    made = TypeAdapter[Any](AnyArchitecture).validate_python({"hidden_size": LARGE, **architecture})
    recurrent = architecture["kind"] in ("rnn", "gru", "lstm")
    signature = Signature(input_size=3, sequence_length=4 if recurrent else 1, output_size=2)
    spec = ModelSpec(
        architecture=made,
        parametrization=(
            PackedRotations(count=4)
            if kind == "packed_rotations"
            else RotationSvd(count_u=1, count_v=3)
        ),
        signature=signature,
    )
    network = spec.build(seed=0)
    linears = [part for part in network.modules() if isinstance(part, StructuredLinear)]
    square = [one for one in linears if one.in_features == one.out_features == LARGE]
    assert square
    assert all(isinstance(one.form(), RotatedForm) for one in square)
    assert all(one.multiply_adds() < one.num_matrices * LARGE**2 / 2 for one in square)
    x = torch.randn(5, signature.sequence_length, 3)
    found = trained(network, x)
    with staged(False):
        expected = trained(network, x)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(
            one, other, atol=1e-4 * max(1.0, float(other.abs().max())), rtol=0
        )
    network.eval()
    answer = network(x)
    torch.testing.assert_close(fuse(network)(x), answer, atol=1e-5, rtol=0)
    loaded = checkpoint.load(checkpoint.save_bytes(network, spec)).module.eval()
    assert torch.equal(loaded(x), answer)
    verify(export(network, spec), network, spec)
