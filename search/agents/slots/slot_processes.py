"""The processes of a machine's slots: one for each place, for one attempt after another."""

import itertools
import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, final

from pydantic import TypeAdapter

from search.agents.executor import AttemptTicket, Exit, log_file
from search.agents.forking.containment import Containment
from search.agents.forking.frames import CancelAttempt, StartAttempt
from search.agents.forking.server_process import Launch, ServerProcess, by_exec
from search.agents.slots.slot_line import Frame, receive, send
from search.errors import ExecutorError
from storage.endings import AttemptCause

_log = logging.getLogger(__name__)

FORK_SERVER: Final = "search.agents.forking.fork_server"
_START_SECONDS: Final = 120.0
"""Longest wait for a slot's process, a cold fork server included."""
IDLE_SECONDS: Final = 60.0
"""How long a process without a job keeps what it has warm."""

_TICKET: TypeAdapter[AttemptTicket] = TypeAdapter(AttemptTicket)

OnFrame = Callable[[str, Frame, bytes | None], None]
"""Takes what an attempt says, from a thread of its slot's own."""
OnFree = Callable[[str, Exit], None]
"""Hears that an attempt's slot is free, after all that it has said."""


@dataclass
class _Process:
    """One slot's process; what changes is changed under the lock of all."""

    id: str
    place: str
    tenant: str
    threads: int
    pipe: Connection
    server: ServerProcess
    attempt: str | None = None
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


