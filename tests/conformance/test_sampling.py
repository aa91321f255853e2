"""The quick run's sample leaves out no variant and no property."""

import itertools
import random

import pytest

from models.architectures import ARCHITECTURES
from models.parametrizations import PARAMETRIZATIONS
from models.spec import kind_of
from tests.conformance.conftest import PRODUCTS
from tests.conformance.model_specs import pair_name, pairs
from tests.conformance.sampling import sample, traits
from tests.conformance.variants import SLOTS, drawn, holds, name_of


def test_every_sampled_property_is_tried_with_all_that_its_items_have(
    request: pytest.FixtureRequest,
) -> None:
    """Of what this process collected, by whatever name a new property or variant comes."""
    for name, (product, chosen) in request.config.stash[PRODUCTS].items():
        assert chosen <= set(product), name
        tried = set().union(*(product[item] for item in chosen))
        assert tried == set().union(*product.values()), name


def test_pairs_are_sampled_with_every_architecture_and_every_parametrization() -> None:
    for property_name in ("one", "another"):
        by_name = {f"{property_name}[{pair_name(pair)}]": pair for pair in pairs()}
        chosen = sample({name: traits({"pair": pair}) for name, pair in by_name.items()})
        assert {by_name[name][0] for name in chosen} == set(ARCHITECTURES)
        assert {by_name[name][1] for name in chosen} == set(PARAMETRIZATIONS)
        assert len(chosen) < len(by_name)


def test_slots_are_sampled_with_every_parametrization_that_holds_them() -> None:
    product = {
        f"{kind_of(variant)}-{name_of(slot)}": (variant, slot)
        for variant, slot in itertools.product(PARAMETRIZATIONS, SLOTS)
    }
    chosen = sample(
        {
            name: traits({"parametrization": variant, "slot": slot})
            for name, (variant, slot) in product.items()
        }
    )

    def held(names: set[str]) -> set[tuple[str, str, bool, bool, bool]]:
        return {
            (
                kind_of(variant),
                slot.field,
                slot.in_features == slot.out_features,
                slot.gates > 1,
                slot.layers > 1,
            )
            for variant, slot in (product[name] for name in names)
            if holds(drawn(variant, slot, 0.5), slot)
        }

    assert held(chosen) == held(set(product))
    assert {variant for variant, _, _, _, _ in held(chosen)} == set(map(kind_of, PARAMETRIZATIONS))
    assert {str(product[name][1]) for name in chosen} == set(map(str, SLOTS))
    assert len(chosen) < len(product)


def test_a_sample_follows_from_names_alone() -> None:
    """Not from the order in which items are collected, nor from a process's own hashes."""
    numbers = range(6)
    product = {f"{a}-{b}": {("a", a), ("b", b)} for a in numbers for b in numbers}
    chosen = sample(product)
    for seed in range(5):
        names = list(product)
        random.Random(seed).shuffle(names)
        assert sample({name: product[name] for name in names}) == chosen
    assert chosen == {"0-0", "1-4", "2-2", "3-3", "4-5", "5-1"}
