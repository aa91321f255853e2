"""Events: numbered without gaps, in the order in which they become visible."""

import multiprocessing
import time
from multiprocessing.process import BaseProcess

import pytest

from storage.engine import Database
from storage.errors import NotFound, UnstorableValue
from storage.repositories.events import Events
from storage.repositories.studies import Studies
from tests.storage.records import START, add_study, after

WRITERS, EVENTS = 3, 40


def test_events_are_numbered_per_study_and_read_behind_a_number(database: Database) -> None:
    with database.write() as session:
        one, two = add_study(session).id, add_study(session).id
        events = Events(session)
        made = [events.append(one, "trial", {"n": n, "values": [None]}, after(n)) for n in range(5)]
        events.append(two, "state", {}, START)
    with database.read() as session:
        events = Events(session)
        assert [event.number for event in made] == [1, 2, 3, 4, 5]
        assert events.after(one, 0, 100) == made
        assert events.after(one, -7, 100) == made
        assert events.after(one, 2, 2) == made[2:4]
        assert events.after(one, 5, 100) == events.after(one, 10**30, 100) == []
        assert events.latest([one, two, "none"]) == {one: 5, two: 1}
        assert events.latest([]) == {}
        assert Studies(session).get(one).last_event == 5


def test_an_event_of_no_study_is_refused(database: Database) -> None:
    with database.write() as session, pytest.raises(NotFound, match="'none'"):
        Events(session).append("none", "state", {}, START)


def test_a_transaction_that_is_undone_leaves_no_gap(database: Database) -> None:
    with database.write() as session:
        study_id = add_study(session).id
        Events(session).append(study_id, "first", {}, START)

    def append_two() -> None:
        with database.write() as session:
            Events(session).append(study_id, "undone", {}, START)
            Events(session).append(study_id, "refused", {"loss": float("nan")}, START)

    with pytest.raises(UnstorableValue):
        append_two()
    with database.write() as session:
        assert Events(session).append(study_id, "second", {}, START).number == 2


def _write_events(url: str, study_id: str, writer: int) -> None:
    database = Database(url)
    for index in range(EVENTS):
        with database.write() as session:
            Events(session).append(study_id, "e", {"writer": writer, "index": index}, START)
            # Long enough for another writer to try in between.
            time.sleep(0.001)
    database.dispose()


def _writers(url: str, study_id: str) -> list[BaseProcess]:
    context = multiprocessing.get_context("spawn")
    writers = [
        context.Process(target=_write_events, args=(url, study_id, writer))
        for writer in range(WRITERS)
    ]
    for process in writers:
        process.start()
    return list(writers)


def test_a_reader_misses_no_event_of_writers_in_other_processes(
    database: Database, database_url: str
) -> None:
    with database.write() as session:
        study_id = add_study(session).id
    writers = _writers(database_url, study_id)
    seen: list[tuple[int, object, object]] = []
    done = False
    while not done:
        # Asked before the read, so that the last read comes after the last write.
        done = not any(process.is_alive() for process in writers)
        with database.read() as session:
            events = Events(session).after(study_id, len(seen), 7 if not done else 1000)
        seen += [
            (event.number, event.payload["writer"], event.payload["index"]) for event in events
        ]
    for process in writers:
        process.join()
    assert [process.exitcode for process in writers] == [0] * WRITERS
    assert [number for number, _, _ in seen] == list(range(1, WRITERS * EVENTS + 1))
    for writer in range(WRITERS):
        assert [index for _, by, index in seen if by == writer] == list(range(EVENTS))
