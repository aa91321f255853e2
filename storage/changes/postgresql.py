"""Commits to a PostgreSQL database."""

import threading
from collections.abc import Hashable
from typing import TYPE_CHECKING, Final, final

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolExhausted

from storage.changes.contract import Changes

_LOOK_SECONDS: Final = 0.02
"""Between two looks of a wait. `NOTIFY` would tell at once, but transactions with it commit one
after the other, each with a flush of its own."""


@final
class PostgresqlChanges:
    """PostgreSQL's snapshot: of two that are equal, over one connection, both see the same rows."""

    waits = True

    def __init__(self, engine: Engine) -> None:
        # A transaction of its own for each look would be three round trips in place of one.
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._lock = threading.Lock()
        self._opened = 0
        self._connection: Connection | None = None
        self._woken = threading.Event()

    def look(self) -> Hashable | None:
        """As `Changes`; takes one round trip."""
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._engine.connect()
                    # After a crash, which ends all connections, a number that only a lost
                    # transaction had is given out again.
                    self._opened += 1
                snapshot = self._connection.exec_driver_sql("SELECT pg_current_snapshot()::text")
                return self._opened, snapshot.scalar_one()
            except (DBAPIError, PoolExhausted):
                self._close()
                return None

    def wait(self, seconds: float) -> None:
        """As `Changes`; it ends before each look that is to be made."""
        self._woken.wait(min(seconds, _LOOK_SECONDS))
        self._woken.clear()

    def wake(self) -> None:
        """As `Changes`."""
        self._woken.set()

    def fileno(self) -> None:
        """As `Changes`."""

    def drain(self) -> None:
        """As `Changes`."""

    def close(self) -> None:
        """As `Changes`."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


if TYPE_CHECKING:
    _conforms: type[Changes] = PostgresqlChanges
