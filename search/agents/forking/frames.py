"""What an agent and its fork server say to each other: JSON frames over one socket pair.

`multiprocessing.connection.Connection` frames the bytes with their length. Nothing is pickled.
"""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from models.spec import Spec
from search.agents.executor import AttemptTicket
from search.agents.forking.containment import Containment


class StartAttempt(Spec):
    """To the fork server: fork a slot's process; its output goes to the file `log`.

    Its pipe follows.
    """

    kind: Literal["start"] = "start"
    ticket: AttemptTicket
    log: str
    containment: Containment


class CancelAttempt(Spec):
    """To the fork server: SIGTERM to the attempt's group now, SIGKILL after the grace time."""

    kind: Literal["cancel"] = "cancel"
    attempt_id: str
    grace_seconds: float = Field(ge=0)


class Started(Spec):
    """From the fork server: the attempt runs as the leader of process group `pid`."""

    kind: Literal["started"] = "started"
    attempt_id: str
    pid: int


class NotStarted(Spec):
    """The attempt does not run, and why; bridges to clusters say so too."""

    kind: Literal["not_started"] = "not_started"
    attempt_id: str
    reason: str


class Ended(Spec):
    """From the fork server: the attempt's process ended, and the rest of its group was killed."""

    kind: Literal["ended"] = "ended"
    attempt_id: str
    returncode: int | None
    signal: int | None
    out_of_memory: bool = False
    """The kernel killed it, because there was no memory left."""
    at_limit: int | None = None
    """The attempt's own limit in bytes, when that is where it was killed."""


Request = StartAttempt | CancelAttempt
Report = Started | NotStarted | Ended

REQUESTS: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="kind")])
REPORTS: TypeAdapter[Report] = TypeAdapter(Annotated[Report, Field(discriminator="kind")])
