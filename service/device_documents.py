"""The devices of all coordinators, as the API tells of them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from pydantic import Field
from sqlalchemy.orm import Session

from models.spec import Spec
from search.coordinator_report import CLAIM_LEASES
from service.floors import Floor, floors
from storage.coordinators import Coordinators
from storage.records import AttemptKind
from storage.slot_use import AttemptOnSlot, Place, SlotUse


class SlotAttempt(Spec):
    """What runs on a slot."""

    study: str
    trial: int | None = Field(description="null for a job of the whole study")
    kind: AttemptKind
    since: datetime


class SlotDocument(Spec):
    """A place where one attempt at a time runs."""

    name: str
    share: float = Field(description="of the device; on a CPU, cores")
    busy: bool
    attempt: SlotAttempt | None = Field(
        default=None,
        description="null while nothing runs here, and while what runs is not yours to see",
    )


class LaneDocument(Spec):
    """The device's measuring lane: throughput is measured while nothing else computes there."""

    state: Literal["free", "waiting", "measuring"] = Field(
        description="`waiting`: a measuring job lets others come to the end of their batches"
    )
    study: str | None = None
    trial: int | None = Field(default=None, description="the first one that is measured")


class DeviceDocument(Spec):
    """A device of a machine whose coordinator lives, or that joined and is heard of."""

    machine: str
    device: str = Field(description="`cpu`, or `cuda:` and the GPU's own id")
    model: str = Field(description="as studies name it in `throughput.device`")
    slots: tuple[SlotDocument, ...]
    lane: LaneDocument


class DeviceList(Spec):
    """All devices, by machine."""

    items: tuple[DeviceDocument, ...]


DEVICES_EXAMPLE = {
    "items": [
        {
            "machine": "ada",
            "device": "cuda:GPU-2f1c3a5e-7f0e-4f7e-9d55-8f0a3c1f2b4d",
            "model": "NVIDIA H100 80GB HBM3",
            "slots": [
                {
                    "name": "gpu-0-0",
                    "share": 0.5,
                    "busy": True,
                    "attempt": {
                        "study": "b8f0c1d2e3a4",
                        "trial": 7,
                        "kind": "train",
                        "since": "2026-03-01T12:00:00Z",
                    },
                },
                {"name": "gpu-0-1", "share": 0.5, "busy": False, "attempt": None},
            ],
            "lane": {"state": "free", "study": None, "trial": None},
        }
    ]
}


def device_list(session: Session, *, now: datetime, lease_seconds: float) -> DeviceList:
    """The devices as of this transaction, with what runs of the session's own tenant."""
    within = CLAIM_LEASES * lease_seconds
    living = Coordinators(session).alive(now, within_seconds=within)
    use = SlotUse(session)
    taken, attempts = use.taken(), use.attempts()
    return DeviceList(
        items=tuple(_device(floor, taken=taken, attempts=attempts) for floor in floors(living))
    )


def _device(
    floor: Floor, *, taken: set[Place], attempts: Mapping[Place, AttemptOnSlot]
) -> DeviceDocument:
    measured = floor.on(floor.lane, attempts)
    return DeviceDocument(
        machine=floor.machine,
        device=floor.device,
        model=floor.model,
        slots=tuple(
            SlotDocument(
                name=slot.name,
                share=slot.share,
                busy=floor.is_taken(slot.name, taken),
                attempt=_attempt(floor.on(slot.name, attempts)),
            )
            for slot in floor.slots.values()
        ),
        lane=LaneDocument(
            state=floor.lane_state(taken),
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
