"""The part of a product of variants that the quick run tries; the rest is run nightly.

Of each property (a test function) the sample has every value of every parameter, and what belongs
together by `traits`: a parametrization with every shape of a slot that it holds. Which items have
them follows from their names alone, so each run and each test process finds the same ones, and
properties find different ones.
"""

import hashlib
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any, TypeGuard

from pydantic import BaseModel

from models.spec import Slot, kind_of
from tests.conformance.variants import drawn, holds

Trait = tuple[Hashable, ...]


def sample(items: Mapping[str, Collection[Trait]]) -> set[str]:
    """The names of items that have all traits together, few of them.

    Whichever brings most traits that are still missing is next, and of equals the one whose name
    has the lowest hash.
    """
    left = sorted(items, key=_hash)
    missing = {trait for traits in items.values() for trait in traits}
    chosen: set[str] = set()
    while missing:
        best = max(left, key=lambda name: len(missing.intersection(items[name])))
        missing.difference_update(items[best])
        chosen.add(best)
    return chosen


def traits(parameters: Mapping[str, Any]) -> set[Trait]:
    """What an item with these parameters is there for."""
    values = dict(_named(parameters))
    found: set[Trait] = set(values.items())
    variant, slot = parameters.get("parametrization"), parameters.get("slot")
    if isinstance(slot, Slot) and variant is not None:
        # Most properties say nothing of a slot that the variant does not hold.
        held = holds(drawn(variant, slot, 0.5), slot)
        return {("held", held, *trait) for trait in found | {(kind_of(variant), *_shape(slot))}}
    return found


def _named(parameters: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for name, value in parameters.items():
        if isinstance(value, tuple) and value and all(isinstance(one, type) for one in value):
            yield from ((f"{name} {place}", kind_of(one)) for place, one in enumerate(value))
        else:
            yield name, kind_of(value) if _is_variant(value) else repr(value)


def _is_variant(value: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(value, type) and issubclass(value, BaseModel)


def _shape(slot: Slot) -> Trait:
    square = slot.out_features == slot.in_features
    return slot.field, square, slot.gates > 1, slot.layers > 1


def _hash(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()
