"""Every variant of both unions, one at a time, and the sample of their products."""

from collections import defaultdict

import pytest

from models.architectures import ARCHITECTURES, Architecture
from models.parametrizations import PARAMETRIZATIONS, Family
from models.spec import kind_of
from tests.conformance.sampling import Trait, sample, traits

Product = dict[str, set[Trait]]
"""The items of one property by name, each with its traits."""

PRODUCTS = pytest.StashKey[dict[str, tuple[Product, set[str]]]]()
"""Each sampled property with its items and the names of those that the quick run tries."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave to the nightly run what the sample of a property marked `sampled` does not need.

    First of all hooks, for markers choose the items later.
    """
    products: dict[str, Product] = defaultdict(dict)
    for item in items:
        if isinstance(item, pytest.Function) and _is_sampled(item):
            products[item.nodeid.partition("[")[0]][item.nodeid] = traits(item.callspec.params)
    samples = {name: (product, sample(product)) for name, product in products.items()}
    config.stash[PRODUCTS] = samples
    chosen = {name for _, names in samples.values() for name in names}
    for item in items:
        if item.nodeid.partition("[")[0] in samples and item.nodeid not in chosen:
            item.add_marker("nightly")


def _is_sampled(item: pytest.Function) -> bool:
    marked = item.get_closest_marker("sampled") and not item.get_closest_marker("in_full")
    return bool(marked) and hasattr(item, "callspec")


@pytest.fixture(params=PARAMETRIZATIONS, ids=kind_of)
def parametrization(request: pytest.FixtureRequest) -> type[Family]:
    return request.param


@pytest.fixture(params=ARCHITECTURES, ids=kind_of)
def architecture(request: pytest.FixtureRequest) -> type[Architecture]:
    return request.param
