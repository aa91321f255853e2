"""Worker machines: they join with a key, and ask what to run; `search/machine_wire.py` has how."""

from datetime import datetime
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from models.spec import Spec
from search.machine_wire import Exits, Join, Joined, MachineId, Orders, Poll, SessionId
from service.problems import documented
from service.resources import Whole
from storage.machines import MachineRecord, Machines

PREFIX = "/v1/workers"

_LONGEST_WAIT_SECONDS = 10.0

router = APIRouter(prefix=PREFIX, tags=["machines"])

_MachineId = Annotated[MachineId, Path(description="as the machine named itself")]


_SLOT = {"name": "gpu-0-0", "device": "cuda:GPU-7", "model": "NVIDIA H100", "share": 1.0}
_MACHINE = {
    "id": "4f1d2c3b5a697887",
    "name": "ada",
    "version": "0.1.0",
    "leaving": False,
    "joined_at": "2026-03-01T12:00:00Z",
    "seen_at": "2026-03-01T12:30:00Z",
    "slots": [_SLOT],
}
_OFFER = {
    "attempt": "9e107d9d372bb682",
    "token": "the-lease-token-of-this-attempt",
    "lease_seconds": 30.0,
    "device": "cuda:GPU-7",
    "threads": 1,
    "log_format": "text",
    "log_fields": {"study_id": "3f1c9a2b7d4e", "trial": 7},
}


def _answers(example: dict[str, Any], *statuses: int) -> dict[int | str, dict[str, Any]]:
    shown = {200: {"content": {"application/json": {"example": example}}}}
    return {**shown, **documented(403, *statuses)}


class MachineSlotDocument(Spec):
    """A place on a machine where one attempt at a time runs."""

    name: str
    device: str
    model: str
    share: float = Field(description="of the device; on a CPU, cores")


class MachineDocument(Spec):
    """A machine that joined."""

    id: str
    name: str = Field(description="as `/v1/devices` and attempts name it")
    version: str
    leaving: bool = Field(description="it takes nothing more, and ends what runs there")
    joined_at: datetime
    seen_at: datetime = Field(description="when it asked last")
    slots: tuple[MachineSlotDocument, ...]


class MachineList(Spec):
    """All machines that joined, by name."""

    items: tuple[MachineDocument, ...]


@router.get("", responses=_answers({"items": [_MACHINE]}))
def list_workers(held: Whole) -> MachineList:
    """The machines that joined, also those of which nothing is heard any more for a day."""
    with held.database.read() as session:
        return MachineList(items=tuple(_document(machine) for machine in Machines(session).list()))


@router.post("", responses=_answers({"name": "ada", "lease_seconds": 30.0}, 409, 422))
def join_workers(held: Whole, body: Join) -> Joined:
    """Offer a machine's slots; joining again is harmless."""
    return held.machines.join(body)


@router.post(
    "/{machine_id}/poll", responses=_answers({"start": [_OFFER], "end": []}, 404, 409, 422)
)
async def poll_worker(machine_id: _MachineId, held: Whole, body: Poll) -> Orders:
    """Say what runs on a machine, and hear what should; the answer may wait for news."""
    orders, changes = await to_thread.run_sync(held.machines.poll, machine_id, body)
    if orders.any:
        return orders
    # A machine that waits is heard of at its next poll, within the time that it is counted on.
    seconds = min(body.wait_seconds, _LONGEST_WAIT_SECONDS, held.settings.lease_seconds / 3)
    if seconds > 0 and await held.bell.wait(machine_id, changes=changes, seconds=seconds):
        return await to_thread.run_sync(held.machines.again, machine_id, body)
    return orders


@router.post("/{machine_id}/exits", status_code=204, responses=documented(403, 404, 409, 422))
def post_exits(machine_id: _MachineId, held: Whole, body: Exits) -> Response:
    """Say how attempts ended; saying it again is harmless."""
    held.machines.exits(machine_id, body)
    return Response(status_code=204)


@router.delete("/{machine_id}", status_code=204, responses=documented(403, 404, 409, 422))
def leave_workers(
    machine_id: _MachineId,
    held: Whole,
    session: Annotated[SessionId, Query(description="the process that joined")],
) -> Response:
    """Take a machine's slots back; it is gone when what runs there has ended."""
    held.machines.leave(machine_id, session)
    return Response(status_code=204)


def _document(machine: MachineRecord) -> MachineDocument:
    return MachineDocument(
        id=machine.id,
        name=machine.name,
        version=machine.version,
        leaving=machine.leaving,
        joined_at=machine.joined_at,
        seen_at=machine.seen_at,
        slots=tuple(MachineSlotDocument(**vars(slot)) for slot in machine.slots),
    )
