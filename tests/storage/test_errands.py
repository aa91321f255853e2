"""Errands outlive their study, are found oldest first, and go once."""

from datetime import UTC, datetime, timedelta

from storage.engine import Database
from storage.errands import Errands
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
        assert Errands(session).is_open("b")
    for _ in range(2):
        with database.write() as session:
            Errands(session).drop("b")
    with database.read() as session:
        assert Errands(session).open(ErrandKind.FORGET) == [young]
        assert not Errands(session).is_open("b")


def test_an_errand_outlives_its_study(database: Database) -> None:
    with database.write() as session:
        study_id = add_study(session).id
        Errands(session).add(errand("a", age=0))
        Studies(session).delete(study_id)
    with database.read() as session:
        assert len(Errands(session).open(ErrandKind.FORGET)) == 1
