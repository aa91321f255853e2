"""The agent's side of one fork server: its process, its pipe and the thread that listens."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import Protocol, final

from search.agents.executor import Exit
from search.agents.forking.environment import environment_of_attempts
from search.agents.forking.frames import (
    REPORTS,
    REQUESTS,
    CancelAttempt,
    Ended,
    NotStarted,
    Report,
    StartAttempt,
    Started,
)
from search.errors import ExecutorError
from storage.endings import AttemptCause

_CLOSE_SECONDS = 5.0
_FROM_OUTSIDE = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGKILL)


class Launched(Protocol):
    """A fork server's process."""

    def send_signal(self, sig: int, /) -> None:
        """Send it a signal; one that has ended is left alone."""
        ...

    def wait(self) -> object:
        """Wait for its end."""
        ...


Launch = Callable[[str, Connection, Path], Launched]
"""Starts the program of a module with its end of a pipe; what it says goes to the end of a file.

Raises `OSError` where that cannot be done. The program ends when the pipe does.
"""


def by_exec(module: str, pipe: Connection, errors: Path) -> Launched:
    """Start `python -m module DESCRIPTOR` as a child of the calling thread."""
    descriptor = pipe.fileno()
    with errors.open("ab") as said:
        return subprocess.Popen(
            # -P: a folder `search` or `models` where the service was started is not ours.
            [sys.executable, "-P", "-u", "-m", module, str(descriptor)],
            pass_fds=(descriptor,),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=environment_of_attempts(os.environ),
            # A session of its own, so that Ctrl-C in a terminal reaches the agent alone.
            start_new_session=True,
        )


