"""Machines have names of their own."""

import threading
from concurrent.futures import ThreadPoolExecutor

from storage.engine import Database
from storage.fleet.machines import Machines
from tests.storage.records import START


def test_machines_of_one_name_that_join_at_once_are_told_apart(database: Database) -> None:
    has_joined = threading.Event()

    def join(machine_id: str) -> str:
        with database.write() as session:
            joined = Machines(session).join(
                machine_id, name="worker", version="1", session="s", slots=[], at=START
            )
            has_joined.set()
            # The other one has all the time it needs to overtake, if it could.
            threading.Event().wait(0.3)
        return joined.name

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(join, "a" * 16)
        has_joined.wait(200)
        second = pool.submit(join, "b" * 16)
        assert (first.result(), second.result()) == ("worker", "worker-bbbbbb")
