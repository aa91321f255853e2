"""Every model can be traced whole by torch.compile, with the same outputs and gradients."""

import itertools
from collections.abc import Iterator

import pytest
import torch

from models.architectures import ARCHITECTURES, Architecture
from models.model import ModelSpec
from models.parametrizations import Dense, Family
from models.spec import Signature
from tests.conformance.model_specs import admitted, fitting, pair_name, pairs, small, spec_of
from tests.conformance.variants import alternatives

# Dynamo itself makes an instance of every autograd.Function that it traces.
pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")

SIGNATURE = Signature(input_size=3, sequence_length=3, output_size=4)

Pair = tuple[type[Architecture], type[Family]]


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


def assert_compiles(spec: ModelSpec, backend: str, *, training: bool, tolerance: float) -> None:
    """The compiled model has the outputs and gradients of the plain one."""
    x = torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(0))
    plain = spec.build(seed=0).train(training)
    expected = plain(x)
    gradients = torch.autograd.grad(expected.square().sum(), list(plain.parameters()))
    model = spec.build(seed=0).train(training)
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
    assert_compiles(spec, "aot_eager", training=True, tolerance=1e-5)


@pytest.mark.parametrize("pair", traced_always(), ids=pair_name)
def test_a_model_is_traced_whole(pair: Pair) -> None:
    assert_traces(pair)


@pytest.mark.slow
@pytest.mark.parametrize("pair", [p for p in pairs() if p not in traced_always()], ids=pair_name)
def test_every_other_pair_is_traced_whole(pair: Pair) -> None:
    assert_traces(pair)


def forms() -> list[ModelSpec]:
    """Each architecture two layers deep, as it is and with every option that has a name."""
    bases = [small(architecture, depth=2) for architecture in ARCHITECTURES]
    members = itertools.chain.from_iterable((base, *alternatives(base)) for base in bases)
    named = (
        member
        for member in members
        if not any(isinstance(v, float) for v in member.model_dump(exclude_defaults=True).values())
    )
    specs = (spec_of(member, Dense, SIGNATURE) for member in named)
    return [spec for spec in specs if admitted(spec)]


def name_of(spec: ModelSpec) -> str:
    fields = spec.architecture.model_dump(exclude_defaults=True, exclude={"hidden_size"})
    return "-".join([spec.architecture.kind, *(f"{key}={value}" for key, value in fields.items())])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inductor's own imports
@pytest.mark.parametrize("spec", forms(), ids=name_of)
def test_inductor_gives_the_same_numbers(spec: ModelSpec) -> None:
    assert_compiles(spec, "inductor", training=False, tolerance=1e-4)