@final
class SlotProcesses:
    """Starts attempts in processes that are kept for the next one.

    Safe to call from several threads. Everything ends with the process that made this, however
    that ends.

    Args:
        logs: folder for the attempts' logs and the fork server's own.
        on_frame: see `OnFrame`.
        on_free: see `OnFree`.
        launch: how the fork server is started.
        containment: what keeps slots within their memory.
        idle_seconds: how long a process without a job keeps what it has warm.
    """

    def __init__(
        self,
        *,
        logs: Path,
        on_frame: OnFrame,
        on_free: OnFree,
        launch: Launch = by_exec,
        containment: Containment | None = None,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._logs = logs.absolute()
        self._logs.mkdir(parents=True, exist_ok=True)
        self._on_frame = on_frame
        self._on_free = on_free
        self._launch = launch
        self._idle_seconds = idle_seconds
        self._containment = containment or Containment(kind="none")
        self._lock = threading.Lock()
        self._at: dict[str, _Process] = {}
        """The process of each place."""
        self._all: dict[str, _Process] = {}
        """By its own id, also those that are on their way out."""
        self._numbers = itertools.count(1)
        self._closed = False
        self._server = self._new_server()

    def start(self, ticket: AttemptTicket, job: Mapping[str, Any], *, place: str) -> None:
        """Have an attempt done by the process of a place, which nothing else has just now.

        Raises:
            ExecutorError: no process could be started for it.
        """
        process = self._kept(ticket, place) or self._forked(ticket, place)
        process.tell(
            {
                "kind": "job",
                "attempt": ticket.attempt_id,
                "ticket": _TICKET.dump_python(ticket, mode="json"),
                "log": str(self.log_path(ticket.attempt_id)),
                "job": job,
            }
        )

    def tell(self, attempt_id: str, frame: Frame, content: bytes | None = None) -> None:
        """Send a frame to the process that has this attempt, if one has."""
        process = self._of(attempt_id)
        if process is not None:
            process.tell(frame, content)

    def cancel(self, attempt_id: str, grace_seconds: float) -> None:
        """Send SIGTERM to the group of an attempt's process and, after the grace time, SIGKILL."""
        with self._lock:
            process = self._of(attempt_id)
            if process is not None:
                # The signal may come after the attempt's end, and must reach no other one.
                process.retired = True
        if process is not None:
            wish = CancelAttempt(attempt_id=process.id, grace_seconds=grace_seconds)
            process.server.cancel(wish)

    def retire_idle(self, seconds: float | None = None) -> None:
        """End processes that have had no job for so long; by default for as long as they may."""
        since = time.monotonic() - (self._idle_seconds if seconds is None else seconds)
        with self._lock:
            idle = [one for one in self._at.values() if not one.attempt and one.idle_since <= since]
            for process in idle:
                del self._at[process.place]
        for process in idle:
            process.tell({"kind": "bye"})

    def log_path(self, attempt_id: str) -> Path:
        """Name the file with the attempt's stdout and stderr: `log_file`."""
        return log_file(self._logs, attempt_id)

    def close(self) -> None:
        """Kill what still runs, end the fork server and wait for that."""
        with self._lock:
            self._closed = True
            server = self._server
        server.close()

    def _of(self, attempt_id: str) -> _Process | None:
        return next((one for one in list(self._all.values()) if one.attempt == attempt_id), None)

    def _kept(self, ticket: AttemptTicket, place: str) -> _Process | None:
        """The living process of a place, if it may do this attempt."""
        with self._lock:
            process = self._at.get(place)
            if process is None:
                return None
            if process.attempt is not None:
                raise ExecutorError(f"place {place!r} has attempt {process.attempt} on it")
            fits = (process.tenant, process.threads) == (ticket.tenant, ticket.threads)
            if fits and not process.retired and not process.server.ended:
                process.attempt = ticket.attempt_id
                return process
            del self._at[place]
        process.tell({"kind": "bye"})
        return None

    def _forked(self, ticket: AttemptTicket, place: str) -> _Process:
        ours, theirs = Pipe()
        with theirs:
            server = self._living_server()
            process = _Process(
                id=f"slot-{next(self._numbers)}",
                place=place,
                tenant=ticket.tenant,
                threads=ticket.threads,
                pipe=ours,
                server=server,
                attempt=ticket.attempt_id,
            )
            request = StartAttempt(
                ticket=replace(ticket, attempt_id=process.id),
                log=str(self.log_path(ticket.attempt_id)),
                containment=self._containment,
            )
            with self._lock:
                self._all[process.id] = process
            try:
                server.start(request, timeout_seconds=_START_SECONDS, pipe=theirs)
            except ExecutorError:
                with self._lock:
                    del self._all[process.id]
                ours.close()
                raise
        with self._lock:
            self._at[place] = process
        threading.Thread(target=self._listen, args=(process,), name=process.id, daemon=True).start()
        return process

    def _listen(self, process: _Process) -> None:
        """Pass on what a process says, up to its end."""
        with suppress(EOFError, OSError):
            while True:
                frame, content = receive(process.pipe)
                attempt_id = frame["attempt"]
                if attempt_id != process.attempt:
                    continue
                self._on_frame(attempt_id, frame, content)
                if frame["kind"] == "end" and frame["lives"]:
                    self._freed(process, attempt_id)
        process.exited.wait()
        with self._lock:
            self._all.pop(process.id, None)
            if self._at.get(process.place) is process:
                del self._at[process.place]
            attempt, process.attempt = process.attempt, None
        process.pipe.close()
        if attempt is not None and process.exit is not None:
            self._on_free(attempt, replace(process.exit, attempt_id=attempt))

    def _freed(self, process: _Process, attempt_id: str) -> None:
        with self._lock:
            if process.retired:
                # It is about to be killed: the place is free when it is gone.
                return
            process.attempt, process.idle_since = None, time.monotonic()
        if self._idle_seconds == 0:
            # Before anything else begins, which may need its place among processes.
            self.retire_idle()
        how = Exit(attempt_id, 0, None, "exited with code 0", AttemptCause.EXITED)
        self._on_free(attempt_id, how)

    def _on_exit(self, ended: Exit) -> None:
        with self._lock:
            process = self._all.get(ended.attempt_id)
        if process is not None:
            process.exit = ended
            process.exited.set()

    def _living_server(self) -> ServerProcess:
        with self._lock:
            if self._closed:
                raise ExecutorError("the machine stops and starts nothing any more")
            if self._server.ended:
                self._server = self._new_server()
            return self._server

    def _new_server(self) -> ServerProcess:
        # No attempt's log has a name with two dots, see `log_file`.
        errors = self._logs / "fork-server.stderr.log"
        return ServerProcess(FORK_SERVER, launch=self._launch, errors=errors, on_exit=self._on_exit)
