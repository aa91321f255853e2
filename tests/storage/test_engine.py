"""The database: what a transaction sees and keeps, and what is said when there is no answer."""

import socket
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url, text
from sqlalchemy.exc import DBAPIError

from storage.engine import Database
from storage.errors import DatabaseUnavailable, StorageError
from storage.repositories.events import Events
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from tests.storage.records import START, add_study, add_trial

SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
POSTGRESQL = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
THREADS, WRITES = 8, 25


class Interrupted(Exception):
    """What a caller's own code may raise in a transaction."""


def test_an_error_in_the_block_undoes_all_of_it(database: Database) -> None:
    def interrupted() -> None:
        with database.write() as session:
            add_trial(session, add_study(session).id)
            raise Interrupted

    with pytest.raises(Interrupted):
        interrupted()
    with database.read() as session:
        assert Studies(session).page(limit=10).items == []


def test_a_reading_session_sees_one_state_of_the_database(database: Database) -> None:
    with database.write() as session:
        study_id = add_study(session).id
    with database.read() as reading:
        before = Studies(reading).get(study_id)
        with database.write() as writing:
            Events(writing).append(study_id, "e", {}, START)
            add_trial(writing, study_id)
        assert Studies(reading).get(study_id) == before
        assert Trials(reading).counts(study_id).total == 0
    with database.read() as reading:
        assert Studies(reading).get(study_id).last_event == 1
        assert Trials(reading).counts(study_id).total == 1


def test_a_reading_session_cannot_write_and_its_connection_can_afterwards(
    database: Database,
) -> None:
    with database.write() as session:
        study_id = add_study(session).id
    with pytest.raises(DBAPIError, match=r"read-?only"), database.read() as session:
        Studies(session).set_prepared(study_id, {})
    with database.write() as session:
        Studies(session).set_prepared(study_id, {"a": 1})


def test_writers_that_read_first_all_get_their_turn(database: Database) -> None:
    with database.write() as session:
        study_id = add_study(session).id

    def count_up(_: int) -> None:
        for _ in range(WRITES):
            with database.write() as session:
                studies = Studies(session)
                prepared = studies.get(study_id).prepared or {}
                count = prepared.get("count", 0)
                assert isinstance(count, int)
                studies.set_prepared(study_id, {"count": count + 1})

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(count_up, range(THREADS)))
    with database.read() as session:
        assert Studies(session).get(study_id).prepared == {"count": THREADS * WRITES}


def test_writers_that_change_rows_in_opposite_orders_do_not_wait_for_ever(
    database: Database,
) -> None:
    with database.write() as session:
        study_id = add_study(session).id
        for number in range(2):
            add_trial(session, study_id, number)

    def change(first: int) -> None:
        for epochs in range(WRITES):
            with database.write() as session:
                for number in (first, 1 - first):
                    Trials(session).set_epochs(study_id, number, epochs)
                    Events(session).append(study_id, "e", {}, START)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(change, range(2)))
    with database.read() as session:
        assert Studies(session).get(study_id).last_event == 2 * 2 * WRITES


@SQLITE
def test_sqlite_keeps_a_write_ahead_log_and_its_foreign_keys(
    database: Database, database_url: str
) -> None:
    both = {"journal_mode": "wal", "synchronous": 1, "busy_timeout": 30_000}
    expected = {
        database.read: {**both, "query_only": 1},
        database.write: {**both, "query_only": 0, "foreign_keys": 1},
    }
    for block, values in expected.items():
        with block() as session:
            assert {name: session.scalar(text(f"PRAGMA {name}")) for name in values} == values


@SQLITE
def test_a_transaction_on_sqlite_begins_with_one_statement(database: Database) -> None:
    statements: list[str] = []
    for block in (database.read, database.write):
        with block() as session:
            raw: Any = session.connection().connection.driver_connection
            raw.set_trace_callback(statements.append)
        statements.clear()
        with block() as session:
            session.scalar(text("SELECT 1"))
        assert [one.partition(" ")[0] for one in statements] == ["BEGIN", "SELECT", "COMMIT"]


@SQLITE
def test_a_reader_does_not_wait_for_a_writer_on_sqlite(database: Database) -> None:
    with database.write() as writing:
        add_study(writing)
        with database.read() as reading:
            assert Studies(reading).page(limit=1).items == []


@SQLITE
def test_a_writer_that_is_kept_waiting_too_long_says_so(
    database: Database, database_url: str
) -> None:
    impatient = Database(database_url, busy_seconds=0.05)
    with database.write(), pytest.raises(DatabaseUnavailable, match="locked"):
        _write_nothing(impatient)
    _write_nothing(impatient)
    impatient.dispose()


@SQLITE
def test_a_file_that_is_kept_busy_cannot_be_migrated(database_url: str) -> None:
    path = make_url(database_url).database
    assert path is not None
    impatient = Database(database_url, busy_seconds=0.05)
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(DatabaseUnavailable, match="locked"):
            impatient.migrate()
        other.rollback()
    impatient.migrate()
    impatient.check()
    impatient.dispose()


