"""Optuna's dashboard in a process of its own, with a storage that it can only read.

The dashboard has no accounts and can delete studies. Three things keep it to reading, each of which
would do: the API passes on GET and HEAD only, this process answers 405 to anything else, and the
storage that it is given raises on every write, and reads our rows in sessions that cannot write.
For each tenant there is a dashboard of its own here, in whose storage there are no studies of
others; the API says for whom it asks, and a user who is not named sees none.
"""

import logging
import math
import signal
import socket
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

from optuna_dashboard import (  # pyright: ignore[reportMissingTypeStubs]  # it has none
    wsgi,  # pyright: ignore[reportUnknownVariableType]
)
from waitress.server import create_server

from service.api.dashboard.own_process import TENANT_HEADER, running_mark
from service.auth.listeners import unix_listener
from service.data_dir.locks import hold
from service.settings import Settings
from storage.engine import Database
from storage.errors import StorageError

_log = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
_LOOK_SECONDS = 1.0
_CHANNEL_SECONDS = 120.0
"""How long a connection may stand still."""
_THREADS = 8
_READING = ("GET", "HEAD")
_TENANT = f"HTTP_{TENANT_HEADER.upper().replace('-', '_')}"
_NOBODY = ""
"""What no tenant is called."""
_TENANTS = 64
"""How many dashboards are kept; those of other tenants are made anew when they are asked for."""


def run_dashboard(
    settings: Settings,
    *,
    listener: socket.socket | None = None,
    idle_seconds: float = math.inf,
) -> None:
    """Serve the dashboard until a signal ends it, or nobody has asked for so long.

    Waits for the database, which the API's process brings to this version. While it runs, it
    holds the lock that `running_mark` names.

    Args:
        settings: `dashboard_socket` says where to listen when no listener is given.
        listener: a listening Unix socket, inherited from the process that supervises this one.
        idle_seconds: of a connection that comes meanwhile, nothing was read: it waits for another
            process of the dashboard.

    Raises:
        ValueError: the settings name no socket.
        CannotListen: the socket cannot be made.
    """
    path = settings.dashboard_socket
    if path is None:
        raise ValueError("REFLECTORY_DASHBOARD_SOCKET is not set; the dashboard listens there")
    with ExitStack() as held:
        if listener is None:
            listener = held.enter_context(unix_listener(path))
        held.enter_context(hold(running_mark(path), wait=True))
        database = Database(settings.database_url)
        held.callback(database.dispose)
        _wait_for(database)
        server = create_server(
            _only_reading(_Dashboards(database)),
            sockets=[listener],
            threads=_THREADS,
            # `select` knows no descriptor above 1023.
            asyncore_use_poll=True,
            channel_timeout=min(_CHANNEL_SECONDS, idle_seconds),
            cleanup_interval=min(_CHANNEL_SECONDS, idle_seconds) / 4,
        )
        held.callback(server.close)
        # What is being answered has 5 s left.
        held.callback(server.task_dispatcher.shutdown)
        signal.signal(signal.SIGTERM, lambda _sign, _frame: sys.exit())
        _serve(server, idle_seconds)


def _serve(server: Any, idle_seconds: float) -> None:
    """Waitress' own loop, which also ends when no connection has been there for a while."""
    last = time.monotonic()
    while time.monotonic() - last < idle_seconds:
        server.asyncore.loop(timeout=_LOOK_SECONDS, map=server._map, use_poll=True, count=1)
        if server.active_channels:
            last = time.monotonic()


class _Dashboards:
    """The dashboard of each tenant, made when it is first asked for."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._made: OrderedDict[str, Callable[..., Iterable[bytes]]] = OrderedDict()

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """Pass a request on to the dashboard of the tenant for whom it is made."""
        with self._lock:
            application = self._of(environ.get(_TENANT, _NOBODY))
        return application(environ, start_response)

    def _of(self, tenant: str) -> Callable[..., Iterable[bytes]]:
        if tenant not in self._made:
            # With it comes torch, for which most servers' dashboards have no use yet.
            from service.processes.dashboard_detail import WithDetails
            from service.processes.dashboard_storage import StudiesOfTenant

            storage = StudiesOfTenant(self._database, tenant)
            self._made[tenant] = WithDetails(storage, wsgi(storage))
            if len(self._made) > _TENANTS:
                self._made.popitem(last=False)
        self._made.move_to_end(tenant)
        return self._made[tenant]


def _wait_for(database: Database) -> None:
    waiting = False
    while True:
        try:
            database.check()
            return
        except StorageError as error:
            if not waiting:
                _log.info("waiting for the database")
                _log.debug("it cannot be read yet", exc_info=error)
            waiting = True
            time.sleep(_POLL_SECONDS)


def _only_reading(application: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    """A WSGI application that answers 405 to all methods that are not for reading."""

    def guarded(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in _READING:
            return application(environ, start_response)
        start_response(
            "405 Method Not Allowed",
            [("Allow", ", ".join(_READING)), ("Content-Type", "text/plain; charset=utf-8")],
        )
        return [b"the dashboard only reads\n"]

    return guarded
