"""Whether the server lives, and whether it can do its work."""

from typing import Literal

from fastapi import APIRouter, Request, Response

from models.spec import Spec
from service.auth import is_loopback, peer_of, why_not_local
from service.problems import ProblemFault, documented, problem_response
from service.readiness import PartState, readiness
from service.resources import Whole

router = APIRouter(tags=["health"])


_ELSEWHERE = {"message": "not as it has to be; the server's own machine is told more"}


class Alive(Spec):
    """The process answers."""

    status: Literal["alive"] = "alive"


class Ready(Spec):
    """Everything that the server needs is within reach."""

    status: Literal["ready"] = "ready"
    parts: tuple[PartState, ...]


@router.get("/healthz", responses=documented(403))
def get_health() -> Alive:
    """The process is alive."""
    return Alive()


@router.get("/readyz", response_model=Ready, responses=documented(403, 503))
def get_readiness(request: Request, held: Whole) -> Ready | Response:
    """Database, tables, artifact store and coordinator are as they have to be.

    Else 503, whose `errors` name each part that is not, and tell on the server's own machine what
    is wrong with it. The dashboard is looked at too, and nothing waits for it.
    """
    parts = readiness(held)
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
