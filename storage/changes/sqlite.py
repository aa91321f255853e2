"""Commits to a SQLite file."""

import sqlite3
import threading
import time
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Final, final

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import PoolProxiedConnection

from storage.changes.contract import Changes
from storage.changes.pipes import NotificationPipe, NotificationPipes

_PAUSE_SECONDS: Final = 0.01
"""Between two waits at least: what comes close together is taken up once."""
_LOOK_SECONDS: Final = 0.02
"""Between two looks where there are no pipes."""


@final
class SqliteChanges:
    """SQLite counts the commits of all other connections to the file, in shared memory."""

    waits = False

    def __init__(self, engine: Engine, pipes: NotificationPipes) -> None:
        self._engine = engine
        self._pipes = pipes
        self._pipe: NotificationPipe | None = None
        self._has_opened = False
        self._waited_at = 0.0
        self._lock = threading.Lock()
        self._opened = 0
        self._connection: PoolProxiedConnection | None = None
        self._cursor: Any = None

    def look(self) -> Hashable | None:
        """As `Changes`; takes some microseconds and never waits for a writer."""
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._engine.raw_connection()
                    self._connection.detach()
                    self._cursor = self._connection.cursor()
                    # The counts of two connections have nothing to do with each other.
                    self._opened += 1
                self._cursor.execute("PRAGMA data_version")
                return self._opened, self._cursor.fetchone()[0]
            except (sqlite3.Error, DBAPIError):
                self._close()
                return None

    def wait(self, seconds: float) -> None:
        """As `Changes`; waits that follow each other at once pause, so that few cost little."""
        until = time.monotonic() + seconds
        pipe = self._listening()
        time.sleep(max(0.0, min(seconds, self._waited_at + _PAUSE_SECONDS - time.monotonic())))
        left = max(0.0, until - time.monotonic())
        if pipe is None:
            time.sleep(min(left, _LOOK_SECONDS))
        else:
            pipe.wait(left)
        self._waited_at = time.monotonic()

    def wake(self) -> None:
        """As `Changes`."""
        if (pipe := self._listening()) is not None:
            pipe.notify()

    def fileno(self) -> int | None:
        """As `Changes`."""
        pipe = self._listening()
        return None if pipe is None else pipe.pipe

    def drain(self) -> None:
        """As `Changes`."""
        if (pipe := self._listening()) is not None:
            pipe.drain()

    def close(self) -> None:
        """As `Changes`."""
        with self._lock:
            self._close()
            if self._pipe is not None:
                self._pipe.close()
            self._pipe, self._has_opened = None, False

    def _listening(self) -> NotificationPipe | None:
        with self._lock:
            if not self._has_opened:
                self._pipe, self._has_opened = self._pipes.open(), True
            return self._pipe

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._cursor = None


if TYPE_CHECKING:
    _conforms: type[Changes] = SqliteChanges
