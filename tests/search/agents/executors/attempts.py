"""Tickets for scripted attempts, and what /proc knows of their processes."""

from collections.abc import Callable, Sequence
from pathlib import Path

from search.agents.executors import AttemptTicket, Executor, Exit, Slot
from tests.patience import wait_while_it_moves

SCRIPTED = "tests.search.agents.executors.scripted"
SLOT = Slot("cpu-0", "cpu", "some processor", 1.0)
TOKEN = "a-lease-token-that-nobody-else-may-see"


def ticket(
    script: str, attempt_id: str = "a1", *, threads: int = 1, device: str = "cpu"
) -> AttemptTicket:
    folder = Path("/nonexistent")
    return AttemptTicket(
        url=f"script://{script}",
        attempt_id=attempt_id,
        token=TOKEN,
        lease_seconds=10.0,
        device=device,
        data=None,
        cache=folder,
        lock_folder=folder,
        threads=threads,
    )


def wait_until(true: Callable[[], bool], *, seconds: float = 60.0) -> None:
    wait_while_it_moves(true, what="a condition", seconds=seconds, pause=0.01)


def exits(executor: Executor, count: int) -> Sequence[Exit]:
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


def said(executor: Executor, attempt_id: str) -> list[str]:
    path = executor.log_path(attempt_id)
    return path.read_text().splitlines() if path.exists() else []
