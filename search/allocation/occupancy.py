"""What is on each slot: one attempt, or a stack of attempts that are trained together.

A slot has places, numbered from 0, and each attempt has one of them. See Note [Stacks] in
`search/README.md`.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import final

from search.agents.executors import Slot
from search.studies import Need, of_stack

Place = tuple[str, int]
"""A slot's name and the number of a place on it."""


@dataclass(frozen=True)
class StackGroup:
    """The trials of a study that may be trained in the same calls, see Note [Stacks]."""

    study_id: str
    key: str
    """What they have in common, see `stack_key`."""
    most: int
    """How many may be in one stack."""


@dataclass(frozen=True)
class Occupant:
    """An attempt on a slot."""

    attempt_id: str
    together: StackGroup | None
    """With whom it may be trained; null: with nobody."""
    need: Need | None
    """Bytes that it is predicted to take; null: unknown."""


@dataclass
class _OnSlot:
    by_number: dict[int, Occupant]
    admitted: int
    """How many it took in since nothing was on it."""


@final
class Occupancy:
    """The slots that have attempts on them; called in the coordinator's rounds."""

    def __init__(self) -> None:
        self._on: dict[str, _OnSlot] = {}

    @property
    def slots(self) -> Set[str]:
        """The names of the slots that have any."""
        return self._on.keys()

    @property
    def attempts(self) -> Mapping[str, Place]:
        """Where each attempt is."""
        return {one.attempt_id: place for place, one in self._all()}

    def counts(self) -> Mapping[str, int]:
        """How many attempts each slot has that has any."""
        return {name: len(on.by_number) for name, on in self._on.items()}

    def take(self, place: Place, occupant: Occupant) -> bool:
        """Put an attempt on a place; whether it is alone on its slot."""
        name, number = place
        on = self._on.setdefault(name, _OnSlot({}, 0))
        on.by_number[number] = occupant
        on.admitted += 1
        return len(on.by_number) == 1

    def free(self, attempts: Set[str]) -> list[tuple[Place, str]]:
        """Take these attempts off their slots; gives where they were, and which was there."""
        gone = [(place, one.attempt_id) for place, one in self._all() if one.attempt_id in attempts]
        for (name, number), _ in gone:
            on = self._on[name]
            del on.by_number[number]
            if not on.by_number:
                del self._on[name]
        return gone

    def place_of(
        self,
        slot: Slot,
        *,
        together: StackGroup | None = None,
        need: Need | None = None,
        is_passing: bool = False,
    ) -> Slot | None:
        """The slot with a place that an attempt can have now, beside what is there; null: none.

        `is_passing`: a better trial waits for a slot. What is on this one is then joined only up
        to as many as it may have at once, counted since it was free, so that it comes to its end.
        """
        on = self._on.get(slot.name)
        if on is None:
            return slot if need is None or need.fits(slot) else None
        if together is None or (is_passing and on.admitted >= together.most):
            return None
        if not _may_join([*on.by_number.values()], slot, together=together, need=need):
            return None
        number = next(number for number in range(together.most) if number not in on.by_number)
        return replace(slot, number=number)

    def place_ahead(
        self,
        slot: Slot,
        *,
        followed: Mapping[Place, Occupant],
        together: StackGroup | None = None,
        need: Need | None = None,
    ) -> Slot | None:
        """The slot with a place whose attempt none follows yet, where one may that is asked for.

        What follows the attempts of a slot is one attempt, or a stack that begins when they are
        all gone. `followed` has by place what follows already.
        """
        on = self._on.get(slot.name)
        if on is None:
            return None
        followers = [one for (name, _), one in followed.items() if name == slot.name]
        if not _may_join(followers, slot, together=together, need=need):
            return None
        numbers = (number for number in sorted(on.by_number) if (slot.name, number) not in followed)
        number = next(numbers, None)
        return None if number is None else replace(slot, number=number)

    def is_open(self, study_id: str, *, followed: Mapping[Place, Occupant]) -> bool:
        """Whether a stack of a study takes in more, or one that follows others does."""
        stacks = [[*on.by_number.values()] for on in self._on.values()]
        for name in {name for name, _ in followed}:
            stacks += [[one for (slot, _), one in followed.items() if slot == name]]
        return any(
            one.together is not None
            and one.together.study_id == study_id
            and len(stack) < one.together.most
            for stack in stacks
            for one in stack[:1]
        )

    def _all(self) -> Iterator[tuple[Place, Occupant]]:
        for name, on in list(self._on.items()):
            for number, one in list(on.by_number.items()):
                yield (name, number), one


def _may_join(
    others: Sequence[Occupant], slot: Slot, *, together: StackGroup | None, need: Need | None
) -> bool:
    """Whether an attempt may be trained with these, or begin where there are none."""
    if others and (together is None or len(others) >= together.most):
        return False
    if together is not None and not all(_is_alike(one, together) for one in others):
        return False
    needs = [one.need for one in others if one.need is not None]
    return need is None or of_stack([*needs, need]).fits(slot)


def _is_alike(one: Occupant, together: StackGroup) -> bool:
    alike = one.together
    return alike is not None and (alike.study_id, alike.key) == (together.study_id, together.key)
