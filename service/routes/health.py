"""Whether the server lives, and whether it can do its work."""

from typing import Literal

from fastapi import APIRouter, Response

from models.spec import Spec
from service.problems import ProblemFault, documented, problem_response
from service.readiness import PartState, readiness
from service.resources import Whole

router = APIRouter(tags=["health"])


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
def get_readiness(held: Whole) -> Ready | Response:
    """Database, tables, artifact store and coordinator are as they have to be.

    Else 503, whose `errors` tell of each part that is not. The dashboard is looked at too, and
    nothing waits for it.
    """
    parts = readiness(held)
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
