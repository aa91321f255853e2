"""The fork server's loop: forks attempts on request, reaps them, and kills them when it has to end.

See Note [One thread] in `search/README.md`.
"""

import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import recv_handle
from typing import NoReturn, final

from search.agents.executor import AttemptTicket
from search.agents.forking.containment import Bounds
from search.agents.forking.frames import (
    REPORTS,
    REQUESTS,
    CancelAttempt,
    Ended,
    NotStarted,
    Report,
    Request,
    StartAttempt,
    Started,
)
from search.errors import ExecutorError
from search.linux import (
    ATTEMPT_SCORE,
    FORK_SERVER_SCORE,
    adopt_orphans,
    die_with_parent,
    out_of_memory_kills,
    raise_oom_score,
    thread_count,
)

_HANDLED = (signal.SIGTERM, signal.SIGCHLD, signal.SIGINT)


Run = Callable[[AttemptTicket, Connection], int]
"""What a slot's process executes, with its pipe to who started it; returns its exit code."""


def serve(
    pipe: Connection, run: Run, *, before_the_first: Callable[[], None] | None = None
) -> None:
    """Serve requests from `pipe` until its other end closes or SIGTERM comes; then kill what runs.

    `before_the_first` is called once, before the first fork.

    Raises:
        ExecutorError: this process has more than one thread and must not fork.
    """
    _settle()
    die_with_parent(signal.SIGTERM)
    adopt_orphans()
    raise_oom_score(FORK_SERVER_SCORE)
    _ForkServer(pipe, run, before_the_first).serve()


def _settle() -> None:
    """Make sure that this process may fork, and that its forks share what was imported."""
    threads = thread_count()
    if threads != 1:
        raise ExecutorError(
            f"the fork server runs {threads} threads where 1 is allowed: "
            "something that it imported started one, and its forks could hang"
        )
    # What was imported stays for good: kept out of collections, its pages stay shared with forks.
    gc.collect()
    gc.freeze()


@dataclass
class _Attempt:
    attempt_id: str
    bounds: Bounds
    kill_at: float | None = None
    """When SIGKILL is due, on the monotonic clock; None while nobody has cancelled it."""


