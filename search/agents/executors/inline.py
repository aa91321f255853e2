"""Attempts in this very process, one at a time, for stepping through them with a debugger."""

import logging
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, final

import torch
from sqlalchemy.orm import Session

from search.agents import worker
from search.agents.executor import (
    AttemptTicket,
    Executor,
    Exit,
    Slot,
    check_device,
    log_file,
)
from search.errors import ExecutorError
from search.measuring.devices import device_model
from storage.endings import AttemptCause

_log = logging.getLogger(__name__)

_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@final
class InlineExecutor:
    """Runs an attempt within `poll`, in the thread that calls it, to the attempt's end.

    The main thread is to call it: only there may a worker take SIGTERM and Ctrl-C. Nothing here is
    held apart, so that less is promised than by other executors: an attempt that has begun can be
    told to end, by the service or by SIGTERM, but is not killed; one that takes all memory or
    breaks its process takes this process with it; and one whose lease is lost ends at its next
    batch. It runs on the CPU, on one slot.

    Args:
        logs: folder for what the attempts log; what they print goes where this process prints.
        memory: bytes that an attempt may take; null: unknown.
        work: what does the job of a ticket and returns the exit code of a process.
    """

    def __init__(
        self,
        *,
        logs: Path,
        memory: int | None = None,
        work: Callable[[AttemptTicket], int] | None = None,
    ) -> None:
        self._slots = (Slot("inline", "cpu", device_model("cpu"), 1.0, memory=memory),)
        self._logs = logs.absolute()
        self._logs.mkdir(parents=True, exist_ok=True)
        self._work = work or _work
        self._lock = threading.Lock()
        self._waiting: deque[AttemptTicket] = deque()
        self._running: str | None = None
        self._ended: list[Exit] = []
        self._closed = False

    def capacity(self) -> Sequence[Slot]:
        """Return the one slot."""
        return self._slots

    def reserve(self, attempt_id: str, slot: Slot) -> bool:  # noqa: ARG002
        """The slot is its one coordinator's."""
        return True

    def start(self, ticket: AttemptTicket, slot: Slot) -> None:
        """Have the attempt run within a later `poll`.

        Raises:
            ExecutorError: the executor is closed, it was started already, or not for this device.
        """
        check_device(ticket, slot, self._slots)
        with self._lock:
            if self._closed:
                raise ExecutorError("the executor is closed and starts nothing any more")
            waiting = [other.attempt_id for other in self._waiting]
            if ticket.attempt_id in (*waiting, self._running):
                raise ExecutorError(f"attempt {ticket.attempt_id} runs already")
            self._waiting.append(ticket)

    def cancel(self, attempt_id: str, grace_seconds: float) -> None:  # noqa: ARG002
        """Take an attempt back that has not begun; one that runs ends by itself."""
        with self._lock:
            for ticket in list(self._waiting):
                if ticket.attempt_id == attempt_id:
                    self._waiting.remove(ticket)
                    self._ended.append(Exit(attempt_id, None, None, "cancelled before it began"))

    def book(self, session: Session, ticket: AttemptTicket, slot: Slot) -> bool:  # noqa: ARG002
        """What `reserve` has kept needs no row."""
        return True

    def adopt(self, attempt_id: str) -> bool:  # noqa: ARG002
        """Nothing outlives its coordinator."""
        return False

    def keeps(self, attempt_id: str) -> bool:  # noqa: ARG002
        """Nothing does."""
        return False

    def unheard(self) -> Set[str]:
        """None: what runs here is heard, or is not alive."""
        return frozenset[str]()

    def poll(self, timeout_seconds: float) -> Sequence[Exit]:
        """Run the attempt that waits, if any, and return what ended; else wait for the timeout."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            with self._lock:
                if self._ended:
                    ended, self._ended = self._ended, []
                    return ended
                ticket = self._waiting.popleft() if self._waiting else None
                self._running = None if ticket is None else ticket.attempt_id
            if ticket is not None:
                return [self._run(ticket)]
            if time.monotonic() >= deadline:
                return []
            time.sleep(min(0.01, timeout_seconds))

    def log_path(self, attempt_id: str) -> Path:
        """Name the file with what the attempt logged: `log_file`."""
        return log_file(self._logs, attempt_id)

    def close(self) -> None:
        """Take back what waits, and start nothing more."""
        with self._lock:
            self._closed = True
            waiting = [ticket.attempt_id for ticket in self._waiting]
        for attempt_id in waiting:
            self.cancel(attempt_id, 0.0)

    def _run(self, ticket: AttemptTicket) -> Exit:
        threads = torch.get_num_threads()
        try:
            torch.set_num_threads(ticket.threads)
            with _logged(self.log_path(ticket.attempt_id)):
                code = self._work(ticket)
        except Exception:
            # As in a process of its own: its traceback is in its log, and the coordinator goes on.
            with self.log_path(ticket.attempt_id).open("a") as log:
                traceback.print_exc(file=log)
            code = 1
        finally:
            torch.set_num_threads(threads)
            self._running = None
        if code == worker.TERMINATED:
            # It was this process that was told to end, and the attempt that heard it.
            signal.raise_signal(signal.SIGTERM)
        return Exit(ticket.attempt_id, code, None, f"exited with code {code}", AttemptCause.EXITED)


def _work(ticket: AttemptTicket) -> int:
    return worker.work(ticket, end=_leave_to_itself)


def _leave_to_itself() -> None:
    _log.error("the attempt ends at its next batch: it has no process that could be killed")


@contextmanager
def _logged(path: Path) -> Generator[None]:
    """Have all that is logged meanwhile in this file as well."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter(_LINE))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(min(level or logging.INFO, logging.INFO))
    try:
        yield
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
        handler.close()


if TYPE_CHECKING:
    _conforms: type[Executor] = InlineExecutor
