"""Devices made of what coordinators and machines say of themselves."""

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy.orm import Session

from search.dispatch.coordinator_report import CLAIM_LEASES
from service.api.devices.schemas import (
    DeviceDocument,
    DeviceList,
    MeasurementLockDocument,
    SlotAttempt,
    SlotDocument,
)
from service.api.rows import from_row
from service.observability.device_views import DeviceView, device_views
from storage.fleet.coordinators import Coordinators
from storage.fleet.slot_use import AttemptOnSlot, Place, SlotUse


def device_list(session: Session, *, now: datetime, lease_seconds: float) -> DeviceList:
    """The devices as of this transaction, with what runs of the session's own tenant."""
    within = CLAIM_LEASES * lease_seconds
    living = Coordinators(session).alive(now, within_seconds=within)
    use = SlotUse(session)
    taken, attempts = use.taken(), use.attempts()
    return DeviceList(
        items=tuple(_device(view, taken=taken, attempts=attempts) for view in device_views(living))
    )


def _device(
    view: DeviceView, *, taken: set[Place], attempts: Mapping[Place, AttemptOnSlot]
) -> DeviceDocument:
    measured = view.on(view.measuring_slot, attempts)
    return from_row(
        DeviceDocument,
        view,
        slots=tuple(
            from_row(
                SlotDocument,
                slot,
                busy=view.is_taken(slot.name, taken),
                attempt=_attempt(view.on(slot.name, attempts)),
            )
            for slot in view.slots.values()
        ),
        lane=MeasurementLockDocument(
            state=view.lock_state(taken),
            study=None if measured is None else measured.study_id,
            trial=None if measured is None else measured.trial,
        ),
    )


def _attempt(attempt: AttemptOnSlot | None) -> SlotAttempt | None:
    if attempt is None:
        return None
    return SlotAttempt(
        study=attempt.study_id, trial=attempt.trial, kind=attempt.kind, since=attempt.since
    )
