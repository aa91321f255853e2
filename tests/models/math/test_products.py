"""Products by oneDNN are those of torch's own, with their gradients, and only where they pay."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from models.math import products
from models.math.products import affine, product

BATCH, INS, OUTS = 40, 48, 56
SHAPES = {"a batch": (BATCH,), "a sequence": (5, BATCH)}


@pytest.fixture
def one_dnn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have it taken for products of any size, whatever the processor."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this build of torch has no oneDNN")
    monkeypatch.setattr(products, "_LEAST_MULTIPLY_ADDS", 0)
    monkeypatch.setattr(products, "_mkl_is_narrow", lambda: True)


def _drawn(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).requires_grad_()


def _gradients(result: Tensor, of: list[Tensor], *, twice: bool) -> list[Tensor]:
    weights = torch.linspace(-1, 1, result.numel()).view_as(result)
    found = list(torch.autograd.grad((result * weights).sum(), of, create_graph=twice))
    if not twice:
        return found
    squares = torch.stack([one.square().sum() for one in found])
    again = torch.autograd.grad(squares.sum(), of, materialize_grads=True)
    return [*found, *again]


def _agree(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def _is_own(result: Tensor) -> bool:
    """Whether it was computed by oneDNN, perhaps with an addend or a view after it."""
    step = result.grad_fn
    while step is not None and step.name() in (
        "AddBackward0",
        "ViewBackward0",
        "UnflattenBackward0",
    ):
        step = step.next_functions[0][0]
    return step is not None and step.name() == "_ProductBackward"


@pytest.mark.usefixtures("one_dnn")
@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("with_bias", [False, True], ids=["plain", "bias"])
def test_an_affine_map_is_torchs_own(shape: tuple[int, ...], with_bias: bool, twice: bool) -> None:
    x, weight, bias = _drawn(*shape, INS), _drawn(OUTS, INS), _drawn(OUTS)
    of = [x, weight, *([bias] if with_bias else [])]
    found = affine(x, weight, bias if with_bias else None)
    expected = torch.nn.functional.linear(x, weight, bias if with_bias else None)
    assert _is_own(found)
    _agree(found, expected)
    for ours, theirs in zip(
        _gradients(found, of, twice=twice), _gradients(expected, of, twice=twice), strict=True
    ):
        _agree(ours, theirs)


@pytest.mark.usefixtures("one_dnn")
@pytest.mark.parametrize(
    "made",
    [
        lambda: _drawn(INS, OUTS),
        lambda: _drawn(OUTS, INS).t(),
        lambda: _drawn(INS, 3 * OUTS)[:, ::3],
    ],
    ids=["as it is stored", "transposed", "with gaps"],
)
@pytest.mark.parametrize("with_addend", [False, True], ids=["plain", "addend"])
def test_a_product_is_torchs_own(made: Callable[[], Tensor], with_addend: bool) -> None:
    x, matrix = _drawn(BATCH, INS), made()
    addend = _drawn(BATCH, OUTS) if with_addend else None
    of = [x, matrix, *([] if addend is None else [addend])]
    found = product(x, matrix, addend)
    assert _is_own(found)
    expected = x @ matrix if addend is None else addend + x @ matrix
    _agree(found, expected)
    for ours, theirs in zip(
        _gradients(found, of, twice=False), _gradients(expected, of, twice=False), strict=True
    ):
        _agree(ours, theirs)


@pytest.mark.usefixtures("one_dnn")
@pytest.mark.parametrize("with_addend", [False, True], ids=["plain", "addend"])
@pytest.mark.parametrize("is_turned", [False, True], ids=["as it is stored", "transposed"])
def test_several_products_are_torchs_own(is_turned: bool, with_addend: bool) -> None:
    x = _drawn(BATCH, 3, INS).transpose(0, 1)
    matrices = _drawn(3, OUTS, INS).mT if is_turned else _drawn(3, INS, OUTS)
    addend = _drawn(3, BATCH, OUTS) if with_addend else None
    of = [x, matrices, *([] if addend is None else [addend])]
    found = product(x, matrices, addend)
    assert _is_own(found)
    expected = torch.bmm(x, matrices) if addend is None else addend + torch.bmm(x, matrices)
    _agree(found, expected)
    for ours, theirs in zip(
        _gradients(found, of, twice=False), _gradients(expected, of, twice=False), strict=True
    ):
        _agree(ours, theirs)


@pytest.mark.usefixtures("one_dnn")
def test_the_gradient_of_a_matrix_has_its_order() -> None:
    x, weight = _drawn(BATCH, INS), _drawn(OUTS, INS)
    affine(x, weight, None).sum().backward()
    assert weight.grad is not None
    assert weight.grad.stride() == weight.stride()


@pytest.mark.usefixtures("one_dnn")
@pytest.mark.parametrize(
    ("x", "weight"),
    [
        (torch.ones(BATCH, INS, dtype=torch.float64), torch.ones(OUTS, INS, dtype=torch.float64)),
        (torch.ones(3, INS), torch.ones(OUTS, INS)),
        (torch.ones(BATCH, INS), torch.ones(3, INS)),
        (torch.ones(0, INS), torch.ones(OUTS, INS)),
        (torch.ones(BATCH, 0), torch.ones(OUTS, 0)),
        (torch.ones(BATCH, INS, device="meta"), torch.ones(OUTS, INS, device="meta")),
    ],
    ids=["double", "few rows", "few columns", "no row", "no column", "meta"],
)
def test_others_are_left_to_torch(x: Tensor, weight: Tensor) -> None:
    result = affine(x.requires_grad_(), weight, None)
    assert not _is_own(result)
    assert result.shape == (len(x), len(weight))


@pytest.mark.usefixtures("one_dnn")
def test_members_of_a_stack_are_left_to_torch() -> None:
    x, weights = torch.ones(BATCH, INS), torch.ones(2, OUTS, INS)
    found = torch.vmap(lambda weight: affine(x, weight, None))(weights)
    _agree(found, torch.full((2, BATCH, OUTS), float(INS)))


@pytest.mark.usefixtures("one_dnn")
def test_torchs_operations_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFLECTORY_BACKEND", "torch")
    assert not _is_own(affine(_drawn(BATCH, INS), _drawn(OUTS, INS), None))


def test_small_products_are_left_to_torch() -> None:
    assert not _is_own(affine(_drawn(BATCH, INS), _drawn(OUTS, INS), None))
