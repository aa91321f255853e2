"""The database: its connections, its transactions, and its version."""

import sqlite3
import threading
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple, Self

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolExhausted
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import ConnectionPoolEntry, NullPool

from storage.accounts import QUOTAS
from storage.changes import Changes, NotificationPipes, PostgresqlChanges, SqliteChanges
from storage.columns import dump_json
from storage.errors import DatabaseUnavailable, StorageError, UnstorableValue
from storage.locking import WRITING
from storage.schema import check_schema, upgrade
from storage.tenant_quota import UNLIMITED, TenantQuota
from storage.tenants import KEY, TENANT, narrow

_DRIVERS = {
    "sqlite": "sqlite+pysqlite",
    "sqlite+pysqlite": "sqlite+pysqlite",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}
_POSTGRESQL_DISK_FULL = "53100"
_SECRET_QUERY_KEYS = ("password", "sslpassword")
_CONNECT_SECONDS = 10
_IDLE_SECONDS = 60.0
# As many as the server has threads for requests, and some for probes and streams: one that waits
# for a lock must not make others wait for a connection.
_POOL = {"pool_size": 8, "max_overflow": 40}


class Database:
    """One database of studies: a SQLite file, or a PostgreSQL database.

    See Note [Transactions] in the README.
    """

    def __init__(
        self,
        url: str,
        *,
        busy_seconds: float = 30.0,
        idle_seconds: float = _IDLE_SECONDS,
        quotas: TenantQuota = UNLIMITED,
    ) -> None:
        """Prepare connections; none is opened yet.

        Args:
            url: `sqlite:///path/to/file.db`, or `postgresql://user:password@host/name`.
            busy_seconds: how long a writer on SQLite waits for another before it gives up.
            idle_seconds: how long a transaction on PostgreSQL may go without a statement before the
                server undoes it: a process that stands still in one, or whose machine was cut off,
                would keep its locks from all others.
            quotas: what each tenant may have, unless something else was set for it.

        Raises:
            StorageError: if the URL is none of these.
        """
        parsed = _parsed(url)
        self._shown_url = _without_secrets(parsed)
        self._busy_seconds = busy_seconds
        self._place = parsed.set(drivername=_driver(parsed))
        # Rows are read anew by every query: what a statement has changed must not hide behind what
        # an earlier query has seen.
        self._sessions = sessionmaker(
            execution_options={"populate_existing": True, "synchronize_session": False}
        )
        event.listen(self._sessions, "do_orm_execute", narrow)
        self._info: dict[str, Any] = {QUOTAS: quotas}
        self._thread = threading.local()
        self._pipes: NotificationPipes | None = None
        if self.is_sqlite:
            self._pipes = NotificationPipes(Path(f"{self._place.database}-waiting"))
            self._writing = _sqlite(self._place, busy_seconds, _WRITING, **_POOL)
            self._reading = _sqlite(self._place, busy_seconds, _READING, **_POOL)
        else:
            self._writing = _postgresql(self._place, idle_seconds)
            self._reading = self._writing.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )

    def of(self, tenant: str, *, key_id: str | None = None) -> Self:
        """The same database as one tenant sees it, see Note [Tenants].

        `key_id` is the API key that stands for the tenant, where one does; audit events name it.
        """
        narrowed = copy(self)
        narrowed._info = {**self._info, TENANT: tenant, KEY: key_id}
        return narrowed

    @property
    def url(self) -> str:
        """The URL without its password, for logs and messages."""
        return self._shown_url

    @property
    def is_sqlite(self) -> bool:
        """Whether this is a SQLite file, for one machine."""
        return self._place.get_backend_name() == "sqlite"

    def changes(self) -> Changes:
        """Tells whether anything was committed, over a connection of its own."""
        if self._pipes is None:
            return PostgresqlChanges(self._writing)
        return SqliteChanges(self._reading, self._pipes)

    @contextmanager
    def read(self) -> Generator[Session]:
        """A session that reads one state of the database.

        Raises:
            DatabaseUnavailable: if the database does not answer.
        """
        with self._session(self._reading, writing=False) as session:
            yield session

    @contextmanager
    def write(self) -> Generator[Session]:
        """A session that writes: committed at the end of the block, undone by an error in it.

        Raises:
            DatabaseUnavailable: if the database does not answer, or other writers keep it busy.
            RuntimeError: if this thread is in the middle of another one, for which the new one
                would wait until it gives up.
        """
        if getattr(self._thread, "writes", False):
            raise RuntimeError("this thread has a writing session already")
        self._thread.writes = True
        try:
            with self._session(self._writing, writing=True) as session:
                yield session
        finally:
            self._thread.writes = False
        if self._pipes is not None:
            self._pipes.notify()

    def migrate(self) -> None:
        """Bring the tables to this program's version; harmless when repeated, or done by several.

        Raises:
            SchemaMismatch: if the tables are of a newer program.
            DatabaseUnavailable: if the database does not answer.
        """
        if not self.is_sqlite:
            with self.write() as session:
                upgrade(session.connection())
            return
        self._switch_to_write_ahead_log()
        migrating = _sqlite(self._place, self._busy_seconds, _MIGRATING, poolclass=NullPool)
        with self._session(migrating, writing=True) as session:
            upgrade(session.connection())

    def check(self) -> None:
        """Prove that the database answers and that its tables are of this program's version.

        Raises:
            SchemaMismatch: if they are not.
            DatabaseUnavailable: if the database does not answer.
        """
        with self.read() as session:
            check_schema(session.connection())

    def dispose(self) -> None:
        """Close all connections."""
        self._reading.dispose()
        self._writing.dispose()

    @contextmanager
    def _session(self, engine: Engine, *, writing: bool) -> Generator[Session]:
        info = {WRITING: writing, **self._info}
        with self._told_apart(), self._sessions(bind=engine, info=info) as session:
            with self._told_apart(connecting=True):
                session.connection()
            yield session
            session.commit()

    @contextmanager
    def _told_apart(self, *, connecting: bool = False) -> Generator[None]:
        """Tell a database that does not answer, or takes nothing, from a statement it refuses."""
        try:
            yield
        except (OverflowError, DataError) as error:
            # What SQLite's driver says of an integer of more than 64 bits, and PostgreSQL of any
            # value that is none of the column's.
            if isinstance(error, OverflowError) and "SQLite INTEGER" not in str(error):
                raise
            raise UnstorableValue(f"no column holds the value: {_first_line(error)}") from error
        except (DBAPIError, PoolExhausted) as error:
            lost = isinstance(error, DBAPIError) and (
                error.connection_invalidated or _is_full(error.orig)
            )
            unreached = isinstance(error, OperationalError | PoolExhausted) and connecting
            if not (lost or unreached or isinstance(error, PoolExhausted)):
                raise
            raise DatabaseUnavailable(
                f"the database {self.url} does not answer: {_first_line(error)}"
            ) from error

    def _switch_to_write_ahead_log(self) -> None:
        # The file keeps the mode, so that this happens once. SQLite does not wait while another
        # process does the same: its busy timeout does not apply here.
        deadline = time.monotonic() + self._busy_seconds
        with self._told_apart(connecting=True), self._writing.connect() as connection:
            while True:
                try:
                    connection.connection.cursor().execute("PRAGMA journal_mode = WAL")
                    return
                except sqlite3.OperationalError as error:
                    if time.monotonic() > deadline:
                        raise DatabaseUnavailable(
                            f"the database {self.url} is kept busy by others: {error}"
                        ) from error
                    time.sleep(0.01)


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        # The text itself may hold a password.
        raise StorageError(
            "the database URL cannot be read; see the README for its forms"
        ) from error
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise StorageError("a SQLite database in memory is not shared by processes; name a file")
    return parsed


