"""The worker part: what attempts say, with their lease token as their only credential.

`search/training/jobs.py` has the table of calls; `search/running/attempts.py` does the work.
"""

import tempfile
from collections.abc import AsyncIterator
from typing import Annotated, BinaryIO, cast

from anyio import to_thread
from fastapi import APIRouter, Depends, Header, HTTPException, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import ClientDisconnect

from search.training.jobs import (
    Completion,
    EpochReport,
    Heartbeat,
    Job,
    MeasurementReport,
    Progress,
    Stored,
    Verdict,
)
from service.api.resources import Whole
from service.api.stored_files import BINARY, text
from service.http.problems import documented
from service.http.ranges import PartResponse, requested_part
from storage.blobs.artifacts import full_told

PREFIX = "/v1/attempts/"
"""Paths under which the lease token is the credential."""

_IN_MEMORY = 8 << 20

router = APIRouter(
    prefix=f"{PREFIX}{{attempt_id}}",
    tags=["workers"],
    responses=documented(401, 403, 409, 413, 422, 429, 507),
)

_bearer = HTTPBearer(auto_error=False, description="the lease token of this attempt")


def _token(
    request: Request,
    _shown: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> str:
    """The token by which the gate let the worker in."""
    token: str = request.state.lease_token
    return token


Token = Annotated[str, Depends(_token)]


async def _received(request: Request, held: Whole, _token: Token) -> AsyncIterator[BinaryIO]:
    """The body as a file: in memory while it is small, else in an unnamed file beside the store."""
    folder = held.settings.data_dir
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY, dir=str(folder)) as spool:
        try:
            with full_told(folder):
                async for piece in request.stream():
                    await to_thread.run_sync(spool.write, piece)
        except ClientDisconnect as error:
            raise HTTPException(400, "the worker left in the middle of the upload") from error
        spool.seek(0)
        yield cast(BinaryIO, spool)


Received = Annotated[BinaryIO, Depends(_received)]


@router.get("/job")
def get_job(attempt_id: str, token: Token, held: Whole) -> Job:
    """What the attempt is to do."""
    return held.handler.job(attempt_id, token)


@router.post("/heartbeat")
def post_heartbeat(attempt_id: str, token: Token, held: Whole, body: Heartbeat) -> Verdict:
    """The attempt is alive: its lease is renewed."""
    return held.handler.heartbeat(attempt_id, token, body)


@router.post("/progress")
def post_progress(attempt_id: str, token: Token, held: Whole, body: Progress) -> Verdict:
    """How far a download is."""
    return held.handler.progress(attempt_id, token, body)


@router.post("/metrics")
def post_metrics(attempt_id: str, token: Token, held: Whole, body: EpochReport) -> Verdict:
    """One epoch of the learning curve; sending it again overwrites it."""
    return held.handler.epoch(attempt_id, token, body)


@router.post("/measurement")
def post_measurement(
    attempt_id: str, token: Token, held: Whole, body: MeasurementReport
) -> Verdict:
    """One throughput measurement."""
    return held.handler.measurement(attempt_id, token, body)


@router.get(
    "/artifacts/{role}",
    response_class=StreamingResponse,
    responses={200: {"content": BINARY}, **documented(404)},
)
def get_artifact(attempt_id: str, role: str, token: Token, held: Whole) -> StreamingResponse:
    """The trial's stored bytes of a role; what a new attempt resumes from."""
    reader, artifact = held.handler.open_artifact(attempt_id, token, role)
    part = requested_part(artifact.size, f'"{artifact.sha256}"')
    return PartResponse(reader, part)


@router.get(
    "/datasets/{dataset_id}",
    response_class=StreamingResponse,
    responses={200: {"content": BINARY}, **documented(404, 416)},
)
def get_dataset(
    attempt_id: str,
    dataset_id: str,
    token: Token,
    held: Whole,
    range_header: Annotated[
        str | None, Header(alias="Range", description="the rest of a transfer that broke")
    ] = None,
    if_range: Annotated[str | None, Header()] = None,
) -> StreamingResponse:
    """The upload that the attempt's own job names, and no other."""
    reader, digest, size = held.handler.open_dataset(attempt_id, token, dataset_id)
    try:
        part = requested_part(size, f'"{digest}"', range_header=range_header, if_range=if_range)
    except HTTPException:
        reader.close()
        raise
    response = PartResponse(reader, part)
    response.headers["Content-SHA256"] = digest
    return response


@router.put(
    "/artifacts/{role}",
    openapi_extra={"requestBody": {"required": True, "content": BINARY}},
)
def put_artifact(
    attempt_id: str,
    role: str,
    token: Token,
    held: Whole,
    body: Received,
    content_sha256: Annotated[
        str | None, Header(pattern="^[0-9a-f]{64}$", description="SHA-256 of the body, in hex")
    ] = None,
) -> Stored:
    """Store bytes for the trial, whole or not at all."""
    return held.handler.store_artifact(attempt_id, token, role, body, sha256=content_sha256)


@router.put(
    "/log",
    status_code=204,
    openapi_extra={"requestBody": {"required": True, "content": text("text/plain")}},
)
def put_log(
    attempt_id: str,
    token: Token,
    held: Whole,
    body: Received,
    log_cut: Annotated[
        int, Header(ge=0, lt=2**63, description="bytes that were written before these")
    ] = 0,
) -> Response:
    """Keep the end of what the attempt wrote, also shortly after the attempt has ended."""
    held.handler.store_log(attempt_id, token, body, cut=log_cut)
    return Response(status_code=204)


@router.post("/complete")
def post_completion(attempt_id: str, token: Token, held: Whole, body: Completion) -> Verdict:
    """How the attempt ended; saying it again is harmless."""
    return held.handler.complete(attempt_id, token, body)
