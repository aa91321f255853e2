"""Every model can be traced whole by torch.compile, with the same outputs and gradients."""

import itertools
from collections.abc import Iterator

import pytest
import torch

from models.architectures import ARCHITECTURES, Architecture
from models.model import ModelSpec
from models.parametrizations import Dense, Parametrization
from models.spec import Signature
from tests.conformance.model_specs import admitted, fitting, pair_name, pairs, small, spec_of
from tests.conformance.variants import alternatives

# Dynamo itself makes an instance of every autograd.Function that it traces.
pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")

SIGNATURE = Signature(input_size=3, sequence_length=3, output_size=4)

Pair = tuple[type[Architecture], type[Parametrization]]


@pytest.fixture(autouse=True)
def _nothing_compiled_before() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def traced_always() -> list[Pair]:
    """Every architecture with the first two parametrizations that fit it, and the others once.

    Tracing takes about a second a pair.
    """
    always = [(a, p) for a in ARCHITECTURES for p in fitting(a)[:2]]
    seen = {parametrization for _, parametrization in always}
    firsts = {parametrization: pair for pair in reversed(pairs()) for parametrization in pair[1:]}
    return [
        *always,
        *(pair for parametrization, pair in firsts.items() if parametrization not in seen),
    ]


def assert_compiles(spec: ModelSpec, backend: str, *, tolerance: float) -> None:
    """The compiled model has the outputs and gradients of the plain one."""
    x = torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(0))
    plain = spec.build(seed=0)
    expected = plain(x)
    gradients = torch.autograd.grad(expected.square().sum(), list(plain.parameters()))
    model = spec.build(seed=0)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    output = compiled(x)
    output.square().sum().backward()
    torch.testing.assert_close(output, expected, atol=tolerance, rtol=tolerance)
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, gradient, atol=tolerance, rtol=10 * tolerance)


def assert_traces(pair: Pair) -> None:
    architecture, parametrization = pair
    spec = spec_of(small(architecture, hidden_size=4), parametrization, SIGNATURE)
    assert_compiles(spec, "aot_eager", tolerance=1e-5)


@pytest.mark.parametrize("pair", traced_always(), ids=pair_name)
def test_a_model_is_traced_whole(pair: Pair) -> None:
    assert_traces(pair)


@pytest.mark.slow
@pytest.mark.parametrize("pair", [p for p in pairs() if p not in traced_always()], ids=pair_name)
def test_every_other_pair_is_traced_whole(pair: Pair) -> None:
    assert_traces(pair)


def sequence_forms() -> list[ModelSpec]:
    """Each architecture two layers deep, as it is and with every option."""
    members = itertools.chain.from_iterable(
        (base := small(architecture, depth=2), *alternatives(base))
        for architecture in ARCHITECTURES
    )
    specs = (spec_of(member, Dense, SIGNATURE) for member in members)
    return [spec for spec in specs if admitted(spec)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec", sequence_forms(), ids=lambda s: repr(s.architecture.model_dump(exclude_defaults=True))
)
def test_inductor_gives_the_same_numbers(spec: ModelSpec) -> None:
    assert_compiles(spec, "inductor", tolerance=1e-4)
