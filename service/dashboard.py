"""Optuna's dashboard in a process of its own, with a storage that it can only read.

The dashboard has no accounts and can delete studies. Three things keep it to reading, each of which
would do: the API passes on GET and HEAD only, this process answers 405 to anything else, and the
storage that it is given raises on every write (and its connection is a read-only one).
"""

import logging
import socket
import threading
import time
from collections.abc import Callable, Container, Iterable
from typing import Any, NoReturn
from urllib.parse import quote

import uvicorn
from a2wsgi import WSGIMiddleware
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, RDBStorage
from optuna.study import StudyDirection
from optuna.study._frozen import FrozenStudy  # BaseStorage's own signatures need it
from optuna.trial import FrozenTrial, TrialState
from optuna_dashboard import (  # pyright: ignore[reportMissingTypeStubs]  # it has none
    wsgi,  # pyright: ignore[reportUnknownVariableType]
)
from sqlalchemy import NullPool, make_url
from sqlalchemy.exc import SQLAlchemyError

from service.settings import Settings
from storage.engine import with_driver

_log = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
_GRACE_SECONDS = 2
_READING = ("GET", "HEAD")


class ReadOnly(Exception):
    """Something tried to write through the dashboard."""


class ReadOnlyStorage(BaseStorage):
    """An Optuna storage that passes reads on and raises `ReadOnly` on writes."""

    def __init__(self, storage: BaseStorage) -> None:
        self._storage = storage

    def get_study_id_from_name(self, study_name: str) -> int:
        """Read."""
        return self._storage.get_study_id_from_name(study_name)

    def get_study_name_from_id(self, study_id: int) -> str:
        """Read."""
        return self._storage.get_study_name_from_id(study_id)

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        """Read."""
        return self._storage.get_study_directions(study_id)

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        """Read."""
        return self._storage.get_study_user_attrs(study_id)

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        """Read."""
        return self._storage.get_study_system_attrs(study_id)

    def get_all_studies(self) -> list[FrozenStudy]:
        """Read."""
        return self._storage.get_all_studies()

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """Read."""
        return self._storage.get_trial(trial_id)

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        """Read."""
        return self._storage.get_all_trials(study_id, deepcopy=deepcopy, states=states)

    def remove_session(self) -> None:
        """Give this thread's connection back."""
        self._storage.remove_session()

    def _refuse(self, *_positional: object, **_named: object) -> NoReturn:
        raise ReadOnly("the dashboard only reads; change studies over the API")

    create_new_study = _refuse
    delete_study = _refuse
    set_study_user_attr = _refuse
    set_study_system_attr = _refuse
    create_new_trial = _refuse
    set_trial_param = _refuse
    set_trial_state_values = _refuse
    set_trial_intermediate_value = _refuse
    set_trial_user_attr = _refuse
    set_trial_system_attr = _refuse


def open_read_only(url: str) -> ReadOnlyStorage:
    """Optuna's tables, which must be there already, over a connection that cannot write.

    Raises:
        StorageInternalError, SQLAlchemyError: the tables are not there (yet).
    """
    parsed = make_url(with_driver(url))
    if parsed.get_backend_name() == "sqlite":
        # A pool would go on reading a file that was replaced.
        parsed = parsed.set(
            database=f"file:{quote(parsed.database or '')}", query={"mode": "ro", "uri": "true"}
        )
        engine: dict[str, Any] = {"poolclass": NullPool, "connect_args": {"timeout": 30}}
    else:
        engine = {
            "pool_pre_ping": True,
            "connect_args": {"options": "-c default_transaction_read_only=on"},
        }
    text = parsed.render_as_string(hide_password=False)
    return ReadOnlyStorage(RDBStorage(text, engine_kwargs=engine, skip_table_creation=True))


def run_dashboard(settings: Settings) -> None:
    """Serve the dashboard on the socket of the settings until a signal ends it.

    Waits for Optuna's tables, which the coordinator makes.

    Raises:
        ValueError: the settings name no socket.
    """
    if settings.dashboard_socket is None:
        raise ValueError("REFLECTORY_DASHBOARD_SOCKET is not set; the dashboard listens there")
    storage = _wait_for(settings.optuna_url)
    path = settings.dashboard_socket
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        path.chmod(0o600)
        config = uvicorn.Config(
            WSGIMiddleware(_only_reading(_Fresh(storage))),
            lifespan="off",
            access_log=False,
            log_config=None,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        try:
            uvicorn.Server(config).run(sockets=[listener])
        finally:
            path.unlink(missing_ok=True)


class _Fresh:
    """The dashboard, made anew when a study was deleted.

    It remembers trials by their study's number, which SQLite gives to another study afterwards.
    """

    def __init__(self, storage: ReadOnlyStorage) -> None:
        self._storage = storage
        self._lock = threading.Lock()
        self._looked_at = 0.0
        self._known: dict[int, str] = {}
        self._application: Callable[..., Iterable[bytes]] = wsgi(storage)

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """Pass a request on."""
        with self._lock:
            if time.monotonic() - self._looked_at >= _POLL_SECONDS:
                self._look()
            application = self._application
        return application(environ, start_response)

    def _look(self) -> None:
        self._looked_at = time.monotonic()
        now = {study._study_id: study.study_name for study in self._storage.get_all_studies()}  # pyright: ignore[reportPrivateUsage]
        if not self._known.items() <= now.items():
            self._application = wsgi(self._storage)
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
