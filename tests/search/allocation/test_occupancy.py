"""Which attempts have which places of a slot."""

import pytest

from search.agents.executors import Slot
from search.allocation import StackGroup
from search.allocation.occupancy import Occupancy, Occupant, Place
from search.studies import Need

_SLOT = Slot("here/cpu-0", "cpu", "a core", 1.0, machine="here", memory=1000)
_ALIKE, _OTHER = StackGroup("s1", "a", most=3), StackGroup("s1", "b", most=3)


def _need(size: int) -> Need:
    return Need(computing=size, storing=size, kept=size, shared=100)


def _with(*occupants: Occupant) -> Occupancy:
    occupancy = Occupancy()
    for number, occupant in enumerate(occupants):
        occupancy.take((_SLOT.name, number), occupant)
    return occupancy


def _one(name: str, together: StackGroup | None = _ALIKE, size: int = 200) -> Occupant:
    return Occupant(name, together, _need(size))


def test_a_slot_with_nothing_on_it_takes_what_its_memory_holds() -> None:
    occupancy = Occupancy()
    assert occupancy.place_of(_SLOT, need=_need(1000)) == _SLOT
    assert occupancy.place_of(_SLOT, need=_need(1001)) is None


def test_those_of_one_key_have_places_of_one_slot() -> None:
    occupancy = _with(_one("1"))
    place = occupancy.place_of(_SLOT, together=_ALIKE, need=_need(200))
    assert place is not None
    assert (place.name, place.number) == (_SLOT.name, 1)


@pytest.mark.parametrize("together", [None, _OTHER])
def test_others_wait_until_the_slot_is_free(together: StackGroup | None) -> None:
    assert _with(_one("1")).place_of(_SLOT, together=together) is None


def test_nothing_joins_what_is_to_be_alone() -> None:
    assert _with(_one("1", None)).place_of(_SLOT, together=_ALIKE) is None


def test_a_stack_has_no_more_than_it_may_have() -> None:
    occupancy = _with(_one("1"), _one("2"), _one("3"))
    assert occupancy.place_of(_SLOT, together=_ALIKE) is None


def test_a_stack_shares_what_its_process_takes_once() -> None:
    occupancy = _with(_one("1", size=500))
    # 100 for the process, and 400 and 500 for the two.
    assert occupancy.place_of(_SLOT, together=_ALIKE, need=_need(600)) is not None
    assert occupancy.place_of(_SLOT, together=_ALIKE, need=_need(601)) is None


def test_while_a_better_trial_waits_a_stack_comes_to_its_end() -> None:
    occupancy = _with(_one("1"), _one("2"))
    assert occupancy.place_of(_SLOT, together=_ALIKE, is_passing=True) is not None
    occupancy.take((_SLOT.name, 2), _one("3"))
    occupancy.free({"1"})
    assert occupancy.place_of(_SLOT, together=_ALIKE, is_passing=True) is None
    place = occupancy.place_of(_SLOT, together=_ALIKE)
    assert place is not None
    assert place.number == 0


def test_a_slot_is_free_when_its_last_attempt_has_gone() -> None:
    occupancy = _with(_one("1"), _one("2"))
    assert occupancy.free({"1"}) == [((_SLOT.name, 0), "1")]
    assert occupancy.slots == {_SLOT.name}
    assert occupancy.attempts == {"2": (_SLOT.name, 1)}
    occupancy.free({"2"})
    assert not occupancy.slots


def test_what_follows_a_stack_is_alike() -> None:
    occupancy = _with(_one("1"), _one("2"))
    followed: dict[Place, Occupant] = {(_SLOT.name, 0): _one("3", _OTHER)}
    place = occupancy.place_ahead(_SLOT, followed=followed, together=_OTHER)
    assert place is not None
    assert place.number == 1
    assert occupancy.place_ahead(_SLOT, followed=followed, together=_ALIKE) is None
    assert occupancy.place_ahead(_SLOT, followed=followed) is None


def test_a_stack_is_open_while_it_has_room() -> None:
    occupancy = _with(_one("1"), _one("2"))
    assert occupancy.is_open("s1", followed={})
    assert not occupancy.is_open("s2", followed={})
    occupancy.take((_SLOT.name, 2), _one("3"))
    assert not occupancy.is_open("s1", followed={})
    followed: dict[Place, Occupant] = {(_SLOT.name, 0): _one("4", _OTHER)}
    assert occupancy.is_open("s1", followed=followed)
