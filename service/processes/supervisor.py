"""`reflectory serve`: one machine's whole service as child processes of one small supervisor.

The supervisor holds what must not be held twice or must outlive a child: the lock on the data
directory, the listening sockets, the folder of the dashboard's socket. Its children are the same
commands that a large site runs by themselves: `api`, `coordinator`, `dashboard`.
"""

import logging
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import cast

import httpx2
from pydantic import BaseModel, SecretStr

from service.auth.listeners import own_socket, tcp_listener, unix_listener
from service.auth.origins import check_address
from service.data_dir.artifact_store import check_artifacts
from service.data_dir.locks import hold
from service.data_dir.private_files import tighten
from service.data_dir.server_file import ServerFile
from service.processes.children import Child
from service.settings import Settings
from storage.engine import Database

_log = logging.getLogger(__name__)

_TICK_SECONDS = 0.1
_DASHBOARD_SECONDS = 30.0
"""How long the announcement waits for the dashboard, which no study needs."""
_LOOPBACK_OF = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Wildcard address -> one that can be spoken to."""
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class AlreadyServing(Exception):
    """Another server works on this data directory; says which, and where it answers."""


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
        tighten(settings)
        check_artifacts(settings)
        _migrate(settings)
        check_address(settings.host, settings.database_url)
        listener = held.enter_context(tcp_listener(settings.host, settings.port))
        place = ServerFile(url=_url(settings.host, listener.getsockname()[1]), pid=os.getpid())
        place.write(data_dir)
        held.callback(ServerFile.remove, data_dir)
        socket_folder = Path(tempfile.mkdtemp(prefix="reflectory-"))
        held.callback(shutil.rmtree, socket_folder, ignore_errors=True)
        dashboard_socket = socket_folder / "dashboard.sock"
        attempts_socket = settings.attempts_socket or own_socket(data_dir, socket_folder)
        attempts = held.enter_context(unix_listener(attempts_socket.absolute()))
        pipe, writing_end = os.pipe()
        held.callback(os.close, writing_end)
        held.callback(os.close, pipe)
        children_settings = settings.model_copy(
            update={
                "data_dir": data_dir,
                "url": settings.url or place.url,
                "dashboard_socket": dashboard_socket,
                "counters_file": settings.counters_file or socket_folder / "counters",
                "attempts_socket": attempts_socket.absolute(),
            }
        )
        children = _children(children_settings, listeners=(listener, attempts), pipe=pipe)
        held.callback(_end, children, settings.shutdown_grace_seconds)
        # What the last server left behind says nothing about this one.
        children_settings.coordinator_alive.unlink(missing_ok=True)
        threading.Thread(
            target=_announce_when_ready,
            args=(place, announce, stopping),
            kwargs={"dashboard_socket": dashboard_socket},
            name="readiness",
            daemon=True,
        ).start()
        _tend(children, stopping)
        _log.info("the server stops")


def _tend(children: Sequence[Child], stopping: threading.Event) -> None:
    while not stopping.is_set():
        for child in children:
            child.tend()
        stopping.wait(_TICK_SECONDS)


def _end(children: Sequence[Child], grace_seconds: float) -> None:
    """End the coordinator first, so that attempts can still say their last words to the API."""
    deadline = time.monotonic() + grace_seconds
    for group in _in_order_of_end(children):
        for child in group:
            child.ask_to_end()
        while time.monotonic() < deadline and not all(child.has_ended() for child in group):
            time.sleep(_TICK_SECONDS / 2)
    for child in children:
        child.end_now()


def _in_order_of_end(children: Sequence[Child]) -> Iterator[list[Child]]:
    yield [child for child in children if child.command == "coordinator"]
    yield [child for child in children if child.command != "coordinator"]


def _children(
    settings: Settings, *, listeners: tuple[socket.socket, socket.socket], pipe: int
) -> list[Child]:
    environment = {**os.environ, **environment_of(settings)}
    lifeline = ("--lifeline", f"{pipe}:{os.getpid()}")
    listening, attempts = (listener.fileno() for listener in listeners)
    apis = [
        Child(
            "api",
            (*lifeline, "--listener", str(listening), "--attempts-listener", str(attempts)),
            environment=environment,
            descriptors=(pipe, listening, attempts),
        )
        for _ in range(settings.apis)
    ]
    return [
        *apis,
        Child("coordinator", lifeline, environment=environment, descriptors=(pipe,)),
        Child("dashboard", lifeline, environment=environment, descriptors=(pipe,)),
    ]


@contextmanager
def _stop_signals() -> Generator[threading.Event]:
    """An event that is set by the first signal to stop."""
    stopping = threading.Event()

    def stop(_sign: int, _frame: FrameType | None) -> None:
        stopping.set()

    before = {sign: signal.signal(sign, stop) for sign in _STOP_SIGNALS}
    try:
        yield stopping
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)


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


def _migrate(settings: Settings) -> None:
    database = Database(settings.database_url)
    try:
        database.migrate()
    finally:
        database.dispose()


def _url(host: str, port: int) -> str:
    """Where this machine's own processes reach a server that listens on `host`."""
    host = _LOOPBACK_OF.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _announce_when_ready(
    place: ServerFile,
    announce: Callable[[ServerFile], None],
    stopping: threading.Event,
    *,
    dashboard_socket: Path,
) -> None:
    """Announce what answers: everything, or all but a dashboard that does not come up in time."""
    deadline = time.monotonic() + _DASHBOARD_SECONDS
    while not stopping.is_set():
        # Asked for before its socket is there, the dashboard would be reported missing in the log.
        whole = dashboard_socket.exists() and _answers("http://localhost/", socket=dashboard_socket)
        if (whole or time.monotonic() > deadline) and _answers(f"{place.url}/readyz"):
            announce(place)
            return
        stopping.wait(_TICK_SECONDS)


def _answers(url: str, *, socket: Path | None = None) -> bool:
    transport = httpx2.HTTPTransport(uds=None if socket is None else str(socket))
    try:
        with httpx2.Client(transport=transport, timeout=5, trust_env=False) as client:
            return not client.get(url).is_error
    except httpx2.TransportError:
        return False


def environment_of(settings: Settings) -> dict[str, str]:
    """The environment variables from which another process builds the same settings."""
    variables: dict[str, str] = {}
    for name, field in Settings.model_fields.items():
        value = getattr(settings, name)
        if name == "artifacts_dir" and settings.artifacts_url is not None:
            continue
        if value is not None:
            variable = field.validation_alias or f"REFLECTORY_{name.upper()}"
            shown = value.get_secret_value() if isinstance(value, SecretStr) else value
            shown = shown.model_dump_json() if isinstance(shown, BaseModel) else shown
            words = cast("tuple[str, ...]", shown) if isinstance(shown, tuple) else (str(shown),)
            variables[str(variable)] = ",".join(words)
    return variables
