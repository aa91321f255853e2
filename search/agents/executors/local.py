"""Attempts on this machine: one process each, forked from a server that has everything imported."""

import threading
from collections.abc import Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, final

from sqlalchemy.orm import Session

from search.agents.executor import (
    AttemptTicket,
    Executor,
    Exit,
    Slot,
    check_device,
    log_file,
)
from search.agents.executors.exits import Exits
from search.agents.forking.containment import Containment
from search.agents.forking.frames import CancelAttempt, StartAttempt
from search.agents.forking.server_process import Launch, ServerProcess, by_exec
from search.errors import ExecutorError


@final
class LocalExecutor:
    """Forks attempts from a preloaded server process.

    The server is started at once, and again when it was lost. Everything ends with the process that
    made the executor, however that ends.

    Args:
        slots: what `capacity` answers; who uses which is for the caller to keep track of.
        logs: folder for the attempts' logs and the fork server's own.
        start_seconds: longest wait for an attempt's process, a cold fork server included.
        server_module: the program that forks, see `search.agents.forking.fork_server`.
        launch: how that program is started.
        containment: what keeps attempts within their slots' memory.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        *,
        logs: Path,
        start_seconds: float = 120.0,
        server_module: str = "search.agents.forking.fork_server",
        launch: Launch = by_exec,
        containment: Containment | None = None,
    ) -> None:
        self._slots = tuple(slots)
        self._logs = logs.absolute()
        self._logs.mkdir(parents=True, exist_ok=True)
        self._start_seconds = start_seconds
        self._server_module = server_module
        self._launch = launch
        self._containment = containment or Containment(kind="none")
        self._exits = Exits()
        self._lock = threading.Lock()
        self._closed = False
        self._server = self._new_server()

    def capacity(self) -> Sequence[Slot]:
        """Return every slot, those in use included."""
        return self._slots

    def reserve(self, attempt_id: str, slot: Slot) -> bool:  # noqa: ARG002
        """Every slot of this machine is its one coordinator's."""
        return True

    def start(self, ticket: AttemptTicket, slot: Slot) -> None:
        """Fork the attempt and return when it leads its own process group.

        Raises:
            ExecutorError: it could not be started, it runs already, or its device is not here.
        """
        check_device(ticket, slot, self._slots)
        request = StartAttempt(
            ticket=ticket,
            log=str(self.log_path(ticket.attempt_id)),
            containment=self._containment,
        )
        self._living_server().start(request, timeout_seconds=self._start_seconds)

    def cancel(self, attempt_id: str, grace_seconds: float) -> None:
        """Send SIGTERM to the attempt's group and SIGKILL after the grace time, without waiting."""
        self._server.cancel(CancelAttempt(attempt_id=attempt_id, grace_seconds=grace_seconds))

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
        """Return what ended since the last call; waits up to the timeout for a first one."""
        return self._exits.poll(timeout_seconds)

    def log_path(self, attempt_id: str) -> Path:
        """Name the file with the attempt's stdout and stderr: `log_file`."""
        return log_file(self._logs, attempt_id)

    def close(self) -> None:
        """Kill what still runs, end the fork server and wait for that."""
        with self._lock:
            self._closed = True
            self._server.close()

    def _living_server(self) -> ServerProcess:
        with self._lock:
            if self._closed:
                raise ExecutorError("the executor is closed and starts nothing any more")
            if self._server.ended:
                self._server = self._new_server()
            return self._server

    def _new_server(self) -> ServerProcess:
        # No attempt's log has a name with two dots, see `log_file`.
        errors = self._logs / "fork-server.stderr.log"
        return ServerProcess(
            self._server_module, launch=self._launch, errors=errors, on_exit=self._exits.put
        )


if TYPE_CHECKING:
    _conforms: type[Executor] = LocalExecutor
