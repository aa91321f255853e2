"""The slots that a coordinator has, what is on them, and which of them an attempt may have."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from enum import Enum, auto
from typing import final

from search.agents.executors import Slot
from search.allocation.booked_ahead import BookedAhead
from search.allocation.occupancy import Occupancy, Occupant, Place, StackGroup
from search.allocation.seclusion import Seclusion
from search.allocation.tenant_shares import TenantShares
from search.studies import Need, Resources, is_of_kind


class SlotNews(Enum):
    """What a round knows of slots, from which follows how soon a study looks after its own."""

    CHANGED = auto()
    """Attempts have ended, or machines came or went."""
    FREE = auto()
    """Nothing has changed, and a slot is free."""
    FULL = auto()
    """Every slot has an attempt."""


@final
class Allocator:
    """Says which slots a study may use, and keeps what is on them; called in rounds.

    Where a method takes a study and a wish, it looks among the slots that serve the wish.
    """

    def __init__(self, tenants: TenantShares) -> None:
        """`tenants` says whose turn it is on a slot that is free."""
        self._tenants = tenants
        self._slots: tuple[Slot, ...] = ()
        self._measuring_slots: tuple[Slot, ...] = ()
        self._occupancy = Occupancy()
        self._ahead = BookedAhead()
        self._seclusion = Seclusion()
        self._refused: set[str] = set()
        """Slots that another coordinator took, or whose machine did not take an attempt."""
        self._unwritten: set[str] = set()
        """Slots of attempts whose rows are not written yet."""
        self._training: dict[str, tuple[str, int]] = {}
        """Attempts that train -> their study and their trial."""
        self._has_changed = True
        """Since the last round: what waits for a slot may have one now."""

    # What there is.

    def update(self, slots: Sequence[Slot]) -> None:
        """Machines come and go; what runs on one that went has its lease to end by."""
        self._has_changed |= self._slots != tuple(slots) or bool(self._refused)
        self._slots = tuple(slots)
        self._measuring_slots = _measuring_slots(self._slots)
        self._refused.clear()

    @property
    def all_slots(self) -> Sequence[Slot]:
        """Every slot there is."""
        return self._slots

    @property
    def measuring_slots(self) -> Sequence[Slot]:
        """One for each device that is measured on."""
        return self._measuring_slots

    def slots(self, wish: Resources) -> Sequence[Slot]:
        """Every slot that serves a wish."""
        return tuple(slot for slot in self._slots if wish.admits(slot.device, slot.share))

    def news(self) -> SlotNews:
        """What this round knows of slots."""
        if self._has_changed:
            return SlotNews.CHANGED
        full = all(slot.name in self._occupancy.slots for slot in self._slots)
        return SlotNews.FULL if full else SlotNews.FREE

    # Which one an attempt may have.

    def free_slot(self, tenant: str, wish: Resources, need: Need | None = None) -> Slot | None:
        """One with nothing on it and memory for a need, in its turn, see Note [Fair shares]."""
        free = self._idle(self.slots(wish))
        slot = next((one for one in free if need is None or need.fits(one)), None)
        may_take = slot is not None and self._tenants.may_take_slot(tenant)
        return slot if may_take else None

    def free_slots(self, wish: Resources) -> int:
        """How many have nothing on them."""
        return sum(1 for _ in self._idle(self.slots(wish)))

    def stack_place(
        self,
        together: StackGroup,
        wish: Resources,
        need: Need | None = None,
        *,
        is_passing: bool = False,
    ) -> Slot | None:
        """A place beside what a trial may be trained with; on the slot that has the most of it.

        `is_passing`: a better trial waits for a slot, see `Occupancy.place_of`.
        """
        closed, counts = self._seclusion.closed(), self._occupancy.counts()
        places = (
            self._occupancy.place_of(slot, together=together, need=need, is_passing=is_passing)
            for slot in self.slots(wish)
            if slot.name in counts.keys() - self._refused and slot.machine not in closed
        )
        found = [place for place in places if place is not None]
        return max(found, key=lambda place: counts[place.name], default=None)

    def is_stack_open(self, study_id: str) -> bool:
        """Whether a stack of the study's trials may be joined by further ones."""
        followed = self._ahead.places
        if not self._ahead.ends_soon(study_id):
            followed = dict[Place, Occupant]()
        return self._occupancy.is_open(study_id, followed=followed)

    def slot_ahead(
        self,
        study_id: str,
        wish: Resources,
        need: Need | None = None,
        together: StackGroup | None = None,
    ) -> Slot | None:
        """One whose attempt is about to end and has none that follows: Note [Booked ahead]."""
        if not self._ahead.ends_soon(study_id):
            return None
        # Nothing follows what may be refused yet: it would have the slot in its place.
        without, closed = self._refused | self._unwritten, self._seclusion.closed()
        for slot in self.slots(wish):
            if slot.name in without or slot.machine in closed:
                continue
            place = self._occupancy.place_ahead(
                slot, followed=self._ahead.places, together=together, need=need
            )
            if place is not None:
                return place
        return None

    def lone_slot(self, study_id: str, wish: Resources, need: Need) -> Slot | None:
        """One of those on a machine with nothing on it, which is kept so until there is one."""
        slots = [
            slot for slot in self.slots(wish) if slot.name not in self._refused and need.fits(slot)
        ]
        return self._seclusion.choose(study_id, slots, self._used())

    def is_clear(self, study_id: str, slot: Slot) -> bool:
        """Whether nothing runs on a slot's machine, which is kept free until that is so."""
        return self._seclusion.choose(study_id, [slot], self._used()) is not None

    def measuring_slot(
        self, device: str, model: str | None, *, compiles: bool = False
    ) -> Slot | None:
        """A measuring slot of a device model, or of the first one's that serves the wish.

        Where several machines have such a device, it is one that is free, if any is. With
        `compiles` it is one on a machine that has a C compiler.
        """
        slots = [
            slot
            for slot in self._measuring_slots
            if is_of_kind(slot.device, device) and (slot.compiles or not compiles)
        ]
        fitting = [slot for slot in slots if slot.model == (model or slots[0].model)]
        return next(self._idle(fitting), fitting[0] if fitting else None)

    def is_measuring_slot_free(self, tenant: str, slot: Slot) -> bool:
        """Whether nobody measures on this slot, and it is the tenant's turn."""
        return self._tenants.may_measure_on(tenant, slot.name) and any(self._idle([slot]))

    # What is on them.

    @property
    def at_work(self) -> Set[str]:
        """The attempts that have a slot."""
        return self._occupancy.attempts.keys()

    @property
    def taken(self) -> Set[str]:
        """The names of the slots that have any."""
        return self._occupancy.slots

    def attended(self, study_id: str) -> Set[int]:
        """The numbers of a study's trials that an attempt trains now."""
        # A copy: others ask from threads of their own.
        training = [*self._training.values()]
        return {trial for study, trial in training if study == study_id}

    def begin_round(self, ended: Set[str]) -> None:
        """Begin a round, before which these attempts' processes ended, see `free`."""
        self._has_changed = bool(ended)
        self.free(ended)

    def give(
        self,
        slot: Slot,
        occupant: Occupant,
        *,
        tenant: str,
        trains: tuple[str, int] | None = None,
        ahead: bool = False,
        alone: bool = False,
    ) -> None:
        """Put an attempt on a slot whose row is about to be written.

        Args:
            slot: with the number of the place on it.
            occupant: the attempt.
            tenant: whose it is.
            trains: the study and the trial that it trains; null: it does not train.
            ahead: it begins when the attempt that its place has is over.
            alone: nothing else runs on its machine meanwhile.
        """
        if trains is not None:
            self._training[occupant.attempt_id] = trains
            self._ahead.note_study(trains[0])
        if ahead:
            self._ahead.book((slot.name, slot.number), occupant)
        else:
            self._unwritten.add(slot.name)
            self._ahead.note_begun(occupant.attempt_id)
            self._take(slot.name, slot.number, occupant, tenant, is_measuring=slot.share == 0)
        if alone:
            self._seclusion.begin(slot.machine, occupant.attempt_id)

    def adopt(
        self,
        name: str,
        number: int,
        occupant: Occupant,
        *,
        tenant: str,
        trains: tuple[str, int] | None,
        is_measuring: bool,
    ) -> None:
        """Count an attempt that has its place since before this coordinator began."""
        if trains is not None:
            self._training[occupant.attempt_id] = trains
        self._take(name, number, occupant, tenant, is_measuring=is_measuring)

    def settle(self) -> None:
        """The rows of what was given are written, or are not to be."""
        self._unwritten.clear()

    def refuse(self, name: str) -> None:
        """Begin nothing on a slot until machines are looked at again: another has taken it."""
        self._refused.add(name)

    @property
    def has_refused(self) -> bool:
        """Whether there are slots on which something may begin after the next look."""
        return bool(self._refused)

    def note_over(self, attempt_id: str) -> None:
        """An attempt is over, and its trial waits; its slot is free when its process has ended."""
        self._training.pop(attempt_id, None)

    def free(self, ended: Set[str]) -> None:
        """Free the slots of attempts whose processes ended, for what is to follow them there."""
        self._ahead.drop(ended)
        freed = self._occupancy.free(ended)
        for place, attempt_id in freed:
            study_id, _ = self._training.get(attempt_id, (None, 0))
            self._ahead.note_ended(attempt_id, study_id)
            following = self._ahead.begin_next(place)
            if following is not None:
                self._occupancy.take(place, following)
        for name in {name for (name, _), _ in freed} - self._occupancy.slots:
            self._tenants.give_back(name)
        for attempt_id in ended:
            self._training.pop(attempt_id, None)
        self._seclusion.keep(self._occupancy.attempts.keys())

    def allow_ahead(self, *, is_allowed: bool) -> None:
        """Whether attempts may be booked ahead at all: nobody else may want a slot first."""
        self._ahead.is_allowed = is_allowed

    def overdue(self) -> Iterator[tuple[str, str]]:
        """Attempts that wait for slots which were to be free by now, with their studies."""
        for attempt_id in self._ahead.overdue():
            if attempt_id in self._training:
                yield attempt_id, self._training[attempt_id][0]

    def forget(self, study_id: str) -> None:
        """A study is not ours any more; what runs of it keeps its slots until it ends."""
        self._ahead.forget(study_id)

    def _take(
        self, name: str, number: int, occupant: Occupant, tenant: str, *, is_measuring: bool
    ) -> None:
        if self._occupancy.take((name, number), occupant):
            self._tenants.take(tenant, name, is_measuring=is_measuring)

    def _idle(self, slots: Iterable[Slot]) -> Iterator[Slot]:
        """Those with nothing on them, where something may begin."""
        taken, closed = self._occupancy.slots | self._refused, self._seclusion.closed()
        return (slot for slot in slots if slot.name not in taken and slot.machine not in closed)

    def _used(self) -> Counter[str]:
        """How many attempts of ours are on each machine, or are about to be."""
        machines = {slot.name: slot.machine for slot in (*self._slots, *self._measuring_slots)}
        places = (*self._occupancy.attempts.values(), *self._ahead.places)
        return Counter(machines[name] for name, _ in places if name in machines)


def _measuring_slots(slots: Sequence[Slot]) -> tuple[Slot, ...]:
    """One per device that is measured on; what runs there stands still for its attempts."""
    devices = {(slot.machine, slot.device): slot for slot in reversed(slots) if slot.measures}
    return tuple(
        Slot(
            name=f"lane {machine}/{device}" if machine else f"lane {device}",
            device=device,
            model=slot.model,
            share=0.0,
            machine=machine,
            memory=slot.memory,
            device_memory=slot.device_memory,
            compiles=slot.compiles,
        )
        for (machine, device), slot in reversed(devices.items())
    )
