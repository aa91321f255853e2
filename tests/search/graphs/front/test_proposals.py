import pytest

from models.graphs.fits import Dense
from search.graphs.evaluator import Evaluator
from search.graphs.front import Proposals
from search.graphs.picks import (
    LayerOffers,
    Measured,
    Objective,
    Picks,
    changed,
    front_of,
)
from tests.search.graphs.small_networks import evaluator, offers

BOTH: tuple[Objective, ...] = ("bytes", "multiply_adds")


def _bits(layers: tuple[LayerOffers, ...]) -> tuple[LayerOffers, ...]:
    return tuple(
        LayerOffers(
            one.name,
            tuple(offer for offer in one.offers if offer.pick.choice.kind == "dense"),
            one.compensated_sensitivity,
            one.plain_sensitivity,
        )
        for one in layers
    )


def _run(proposals: Proposals, held: Evaluator, trials: int) -> list[Measured]:
    found: list[Measured] = []
    for number in range(trials):
        picks = proposals.ask(number)
        assert picks is not None
        found.append(held.measure(picks, proposals.front))
        proposals.tell(number, found[-1])
    return found


def test_the_same_seed_gives_the_same_proposals_and_another_seed_others() -> None:
    held = evaluator()
    runs = {
        name: [changed(one.picks) for one in _run(Proposals(offers(), seed=seed), held, 30)]
        for name, seed in (("first", 1), ("again", 1), ("other", 2))
    }
    first = len(Proposals(offers()).first)
    assert runs["first"] == runs["again"]
    assert runs["first"][:first] == runs["other"][:first]
    assert runs["first"][first:] != runs["other"][first:]


def test_a_new_process_goes_on_by_what_was_told() -> None:
    held = evaluator()
    one = Proposals(offers(), seed=4)
    told = _run(one, held, 40)
    other = Proposals(offers(), seed=4)
    # Results come in any order.
    for number in reversed(range(40)):
        other.tell(number, told[number])
    expected = one.ask(40)
    assert expected is not None
    other.begin(41, expected)
    after = other.ask(40)
    assert after is not None
    assert changed(after) != changed(expected), "that trial is under way already"
    again = Proposals(offers(), seed=4)
    for number in range(40):
        again.tell(number, told[number])
    assert again.ask(40) == expected
    assert again.ask(40) is again.ask(40)


def test_nothing_is_proposed_twice_and_a_mutation_changes_one_to_three_layers() -> None:
    held = evaluator(BOTH)
    proposals = Proposals(offers(BOTH), objectives=BOTH, seed=0)
    found = _run(proposals, held, 60)
    keys = [changed(one.picks) for one in found]
    assert len({*keys}) == len(keys)
    first = len(proposals.first)
    assert first < 50
    for number in range(first, 60):
        earlier = front_of(found[:number], BOTH)
        # What leaves most of the network as it was is not mutated.
        earlier = [one for one in earlier if len(changed(one.picks)) == 2]
        apart = [_layers_apart(found[number].picks, one.picks) for one in earlier]
        assert 1 <= min(apart) <= 3


def test_under_way_is_not_proposed_again() -> None:
    held = evaluator()
    proposals = Proposals(offers(), seed=0)
    _run(proposals, held, len(proposals.first))
    asked = [proposals.ask(number) for number in range(100, 140)]
    keys = {changed(picks) for picks in asked if picks is not None}
    assert len(keys) == 40


def test_all_neighbours_are_proposed_before_there_is_nothing_left() -> None:
    layers = tuple(
        LayerOffers(one.name, one.offers[:3], one.compensated_sensitivity, one.plain_sensitivity)
        for one in offers()
    )
    proposals = Proposals(layers, seed=0)
    held = evaluator()
    keys: set[frozenset[object]] = set()
    for number in range(20):
        picks = proposals.ask(number)
        if picks is None:
            break
        keys.add(changed(picks))
        proposals.tell(number, held.measure(picks))
    # Two layers of three picks each.
    assert len(keys) == 9
    assert proposals.ask(30) is None


def test_the_first_trials_are_the_network_and_rising_prices() -> None:
    held = evaluator()
    proposals = Proposals(offers())
    assert proposals.ask(0) == {}
    found = [held.measure(picks) for picks in proposals.first]
    sizes = [one.costs.bytes for one in found]
    assert len(sizes) >= 12
    assert sizes[0] == max(sizes)
    assert min(sizes) < sizes[0] / 4


def test_multiply_adds_have_prices_of_their_own_at_8_bits() -> None:
    held = evaluator(BOTH)
    proposals = Proposals(offers(BOTH), objectives=BOTH)
    fewest = min(
        (held.measure(picks) for picks in proposals.first),
        key=lambda one: one.costs.multiply_adds,
    )
    whole = held.measure({})
    assert fewest.costs.multiply_adds < 0.3 * whole.costs.multiply_adds
    assert any(pick.choice.runs_factors for pick in fewest.picks.values())


def test_all_choices_are_nowhere_worse_than_bits_alone_on_the_choosing_part() -> None:
    held = evaluator()
    every = Proposals(offers(), seed=0)
    bits = Proposals(_bits(offers()), seed=0)
    found = _run(every, held, len(every.first))
    alone = _run(bits, held, len(bits.first))
    assert any(one.picks and _kinds(one) != {"dense"} for one in front_of(found, ("bytes",)))
    for one in front_of(alone, ("bytes",)):
        assert one.loss is not None
        reached = [
            other.loss
            for other in front_of(found, ("bytes",))
            if other.loss is not None and other.costs.bytes <= one.costs.bytes
        ]
        assert min(reached) <= one.loss


def test_mutations_make_the_front_better() -> None:
    held = evaluator()
    proposals = Proposals(offers(), seed=0)
    found = _run(proposals, held, 80)
    first = front_of(found[: len(proposals.first)], ("bytes",))
    assert _area(front_of(found, ("bytes",))) < _area(first)


def test_results_refit_what_is_predicted() -> None:
    held = evaluator()
    proposals = Proposals(offers(), seed=0)
    found = _run(proposals, held, 50)
    assert proposals.offers != offers()

    def off(layers: tuple[LayerOffers, ...]) -> float:
        known = {
            (one.name, offer.pick): one.sensitivity(offer.pick) * offer.error
            for one in layers
            for offer in one.offers
        }
        ratios = [
            sum(known[item] for item in one.picks.items()) / one.loss
            for one in found
            if one.loss and one.loss > 1e-6
        ]
        return sum((ratio - 1) ** 2 / ratio for ratio in ratios)

    assert off(proposals.offers) < off(offers())


def test_nothing_is_mutated_before_something_is_known() -> None:
    proposals = Proposals(offers())
    with pytest.raises(ValueError, match="trial 99 mutates the front, which is empty"):
        proposals.ask(99)


def test_dense_as_it_is_is_no_change() -> None:
    unchanged = offers()[0].offers[0].pick
    assert unchanged.choice == Dense()
    assert changed({"w1": unchanged}) == changed({})


def _layers_apart(one: Picks, other: Picks) -> int:
    return len({name for name, _ in changed(one) ^ changed(other)})


def _kinds(one: Measured) -> set[str]:
    return {pick.choice.kind for pick in one.picks.values() if not pick.choice.unchanged}


def _area(front: list[Measured]) -> float:
    """Below the steps of a front of losses up to 0.5 over bytes up to 20,000."""
    total, loss, before = 0.0, 0.5, 0.0
    for one in front:
        assert one.loss is not None
        total += loss * (one.costs.bytes - before)
        loss, before = min(loss, one.loss), one.costs.bytes
    return total + loss * (20_000 - before)
