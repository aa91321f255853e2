"""The rows of what does the work: machines, bookings, coordinators, and counts over all tenants."""

from storage.fleet.bookings import BookingRecord, Bookings
from storage.fleet.coordinators import CoordinatorRecord, Coordinators, SlotRecord
from storage.fleet.fleet_counts import AttemptTotal, FleetCounts
from storage.fleet.machines import MachineRecord, Machines, PlaceRecord
from storage.fleet.slot_use import AttemptOnSlot, Place, SlotUse

__all__ = [
    "AttemptOnSlot",
    "AttemptTotal",
    "BookingRecord",
    "Bookings",
    "CoordinatorRecord",
    "Coordinators",
    "FleetCounts",
    "MachineRecord",
    "Machines",
    "Place",
    "PlaceRecord",
    "SlotRecord",
    "SlotUse",
]
