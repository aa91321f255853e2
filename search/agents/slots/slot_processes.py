"""The processes of a machine's slots: one for each slot, for one attempt after another, or several.

See Note [Stacks] in `search/README.md`.
"""

import itertools
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, Final, final

from pydantic import TypeAdapter

from search.agents.executor import AttemptTicket, Exit, log_file, slot_of
from search.agents.forking.containment import Containment
from search.agents.forking.frames import CancelAttempt, StartAttempt
from search.agents.forking.server_process import Launch, ServerProcess, by_exec
from search.agents.slots.slot_frames import Frame, receive
from search.agents.slots.slot_states import Process, SlotState, Start, of_several
from search.errors import ExecutorError
from storage.endings import AttemptCause

_log = logging.getLogger(__name__)

FORK_SERVER: Final = "search.agents.forking.fork_server"
_START_SECONDS: Final = 120.0
"""Longest wait for a slot's process, a cold fork server included."""
IDLE_SECONDS: Final = 60.0
"""How long a process without a job keeps what it has warm."""
LEAVE_SECONDS: Final = 10.0
"""How long an attempt has at the least to leave others: a kill would cost all of them."""
_CALLED_BACK: Final = "not started: it was called back"


_TICKET: TypeAdapter[AttemptTicket] = TypeAdapter(AttemptTicket)

