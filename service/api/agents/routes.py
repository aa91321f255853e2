"""Agents: they join for their machines, say what became of attempts, and ask what to run.

See `AgentHandler`.
"""

import tempfile
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, BinaryIO, Final, cast

from anyio import to_thread
from fastapi import APIRouter, Depends, Header, HTTPException, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from search.agents.protocol import (
    MOST_JSON_BYTES,
    SYNC_TYPE,
    ArtifactItem,
    AttemptId,
    Join,
    Joined,
    LogItem,
    MachineId,
    Orders,
    Poll,
    SessionId,
    Sync,
    Synced,
)
from search.training.jobs import Stored
from service.api.agents.schemas import MachineDocument, MachineList, MachineSlotDocument
from service.api.resources import Whole, principal_of
from service.api.rows import from_row
from service.api.stored_files import BINARY
from service.auth.listeners import ATTEMPTS_ELSEWHERE, serves_attempts
from service.auth.origins import is_by_unix_socket
from service.http.problems import documented
from service.http.ranges import PartResponse, requested_part
from storage.blobs.artifacts import full_told
from storage.fleet.machines import MachineRecord, Machines

PREFIX = "/v1/agents"

_LONGEST_WAIT_SECONDS = 10.0
_LENGTH_BYTES: Final = 4
_IN_MEMORY: Final = 8 << 20

router = APIRouter(prefix=PREFIX, tags=["agents"])

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
    "place": "gpu-0-0",
    "device": "cuda:GPU-7",
    "threads": 1,
    "memory": 17179869184,
    "log_format": "text",
    "log_fields": {"study_id": "3f1c9a2b7d4e", "trial": 7},
    "tenant": "local",
    "job": {"kind": "prepare", "task": {"kind": "digits"}},
}


def _answers(example: dict[str, Any], *statuses: int) -> dict[int | str, dict[str, Any]]:
    shown = {200: {"content": {"application/json": {"example": example}}}}
    return {**shown, **documented(403, *statuses)}


@router.get("", responses=_answers({"items": [_MACHINE]}))
def list_agents(held: Whole) -> MachineList:
    """The machines that joined, also those of which nothing is heard any more for a day."""
    with held.database.read() as session:
        return MachineList(items=tuple(_document(machine) for machine in Machines(session).list()))


@router.post("", responses=_answers({"name": "ada", "lease_seconds": 30.0}, 409, 422))
def join_agent(request: Request, held: Whole, body: Join) -> Joined:
    """Offer a machine's slots; joining again is harmless."""
    by_socket = is_by_unix_socket(request.scope)
    has_keys = principal_of(request).key_id is not None
    if not by_socket and not serves_attempts(held.settings, has_keys=has_keys):
        raise HTTPException(403, ATTEMPTS_ELSEWHERE)
    return held.agents.join(body)


@router.post(
    "/{machine_id}/poll", responses=_answers({"start": [_OFFER], "end": []}, 404, 409, 422)
)
async def poll_agent(machine_id: _MachineId, held: Whole, body: Poll) -> Orders:
    """Say what runs on a machine, and hear what should; the answer may wait for news."""
    orders, changes = await to_thread.run_sync(held.agents.poll, machine_id, body)
    if orders.any:
        return orders
    # A machine that waits is heard of at its next poll, within the time that it is counted on.
    seconds = min(body.wait_seconds, _LONGEST_WAIT_SECONDS, held.settings.lease_seconds / 3)
    if seconds > 0 and await held.notifier.wait(machine_id, changes=changes, seconds=seconds):
        return await to_thread.run_sync(held.agents.again, machine_id, body)
    return orders


