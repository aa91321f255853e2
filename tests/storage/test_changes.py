"""Whoever waits for commits hears of them, also of those of other processes."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url

from storage.changes import PostgresqlChanges
from storage.engine import Database, with_driver
from tests.patience import wait_while_it_moves
from tests.storage.records import add_study

LONG = 60.0
SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
LISTENS = """
import sys
from storage.engine import Database
changes = Database(sys.argv[1]).changes()
changes.look()
print(changes.fileno(), flush=True)
while True:
    changes.wait(60)
    print("woken", flush=True)
"""


def pipes(database_url: str) -> list[Path]:
    """The pipes that hang beside a SQLite file."""
    return [*Path(f"{make_url(database_url).database}-waiting").glob("*")]


def commit(database: Database) -> None:
    with database.write() as session:
        add_study(session)


def test_a_wait_ends_when_something_is_committed(database: Database) -> None:
    changes = database.changes()
    before = changes.look()
    writing = threading.Timer(0.05, commit, [database])
    writing.start()
    until = time.monotonic() + LONG
    while changes.look() == before and time.monotonic() < until:
        changes.wait(LONG)
    # Its commit is heard before its session has ended, whose connection would be left open.
    writing.join()
    assert changes.look() != before
    assert time.monotonic() < until
    changes.close()


def test_a_commit_before_the_wait_is_heard(database: Database) -> None:
    changes = database.changes()
    changes.wait(0.0)
    commit(database)
    begun = time.monotonic()
    changes.wait(LONG)
    assert time.monotonic() - begun < LONG
    changes.close()


def test_a_wait_can_be_ended_by_hand(database: Database) -> None:
    changes = database.changes()
    changes.wake()
    begun = time.monotonic()
    changes.wait(LONG)
    assert time.monotonic() - begun < LONG
    changes.close()


def test_what_two_connections_tell_is_never_the_same(database: Database) -> None:
    """After a crash PostgreSQL gives the number of a lost transaction out again."""
    changes = database.changes()
    before = changes.look()
    changes.close()
    assert before is not None
    assert changes.look() != before
    changes.close()


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_look_tells_nothing_while_no_connection_is_free(database_url: str) -> None:
    one = create_engine(with_driver(database_url), pool_size=1, max_overflow=0, pool_timeout=0.05)
    changes = PostgresqlChanges(one)
    with one.connect():
        assert changes.look() is None
    assert changes.look() is not None
    changes.close()
    one.dispose()


@SQLITE
def test_nothing_is_left_to_read_from_a_pipe_that_was_drained(database: Database) -> None:
    changes = database.changes()
    pipe = changes.fileno()
    assert pipe is not None
    commit(database)
    assert os.read(pipe, 10)
    commit(database)
    changes.drain()
    with pytest.raises(BlockingIOError):
        os.read(pipe, 10)
    changes.close()


@SQLITE
def test_another_process_is_woken_and_its_pipe_goes_when_it_is_killed(
    database: Database, database_url: str
) -> None:
    command = [sys.executable, "-c", LISTENS, database_url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout is not None
        assert listener.stdout.readline().strip().isdigit()
        assert len(pipes(database_url)) == 1
        commit(database)
        assert listener.stdout.readline() == "woken\n"
        listener.send_signal(signal.SIGKILL)
    assert len(pipes(database_url)) == 1
    commit(database)
    assert pipes(database_url) == []


@SQLITE
def test_where_there_can_be_no_pipe_looks_tell(database: Database, database_url: str) -> None:
    Path(f"{make_url(database_url).database}-waiting").write_text("no folder")
    changes = database.changes()
    assert changes.fileno() is None
    before = changes.look()
    commit(database)

    def seen() -> bool:
        changes.wait(LONG)
        return changes.look() != before

    wait_while_it_moves(seen, what="the commit")
    changes.close()
