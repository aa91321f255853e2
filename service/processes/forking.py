"""Processes that are forked from this one, and so share what it has imported.

See Note [One thread] in `search/README.md`: a process that forks has one thread, and every
loop, pool and connection is made after the fork.
"""

import atexit
import contextlib
import io
import os
import select
import signal
import socket
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn, final

from search.agents.forking.server_process import Launched
from search.linux import show_title, thread_count

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_ASK_SECONDS = 60.0
_MODULE_BYTES = 1024


class ForkRefused(Exception):
    """This process has more than one thread."""


@final
class Forked:
    """A child process of this one. `fileno` becomes readable when it ends."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)
        self._status: int | None = None

    def fileno(self) -> int:
        """The kernel's handle of the process."""
        return self._descriptor

    def poll(self) -> int | None:
        """Its exit code, a signal's number as a negative one; null while it runs."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
                os.close(self._descriptor)
        return self._status

    def send_signal(self, sig: int) -> None:
        """Send it a signal unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill_group(self) -> None:
        """Kill it, and what it started and left in its group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def wait(self, seconds: float | None = None) -> int | None:
        """Its exit code; null if it still runs after so long."""
        if self._status is None:
            _wait_readable(self._descriptor, seconds)
        return self.poll()


def fork(title: str, run: Callable[[], None], *, keep: Collection[int] = ()) -> Forked:
    """Run a function in a new process, which ends when that returns.

    The process leads a group of its own, so that Ctrl-C in a terminal reaches the one above alone.
    It has the standard streams, without input, and the files `keep`; every other one is closed.

    Args:
        title: what `ps` shows behind the program's name.
        run: its `SystemExit` is the exit code; any other exception is printed, and the code is 1.
        keep: descriptors of files that it uses.

    Raises:
        ForkRefused: this process has more than one thread.
        OSError: the machine has no room for another process.
    """
    if (threads := thread_count()) != 1:
        raise ForkRefused(
            f"this process runs {threads} threads where 1 is allowed: "
            "something that it imported started one, and its forks could hang"
        )
    sys.stdout.flush()
    sys.stderr.flush()
    # Until the child has its own handlers, a signal waits instead of reaching ours.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        pid = os.fork()
        if pid == 0:
            _become(title, run, keep)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    with contextlib.suppress(OSError):
        # Here too: the group is to be there as soon as this returns.
        os.setpgid(pid, pid)
    return Forked(pid)


def _become(title: str, run: Callable[[], None], keep: Collection[int]) -> NoReturn:
    """Be the new process, up to its end."""
    code = 1
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        _close_all_but(keep)
        show_title(("reflectory", title))
        # Python's own generator does so by itself; without numpy, nothing draws from numpy's.
        if (np := sys.modules.get("numpy")) is not None:
            np.random.seed()
        run()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
    except BaseException:
        traceback.print_exc()
    finally:
        # As at any end of Python, but that nothing of the process above is unwound or taken apart.
        with contextlib.suppress(BaseException):
            threading._shutdown()  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]
            atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code & 0xFF)


def _close_all_but(keep: Collection[int]) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    kept = {0, 1, 2, *keep}
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):
                # The folder's own descriptor is closed already.
                os.close(int(name))


@final
class ForkRequests:
    """By this, a child has its parent fork one of the programs that the parent knows.

    A request names a program and brings the child's files: an end of a pipe, a log, and a socket
    for the answer, which is the new process's handle. So nothing that is late reaches another.

    Args:
        programs: what may be asked for; each runs in a process of its own, with the pipe.
    """

    def __init__(self, programs: Mapping[str, Callable[[Connection], None]]) -> None:
        self._programs = programs
        self._parents, self._childrens = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._forked: list[Forked] = []

    @property
    def descriptor(self) -> int:
        """What a child has to keep that asks."""
        return self._childrens.fileno()

    def launch(self, module: str, pipe: Connection, errors: Path) -> Launched:
        """In a child: have the program forked. It ends when the pipe does.

        Raises:
            OSError: it was not; says why.
        """
        here, there = socket.socketpair()
        with here, errors.open("ab") as said:
            with there:
                files = [pipe.fileno(), said.fileno(), there.fileno()]
                socket.send_fds(self._childrens, [module.encode()], files)
            here.settimeout(_ASK_SECONDS)
            answer, handles, _, _ = socket.recv_fds(here, _MODULE_BYTES, 1)
        if not handles:
            raise OSError(answer.decode() or "the process that forks does not answer")
        return _Handle(handles[0])

    def waits_on(self) -> Collection[int]:
        """In the parent: descriptors that become readable when there is something to do."""
        return (self._parents.fileno(), *(forked.fileno() for forked in self._forked))

    def tend(self) -> None:
        """In the parent: fork what was asked for, and take note of what ended."""
        self._forked = [forked for forked in self._forked if forked.poll() is None]
        while select.select([self._parents], [], [], 0)[0]:
            module, files, _, _ = socket.recv_fds(self._parents, _MODULE_BYTES, 3)
            self._answer(module.decode(), files)

    def end_now(self) -> None:
        """In the parent: kill what was forked and still runs."""
        for forked in self._forked:
            forked.kill_group()
            forked.wait()

    def _answer(self, module: str, files: Sequence[int]) -> None:
        pipe, errors, reply = files

        def run() -> None:
            os.dup2(errors, 1)
            os.dup2(errors, 2)
            # What an attempt prints is in its log at once, as by `python -u`.
            sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), write_through=True)
            self._programs[module](Connection(pipe))

        # Who asked may be gone; then the pipe has ended too.
        with socket.socket(fileno=reply) as answer, contextlib.suppress(ConnectionError):
            try:
                forked = fork(module.rpartition(".")[2], run, keep=(pipe, errors))
            except OSError as error:
                answer.send(str(error).encode())
            else:
                self._forked.append(forked)
                socket.send_fds(answer, [b"forked"], [forked.fileno()])
        os.close(pipe)
        os.close(errors)


@final
class _Handle:
    """A process that another one forked for this one."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)

    def send_signal(self, sig: int, /) -> None:
        """Send it a signal; one that has ended is left alone."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, sig)

    def wait(self) -> None:
        """Wait for its end."""
        _wait_readable(self._descriptor, None)


def _wait_readable(descriptor: int, seconds: float | None) -> None:
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    waiting.poll(None if seconds is None else 1000 * seconds)
