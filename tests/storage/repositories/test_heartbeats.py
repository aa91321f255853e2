"""Heartbeats: what most workers say most of the time, in one statement that waits for nobody."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.orm import Session

from storage.accounts.quotas import Quotas
from storage.endings import StudyCause
from storage.engine import Database
from storage.errors import LeaseLost
from storage.fleet.slot_use import SlotUse
from storage.fleet.waiting_work import WaitingWork
from storage.locking import lock_study
from storage.records import AttemptKind, AttemptState
from storage.repositories.attempts import Attempts, Renewal
from storage.repositories.studies import Studies
from tests.storage.records import add_study, add_trial, after, attempt


@pytest.fixture
def study(database: Database) -> str:
    with database.write() as session:
        study_id = add_study(session).id
        add_trial(session, study_id, 0)
    return study_id


def beat(database: Database, attempt_id: str, *, seconds: float, digest: str = "t") -> str | None:
    with database.write() as session:
        kept = Attempts(session).keep_alive(
            attempt_id, digest, until=after(seconds), stood_still_seconds=1.0, held_seconds=seconds
        )
        return kept.ending


def test_a_heartbeat_renews_the_lease_and_tells_how_its_own_study_stands(
    database: Database, study: str
) -> None:
    record = attempt(study)
    with database.write() as session:
        Attempts(session).start(record, token_digest="t")
        # Other studies, and how they end, are none of its business.
        for _ in range(2):
            Studies(session).set_ending(add_study(session).id, StudyCause.CANCELLED, "them")
    assert beat(database, record.id, seconds=60) is None
    with database.write() as session:
        Studies(session).set_ending(study, StudyCause.BUDGET, "wall_seconds")
    assert beat(database, record.id, seconds=70) == "budget: wall_seconds"
    # One that was overtaken takes no time back.
    beat(database, record.id, seconds=65)
    with database.read() as session:
        found = Attempts(session).get(record.id)
        assert (found.lease_until, found.stood_still_seconds) == (after(65), 1.0)
        assert Attempts(session).device_seconds(study, after(500)) == 69.0


def test_only_the_token_of_a_running_attempt_keeps_it_alive(database: Database, study: str) -> None:
    record = attempt(study)
    with database.write() as session:
        Attempts(session).start(record, token_digest="t")
    for attempt_id, digest in ((record.id, "u"), (record.id, ""), ("none", "t")):
        with pytest.raises(LeaseLost):
            beat(database, attempt_id, seconds=60, digest=digest)
    with database.write() as session:
        Attempts(session).end(record.id, state=AttemptState.LOST, at=after(1))
    with pytest.raises(LeaseLost, match=record.id):
        beat(database, record.id, seconds=60)
    with database.read() as session:
        assert Attempts(session).get(record.id).lease_until == record.lease_until


def test_what_is_leased_is_what_open_attempts_hold(database: Database, study: str) -> None:
    with database.write() as session:
        for number in (1, 2):
            add_trial(session, study, number)
        first, lost = attempt(study, trial=0), attempt(study, trial=1)
        measuring = attempt(study, trial=2, kind=AttemptKind.MEASURE)
        for record in (first, lost, measuring):
            Attempts(session).start(record, token_digest="t")
        Attempts(session).end(lost.id, state=AttemptState.LOST, at=after(1))
    with database.read() as session:
        assert Attempts(session).leases() == {
            first.id: first.lease_until,
            measuring.id: measuring.lease_until,
        }


READS: list[Callable[[Session], object]] = [
    lambda session: Attempts(session).leases(),
    lambda session: Attempts(session).open(),
    lambda session: Attempts(session).open("study"),
    lambda session: Quotas(session).used("slots", "local"),
    lambda session: SlotUse(session).taken(),
    lambda session: SlotUse(session).attempts(),
    lambda session: WaitingWork(session).by_device(),
]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("read", READS)
def test_what_is_asked_every_second_reads_the_open_attempts_alone(
    database: Database, read: Callable[[Session], object]
) -> None:
    """A server that has run for months has a million that have ended."""
    asked: list[tuple[str, Any]] = []

    def note(*given: Any) -> None:
        if "FROM attempt" in given[2] or "JOIN attempt" in given[2]:
            asked.append((given[2], given[3]))

    with database.read() as session:
        engine = session.get_bind()
        event.listen(engine, "before_cursor_execute", note)
        read(session)
        event.remove(engine, "before_cursor_execute", note)
        assert asked
        for statement, parameters in asked:
            rows = session.connection().exec_driver_sql(
                f"EXPLAIN QUERY PLAN {statement}", parameters
            )
            steps = [row.detail for row in rows if "attempt" in row.detail]
            indexes = ("ix_attempt_lease", "uq_attempt_open")
            assert steps
            assert all(any(index in step for index in indexes) for step in steps), steps


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_heartbeat_waits_for_nobody_who_writes_to_its_study(
    database: Database, study: str
) -> None:
    record = attempt(study)
    with database.write() as session:
        Attempts(session).start(record, token_digest="t")
    with ThreadPoolExecutor(1) as beside, database.write() as session:
        lock_study(session, study)
        beside.submit(beat, database, record.id, seconds=60).result(timeout=200)


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_an_attempt_that_is_being_ended_is_not_kept_alive(database: Database, study: str) -> None:
    record = attempt(study)
    with database.write() as session:
        Attempts(session).start(record, token_digest="t")
    with ThreadPoolExecutor(1) as beside:
        with database.write() as session:
            Attempts(session).end(record.id, state=AttemptState.LOST, at=after(1))
            late = beside.submit(beat, database, record.id, seconds=60)
        with pytest.raises(LeaseLost):
            late.result(timeout=200)


@pytest.mark.parametrize("held", [(1.0, 1.0), (1.0, None)])
@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_whoever_ends_a_studys_attempts_and_their_beats_do_not_wait_for_each_other(
    database: Database, study: str, held: tuple[float | None, float | None]
) -> None:
    late, early = attempt(study, id="b"), attempt(study, id="a", trial=1, started_at=after(5))
    with database.write() as session:
        add_trial(session, study, 1)
        for record in (late, early):
            Attempts(session).start(record, token_digest="t")
    has_ended_one = threading.Event()

    def beats() -> None:
        has_ended_one.wait(200)
        said = [Renewal(one.id, 0.0, of) for one, of in zip((late, early), held, strict=True)]
        with database.write() as session:
            Attempts(session).renew_all(said, until=after(60))

    with ThreadPoolExecutor(1) as beside:
        beating = beside.submit(beats)
        with database.write() as session:
            for one in Attempts(session).open(study):
                Attempts(session).end(one.id, state=AttemptState.LOST, at=after(10))
                if not has_ended_one.is_set():
                    has_ended_one.set()
                    # It has all the time that it needs to take a row and wait for the next.
                    threading.Event().wait(0.3)
        beating.result()
    with database.read() as session:
        assert Attempts(session).open(study) == []
