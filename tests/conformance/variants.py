"""The members of every variant that the conformance suites try, taken from the unions alone."""

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any, TypeVar

import torch
from pydantic import ValidationError

from models.errors import SlotError
from models.linear import StructuredLinear
from models.parametrizations import Family, Parametrization
from models.spec import Slot, Spec

SIZES = [1, 2, 3, 7, 12, 33]
RECTANGLES = [(3, 8), (8, 3), (1, 5), (5, 1)]

V = TypeVar("V", bound=Spec)


class Corner:
    """Answers with the lowest, the middle or the highest value, and notes what was asked."""

    def __init__(self, share: float) -> None:
        self.share = share
        self.asked: dict[str, tuple[Any, ...]] = {}

    def integer(self, name: str, low: int, high: int, *, log: bool = False, step: int = 1) -> int:
        assert low <= high
        self.asked[name] = (low, high, log, step)
        return low + round((high - low) * self.share)

    def real(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        assert low < high
        self.asked[name] = (low, high, log)
        return low + (high - low) * self.share

    def choice(self, name: str, options: tuple[str, ...]) -> str:
        self.asked[name] = options
        return options[round((len(options) - 1) * self.share)]


def square(size: int, **fields: Any) -> Slot:
    return Slot(out_features=size, in_features=size, **fields)


SLOTS = [
    *(square(size) for size in SIZES),
    *(Slot(out_features=rows, in_features=columns) for rows, columns in RECTANGLES),
    *(square(size, field="complex") for size in (1, 2, 3, 8)),
    square(5, gates=3),
    square(6, gates=3, layers=2),
    square(4, layers=3),
    square(4, gates=3, layers=2, field="complex"),
    Slot(out_features=6, in_features=4, gates=3, layers=2),
    square(97, gates=2, layers=2),
]
"""Even, odd and single sizes, both kinds of numbers, rectangles, gates and layers.

The last one is large enough for small counts to be applied as a diagonal plus a low rank.
"""


def name_of(slot: Slot) -> str:
    """A slot in words, for the names of tests."""
    return f"{slot}, {slot.layers} x {slot.gates}"


def alternatives(member: V) -> Iterator[V]:
    """The member with other values of its fields, one field at a time.

    Every value of fields that have a few, the lowest one of those that have a range, and 0.3 of
    those that are a share. What a field needs another one for is left out.
    """
    for name, field in type(member).model_json_schema()["properties"].items():
        schemas = field.get("anyOf", [field])
        values = itertools.chain.from_iterable(map(_values, schemas))
        for value in (value for value in values if value != getattr(member, name)):
            with contextlib.suppress(ValidationError):
                yield type(member).model_validate({**member.model_dump(), name: value})


def _values(schema: dict[str, Any]) -> list[Any]:
    if "enum" in schema:
        return schema["enum"]
    if schema.get("type") == "boolean":
        return [True, False]
    if schema.get("exclusiveMaximum") == 1:
        return [0.3]
    return [schema["minimum"]] if schema.get("type") == "number" and "minimum" in schema else []


def drawn(variant: type[Family], slot: Slot, share: float) -> Parametrization:
    """What the variant suggests for a slot that is the largest of its study."""
    return variant.suggest(Corner(share), slot, largest=slot.smaller_side)


def holds(member: Parametrization, slot: Slot) -> bool:
    """Whether the member can hold the slot."""
    try:
        member.check(slot)
    except SlotError:
        return False
    return True


def drawn_members(variant: type[Family], slot: Slot) -> Iterator[Parametrization]:
    """Small, middling and largest members that hold the slot; none where the variant does not."""
    members = (drawn(variant, slot, share) for share in (0.0, 0.5, 1.0))
    yield from (member for member in members if holds(member, slot))


def members(variant: type[Family], slot: Slot) -> Iterator[Parametrization]:
    """The drawn members, and the middling one with every value of every field with a few."""
    yield from drawn_members(variant, slot)
    yield from (member for member in alternatives(drawn(variant, slot, 0.5)) if holds(member, slot))


def home(variant: type[Family], size: int, **fields: Any) -> Slot:
    """A square slot of the numbers, real or complex, for which the variant is defined."""
    for field in ("real", "complex"):
        slot = square(size, field=field, **fields)
        try:
            variant.check_slot(slot)
        except SlotError:
            continue
        return slot
    raise AssertionError(f"{variant.__name__} holds no square slot of size {size}")


def built(spec: Parametrization, slot: Slot, *, seed: int = 0) -> StructuredLinear:
    """A module with the numbers of a seed."""
    return spec.build(slot, generator=torch.Generator().manual_seed(seed))


def moved_(linear: StructuredLinear, scale: float = 0.1, *, seed: int = 1) -> StructuredLinear:
    """The module away from its start, which may be a special point, in place."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in linear.parameters():
            step = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(step, alpha=scale)
    return linear