@final
class ServerProcess:
    """One fork server, from its start to its end. It is not started again: make a new one.

    Args:
        module: the server's program.
        launch: how it is started.
        errors: file for what the server itself has to say.
        on_exit: called once for each attempt that was started, from the listening thread.
    """

    def __init__(
        self, module: str, *, launch: Launch, errors: Path, on_exit: Callable[[Exit], None]
    ) -> None:
        self._module = module
        self._launch = launch
        self._errors = errors
        self._errors_from = errors.stat().st_size if errors.exists() else 0
        self._on_exit = on_exit
        self._lock = threading.Lock()
        self._starting: dict[str, Future[None]] = {}
        self._running: dict[str, int] = {}
        self._ended = False
        self._told_to_end = False
        self._process: Launched | None = None
        self._launch_error: str | None = None
        self._launched = threading.Event()
        self._pipe, self._far_end = Pipe()
        self._reactions: dict[type[Report], Callable[..., None]] = {
            Started: self._on_started,
            NotStarted: self._on_not_started,
            Ended: self._on_ended,
        }
        # The kernel ties the server to the thread that made it, see `die_with_parent`: this one
        # lives exactly as long as it listens.
        self._thread = threading.Thread(target=self._supervise, name="fork-server", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether the server is gone; it takes no attempt any more."""
        return self._ended

    def start(self, request: StartAttempt, *, timeout_seconds: float, pipe: Connection) -> None:
        """Have a slot's process forked, which gets this end of a pipe; it leads its group then.

        Raises:
            ExecutorError: it was not; a server that does not answer in time is killed.
        """
        attempt_id = request.ticket.attempt_id
        started = Future[None]()
        with self._lock:
            if attempt_id in self._running or attempt_id in self._starting:
                raise ExecutorError(f"attempt {attempt_id} runs already")
            if self._ended:
                raise self._lost()
            self._starting[attempt_id] = started
            with contextlib.suppress(ConnectionError):
                # A broken pipe is noticed by the listening thread, which fails this start.
                self._pipe.send_bytes(REQUESTS.dump_json(request))
                send_handle(self._pipe, pipe.fileno(), 0)
        try:
            started.result(timeout_seconds)
        except TimeoutError as error:
            self.kill()
            raise ExecutorError(
                f"the fork server did not start attempt {attempt_id} in {timeout_seconds:g} s "
                "and was killed"
            ) from error

    def cancel(self, request: CancelAttempt) -> None:
        """Pass the wish on; an attempt that has ended is left alone."""
        with self._lock:
            if request.attempt_id in self._running:
                with contextlib.suppress(ConnectionError):
                    self._pipe.send_bytes(REQUESTS.dump_json(request))

    def kill(self) -> None:
        """Kill the server; its attempts are killed and reported by the listening thread."""
        self._signal(signal.SIGKILL)

    def close(self) -> None:
        """End the server and all its attempts, and wait for that."""
        self._signal(signal.SIGTERM)
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive():
            self.kill()
            self._thread.join()

    def _signal(self, number: signal.Signals) -> None:
        self._told_to_end = True
        self._launched.wait()
        if self._process is not None:
            self._process.send_signal(number)

    def _supervise(self) -> None:
        try:
            self._process = self._launch(self._module, self._far_end, self._errors)
        except OSError as error:
            self._launch_error = str(error)
        finally:
            self._far_end.close()
            self._launched.set()
        try:
            while self._process is not None:
                report = REPORTS.validate_json(self._pipe.recv_bytes())
                self._reactions[type(report)](report)
        except (EOFError, ConnectionError):
            pass
        finally:
            self._bury()

    def _on_started(self, report: Started) -> None:
        with self._lock:
            self._running[report.attempt_id] = report.pid
            self._starting.pop(report.attempt_id).set_result(None)

    def _on_not_started(self, report: NotStarted) -> None:
        error = ExecutorError(f"attempt {report.attempt_id} was not started: {report.reason}")
        with self._lock:
            self._starting.pop(report.attempt_id).set_exception(error)

    def _on_ended(self, report: Ended) -> None:
        with self._lock:
            del self._running[report.attempt_id]
        self._on_exit(_exit(report))

    def _bury(self) -> None:
        """Settle everything once the server's end of the pipe is closed."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        with self._lock:
            self._ended = True
            for started in self._starting.values():
                started.set_exception(self._lost())
            self._starting.clear()
            running, self._running = self._running, {}
            self._pipe.close()
        for attempt_id, pid in running.items():
            # The kernel killed the leaders with their server; this reaches what they had started.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            how = "killed" if self._told_to_end else "died"
            cause = AttemptCause.LOST if self._told_to_end else AttemptCause.DIED
            killed = int(signal.SIGKILL)
            self._on_exit(Exit(attempt_id, None, killed, f"{how} with its fork server", cause))

    def _lost(self) -> ExecutorError:
        if self._launch_error is not None:
            return ExecutorError(f"the fork server could not be started: {self._launch_error}")
        with self._errors.open("rb") as errors:
            errors.seek(self._errors_from)
            lines = errors.read().decode(errors="replace").strip().splitlines()
        said = f"; its last words: {lines[-1].strip()}" if lines else ""
        return ExecutorError(f"the fork server ended{said} (see {self._errors})")


def _exit(report: Ended) -> Exit:
    number = report.signal
    if number is None:
        cause, detail = AttemptCause.EXITED, f"exited with code {report.returncode}"
    elif report.at_limit is not None:
        limit = f"{report.at_limit / 1e9:.3g} GB"
        cause = AttemptCause.MEMORY_LIMIT
        detail = f"out of memory: the kernel ended it at its limit of {limit}"
    elif report.out_of_memory:
        cause = AttemptCause.OUT_OF_MEMORY
        detail = "out of memory: the kernel killed the worker, for there was no memory left"
    elif number in _FROM_OUTSIDE:
        cause = AttemptCause.LOST
        detail = f"killed by signal {number} ({signal.strsignal(number)})"
    else:
        cause = AttemptCause.CRASHED
        detail = f"crashed by signal {number} ({signal.strsignal(number)})"
    return Exit(report.attempt_id, report.returncode, number, detail, cause)
