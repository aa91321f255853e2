"""Optuna's dashboard, passed on from its own process: its absolute paths, for reading only."""

import logging
from collections.abc import AsyncIterator

import httpx2
from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from service.api.dashboard.own_process import TENANT_HEADER
from service.api.resources import Held
from service.http.problems import problem_response
from service.settings import Settings

_log = logging.getLogger(__name__)

_PATHS = (
    "/dashboard",
    "/dashboard/{rest:path}",
    "/static/{rest:path}",
    "/api/{rest:path}",
    "/csv/{rest:path}",
    "/artifacts/{rest:path}",
    "/favicon.ico",
)
"""The dashboard links to these from the root, so they cannot stand under a prefix."""

_TO_DASHBOARD = ("accept", "accept-encoding", "if-modified-since", "if-none-match", "range")
_TO_CLIENT = (
    "accept-ranges",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-length",
    "content-range",
    "content-security-policy",
    "content-type",
    "etag",
    "last-modified",
    "location",
)
_SECONDS = 60.0


def dashboard_client(settings: Settings) -> httpx2.AsyncClient | None:
    """A client of the dashboard's process; null where the settings name no socket."""
    if settings.dashboard_socket is None:
        return None
    return httpx2.AsyncClient(
        # Certificates, which nobody shows on a Unix socket, would take 8 MB.
        transport=httpx2.AsyncHTTPTransport(uds=str(settings.dashboard_socket), verify=False),
        base_url="http://localhost",
        timeout=_SECONDS,
        trust_env=False,
    )


async def pass_on(request: Request, held: Held) -> Response:
    """The dashboard's answer to this request; 503 where its process is not there."""
    if held.dashboard is None:
        return _away("no dashboard is run beside this server (REFLECTORY_DASHBOARD_SOCKET)")
    url = httpx2.URL(path=request.url.path, query=request.url.query.encode())
    headers = [(name, request.headers[name]) for name in _TO_DASHBOARD if name in request.headers]
    headers.append((TENANT_HEADER, held.asker.tenant))
    try:
        answer = await held.dashboard.send(
            held.dashboard.build_request("GET", url, headers=headers), stream=True
        )
    except httpx2.TimeoutException:
        return problem_response(504, f"the dashboard did not answer within {_SECONDS:.0f} s")
    except httpx2.TransportError as error:
        _log.warning("the dashboard is away", extra={"reason": str(error)})
        return _away("the dashboard's process is not there, and nothing listens in its place")
    return StreamingResponse(
        _pieces(answer),
        status_code=answer.status_code,
        headers={name: answer.headers[name] for name in _TO_CLIENT if name in answer.headers},
    )


async def _pieces(answer: httpx2.Response) -> AsyncIterator[bytes]:
    try:
        async for piece in answer.aiter_raw():
            yield piece
    finally:
        await answer.aclose()


def _away(detail: str) -> Response:
    return problem_response(
        503, detail, kind="urn:reflectory:no-dashboard", title="The dashboard is not there"
    )


router = APIRouter(include_in_schema=False)
for _path in _PATHS:
    router.add_api_route(_path, pass_on, methods=["GET"], response_model=None)
