"""The models that the conformance suites try: every architecture with all that it admits."""

from collections.abc import Iterator
from functools import cache

import torch

from models.architectures import ARCHITECTURES, Architecture
from models.errors import SpecError
from models.model import ModelSpec
from models.network import Network
from models.parametrizations import PARAMETRIZATIONS, Family
from models.quantization import round_
from models.spec import Signature, kind_of
from tests.conformance.variants import alternatives, drawn

LAST = Signature(input_size=3, sequence_length=5, output_size=4)
EVERY = LAST.model_copy(update={"output_steps": "every"})


def small(
    variant: type[Architecture], *, depth: int | None = None, **fields: object
) -> Architecture:
    """The default member, of size 6; `depth` is how often its layers are repeated."""
    depths = {} if depth is None else {depth_of(variant): depth}
    return variant.model_validate({"hidden_size": 6, **depths, **fields})


def depth_of(variant: type[Architecture]) -> str:
    """The field that says how often layers are repeated: the other integer beside the size."""
    fields = variant.model_json_schema()["properties"].items()
    (name,) = (n for n, f in fields if f.get("type") == "integer" and n != "hidden_size")
    return name


def options(variant: type[Architecture]) -> Iterator[Architecture]:
    """Small members with other values of every field, and of several depths."""
    yield from alternatives(small(variant))
    yield from (small(variant, depth=depth) for depth in (1, 2, 3, 4))


def spec_of(
    architecture: Architecture,
    parametrization: type[Family],
    signature: Signature = LAST,
    *,
    share: float = 0.5,
) -> ModelSpec:
    """The architecture with a member of the parametrization, drawn for its main slot."""
    main = next(iter(architecture.slots(signature).values()))
    return ModelSpec.model_validate(
        {
            "architecture": architecture.model_dump(),
            "parametrization": drawn(parametrization, main, share).model_dump(),
            "signature": signature,
        }
    )


def admitted(spec: ModelSpec) -> bool:
    """Whether the model can be built."""
    try:
        spec.check()
    except SpecError:
        return False
    return True


def fitting(variant: type[Architecture]) -> list[type[Family]]:
    """The parametrizations that hold the main slots of an architecture, in the union's order."""
    return [p for p in PARAMETRIZATIONS if admitted(spec_of(small(variant), p))]


def specs(
    variant: type[Architecture],
    parametrization: type[Family],
    signature: Signature = LAST,
) -> Iterator[ModelSpec]:
    """What is admitted of the base model and of its options."""
    for architecture in (small(variant), *options(variant)):
        spec = spec_of(architecture, parametrization, signature)
        if admitted(spec):
            yield spec


@cache
def pairs() -> list[tuple[type[Architecture], type[Family]]]:
    """Every architecture with every parametrization that fits it."""
    return [
        (architecture, parametrization)
        for architecture in ARCHITECTURES
        for parametrization in fitting(architecture)
    ]


def pair_name(pair: tuple[type[Architecture], type[Family]]) -> str:
    """A pair in words, for the names of tests."""
    return "-".join(map(kind_of, pair))


def trained(spec: ModelSpec) -> Network:
    """A model whose every number is away from its start, rounded to its bits.

    Biases and the statistics of normalisations are among them.
    """
    network = spec.build(seed=1).eval()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, value in network.state_dict().items():
            value += 0.2 * torch.randn(value.shape, generator=generator)
            if name.endswith("std"):
                value.abs_().add_(0.1)
    if spec.rounded_to is not None:
        round_(network, spec.rounded_to)
    return network
