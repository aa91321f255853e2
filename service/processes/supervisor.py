"""`reflectory serve`: one machine's whole service, forked from one process that imports it once.

That process holds what must not be held twice or must outlive a child: the lock on the data
directory, the listening sockets, the folder of the dashboard's socket. It has one thread and waits
in one place: for signals, ends of children, visits of the dashboard, and requests to fork. Its
children do what a large site runs by the commands `api`, `coordinator` and `dashboard`.
"""

import gc
import logging
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib import import_module
from multiprocessing.connection import wait
from pathlib import Path
from types import FrameType
from typing import final

import httpx2
from sqlalchemy.orm import configure_mappers

from search.agents.forking.environment import PRELOAD
from search.linux import die_with_parent
from search.pandas_import import keep_pandas_out
from service.auth.listeners import own_socket, tcp_listener, unix_listener
from service.auth.origins import check_address
from service.data_dir.artifact_store import check_artifacts
from service.data_dir.locks import hold
from service.data_dir.private_files import tighten
from service.data_dir.server_file import ServerFile
from service.processes.children import Child
from service.processes.forking import Forked, ForkRequests, fork
from service.settings import Settings
from storage.engine import Database

_log = logging.getLogger(__name__)

_ASK_SECONDS = 0.1
_LOOPBACK_OF = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Wildcard address -> one that can be spoken to."""
_FOLDER_PREFIX = "reflectory-"
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PRELOADED = (
    "torch",
    "optuna",
    "service.processes.roles",
)
"""Imported before the first fork, one after the other: a signal to stop waits for one at most."""


class AlreadyServing(Exception):
    """Another server works on this data directory; says which, and where it answers."""


@final
class _StopSignals:
    """Whether a signal to stop came; `fileno` becomes readable with the first one."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._stopping = False

    def fileno(self) -> int:
        """The end of a pipe."""
        return self._reading

    def is_set(self) -> bool:
        """Whether it came."""
        return self._stopping

    def stop(self, _sign: int, _frame: FrameType | None) -> None:
        """Take note of it, and wake what waits."""
        self._stopping = True
        os.write(self._writing, b"1")

    def close(self) -> None:
        """Give the pipe back."""
        os.close(self._reading)
        os.close(self._writing)


