import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.graphs.allocation import by_price, candidates, multiply_adds_of, prices
from models.graphs.fits import AnyChoice, Dense, LowRank
from models.graphs.layers import find_layers
from tests.models.graphs.layer_graphs import GRAPHS

Tables = dict[str, dict[AnyChoice, float]]


def _tables(seed: int, layers: int = 3, choices: int = 4) -> tuple[Tables, Tables]:
    """Losses and costs of which some are equal."""
    generator = np.random.default_rng(seed)
    kinds: list[AnyChoice] = [LowRank(rank=rank) for rank in range(1, choices + 1)]
    losses = {
        f"l{layer}": {kind: float(generator.integers(0, 9)) / 8 for kind in kinds}
        for layer in range(layers)
    }
    costs = {name: {kind: float(generator.integers(1, 50)) for kind in kinds} for name in losses}
    return losses, costs


def _total(table: Tables, chosen: dict[str, AnyChoice]) -> float:
    return sum(table[name][choice] for name, choice in chosen.items())


@given(st.integers(0, 10**6), st.floats(1e-4, 10))
@settings(deadline=None, max_examples=60)
def test_no_combination_is_better_at_a_price(seed: int, price: float) -> None:
    losses, costs = _tables(seed)
    (chosen,) = by_price(losses, costs, [price])
    found = _total(losses, chosen) + price * _total(costs, chosen)
    every = (
        dict(zip(losses, combination, strict=True))
        for combination in itertools.product(*(losses[name] for name in losses))
    )
    best = min(_total(losses, one) + price * _total(costs, one) for one in every)
    assert found == pytest.approx(best)


@given(st.integers(0, 10**6), st.integers(1, 12))
@settings(deadline=None, max_examples=60)
def test_prices_lead_from_the_best_to_the_cheapest(seed: int, count: int) -> None:
    losses, costs = _tables(seed, layers=5, choices=7)
    found = prices(losses, costs, count)
    assert 0 < len(found) <= count
    assert found == sorted(found)
    chosen = by_price(losses, costs, found)
    totals = [_total(costs, one) for one in chosen]
    lost = [_total(losses, one) for one in chosen]
    assert all(more > less for more, less in itertools.pairwise(totals))
    assert all(less < more for less, more in itertools.pairwise(lost))


def test_the_last_price_takes_the_cheapest_of_all_layers() -> None:
    losses, costs = _tables(4, layers=5, choices=7)
    (*_, last) = by_price(losses, costs, prices(losses, costs, 12))
    assert _total(costs, last) == sum(min(table.values()) for table in costs.values())


def test_without_a_choice_there_is_no_price() -> None:
    losses: Tables = {"l": dict.fromkeys([Dense()], 0.0)}
    costs: Tables = {"l": dict.fromkeys([Dense()], 4.0)}
    assert prices(losses, costs) == []
    assert by_price(losses, costs, [1.0]) == [{"l": Dense()}]


def test_candidates_cost_less_than_the_layer_as_it_is() -> None:
    (layer,) = find_layers(GRAPHS["matmul"]().model())
    found = candidates(layer)
    assert found[0] == Dense()
    assert len(set(found)) == len(found) > 20
    assert all(one.bytes(layer) < Dense().bytes(layer) for one in found[1:])
    assert any(isinstance(one, LowRank) and one.run for one in found)
    faster = candidates(layer, (LowRank,), cost=multiply_adds_of)
    assert faster[0] == Dense()
    assert len(faster) > 5
    assert all(isinstance(one, LowRank) and one.run for one in faster[1:])
    assert all(one.multiply_adds(layer) < 33 * 37 for one in faster[1:])
    assert all(isinstance(one, Dense) for one in candidates(layer, (Dense,)))


def test_a_layer_that_is_quantized_already_has_one_candidate() -> None:
    (layer,) = find_layers(GRAPHS["quantized already"]().model())
    assert candidates(layer) == [Dense()]
