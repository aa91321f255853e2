"""Optuna's dashboard in a process of its own, with a storage that it can only read.

The dashboard has no accounts and can delete studies. Three things keep it to reading, each of which
would do: the API passes on GET and HEAD only, this process answers 405 to anything else, and the
storage that it is given raises on every write (and its connection is a read-only one). For each
tenant there is a dashboard of its own here, in whose storage there are no studies of others; the
API says for whom it asks, and whoever is not named sees none.
"""

import logging
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import uvicorn
from a2wsgi import WSGIMiddleware
from optuna.exceptions import StorageInternalError
from optuna_dashboard import (  # pyright: ignore[reportMissingTypeStubs]  # it has none
    wsgi,  # pyright: ignore[reportUnknownVariableType]
)
from sqlalchemy.exc import SQLAlchemyError

from service.dashboard_storage import ReadOnlyStorage, TenantStorage, open_read_only
from service.settings import Settings
from service.tenant_header import TENANT_HEADER
from storage.engine import Database

_log = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
_GRACE_SECONDS = 2
_READING = ("GET", "HEAD")
_TENANT = f"HTTP_{TENANT_HEADER.upper().replace('-', '_')}"
_NOBODY = ""
"""What no tenant is called."""
_TENANTS = 64
"""How many dashboards are kept; those of other tenants are made anew when they are asked for."""


def run_dashboard(settings: Settings) -> None:
    """Serve the dashboard on the socket of the settings until a signal ends it.

    Waits for Optuna's tables, which the coordinator makes.

    Raises:
        ValueError: the settings name no socket.
    """
    if settings.dashboard_socket is None:
        raise ValueError("REFLECTORY_DASHBOARD_SOCKET is not set; the dashboard listens there")
    storage = _wait_for(settings.optuna_url)
    database = Database(settings.database_url)
    path = settings.dashboard_socket
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        path.chmod(0o600)
        config = uvicorn.Config(
            WSGIMiddleware(_only_reading(_Dashboards(storage, database))),
            lifespan="off",
            access_log=False,
            log_config=None,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        try:
            uvicorn.Server(config).run(sockets=[listener])
        finally:
            path.unlink(missing_ok=True)


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
