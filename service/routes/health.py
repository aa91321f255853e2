"""Whether the server lives, and whether it can do its work."""

import time
from collections.abc import Callable, Mapping
from typing import Literal

from fastapi import APIRouter, Response

from models.spec import Spec
from service.problems import ProblemFault, documented, problem_response
from service.resources import Held, Resources
from storage.errors import StorageError

router = APIRouter(tags=["health"])


class Alive(Spec):
    """The process answers."""

    status: Literal["alive"] = "alive"


class Ready(Spec):
    """Everything that the server needs is within reach."""

    status: Literal["ready"] = "ready"


class _NotReady(Exception):
    """A part is out of reach; the message says which way."""


@router.get("/healthz", responses=documented(403))
def get_health() -> Alive:
    """The process is alive."""
    return Alive()


@router.get("/readyz", response_model=Ready, responses=documented(403, 503))
def get_readiness(held: Held) -> Ready | Response:
    """Database, artifact store and coordinator can be reached; 503 names those that cannot."""
    faults: list[ProblemFault] = []
    for part, check in _CHECKS.items():
        try:
            check(held)
        except (StorageError, OSError, _NotReady) as error:
            faults.append(ProblemFault(path=part, message=str(error)))
    if not faults:
        return Ready()
    detail = "; ".join(f"{fault.path}: {fault.message}" for fault in faults)
    return problem_response(
        503, detail, errors=faults, kind="urn:reflectory:not-ready", title="The server is not ready"
    )


def _check_database(held: Resources) -> None:
    held.database.check()


def _check_store(held: Resources) -> None:
    # Writing is what workers need.
    held.store.check_room()


def _check_coordinator(held: Resources) -> None:
    silence = held.settings.coordinator_silence_seconds
    try:
        age = time.time() - held.settings.coordinator_alive.stat().st_mtime
    except FileNotFoundError as error:
        raise _NotReady("no coordinator has worked on this data directory yet") from error
    if age > silence:
        raise _NotReady(
            f"the coordinator was last heard {age:.0f} s ago; allowed are {silence:.0f} s"
        )


_CHECKS: Mapping[str, Callable[[Resources], None]] = {
    "database": _check_database,
    "store": _check_store,
    "coordinator": _check_coordinator,
}