def serve(settings: Settings, *, announce: Callable[[ServerFile], None]) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP; `announce` is called once the server is ready.

    Raises:
        AddressRefused: the address is not loopback, and there is no key.
        AlreadyServing: another server has the data directory.
        CannotListen: the address is taken or not ours, or the socket of attempts cannot be made.
        StoreRefused: the artifact store does not let the server in.
        ChildGivenUp: a child process cannot be kept alive.
    """
    with ExitStack() as held:
        stopping = held.enter_context(_stop_signals())
        data_dir = settings.data_dir.absolute()
        held.enter_context(_lock(data_dir))
        _remove_folder_of_killed(data_dir)
        tighten(settings)
        check_artifacts(settings)
        _migrate(settings)
        check_address(settings.host, settings.database_url)
        listener = held.enter_context(tcp_listener(settings.host, settings.port))
        url = _url(settings.host, listener.getsockname()[1])
        socket_folder = Path(tempfile.mkdtemp(prefix=_FOLDER_PREFIX))
        held.callback(shutil.rmtree, socket_folder, ignore_errors=True)
        place = ServerFile(url=url, pid=os.getpid(), folder=socket_folder)
        place.write(data_dir)
        held.callback(ServerFile.remove, data_dir)
        dashboard_socket = socket_folder / "dashboard.sock"
        dashboard = held.enter_context(unix_listener(dashboard_socket))
        attempts_socket = settings.attempts_socket or own_socket(data_dir, socket_folder)
        attempts = held.enter_context(unix_listener(attempts_socket.absolute()))
        lifeline, writing_end = os.pipe()
        held.callback(os.close, writing_end)
        held.callback(os.close, lifeline)
        _preload(stopping)
        if stopping.is_set():
            return
        # Not before: they import what all of it is for.
        from service.processes.executors import wants_own_agent
        from service.processes.roles import PROGRAMS, Held, children

        children_settings = settings.model_copy(
            update={
                "data_dir": data_dir,
                "url": settings.url or place.url,
                "dashboard_socket": dashboard_socket,
                "counters_file": settings.counters_file or socket_folder / "counters",
                "attempts_socket": attempts_socket.absolute(),
                "has_own_agent": wants_own_agent(settings),
                "has_launcher": settings.executor == "ray",
            }
        )
        requests = ForkRequests(PROGRAMS)
        sockets = Held(listener, attempts, dashboard, lifeline, socket_folder)
        family = children(children_settings, sockets, requests)
        # What the last server left behind says nothing about this one.
        children_settings.coordinator_alive.unlink(missing_ok=True)
        held.callback(requests.end_now)
        held.callback(_end, family, settings.shutdown_grace_seconds)
        for child in family:
            child.tend()
        ready = fork("readiness", partial(_wait_until_ready, place.url, os.getpid()))
        held.callback(ready.send_signal, signal.SIGKILL)
        _tend(family, requests, stopping, ready, lambda: announce(place))
        _log.info("the server stops")


def _preload(stopping: _StopSignals) -> None:
    """Import what the children need, once; what was imported stays, and its pages are shared."""
    os.environ.update(PRELOAD)
    keep_pandas_out()
    # Looking for garbage at each 700 objects takes a second; without, what it leaves between what
    # stays makes pages that no child can share for long.
    thresholds = gc.get_threshold()
    gc.set_threshold(5000, 10, 10)
    for module in _PRELOADED:
        if stopping.is_set():
            return
        import_module(module)
    # Not before, for it imports torch, and not later, for it looks at what has not been frozen.
    from service.processes import tracer

    tracer.keep_out()
    # Nothing is sent. The HTTP client imports its transport when the first one is made.
    httpx2.Client(verify=False, trust_env=False).close()
    configure_mappers()
    gc.set_threshold(*thresholds)
    gc.collect()
    gc.freeze()


def _tend(
    children: Sequence[Child],
    requests: ForkRequests,
    stopping: _StopSignals,
    ready: Forked,
    announce: Callable[[], None],
) -> None:
    answers: Forked | None = ready
    while not stopping.is_set():
        for child in children:
            child.tend()
        requests.tend()
        if answers is not None and (status := answers.poll()) is not None:
            answers = None
            if status == 0:
                announce()
        awaited = [stopping.fileno(), *requests.waits_on()]
        awaited += [one for child in children for one in child.waits_on()]
        awaited += () if answers is None else (answers.fileno(),)
        due = [seconds for child in children if (seconds := child.seconds()) is not None]
        wait(awaited, min(due, default=None))


def _end(children: Sequence[Child], grace_seconds: float) -> None:
    """End agents first, then the coordinator: all say their last words to those that are left.

    So what runs stores where it is, and its end is known.
    """
    deadline = time.monotonic() + grace_seconds
    for group in _in_order_of_end(children):
        for child in group:
            child.ask_to_end()
        for child in group:
            child.has_ended(max(0.0, deadline - time.monotonic()))
    for child in children:
        child.end_now()


def _in_order_of_end(children: Sequence[Child]) -> Iterator[list[Child]]:
    first = (("agent", "launcher"), ("coordinator",))
    for roles in first:
        yield [child for child in children if child.role in roles]
    yield [child for child in children if child.role not in (role for one in first for role in one)]


@contextmanager
def _stop_signals() -> Generator[_StopSignals]:
    """Have signals to stop noted meanwhile."""
    stopping = _StopSignals()
    before = {sign: signal.signal(sign, stopping.stop) for sign in _STOP_SIGNALS}
    try:
        yield stopping
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)
        stopping.close()


@contextmanager
def _lock(data_dir: Path) -> Generator[None]:
    """Hold the data directory."""
    with ExitStack() as held:
        try:
            held.enter_context(hold(data_dir / "serve.lock"))
        except BlockingIOError as error:
            other = ServerFile.read(data_dir)
            who = f"process {other.pid} serves it at {other.url}" if other else "it starts just now"
            raise AlreadyServing(
                f"another server works on the data directory {data_dir}: {who}; "
                "stop that one, or choose another --data-dir"
            ) from error
        yield


def _remove_folder_of_killed(data_dir: Path) -> None:
    """Take away the sockets' folder of a server that was killed with all its processes."""
    last = ServerFile.read(data_dir)
    if last is not None and last.folder is not None and last.folder.name.startswith(_FOLDER_PREFIX):
        shutil.rmtree(last.folder, ignore_errors=True)


def _migrate(settings: Settings) -> None:
    """Bring the tables to this version, in a process that takes with it what that imports."""
    fork("migration", partial(_migrate_quietly, settings)).wait()
    # It finds all done; or it fails as that one did, and the user reads why.
    _migrate_here(settings)


def _migrate_quietly(settings: Settings) -> None:
    with suppress(Exception):
        _migrate_here(settings)


def _migrate_here(settings: Settings) -> None:
    database = Database(settings.database_url)
    try:
        database.migrate()
    finally:
        database.dispose()


def _url(host: str, port: int) -> str:
    """Where this machine's own processes reach a server that listens on `host`."""
    host = _LOOPBACK_OF.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _wait_until_ready(url: str, parent: int) -> None:
    """Wait for a server that can do its work, in a process just forked."""
    die_with_parent(signal.SIGKILL)
    with httpx2.Client(timeout=60, trust_env=False) as client:
        while os.getppid() == parent:
            with suppress(httpx2.TransportError):
                if not client.get(f"{url}/readyz").is_error:
                    return
            time.sleep(_ASK_SECONDS)
