"""Errands outlive their study, are found oldest first, and go once."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from storage.engine import Database
from storage.errands import Errands
from storage.errors import NotFound
from storage.records import ErrandKind, ErrandRecord
from storage.studies import Studies
from tests.storage.records import add_study


def errand(name: str, *, age: int) -> ErrandRecord:
    return ErrandRecord(
        id=name,
        study_id="gone",
        kind=ErrandKind.FORGET,
        payload={"study_name": f"a study [{name}]"},
        created_at=datetime(2025, 1, 1, tzinfo=UTC) - timedelta(seconds=age),
    )


def test_open_errands_are_the_oldest_first_and_go_once(database: Database) -> None:
    young, old = errand("a", age=1), errand("b", age=2)
    with database.write() as session:
        Errands(session).add(young)
        Errands(session).add(old)
    with database.read() as session:
        assert Errands(session).open(ErrandKind.FORGET) == [old, young]
        assert Errands(session).find("b") == old
    for _ in range(2):
        with database.write() as session:
            Errands(session).drop("b")
    with database.read() as session:
        assert Errands(session).open(ErrandKind.FORGET) == [young]
        assert Errands(session).find("b") is None


def test_an_errand_outlives_its_study(database: Database) -> None:
    with database.write() as session:
        study_id = add_study(session).id
        Errands(session).add(errand("a", age=0))
        Studies(session).delete(study_id)
    with database.read() as session:
        assert len(Errands(session).open(ErrandKind.FORGET)) == 1


def test_an_errand_that_a_trial_came_of_is_open_no_more_and_tells_which(
    database: Database,
) -> None:
    asked = replace(errand("a", age=1), kind=ErrandKind.ENQUEUE)
    other = replace(errand("b", age=0), kind=ErrandKind.ENQUEUE, study_id="other")
    with database.write() as session:
        for one in (asked, other):
            Errands(session).add(one)
        Errands(session).answer("a", 0)
        with pytest.raises(NotFound, match="'c'"):
            Errands(session).answer("c", 0)
    with database.read() as session:
        errands = Errands(session)
        assert errands.find("a") == replace(asked, trial=0)
        assert errands.open(ErrandKind.ENQUEUE, "gone") == []
        assert errands.open(ErrandKind.ENQUEUE, "other") == [other]
        assert errands.open(ErrandKind.ENQUEUE) == [other]
    with database.write() as session:
        Errands(session).drop_of_study("gone", ErrandKind.ENQUEUE)
    with database.read() as session:
        assert Errands(session).find("a") is None
        assert Errands(session).find("b") == other
