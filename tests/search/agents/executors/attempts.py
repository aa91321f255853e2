"""Tickets for scripted attempts, and what /proc knows of their processes."""

import contextlib
import queue
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from search.agents.executors import AttemptTicket, Exit
from search.agents.forking.containment import Containment
from search.agents.forking.server_process import by_exec
from search.agents.slots.slot_processes import SlotProcesses
from tests.patience import wait_while_it_moves

SCRIPTED = "tests.search.agents.executors.scripted"


def ticket(script: str, attempt_id: str = "a1", **given: Any) -> AttemptTicket:
    folder = Path("/nonexistent")
    known: dict[str, Any] = {
        "lease_seconds": 10.0,
        "device": "cpu",
        "data": None,
        "cache": folder,
        "lock_folder": folder,
        "threads": 1,
    }
    return AttemptTicket(attempt_id=attempt_id, log_fields={"script": script}, **known | given)


class Scripted:
    """Slots whose fork server is another program: each attempt does what its script says."""

    def __init__(
        self, logs: Path, *, program: str = SCRIPTED, containment: Containment | None = None
    ) -> None:
        self._ends = queue.Queue[Exit]()
        self._slots = SlotProcesses(
            logs=logs,
            on_frame=lambda *_: None,
            on_free=lambda _attempt, ended: self._ends.put(ended),
            launch=lambda _module, pipe, errors: by_exec(program, pipe, errors),
            containment=containment,
        )
        self.cancel = self._slots.cancel
        self.log_path = self._slots.log_path
        self.close = self._slots.close

    def start(self, ticket: AttemptTicket) -> None:
        """Have an attempt begin, at a place of its own."""
        self._slots.start(ticket, {}, place=ticket.attempt_id)

    def poll(self, timeout_seconds: float) -> list[Exit]:
        """What has ended; waits for a first one."""
        with contextlib.suppress(queue.Empty):
            return [self._ends.get(timeout=timeout_seconds)]
        return []


def wait_until(true: Callable[[], bool], *, seconds: float = 60.0) -> None:
    wait_while_it_moves(true, what="a condition", seconds=seconds, pause=0.01)


def exits(executor: Scripted, count: int) -> Sequence[Exit]:
    found: list[Exit] = []
    wait_until(lambda: len(found.__iadd__(executor.poll(1.0))) >= count)
    return found


def alive(pid: int) -> bool:
    """Whether this process exists and is more than a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def descendants(pid: int) -> list[int]:
    found = children(pid)
    return found + [lower for child in found for lower in descendants(child)]


def said(executor: Scripted, attempt_id: str) -> list[str]:
    path = executor.log_path(attempt_id)
    return path.read_text().splitlines() if path.exists() else []
