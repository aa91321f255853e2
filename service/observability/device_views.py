"""The devices of all coordinators, those of machines that several of them share once each."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from search.dispatch.coordinator_report import CoordinatorFigures
from service.data_dir.machine_name import machine_of
from storage.fleet.coordinators import CoordinatorRecord, SlotRecord
from storage.fleet.slot_use import Place

_T = TypeVar("_T")

LockState = Literal["free", "waiting", "measuring"]


@dataclass
class DeviceView:
    """One device with its slots and its measurement lock, as its coordinators tell of it."""

    machine: str
    device: str
    model: str
    slots: dict[str, SlotRecord] = field(default_factory=dict[str, SlotRecord])
    measuring_slot: str = ""
    owners: list[str] = field(default_factory=list[str])
    """The coordinators that use it."""
    told: list[LockState] = field(default_factory=list["LockState"])
    """What they told of its lock, if they measure there."""

    def places(self, name: str) -> list[Place]:
        """How a slot of this device is named by each that uses it."""
        return [(owner, name) for owner in self.owners]

    def is_taken(self, name: str, taken: set[Place]) -> bool:
        """Whether something runs there for anybody."""
        return any(place in taken for place in self.places(name))

    def on(self, name: str, runs: Mapping[Place, _T]) -> _T | None:
        """What runs there, of all that is known to run."""
        return next((runs[place] for place in self.places(name) if place in runs), None)

    def lock_state(self, taken: set[Place]) -> LockState:
        """Whether anybody measures there."""
        if not self.is_taken(self.measuring_slot, taken):
            return "free"
        # What a coordinator told of its locks is a moment older than the attempts are.
        return "measuring" if "measuring" in self.told else "waiting"


def device_views(living: Iterable[CoordinatorRecord]) -> list[DeviceView]:
    """The devices of the coordinators that live, in their order."""
    found: dict[tuple[str, str], DeviceView] = {}
    for coordinator in living:
        states = CoordinatorFigures.model_validate(coordinator.figures).lanes
        for measuring in coordinator.measuring_slots:
            # A machine of its own is as many as there are coordinators on it.
            where = measuring.machine or coordinator.owner
            machine = measuring.machine or machine_of(coordinator.owner)
            view = found.setdefault(
                (where, measuring.device), DeviceView(machine, measuring.device, measuring.model)
            )
            view.measuring_slot = measuring.name
            view.owners.append(coordinator.owner)
            if measuring.name in states:
                view.told.append(states[measuring.name])
            view.slots |= {
                slot.name: slot
                for slot in coordinator.slots
                if (slot.machine, slot.device) == (measuring.machine, measuring.device)
            }
    return list(found.values())
