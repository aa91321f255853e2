"""Optuna's dashboard in a process of its own, with a storage that it can only read.

The dashboard has no accounts and can delete studies. Three things keep it to reading, each of which
would do: the API passes on GET and HEAD only, this process answers 405 to anything else, and the
storage that it is given raises on every write (and its connection is a read-only one). For each
tenant there is a dashboard of its own here, in whose storage there are no studies of others; the
API says for whom it asks, and whoever is not named sees none.
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

from optuna.exceptions import StorageInternalError
from optuna_dashboard import (  # pyright: ignore[reportMissingTypeStubs]  # it has none
    wsgi,  # pyright: ignore[reportUnknownVariableType]
)
from sqlalchemy.exc import SQLAlchemyError
from waitress.server import create_server

from service.api.dashboard.own_process import TENANT_HEADER, running_mark
from service.auth.listeners import unix_listener
from service.data_dir.locks import hold
from service.processes.dashboard_storage import ReadOnlyStorage, TenantStorage, open_read_only
from service.settings import Settings
from storage.engine import Database

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

    Waits for Optuna's tables, which the coordinator makes. While it runs, it holds the lock that
    `running_mark` names.

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
        storage = _wait_for(settings.optuna_url)
        database = Database(settings.database_url)
        server = create_server(
            _only_reading(_Dashboards(storage, database)),
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
    """The dashboard of each tenant, all made anew when a study was deleted.

    They remember trials by their study's number, which SQLite gives to another study afterwards.
    """

    def __init__(self, storage: ReadOnlyStorage, database: Database) -> None:
        self._storage = storage
        self._database = database
        self._lock = threading.Lock()
        self._looked_at = 0.0
        self._known: dict[int, str] = {}
        self._made: OrderedDict[str, Callable[..., Iterable[bytes]]] = OrderedDict()

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """Pass a request on to the dashboard of the tenant for whom it is made."""
        with self._lock:
            if time.monotonic() - self._looked_at >= _POLL_SECONDS:
                self._look()
            application = self._of(environ.get(_TENANT, _NOBODY))
        return application(environ, start_response)

    def _of(self, tenant: str) -> Callable[..., Iterable[bytes]]:
        if tenant not in self._made:
            self._made[tenant] = wsgi(TenantStorage(self._storage, self._database, tenant))
            if len(self._made) > _TENANTS:
                self._made.popitem(last=False)
        self._made.move_to_end(tenant)
        return self._made[tenant]

    def _look(self) -> None:
        self._looked_at = time.monotonic()
        now = {study._study_id: study.study_name for study in self._storage.get_all_studies()}  # pyright: ignore[reportPrivateUsage]
        if not self._known.items() <= now.items():
            self._made.clear()
        self._known = now


def _wait_for(url: str) -> ReadOnlyStorage:
    waiting = False
    while True:
        try:
            return open_read_only(url)
        except (StorageInternalError, SQLAlchemyError) as error:
            if not waiting:
                _log.info("waiting for the coordinator to make Optuna's tables")
                _log.debug("they cannot be read yet", exc_info=error)
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