@POSTGRESQL
def test_a_server_that_ended_our_connections_is_reached_again(
    database: Database, database_url: str
) -> None:
    with database.write() as session:
        study_id = add_study(session).id
    _end_other_connections(database_url)
    with database.read() as session:
        assert Studies(session).get(study_id)


@POSTGRESQL
def test_a_connection_that_is_lost_in_a_transaction_is_a_database_that_does_not_answer(
    database: Database, database_url: str
) -> None:
    def lose_it() -> None:
        with database.write() as session:
            add_study(session)
            _end_other_connections(database_url)
            add_study(session)

    with pytest.raises(DatabaseUnavailable, match="does not answer"):
        lose_it()
    with database.read() as session:
        assert Studies(session).page(limit=1).items == []


@POSTGRESQL
def test_one_that_stands_still_in_a_transaction_keeps_its_locks_from_nobody_for_long(
    database: Database, database_url: str
) -> None:
    hasty = Database(database_url, idle_seconds=0.2)
    with database.write() as session:
        study_id = add_study(session).id

    def stand_still() -> None:
        with hasty.write() as session:
            Events(session).append(study_id, "late", {}, START)
            with database.write() as other:
                # Waits for the row of the study, which numbers its events.
                Events(other).append(study_id, "punctual", {}, START)

    with pytest.raises(DatabaseUnavailable):
        stand_still()
    hasty.dispose()
    with database.read() as session:
        assert [event.kind for event in Events(session).after(study_id, 0, 10)] == ["punctual"]


@pytest.mark.parametrize("call", ["migrate", "check", "read", "write"])
def test_a_server_that_is_not_there_is_unavailable_and_no_password_is_told(call: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        url = f"postgresql://user:hunter2@127.0.0.1:{port}/db?password=hunter3&connect_timeout=2"
        database = Database(url)
        with pytest.raises(DatabaseUnavailable) as raised:
            _call(database, call)
    database.dispose()
    assert str(port) in str(raised.value)
    assert "hunter" not in str(raised.value) + database.url


@pytest.mark.parametrize("call", ["migrate", "check", "read", "write"])
def test_a_file_in_a_folder_that_is_not_there_is_unavailable(tmp_path: Path, call: str) -> None:
    database = Database(f"sqlite:///{tmp_path / 'none' / 'reflectory.db'}")
    with pytest.raises(DatabaseUnavailable, match=r"none/reflectory\.db"):
        _call(database, call)
    database.dispose()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://root:hunter2@host/db", "'mysql'; allowed are sqlite and postgresql"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("hunter2 is no url", "cannot be read"),
    ],
)
def test_a_url_of_no_database_is_refused_without_its_password(url: str, said: str) -> None:
    with pytest.raises(StorageError, match=said) as raised:
        Database(url)
    assert "hunter2" not in str(raised.value)


def test_the_shown_url_is_the_given_one_without_its_secrets() -> None:
    shown = {
        "sqlite:////var/lib/reflectory.db": "sqlite:////var/lib/reflectory.db",
        "postgresql://user:pw@host:5/name": "postgresql://user:***@host:5/name",
        "postgresql:///name?host=/run/pg&password=pw": "postgresql:///name?host=%2Frun%2Fpg",
    }
    for url, expected in shown.items():
        assert Database(url).url == expected


def test_more_threads_than_connections_all_get_their_turn(database: Database) -> None:
    together = threading.Barrier(60)

    def read(_: int) -> None:
        together.wait()
        with database.read() as session:
            Studies(session).page(limit=1)

    with ThreadPoolExecutor(60) as pool:
        list(pool.map(read, range(60)))


def _call(database: Database, call: str) -> None:
    if call in ("migrate", "check"):
        {"migrate": database.migrate, "check": database.check}[call]()
        return
    with {"read": database.read, "write": database.write}[call]():
        pytest.fail("the block was entered without a database")


def _write_nothing(database: Database) -> None:
    with database.write():
        pass


def _end_other_connections(database_url: str) -> None:
    name = make_url(database_url).database
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = %s AND pid <> pg_backend_pid()",
            [name],
        )


@SQLITE
def test_a_database_without_room_takes_nothing_and_says_so(database: Database) -> None:
    """SQLite is told that so many pages are all that the disk has."""

    def fill() -> None:
        with database.write() as session:
            pages = session.scalar(text("PRAGMA page_count"))
            session.execute(text(f"PRAGMA max_page_count = {pages}"))
            study = add_study(session)
            for number in range(1000):
                add_trial(session, study.id, number)

    with pytest.raises(DatabaseUnavailable, match="full"):
        fill()
    database.dispose()
    with database.write() as session:
        add_study(session)
        assert len(Studies(session).page(limit=10).items) == 1
