"""Stacks of layers by the kernels against their equations in double precision."""

import itertools
from collections.abc import Mapping, Sequence

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
SIZES = [(2, 2, 1, 1), (1, 4, 3, 7), (2, 6, 30, 33), (3, 2, 25, 64), (1, 20, 13, 48)]
"""Models, layers, samples and units."""


def random_stack(
    name: StackName, form: FormName, sizes: tuple[int, int, int, int]
) -> dict[str, Tensor]:
    """X, bias and matrices that keep the size of what passes about the same."""
    models, layers, batch, size = sizes
    leading = models, layers
    generator, gates, rank = torch.Generator().manual_seed(0), GATES[name], min(3, size)

    def draw(*shape: int, scale: float = 1.0) -> Tensor:
        return (torch.randn(shape, generator=generator) * scale).requires_grad_()

    given = {"x": draw(models, batch, size), "bias": draw(*leading, gates, size, scale=0.3)}
    if form == "dense":
        return {**given, "weight": draw(*leading, gates, size, size, scale=0.8 / size**0.5)}
    if form.startswith("rotations"):
        given["u_turns"] = cases.random_angles((*leading, gates), size, generator)
        if form == "rotations_svd":
            given["diagonal"] = draw(*leading, gates, size, scale=0.7)
            given["v_turns"] = cases.random_angles((*leading, gates), size, generator, most=2)
        return given
    num_right = 1 if form == "tied" else gates
    given["left"] = draw(*leading, gates, size, rank, scale=0.5 / rank**0.5)
    given["right"] = draw(*leading, num_right, rank, size, scale=0.8 / size**0.5)
    if form != "low_rank":
        given["diagonal"] = draw(*leading, gates, size, scale=0.5)
    return given


def layers_of_all(kind: Kind, **given: Tensor) -> Tensor:
    """The equations of each model by itself."""
    models = [
        layer_by_layer(kind, **{name: tensor[m] for name, tensor in given.items()})
        for m in range(len(given["x"]))
    ]
    return torch.stack(models)


def gradients(result: Tensor, given: Sequence[Tensor]) -> Sequence[Tensor]:
    """Of a sum of the result, weighted at random."""
    upstream = torch.randn(result.shape, generator=torch.Generator().manual_seed(1))
    return torch.autograd.grad((result * upstream).sum(), given)


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
    for sizes, threads in itertools.product(SIZES, (1, 3)):
        if sizes[-1] >= cases.least_size(form):
            compare(kind, random_stack(kind.cell, form, sizes), threads)


@pytest.mark.parametrize("name", STACKS)
def test_weights_that_no_inner_cache_holds_are_shared_by_many_samples(name: StackName) -> None:
    for threads in (1, 3):
        compare(Kind(name, "relu", 0.0), random_stack(name, "dense", (1, 2, 50, 320)), threads)


def compare(kind: Kind, given: Mapping[str, Tensor], threads: int) -> None:
    """The result and all gradients with those of the equations in double precision."""
    exact = {name: t.detach().double().requires_grad_() for name, t in given.items()}
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found, expected = stack(kind, **given, keep=True), layers_of_all(kind, **exact)
        ours = gradients(found, list(given.values()))
    finally:
        torch.set_num_threads(before)
    theirs = gradients(expected, list(exact.values()))
    for name, one, other in zip(
        ["result", *given], [found, *ours], [expected, *theirs], strict=True
    ):
        scale = max(other.abs().max().item(), 1e-6)
        error = (one.double() - other).abs().max().item()
        assert error <= TOLERANCE * scale, f"{name} {list(other.shape)}: {error} of {scale}"


def found_by(threads: int, kind: Kind, given: Mapping[str, Tensor]) -> list[Tensor]:
    """The result, and the gradients of all by the sum of its squares."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        result = stack(kind, **given, keep=True)
        return [result, *torch.autograd.grad(result.square().sum(), list(given.values()))]
    finally:
        torch.set_num_threads(before)


def found_alone(kind: Kind, given: Mapping[str, Tensor]) -> list[Tensor]:
    """The same in one call for each model, by a single thread."""
    models = [
        {
            name: tensor[model : model + 1].detach().requires_grad_()
            for name, tensor in given.items()
        }
        for model in range(len(given["x"]))
    ]
    found = [found_by(1, kind, own) for own in models]
    return [torch.cat(parts) for parts in zip(*found, strict=True)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", STACKS)
def test_models_together_have_the_very_numbers_of_each_alone(
    name: StackName, form: FormName
) -> None:
    kind = Kind(name, "leaky_relu", SLOPE)
    given = random_stack(name, form, (3, 3, 25, 34))
    assert all(map(torch.equal, found_by(1, kind, given), found_alone(kind, given)))


def test_threads_with_models_of_their_own_or_in_common_give_the_same_numbers() -> None:
    """The work is worth four threads; three of them have two models in common."""
    kind = Kind("plain_layers", "tanh", 0.0)
    given = random_stack("plain_layers", "dense", (4, 4, 60, 128))
    alone = found_alone(kind, given)
    for threads in (2, 4):
        assert all(map(torch.equal, found_by(threads, kind, given), alone))
    three = found_by(3, kind, given)
    assert all(map(torch.equal, three, found_by(3, kind, given)))
    for found, exact in zip(three, alone, strict=True):
        assert (found - exact).abs().max() <= TOLERANCE * exact.abs().max()


@pytest.mark.parametrize("name", STACKS)
def test_no_sample_is_no_work(name: StackName) -> None:
    given = random_stack(name, "low_rank", (2, 3, 0, 5))
    found = stack(Kind(name, "tanh", 0.0), **given, keep=True)
    assert found.shape == (2, 0, 5)
    (gradient,) = torch.autograd.grad(found.sum(), [given["left"]])
    assert not gradient.any()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", STACKS)
def test_the_operator_keeps_torchs_rules(name: StackName, form: FormName) -> None:
    given = random_stack(name, form, (2, 4, 3, 7))
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
            **random_stack("plain_layers", "dense", (1, 2, 3, 4)),
            keep=False,
        )
