"""Limits on what is known of a file before it is made."""

from collections.abc import Callable

import pytest

from models.graphs.fits import Dense, LowRank
from search.graphs.front import Proposals
from search.graphs.offered_layers import OfferedLayers
from search.graphs.picks import Costs, LayerOffers, Measured, Offer, Pick, Picks, changed
from tests.search.graphs.small_networks import evaluator, offers

_OTHER_BYTES, _OTHER_NUMBERS, _WHOLE = 300, 288, 18_286


def _offered() -> OfferedLayers:
    return OfferedLayers(offers(), _OTHER_BYTES, _OTHER_NUMBERS)


def _size(picks: Picks) -> int:
    return _offered().trial(picks, seed=0, original_bytes=_WHOLE).bytes


def _at_most(limit: int) -> Callable[[Picks], bool]:
    return lambda picks: _size(picks) <= limit


@pytest.mark.parametrize("limit", [5_400, 4_000, 2_500])
def test_nothing_beyond_a_limit_on_bytes_is_proposed_but_the_network_itself(limit: int) -> None:
    proposals = Proposals(offers(), within=_at_most(limit))
    held, sizes = evaluator(), list[int]()
    for number in range(50):
        picks = proposals.ask(number)
        assert picks is not None
        sizes.append(_size(picks))
        found = held.measure(picks, proposals.front)
        # The original breaks the limit, and is nothing to go on from.
        told = Measured(picks, found.costs, float("inf"), None) if number == 0 else found
        proposals.tell(number, told)
    assert sizes[0] == _WHOLE
    assert max(sizes[1:]) <= limit
    assert max(sizes[1:]) > 0.8 * limit, "the search goes as far as the limit lets it"


def test_as_many_first_trials_are_within_a_limit_as_without_one() -> None:
    free = Proposals(offers())
    limited = Proposals(offers(), within=_at_most(4_000))
    beyond = [picks for picks in free.first if _size(picks) > 4_000]
    assert len(beyond) > len(free.first) / 4, "the limit says something"
    assert len(limited.first) > len(free.first) - len(beyond)
    assert len({changed(picks) for picks in limited.first}) == len(limited.first)


def test_a_limit_that_all_keep_changes_nothing() -> None:
    assert Proposals(offers(), within=_at_most(10**9)).first == Proposals(offers()).first


def test_a_limit_on_stored_numbers_that_no_price_of_bytes_keeps_is_kept() -> None:
    whole, rounded = Pick(choice=Dense()), Pick(choice=Dense(bits=8))
    factored = Pick(choice=LowRank(rank=2))
    layer = LayerOffers(
        "w",
        (
            Offer(whole, 0.0, Costs(4_000, 1_000), 1_000),
            Offer(rounded, 0.001, Costs(1_000, 1_000), 1_000),
            Offer(factored, 0.1, Costs(1_600, 400), 400),
        ),
        1.0,
        1.0,
    )
    numbers = {offer.pick: offer.numbers for offer in layer.offers}

    def is_within(picks: Picks) -> bool:
        return numbers[picks.get("w", whole)] <= 400

    assert Proposals((layer,)).first == ({}, {"w": rounded})
    assert Proposals((layer,), within=is_within).first == ({}, {"w": factored})


def test_where_nothing_keeps_a_limit_the_nearest_is_proposed() -> None:
    smallest = _offered().smallest_bytes
    proposals = Proposals(offers(), within=_at_most(smallest - 1))
    whole, *others = proposals.first
    assert whole == {}
    assert min(map(_size, others)) == smallest