@final
class _ForkServer:
    def __init__(
        self, pipe: Connection, run: Run, before_the_first: Callable[[], None] | None
    ) -> None:
        self._pipe = pipe
        self._run = run
        self._before_the_first = before_the_first
        self._running: dict[int, _Attempt] = {}
        self._emptied: list[Bounds] = []
        self._out_of_memory_kills = out_of_memory_kills()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._handlers: dict[type[Request], Callable[..., None]] = {
            StartAttempt: self._start,
            CancelAttempt: self._cancel,
        }

    def serve(self) -> None:
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in _HANDLED:
            # The handler does nothing: the number arrives in the wake-up pipe, where the loop is.
            signal.signal(number, lambda _number, _frame: None)
        try:
            while self._step():
                pass
        finally:
            self._kill_all()

    def _step(self) -> bool:
        """Wait for the next thing and do it. False when the server has to end."""
        ready = wait([self._pipe, self._wake_read], self._seconds_to_next_kill())
        if self._wake_read in ready and signal.SIGTERM in os.read(self._wake_read, 4096):
            return False
        self._reap()
        self._kill_overdue()
        if self._pipe in ready:
            try:
                request = REQUESTS.validate_json(self._pipe.recv_bytes())
            except (EOFError, ConnectionError):
                return False
            self._handlers[type(request)](request)
        return True

    def _start(self, request: StartAttempt) -> None:
        attempt_id = request.ticket.attempt_id
        slots_pipe = recv_handle(self._pipe)
        if self._before_the_first is not None:
            self._before_the_first()
            self._before_the_first = None
            _settle()
        try:
            bounds = request.containment.bounds(request.ticket)
            try:
                pid = self._fork(request, bounds, slots_pipe)
            except OSError:
                bounds.close()
                raise
        except OSError as error:
            self._report(NotStarted(attempt_id=attempt_id, reason=str(error)))
            return
        finally:
            os.close(slots_pipe)
        self._running[pid] = _Attempt(attempt_id, bounds)
        self._report(Started(attempt_id=attempt_id, pid=pid))

    def _fork(self, request: StartAttempt, bounds: Bounds, slots_pipe: int) -> int:
        """Fork the attempt; return when it leads its own group, so that it can be signalled."""
        log = os.open(request.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        leads_read, leads_write = os.pipe()
        server = os.getpid()
        # Until the child has its own handlers, a signal waits instead of reaching the server's.
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        try:
            pid = os.fork()
            if pid == 0:
                os.close(leads_read)
                run = partial(self._run, request.ticket, Connection(slots_pipe))
                device = request.ticket.device
                self._become(run, bounds, device=device, log=log, leads=leads_write, server=server)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
            os.close(log)
            os.close(leads_write)
            # A byte, or the end of the pipe when the child has died before it.
            os.read(leads_read, 1)
            os.close(leads_read)
        return pid

    def _become(
        self,
        run: Callable[[], int],
        bounds: Bounds,
        *,
        device: str,
        log: int,
        leads: int,
        server: int,
    ) -> NoReturn:
        """Turn this process, just forked, into the attempt. It ends here, whatever happens."""
        code = 1
        try:
            raise_oom_score(ATTEMPT_SCORE)
            os.setsid()
            die_with_parent(signal.SIGKILL)
            if os.getppid() != server:
                os._exit(code)
            signal.set_wakeup_fd(-1)
            for number in _HANDLED:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
            self._take_files(log)
            os.write(leads, b"1")
            os.close(leads)
            bounds.enter()
            os.environ["CUDA_VISIBLE_DEVICES"] = device.partition("cuda:")[2]
            code = run()
        except BaseException:
            # Not even SystemExit may unwind into the server's loop, of which this is a copy.
            traceback.print_exc()
        finally:
            # What found no room before finds none now, and raises again.
            with suppress(BaseException):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _take_files(self, log: int) -> None:
        """Put the log in place of stdout and stderr and close what belongs to the server."""
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        for descriptor in (nothing, log, self._wake_read, self._wake_write):
            os.close(descriptor)
        self._pipe.close()

    def _cancel(self, request: CancelAttempt) -> None:
        for pid, attempt in self._running.items():
            if attempt.attempt_id == request.attempt_id:
                kill_at = time.monotonic() + request.grace_seconds
                attempt.kill_at = min(kill_at, attempt.kill_at or kill_at)
                os.killpg(pid, signal.SIGTERM)

    def _seconds_to_next_kill(self) -> float | None:
        due = [attempt.kill_at for attempt in self._running.values() if attempt.kill_at is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _kill_overdue(self) -> None:
        now = time.monotonic()
        for pid, attempt in self._running.items():
            if attempt.kill_at is not None and attempt.kill_at <= now:
                attempt.kill_at = None
                os.killpg(pid, signal.SIGKILL)

    def _reap(self) -> None:
        """Report each attempt that ended; adopted orphans are reaped without a word."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            attempt = self._running.pop(ended.si_pid, None)
            if attempt is not None:
                # Before the leader is reaped, since until then its pid names this group for sure.
                os.killpg(ended.si_pid, signal.SIGKILL)
            os.waitpid(ended.si_pid, 0)
            if attempt is not None:
                exited = ended.si_code == os.CLD_EXITED
                killed = not exited and ended.si_status == signal.SIGKILL
                # What the group knows is no guess, but all that ended is to be counted in any case.
                guess = self._was_out_of_memory()
                known = attempt.bounds.kills()
                self._report(
                    Ended(
                        attempt_id=attempt.attempt_id,
                        returncode=ended.si_status if exited else None,
                        signal=None if exited else ended.si_status,
                        out_of_memory=killed and (guess if known is None else known.out_of_memory),
                        at_limit=known.at_limit if known is not None and killed else None,
                    )
                )
                self._emptied.append(attempt.bounds)
                self._close_emptied()

    def _close_emptied(self) -> None:
        """Give back what held attempts; where the last of their processes still ends, later."""
        still: list[Bounds] = []
        for bounds in self._emptied:
            try:
                bounds.close()
            except OSError:
                still.append(bounds)
        self._emptied = still

    def _was_out_of_memory(self) -> bool:
        """Whether the kernel has killed for want of memory since an attempt last ended.

        It does not tell whom; of the attempts that were killed since, it is the first.
        """
        before, self._out_of_memory_kills = self._out_of_memory_kills, out_of_memory_kills()
        return self._out_of_memory_kills > before

    def _report(self, report: Report) -> None:
        try:
            self._pipe.send_bytes(REPORTS.dump_json(report))
        except ConnectionError:
            # Nobody listens any more; the next read finds the end of the pipe and ends the server.
            return

    def _kill_all(self) -> None:
        for pid in self._running:
            os.killpg(pid, signal.SIGKILL)
        for pid, attempt in self._running.items():
            os.waitpid(pid, 0)
            self._emptied.append(attempt.bounds)
        self._close_emptied()


def connect(descriptor: int) -> Connection:
    """Take the pipe that the executor left open for this process under this number."""
    os.set_inheritable(descriptor, False)
    return Connection(descriptor)
