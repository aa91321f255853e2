"""Deliveries are due in their order, are claimed once, and end once."""

from datetime import UTC, datetime, timedelta

import pytest

from storage.engine import Database
from storage.records import DeliveryRecord
from storage.repositories.studies import Studies
from storage.repositories.webhooks import Deliveries
from tests.storage.records import add_study

NOW = datetime(2025, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)


def delivery(name: str, *, due: datetime | None = NOW, study: str = "a") -> DeliveryRecord:
    return DeliveryRecord(
        id=name,
        study_id=study,
        url="https://example.org/hook",
        body={"type": "study.finished", "data": {"id": study}},
        tries=0,
        due_at=due,
        delivered_at=None,
        reason=None,
        created_at=NOW,
    )


@pytest.fixture
def deliveries(database: Database) -> Database:
    with database.write() as session:
        add_study(session, id="a")
        Deliveries(session).add(delivery("late", due=LATER))
        Deliveries(session).add(delivery("second"))
        Deliveries(session).add(delivery("first", due=NOW - timedelta(seconds=5)))
    return database


def due(database: Database, at: datetime, *, limit: int = 10) -> list[DeliveryRecord]:
    with database.read() as session:
        return Deliveries(session).due(at, limit=limit)


def test_what_is_due_is_the_longest_due_first(deliveries: Database) -> None:
    assert [one.id for one in due(deliveries, NOW)] == ["first", "second"]
    assert due(deliveries, NOW)[0] == delivery("first", due=NOW - timedelta(seconds=5))
    assert [one.id for one in due(deliveries, LATER, limit=1)] == ["first"]
    assert [one.id for one in due(deliveries, LATER)] == ["first", "second", "late"]


def test_a_try_is_claimed_once_and_is_due_again_when_the_claim_is_over(
    deliveries: Database,
) -> None:
    first = due(deliveries, NOW)[0]
    with deliveries.write() as session:
        assert Deliveries(session).claim(first, until=LATER)
        assert not Deliveries(session).claim(first, until=LATER)
    assert [one.id for one in due(deliveries, NOW)] == ["second"]
    again = next(one for one in due(deliveries, LATER) if one.id == "first")
    assert again.tries == 1


def test_what_has_ended_is_due_no_more_and_says_how(deliveries: Database) -> None:
    with deliveries.write() as session:
        Deliveries(session).put_off("late", until=LATER, reason="HTTP 500")
        Deliveries(session).put_off("first", until=LATER, reason="HTTP 500")
        Deliveries(session).delivered("first", at=LATER)
        Deliveries(session).give_up("second", reason="HTTP 410")
        # A late word about what was delivered changes nothing.
        Deliveries(session).put_off("first", until=LATER, reason="HTTP 503")
    with deliveries.read() as session:
        found = {one.id: one for one in Deliveries(session).of_study("a")}
    assert (found["first"].due_at, found["first"].delivered_at) == (None, LATER)
    assert found["first"].reason is None
    assert (found["second"].due_at, found["second"].reason) == (None, "HTTP 410")
    assert (found["late"].due_at, found["late"].reason) == (LATER, "HTTP 500")


def test_deliveries_go_with_their_study(deliveries: Database) -> None:
    with deliveries.write() as session:
        Studies(session).delete("a")
        # Whoever was just sending one finds nothing to say it of.
        Deliveries(session).delivered("first", at=NOW)
    assert due(deliveries, LATER) == []
