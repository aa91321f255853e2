"""In place of a fork server: slots in the main thread of this process, to be stepped through.

Nothing here is held apart, so that less is promised: an attempt that has begun can be told to end,
but is not killed; one that takes all memory or breaks its process takes this process with it.
"""

import logging
import os
import signal
import socket
import threading
import traceback
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from pathlib import Path
from queue import SimpleQueue
from typing import final

import torch

from search.agents.executor import AttemptTicket
from search.agents.forking.frames import REPORTS, REQUESTS, Ended, Report, StartAttempt, Started
from search.agents.forking.server_process import Launched
from search.agents.slot_process import serve_slot
from search.agents.slots.attempt_logs import handling
from search.agents.worker import TERMINATED

_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@final
class Unforked:
    """Serves what asks for forks in the thread that calls `run`, one slot at a time.

    That is to be the main thread: only there may an attempt take SIGTERM and Ctrl-C.
    """

    def __init__(self) -> None:
        self._starts = SimpleQueue[tuple[StartAttempt, Connection, _Line] | None]()
        self._told = False
        """Whether the attempt that runs was told to end from within, and not by a signal."""
        self._before = signal.getsignal(signal.SIGTERM)

    def launch(self, _module: str, pipe: Connection, _errors: Path) -> Launched:
        """Take requests from here on, see `Launch`."""
        line = _Line(Connection(os.dup(pipe.fileno())))
        threading.Thread(target=self._listen, args=(line,), name="unforked", daemon=True).start()
        return line

    def run(self, beside: Callable[[], None]) -> None:
        """Serve slots for as long as `beside` runs, in a thread of its own; raises as that does."""
        failed: list[BaseException] = []

        def work() -> None:
            try:
                beside()
            except BaseException as error:
                failed.append(error)
            finally:
                self._starts.put(None)

        thread = threading.Thread(target=work, name="agent")
        thread.start()
        while (start := self._starts.get()) is not None:
            self._serve(*start)
        thread.join()
        if failed:
            raise failed[0]

    def _listen(self, line: "_Line") -> None:
        """Take requests of one line, up to its end."""
        with suppress(EOFError, OSError):
            while True:
                request = REQUESTS.validate_json(line.pipe.recv_bytes())
                if isinstance(request, StartAttempt):
                    self._starts.put((request, Connection(recv_handle(line.pipe)), line))
                else:
                    self._tell_to_end()

    def _tell_to_end(self) -> None:
        """Have the attempt store where it is, if it is one that can."""
        if signal.getsignal(signal.SIGTERM) is not self._before:
            self._told = True
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    def _serve(self, request: StartAttempt, slot: Connection, line: "_Line") -> None:
        ticket, self._told = request.ticket, False
        with slot, line.serving(slot) as is_served:
            if not is_served:
                return
            line.say(Started(attempt_id=ticket.attempt_id, pid=os.getpid()))
            code = _exit_code(request, slot)
            line.say(Ended(attempt_id=ticket.attempt_id, returncode=code, signal=None))
            # As when a process ends: a thread that waits for a word here keeps it open else.
            _end_of(slot)
        if code == TERMINATED and not self._told:
            # It was this process that was told to end, and the attempt that heard it.
            signal.raise_signal(signal.SIGTERM)


@final
class _Line:
    """The end of a fork server's pipe that is served here; to who launched it, the server."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe
        self._lock = threading.Lock()
        self._slot: Connection | None = None
        self._is_over = False

    def send_signal(self, sig: int, /) -> None:  # noqa: ARG002
        """End the line, as soon as no slot is served on it: one ends with its attempt's next word.

        Whatever the signal, since none may reach this very process.
        """
        with self._lock:
            self._is_over = True
            _end_of(self._slot or self.pipe)

    def wait(self) -> None:
        """Nothing is left of a line that is over."""

    def say(self, report: Report) -> None:
        """Report to who launched it."""
        with suppress(OSError):
            self.pipe.send_bytes(REPORTS.dump_json(report))

    @contextmanager
    def serving(self, slot: Connection) -> Generator[bool]:
        """Have the slot end with the line meanwhile; false where that is over already."""
        with self._lock:
            is_served = not self._is_over
            self._slot = slot if is_served else None
        yield is_served
        with self._lock:
            self._slot = None
            if self._is_over:
                _end_of(self.pipe)


def _exit_code(request: StartAttempt, slot: Connection) -> int:
    """Serve a slot to its end, as a process of its own would."""
    threads = torch.get_num_threads()
    torch.set_num_threads(request.ticket.threads)
    try:
        return serve_slot(request.ticket, slot, logged=_logged)
    except Exception:
        # Its traceback is in its log, and the agent goes on.
        with Path(request.log).open("a") as log:
            traceback.print_exc(file=log)
        return 1
    finally:
        torch.set_num_threads(threads)


def _end_of(pipe: Connection) -> None:
    """Have both ends of a pipe come to its end, also where somebody waits for a word."""
    with suppress(OSError), socket.socket(fileno=os.dup(pipe.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


def _logged(_ticket: AttemptTicket, log: str) -> AbstractContextManager[None]:
    """Have all that is logged meanwhile in this file as well, but what attempts log themselves."""
    handler = logging.FileHandler(log)
    handler.setFormatter(logging.Formatter(_LINE))
    return handling(handler)