OnFrame = Callable[[str, Frame, bytes | None], None]
"""Takes what an attempt says, from a thread of its slot's own."""
OnFree = Callable[[str, Exit], None]
"""Hears that an attempt's slot is free, after all that it has said."""


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
        self._slots: defaultdict[str, SlotState] = defaultdict(SlotState)
        self._all: dict[str, Process] = {}
        """By its own id, also those that are on their way out."""
        self._numbers = itertools.count(1)
        self._closed = False
        self._server = self._new_server()

    def start(self, ticket: AttemptTicket, job: Mapping[str, Any], *, place: str) -> None:
        """Have an attempt done by the process of a place's slot.

        Nothing else has the place just now. Where other places of the slot have attempts with which
        it cannot be trained, it waits until these are gone.

        Raises:
            ExecutorError: no process could be started for it.
        """
        start, slot = Start(ticket, job, place), slot_of(place)
        with self._lock:
            others = self._slots[slot].starts()
            other = next((one for one in others if one.place == place), None)
            if other is not None:
                raise ExecutorError(f"place {place!r} has attempt {other.id} on it")
            self._slots[slot].waiting.append(start)
        self._advance(slot, own=start)

    def tell(self, attempt_id: str, frame: Frame, content: bytes | None = None) -> None:
        """Send a frame for an attempt to the process that has it, if one has."""
        with self._lock:
            process = self._of(attempt_id)
        if process is not None:
            process.tell({"attempt": attempt_id, **frame}, content)

    def cancel(self, attempt_id: str, grace_seconds: float) -> None:
        """Have an attempt store its state and end, and kill its process after the grace time.

        One that is alone in its process gets SIGTERM, as all of that's group. One that has others
        beside it leaves them, and is given `LEAVE_SECONDS` at the least. One that waits is called
        back.
        """
        with self._lock:
            called_back = self._withdraw(attempt_id)
            process = self._of(attempt_id)
            alone = False
            if process is not None:
                start = process.attempts[attempt_id]
                before = start.ends_within
                start.ends_within = grace_seconds if before is None else min(before, grace_seconds)
                alone = len(process.attempts) == 1
                # The signal may come after the attempt's end, and must reach no other one.
                process.retired = process.retired or alone
        if called_back is not None:
            self._on_free(attempt_id, Exit(attempt_id, None, None, _CALLED_BACK))
            self._advance(slot_of(called_back.place))
        elif process is not None and alone:
            wish = CancelAttempt(attempt_id=process.id, grace_seconds=grace_seconds)
            process.server.cancel(wish)
        elif process is not None:
            process.tell({"kind": "leave", "attempt": attempt_id})
            self._kill_later(process, attempt_id, max(grace_seconds, LEAVE_SECONDS))

    def waiting(self) -> list[str]:
        """The attempts that were started here and have not begun, for others have their slot."""
        with self._lock:
            return [
                start.id
                for slot in self._slots.values()
                for start in slot.starts()
                if not start.has_begun
            ]

    def retire_idle(self, seconds: float | None = None) -> None:
        """End processes that have had no job for so long; by default for as long as they may."""
        since = time.monotonic() - (self._idle_seconds if seconds is None else seconds)
        idle: list[Process] = []
        with self._lock:
            for slot in self._slots.values():
                process = slot.process
                if process is None or process.attempts or process.idle_since > since:
                    continue
                idle.append(process)
                slot.process = None
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

    def _of(self, attempt_id: str) -> Process | None:
        return next((one for one in self._all.values() if attempt_id in one.attempts), None)

    def _withdraw(self, attempt_id: str) -> Start | None:
        """Take an attempt out that waits; null: it does not."""
        for slot in self._slots.values():
            for start in slot.waiting:
                if start.id == attempt_id:
                    slot.waiting.remove(start)
                    return start
        return None

    def _kill_later(self, process: Process, attempt_id: str, seconds: float) -> None:
        """Kill a process after so long, if it still has an attempt."""
        with self._lock:
            start = process.attempts.get(attempt_id)
            kill_at = time.monotonic() + seconds
            if start is None or start.killed_at <= kill_at:
                return
            start.killed_at = kill_at

        def kill() -> None:
            with self._lock:
                if attempt_id not in process.attempts:
                    return
                process.retired = True
            _log.warning("an attempt did not leave its stack", extra={"attempt_id": attempt_id})
            process.server.cancel(CancelAttempt(attempt_id=process.id, grace_seconds=0.0))

        timer = threading.Timer(seconds, kill)
        timer.daemon = True
        timer.start()

    def _advance(self, name: str, *, own: Start | None = None) -> None:
        """Give what waits at a slot to a process, in order, as far as that can be.

        Raises:
            ExecutorError: no process could be started for `own`.
        """
        while True:
            dismissed: Process | None = None
            with self._lock:
                slot = self._slots[name]
                if slot.forks or not slot.waiting:
                    # Nothing waits, or the thread that forks just now takes it next.
                    return
                start, process = slot.waiting[0], slot.process
                if process is not None and process.takes(start):
                    process.attempts[start.id] = start
                elif process is not None and process.attempts:
                    # It goes on when these are gone.
                    return
                else:
                    dismissed, process, slot.process = process, None, None
                    slot.forks = True
                slot.waiting.popleft()
            if dismissed is not None:
                dismissed.tell({"kind": "bye"})
            if process is None:
                self._fork_for(start, name, own=own)
            else:
                self._give(process, start)

    def _give(self, process: Process, start: Start) -> None:
        process.tell(
            {
                "kind": "job",
                "attempt": start.id,
                "ticket": _TICKET.dump_python(start.ticket, mode="json"),
                "log": str(self.log_path(start.id)),
                "job": start.job,
            }
        )

    def _fork_for(self, start: Start, name: str, *, own: Start | None) -> None:
        """Have a process forked for an attempt, and give it to that."""
        try:
            process = self._forked(start, name)
        except ExecutorError as error:
            with self._lock:
                self._slots[name].forks = False
            if start is not own:
                self._on_free(start.id, Exit(start.id, None, None, f"not started: {error}"))
                return
            # What has come meanwhile may do better.
            self._advance(name)
            raise
        self._give(process, start)
        with self._lock:
            ends_within = start.ends_within
        if ends_within is not None:
            # The order came before there was a process.
            self.cancel(start.id, ends_within)

    def _forked(self, start: Start, name: str) -> Process:
        ours, theirs = Pipe()
        ticket = start.ticket
        with theirs:
            server = self._living_server()
            # Whatever becomes of the process, it was for this attempt.
            start.has_begun = True
            process = Process(
                id=f"slot-{next(self._numbers)}",
                slot=name,
                tenant=ticket.tenant,
                threads=ticket.threads,
                pipe=ours,
                server=server,
                attempts={start.id: start},
            )
            request = StartAttempt(
                ticket=replace(ticket, attempt_id=process.id),
                log=str(self.log_path(start.id)),
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
            slot = self._slots[name]
            slot.process, slot.forks = process, False
        threading.Thread(target=self._listen, args=(process,), name=process.id, daemon=True).start()
        return process

    def _listen(self, process: Process) -> None:
        """Pass on what a process says, up to its end."""
        with suppress(EOFError, OSError):
            while True:
                frame, content = receive(process.pipe)
                start = process.attempts.get(frame["attempt"])
                if start is None:
                    continue
                if frame["kind"] == "begin":
                    start.has_begun = True
                    continue
                if frame["kind"] != "left":
                    self._on_frame(start.id, frame, content)
                if frame["kind"] in ("end", "left"):
                    self._gone(process, start, frame)
        process.exited.wait()
        process.pipe.close()
        with self._lock:
            self._all.pop(process.id, None)
            starts, process.attempts = list(process.attempts.values()), {}
            begun = [start for start in starts if start.has_begun]
            others = [start for start in starts if not start.has_begun]
            slot = self._slots[process.slot]
            if slot.process is process:
                slot.process = None
            # Nothing of these is lost: another process begins with them.
            again = [start for start in others if start.ends_within is None]
            slot.waiting.extendleft(reversed(again))
        if process.exit is not None:
            ended = of_several(process.exit) if len(begun) > 1 else process.exit
            for start in begun:
                self._on_free(start.id, replace(ended, attempt_id=start.id))
        for start in others:
            if start not in again:
                self._on_free(start.id, Exit(start.id, None, None, _CALLED_BACK))
        self._advance(process.slot)

    def _gone(self, process: Process, start: Start, frame: Frame) -> None:
        """An attempt has ended; its process may go on, with others or for others."""
        with self._lock:
            process.retired = process.retired or not frame["lives"]
            is_last = len(process.attempts) == 1
            if not frame["frees"] or (process.retired and is_last):
                # It ends, or is about to be killed: the place is free when it is gone.
                return
            del process.attempts[start.id]
            process.idle_since = time.monotonic()
        if self._idle_seconds == 0:
            # Before anything else begins, which may need its place among processes.
            self.retire_idle()
        code = frame.get("code")
        ended = Exit(start.id, code, None, f"exited with code {code}", AttemptCause.EXITED)
        if code is None:
            ended = Exit(start.id, None, None, _CALLED_BACK)
        self._on_free(start.id, ended)
        self._advance(process.slot)

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
