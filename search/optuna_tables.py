"""Optuna's own tables, and what our studies are called there.

The dashboard's process imports this module, and starts without torch: so nothing here imports it.
"""

import threading
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from optuna.storages import RDBStorage
from sqlalchemy import event, text
from sqlalchemy.exc import DBAPIError

from storage.engine import with_driver
from storage.errors import DatabaseUnavailable
from storage.records import StudyRecord


class BeingOpened(Exception):
    """Another thread is opening Optuna's tables, which takes a moment."""


def open_storage(url: str) -> RDBStorage:
    """Optuna's own tables at a URL.

    A SQLite file is switched to WAL, so that the dashboard reads while we write.

    Raises:
        DatabaseUnavailable: they cannot be opened; others may just be making them.
    """
    try:
        return _storage(with_driver(url))
    except DBAPIError as error:
        reason = str(error.orig).strip().partition("\n")[0]
        raise DatabaseUnavailable(f"Optuna's tables cannot be opened: {reason}") from error


def shared_storage(url: str) -> Callable[[], RDBStorage]:
    """Optuna's tables as `open_storage` opens them, once for all threads that ask.

    What is returned raises `BeingOpened` while another thread opens them: of two that make new
    tables, one would fail.
    """
    lock, opened = threading.Lock(), cache(partial(open_storage, url))

    def storage() -> RDBStorage:
        if not lock.acquire(blocking=False):
            raise BeingOpened
        try:
            return opened()
        finally:
            lock.release()

    return storage


def _storage(url: str) -> RDBStorage:
    if not url.startswith("sqlite"):
        return RDBStorage(url, engine_kwargs={"pool_pre_ping": True})
    storage = RDBStorage(url, engine_kwargs={"connect_args": {"timeout": 30}})
    with storage.engine.connect() as connection:
        connection.execute(text("PRAGMA journal_mode=WAL"))

    def relax(connection: Any, _record: object) -> None:
        # In WAL a crash of the process loses nothing, and what a crash of the machine loses is
        # rebuilt from our rows.
        connection.execute("PRAGMA synchronous=NORMAL")

    event.listen(storage.engine, "connect", relax)
    storage.engine.dispose()
    return storage


def study_name(study: StudyRecord) -> str:
    """Its name in Optuna's tables, which stays when the study is renamed."""
    return study_title(str(study.spec.get("name", study.name)), study.id)


def study_title(name: str, study_id: str) -> str:
    """The same of a name and an id."""
    return f"{name} [{study_id}]"


def study_id_in(name: str) -> str:
    """The id of our study in the name that `study_name` gives it."""
    return name.rpartition("[")[2].removesuffix("]")
