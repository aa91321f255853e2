"""Whether the server lives, and whether it can do its work."""

from importlib.metadata import version

from anyio import to_thread
from fastapi import APIRouter, Request, Response

from service.api.health.readiness import readiness
from service.api.health.schemas import Alive, Ready
from service.api.resources import Whole
from service.auth.origins import is_loopback, peer_of, why_not_local
from service.http.problems import ProblemFault, documented, problem_response

router = APIRouter(tags=["health"])

_VERSION = version("reflectory")


_ELSEWHERE = {"message": "not as it has to be; the server's own machine is told more"}


@router.get("/healthz", responses=documented(403))
async def get_health() -> Alive:
    """The process is alive."""
    return Alive(version=_VERSION)


@router.get("/readyz", response_model=Ready, responses=documented(403, 503))
async def get_readiness(request: Request, held: Whole) -> Ready | Response:
    """Database, tables, artifact store and coordinator are as they have to be.

    Else 503, whose `errors` name each part that is not, and tell on the server's own machine what
    is wrong with it. The dashboard is looked at too, and nothing waits for it.
    """
    # Threads of its own: requests that wait for theirs hold up no probe.
    parts = await to_thread.run_sync(readiness, held, limiter=held.probes)
    # Everybody may ask; folders and the names of hosts are not for everybody.
    if not is_loopback(peer_of(request.scope)) or why_not_local("GET", request.headers):
        parts = tuple(part if part.ok else part.model_copy(update=_ELSEWHERE) for part in parts)
    faults = [
        ProblemFault(path=part.name, message=part.message or "")
        for part in parts
        if part.required and not part.ok
    ]
    if not faults:
        return Ready(parts=parts)
    detail = "; ".join(f"{fault.path}: {fault.message}" for fault in faults)
    return problem_response(
        503, detail, errors=faults, kind="urn:reflectory:not-ready", title="The server is not ready"
    )
