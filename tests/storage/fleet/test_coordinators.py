"""A coordinator has one row, which goes with it; one that was killed is not seen any more."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sqlalchemy import select

from storage.engine import Database
from storage.fleet.coordinators import CoordinatorRecord, Coordinators, SlotRecord
from storage.tables import CoordinatorRow

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROW = CoordinatorRecord(
    owner="ada:/var/lib/reflectory",
    slots=(SlotRecord("gpu-0-0", "cuda:GPU-1", "a GPU", 0.5), SlotRecord("cpu-0", "cpu", "x", 1.0)),
    measuring_slots=(SlotRecord("lane cpu", "cpu", "x", 0.0),),
    figures={"asks": {"tpe": {"counts": [1, 2], "seconds": 0.5}}},
    started_at=NOW - timedelta(hours=1),
    seen_at=NOW,
)


def report(database: Database, *rows: CoordinatorRecord) -> None:
    with database.write() as session:
        for row in rows:
            Coordinators(session).report(row)


def alive(database: Database, now: datetime) -> list[CoordinatorRecord]:
    with database.read() as session:
        return Coordinators(session).alive(now, within_seconds=45)


def test_a_report_takes_the_place_of_the_one_before(database: Database) -> None:
    later = replace(ROW, slots=(), figures={}, seen_at=NOW + timedelta(seconds=1))
    report(database, ROW)
    assert alive(database, NOW) == [ROW]
    report(database, later)
    assert alive(database, NOW) == [later]


def test_one_that_is_silent_or_has_stopped_is_not_alive(database: Database) -> None:
    silent = replace(ROW, owner="bob:/", seen_at=NOW - timedelta(seconds=46))
    report(database, silent, ROW)
    assert alive(database, NOW) == [ROW]
    with database.write() as session:
        Coordinators(session).remove(ROW.owner)
    assert alive(database, NOW) == []
    with database.write() as session:
        Coordinators(session).remove(ROW.owner)


def test_the_stored_slots_have_the_flag_that_other_versions_read(database: Database) -> None:
    report(database, ROW)
    with database.read() as session:
        (stored,) = session.scalars(select(CoordinatorRow.slots))
    assert [slot["lane"] for slot in stored if isinstance(slot, dict)] == [False, False, True]
