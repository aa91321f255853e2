"""What a machine knows of its slots' processes, and of the attempts that they have."""

import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any, Final

from search.agents.executor import AttemptTicket, Exit
from search.agents.forking.server_process import ServerProcess
from search.agents.slots.slot_frames import Frame, send
from storage.endings import AttemptCause

_OWN_DOING: Final = (
    AttemptCause.EXITED,
    AttemptCause.CRASHED,
    AttemptCause.OUT_OF_MEMORY,
    AttemptCause.MEMORY_LIMIT,
)


@dataclass(eq=False)
class Start:
    """An attempt that is to be done, or is being done."""

    ticket: AttemptTicket
    job: Mapping[str, Any]
    place: str
    has_begun: bool = False
    """Whether its process may have done anything for it: else nothing is lost with that."""
    ends_within: float | None = None
    """The grace seconds of the order to end it, if there was one."""
    killed_at: float = float("inf")
    """When its process is killed if it has not left that, by the monotonic clock."""

    @property
    def id(self) -> str:
        """The attempt's."""
        return self.ticket.attempt_id


@dataclass(eq=False)
class Process:
    """One slot's process; what changes is changed under the lock of all."""

    id: str
    slot: str
    tenant: str
    threads: int
    pipe: Connection
    server: ServerProcess
    attempts: dict[str, Start] = field(default_factory=dict[str, Start])
    """Those that it was given and has not ended, in order."""
    idle_since: float = 0.0
    retired: bool = False
    """It gets no job any more."""
    exit: Exit | None = None
    exited: threading.Event = field(default_factory=threading.Event)
    sending: threading.Lock = field(default_factory=threading.Lock)

    def tell(self, frame: Frame, content: bytes | None = None) -> None:
        """Send a frame; a process that is gone hears nothing."""
        with suppress(OSError), self.sending:
            send(self.pipe, frame, content)

    def takes(self, start: Start) -> bool:
        """Whether an attempt may be given to it now."""
        ticket = start.ticket
        if self.retired or self.server.ended:
            return False
        if (self.tenant, self.threads) != (ticket.tenant, ticket.threads):
            return False
        # What the jobs are, and whether they can be computed together, the process itself knows.
        company = [other.ticket.together for other in self.attempts.values()]
        return not company or (ticket.together and all(company))


@dataclass(eq=False)
class SlotState:
    """What is done at a slot, and what waits there."""

    process: Process | None = None
    waiting: deque[Start] = field(default_factory=deque[Start])
    """What its process cannot take yet, in order; a process that forks has what it is for."""
    forks: bool = False

    def starts(self) -> list[Start]:
        """All attempts that are here."""
        at_work = () if self.process is None else self.process.attempts.values()
        return [*at_work, *self.waiting]


def of_several(ended: Exit) -> Exit:
    """How each of several attempts ended that a process had when it did.

    Whose doing it was is not known, so that all are suspected, see Note [Sudden deaths].
    """
    if ended.cause not in _OWN_DOING:
        return ended
    return replace(
        ended, cause=AttemptCause.DIED, detail=f"with others in its process: {ended.detail}"
    )