def with_driver(url: str) -> str:
    """The same database with the driver that this package installs; for other users of a URL.

    Raises:
        StorageError: no such kind of database is supported, or it is no URL.
    """
    parsed = _parsed(url)
    return parsed.set(drivername=_driver(parsed)).render_as_string(hide_password=False)


def _driver(url: URL) -> str:
    driver = _DRIVERS.get(url.drivername)
    if driver is None:
        raise StorageError(
            f"studies are not kept in {url.drivername!r}; allowed are sqlite and postgresql"
        )
    return driver


def _without_secrets(url: URL) -> str:
    shown = url.difference_update_query(_SECRET_QUERY_KEYS)
    return shown.render_as_string(hide_password=True)


def _postgresql(url: URL, idle_seconds: float) -> Engine:
    timeout = {} if "connect_timeout" in url.query else {"connect_timeout": _CONNECT_SECONDS}
    engine = create_engine(
        url, json_serializer=dump_json, pool_pre_ping=True, connect_args=timeout, **_POOL
    )
    milliseconds = round(1000 * idle_seconds)

    def prepare(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
        with closing(connection.cursor()) as cursor:
            cursor.execute(f"SET idle_in_transaction_session_timeout = {milliseconds}")
        # A setting that is not committed goes with the transaction that it was made in.
        connection.commit()

    event.listen(engine, "connect", prepare)
    return engine


class _Mode(NamedTuple):
    """What a connection to SQLite is for, which is said once."""

    begin: str
    pragmas: tuple[str, ...]


_READING = _Mode("BEGIN", ("query_only = 1",))
_WRITING = _Mode("BEGIN IMMEDIATE", ("foreign_keys = 1",))
# SQLite alters a table by making it anew; with its foreign keys on, dropping the old one would take
# along all rows that refer to it.
_MIGRATING = _Mode("BEGIN IMMEDIATE", ("foreign_keys = 0",))


def _sqlite(url: URL, busy_seconds: float, mode: _Mode, **pool: Any) -> Engine:
    engine = create_engine(
        url, json_serializer=dump_json, connect_args={"timeout": busy_seconds}, **pool
    )

    def prepare(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
        # Python's own module would open a deferred transaction at a time of its choice.
        connection.isolation_level = None
        # SQLite's own knows the letters of ASCII alone.
        connection.create_function("lower", 1, _lower, deterministic=True)
        with closing(connection.cursor()) as cursor:
            # In write-ahead mode a power failure costs the last commits, but never consistency.
            for pragma in ("synchronous = NORMAL", *mode.pragmas):
                cursor.execute(f"PRAGMA {pragma}")

    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(mode.begin)

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", begin)
    return engine


def _lower(text: str | None) -> str | None:
    return None if text is None else text.lower()


def _is_full(error: BaseException | None) -> bool:
    """Whether the database found no room for what it was to write."""
    if isinstance(error, sqlite3.Error):
        return error.sqlite_errorcode == sqlite3.SQLITE_FULL
    return getattr(error, "sqlstate", None) == _POSTGRESQL_DISK_FULL


def _first_line(error: Exception) -> str:
    cause = error.orig if isinstance(error, DBAPIError) else error
    return str(cause).strip().partition("\n")[0]