@router.post(
    "/{machine_id}/sync",
    responses=_answers({"refused": [], "stop": {}, "lease_seconds": 30.0}, 404, 409, 413, 422, 507),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {SYNC_TYPE: {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def sync_agent(machine_id: _MachineId, held: Whole, request: Request) -> Synced:
    """Say what became of a machine's attempts; saying it again is harmless."""
    try:
        content = await request.body()
    except ClientDisconnect as error:
        raise HTTPException(400, "the agent left in the middle of the sync") from error
    return await to_thread.run_sync(_take, held, machine_id, content)


def _take(held: Whole, machine_id: str, content: bytes) -> Synced:
    body, contents = _parsed(content)
    return held.agents.sync(machine_id, body, contents)


def _parsed(content: bytes) -> tuple[Sync, Sequence[bytes]]:
    """A sync's words and the bytes that they name.

    Raises:
        HTTPException: 422, it is none; says which part is not.
    """
    length = int.from_bytes(content[:_LENGTH_BYTES], "big")
    start = _LENGTH_BYTES + length
    if not 0 < length <= MOST_JSON_BYTES or start > len(content):
        raise HTTPException(
            422,
            f"the first {_LENGTH_BYTES} bytes say that {length} bytes of JSON follow; allowed are "
            f"1 to {MOST_JSON_BYTES}, and {max(0, len(content) - _LENGTH_BYTES)} are there",
        )
    try:
        body = Sync.model_validate_json(content[_LENGTH_BYTES:start])
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, fault["loc"])) or "the sync"
        raise HTTPException(422, f"{place}: {fault['msg']}") from error
    contents: list[bytes] = []
    for item in body.items:
        if isinstance(item, ArtifactItem | LogItem):
            contents.append(content[start : start + item.size])
            start += item.size
    if start != len(content):
        raise HTTPException(
            422, f"the items name {start} bytes with what is before, and {len(content)} came"
        )
    return body, contents


async def _received(request: Request, held: Whole) -> AsyncIterator[BinaryIO]:
    """The body as a file: in memory while it is small, else in an unnamed file beside the store."""
    folder = held.settings.data_dir
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY, dir=str(folder)) as spool:
        try:
            with full_told(folder):
                async for piece in request.stream():
                    await to_thread.run_sync(spool.write, piece)
        except ClientDisconnect as error:
            raise HTTPException(400, "the agent left in the middle of the upload") from error
        spool.seek(0)
        yield cast(BinaryIO, spool)


Received = Annotated[BinaryIO, Depends(_received)]
_Attempt = Annotated[AttemptId, Path(description="one of the machine's own")]
_Token = Annotated[str, Header(max_length=200, description="the attempt's")]
_Digest = Annotated[
    str | None, Header(pattern="^[0-9a-f]{64}$", description="SHA-256 of the body, in hex")
]


@router.put(
    "/{machine_id}/attempts/{attempt_id}/artifacts/{role}",
    openapi_extra={"requestBody": {"required": True, "content": BINARY}},
    responses=_answers({"sha256": 64 * "0", "size": 40960}, 404, 409, 413, 422, 507),
)
def put_agents_artifact(
    machine_id: _MachineId,  # noqa: ARG001 - the token says more
    attempt_id: _Attempt,
    role: str,
    held: Whole,
    lease_token: _Token,
    body: Received,
    content_sha256: _Digest = None,
) -> Stored:
    """Store bytes for an attempt's trial, whole or not at all: those too large for a sync."""
    return held.handler.store_artifact(attempt_id, lease_token, role, body, sha256=content_sha256)


@router.get(
    "/{machine_id}/attempts/{attempt_id}/artifacts/{role}",
    response_class=StreamingResponse,
    responses={200: {"content": BINARY}, **documented(404, 409)},
)
def get_agents_artifact(
    machine_id: _MachineId,  # noqa: ARG001
    attempt_id: _Attempt,
    role: str,
    held: Whole,
    lease_token: _Token,
) -> StreamingResponse:
    """The trial's stored bytes of a role; what a new attempt resumes from."""
    reader, artifact = held.handler.open_artifact(attempt_id, lease_token, role)
    part = requested_part(artifact.size, f'"{artifact.sha256}"')
    return PartResponse(reader, part)


@router.get(
    "/{machine_id}/attempts/{attempt_id}/datasets/{dataset_id}",
    response_class=StreamingResponse,
    responses={200: {"content": BINARY}, **documented(404, 409, 416)},
)
def get_agents_dataset(
    machine_id: _MachineId,  # noqa: ARG001
    attempt_id: _Attempt,
    dataset_id: str,
    held: Whole,
    lease_token: _Token,
    range_header: Annotated[
        str | None, Header(alias="Range", description="the rest of a transfer that broke")
    ] = None,
    if_range: Annotated[str | None, Header()] = None,
) -> StreamingResponse:
    """The upload that the attempt's own job names, and no other."""
    reader, digest, size = held.handler.open_dataset(attempt_id, lease_token, dataset_id)
    try:
        part = requested_part(size, f'"{digest}"', range_header=range_header, if_range=if_range)
    except HTTPException:
        reader.close()
        raise
    response = PartResponse(reader, part)
    response.headers["Content-SHA256"] = digest
    return response


@router.delete("/{machine_id}", status_code=204, responses=documented(403, 404, 409, 422))
def leave_agent(
    machine_id: _MachineId,
    held: Whole,
    session: Annotated[SessionId, Query(description="the process that joined")],
) -> Response:
    """Take a machine's slots back; it is gone when what runs there has ended."""
    held.agents.leave(machine_id, session)
    return Response(status_code=204)


def _document(machine: MachineRecord) -> MachineDocument:
    return from_row(
        MachineDocument,
        machine,
        slots=tuple(MachineSlotDocument(**vars(slot)) for slot in machine.slots),
    )
