"""Worker machines: they join with a key, and ask what to run, see `MachineHandler`."""

from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, HTTPException, Path, Query, Request, Response

from search.agents.machine_protocol import Exits, Join, Joined, MachineId, Orders, Poll, SessionId
from service.api.resources import Whole, principal_of
from service.api.rows import from_row
from service.api.workers.schemas import MachineDocument, MachineList, MachineSlotDocument
from service.auth.listeners import ATTEMPTS_ELSEWHERE, serves_attempts
from service.http.problems import documented
from storage.fleet.machines import MachineRecord, Machines

PREFIX = "/v1/workers"

_LONGEST_WAIT_SECONDS = 10.0

router = APIRouter(prefix=PREFIX, tags=["machines"])

_MachineId = Annotated[MachineId, Path(description="as the machine named itself")]


_SLOT = {
    "name": "gpu-0-0",
    "device": "cuda:GPU-7",
    "model": "NVIDIA H100",
    "share": 1.0,
    "memory": 17179869184,
    "device_memory": 85899345920,
}
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
    "memory": 17179869184,
    "log_format": "text",
    "log_fields": {"study_id": "3f1c9a2b7d4e", "trial": 7},
}


def _answers(example: dict[str, Any], *statuses: int) -> dict[int | str, dict[str, Any]]:
    shown = {200: {"content": {"application/json": {"example": example}}}}
    return {**shown, **documented(403, *statuses)}


@router.get("", responses=_answers({"items": [_MACHINE]}))
def list_workers(held: Whole) -> MachineList:
    """The machines that joined, also those of which nothing is heard any more for a day."""
    with held.database.read() as session:
        return MachineList(items=tuple(_document(machine) for machine in Machines(session).list()))


@router.post("", responses=_answers({"name": "ada", "lease_seconds": 30.0}, 409, 422))
def join_workers(request: Request, held: Whole, body: Join) -> Joined:
    """Offer a machine's slots; joining again is harmless."""
    if not serves_attempts(held.settings, has_keys=principal_of(request).key_id is not None):
        raise HTTPException(403, ATTEMPTS_ELSEWHERE)
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
    if seconds > 0 and await held.notifier.wait(machine_id, changes=changes, seconds=seconds):
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
    return from_row(
        MachineDocument,
        machine,
        slots=tuple(MachineSlotDocument(**vars(slot)) for slot in machine.slots),
    )
