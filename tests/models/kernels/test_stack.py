"""Stacks of layers by the kernels against their equations in double precision."""

import itertools

import pytest
import torch
from torch import Tensor

from models.kernels.calls import GATES, Kind
from models.kernels.library import library
from models.kernels.stack import stack
from models.kernels.structs import ACTIVATIONS, STACKS, StackName
from tests.models.kernels import cases
from tests.models.kernels.cases import FORMS, SLOPE, FormName

pytestmark = pytest.mark.skipif(library() is None, reason="no C++ compiler here")

# Rounding of 6e-8 per product, added up over units, layers and samples.
TOLERANCE = 2e-5

KINDS = [
    *(Kind(name, activation, SLOPE) for name in STACKS[:2] for activation in ACTIVATIONS),
    Kind("highway_layers", "relu", 0.0),
]
LAYERS_BATCH_SIZE = [(2, 1, 1), (4, 3, 7), (6, 30, 33), (2, 25, 64), (20, 13, 48)]


def random_stack(name: StackName, form: FormName, sizes: tuple[int, int, int]) -> dict[str, Tensor]:
    """X, bias and matrices that keep the size of what passes about the same."""
    layers, batch, size = sizes
    generator, gates, rank = torch.Generator().manual_seed(0), GATES[name], min(3, size)

    def draw(*shape: int, scale: float = 1.0) -> Tensor:
        return (torch.randn(shape, generator=generator) * scale).requires_grad_()

    given = {"x": draw(batch, size), "bias": draw(layers, gates, size, scale=0.3)}
    if form == "dense":
        return {**given, "weight": draw(layers, gates, size, size, scale=0.8 / size**0.5)}
    if form.startswith("rotations"):
        given["u_turns"] = cases.random_angles((layers, gates), size, generator)
        if form == "rotations_svd":
            given["diagonal"] = draw(layers, gates, size, scale=0.7)
            given["v_turns"] = cases.random_angles((layers, gates), size, generator, most=2)
        return given
    num_right = 1 if form == "tied" else gates
    given["left"] = draw(layers, gates, size, rank, scale=0.5 / rank**0.5)
    given["right"] = draw(layers, num_right, rank, size, scale=0.8 / size**0.5)
    if form != "low_rank":
        given["diagonal"] = draw(layers, gates, size, scale=0.5)
    return given


def layer_by_layer(
    kind: Kind,
    x: Tensor,
    bias: Tensor,
    **matrices: Tensor,
) -> Tensor:
    """The layers' equations with whole matrices."""
    weight = cases.whole(GATES[kind.cell], **matrices)
    before = x
    for layer in range(len(weight)):
        first, *others = [x @ w.T + b for w, b in zip(weight[layer], bias[layer], strict=True)]
        if kind.cell == "highway_layers":
            tau = others[0].sigmoid()
            result = first.relu() * tau + x * (1 - tau)
        else:
            passed = before if kind.cell == "residual_layers" and layer % 2 else 0
            result = cases.ACTIVATIONS[kind.activation](first + passed)
        before, x = x, result
    return x


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.cell}-{kind.activation}")
def test_results_and_gradients_are_those_of_the_equations(kind: Kind, form: FormName) -> None:
    assert kind.cell in STACKS
    for sizes, threads in itertools.product(LAYERS_BATCH_SIZE, (1, 3)):
        if sizes[-1] < cases.least_size(form):
            continue
        given = random_stack(kind.cell, form, sizes)
        exact = {name: t.detach().double().requires_grad_() for name, t in given.items()}
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            found, expected = stack(kind, **given, keep=True), layer_by_layer(kind, **exact)
            upstream = torch.randn(found.shape, generator=torch.Generator().manual_seed(1))
            ours = torch.autograd.grad((found * upstream).sum(), list(given.values()))
        finally:
            torch.set_num_threads(before)
        theirs = torch.autograd.grad((expected * upstream).sum(), list(exact.values()))
        for name, one, other in zip(
            ["result", *given], [found, *ours], [expected, *theirs], strict=True
        ):
            scale = max(other.abs().max().item(), 1e-6)
            error = (one.double() - other).abs().max().item()
            assert error <= TOLERANCE * scale, f"{name} of {sizes}: {error} of {scale}"


@pytest.mark.parametrize("name", STACKS)
def test_no_sample_is_no_work(name: StackName) -> None:
    given = random_stack(name, "low_rank", (3, 0, 5))
    found = stack(Kind(name, "tanh", 0.0), **given, keep=True)
    assert found.shape == (0, 5)
    (gradient,) = torch.autograd.grad(found.sum(), [given["left"]])
    assert not gradient.any()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", STACKS)
def test_the_operator_keeps_torchs_rules(name: StackName, form: FormName) -> None:
    given = random_stack(name, form, (4, 3, 7))
    matrices = ("weight", "left", "right", "diagonal", "u_turns", "v_turns")
    tensors = [given.get(n) for n in ("x", "bias", *matrices)]
    results = torch.library.opcheck(
        torch.ops.reflectory.stack.default, (*tensors, name, "tanh", 0.0, True)
    )
    assert set(results.values()) == {"SUCCESS"}


def test_a_stack_without_what_its_layers_gave_cannot_be_differentiated() -> None:
    with pytest.raises(ValueError, match="keep=True"):
        stack(
            Kind("plain_layers", "tanh", 0.0),
            **random_stack("plain_layers", "dense", (2, 3, 4)),
            keep=False,
        )
