"""Attempts: one worker per trial, proved by its token, counted against the budget until it ends."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from storage.engine import Database
from storage.errors import Conflict, LeaseLost, NotFound
from storage.records import AttemptKind, AttemptState
from storage.repositories.attempts import Attempts
from tests.storage.records import START, add_study, add_trial, after, attempt


@pytest.fixture
def study(database: Database) -> str:
    with database.write() as session:
        study_id = add_study(session).id
        for number in range(4):
            add_trial(session, study_id, number)
    return study_id


def test_an_attempt_comes_back_as_it_was_stored(database: Database, study: str) -> None:
    record = attempt(study, slot_share=0.25, job={"kind": "train", "shapes": [1, {"a": None}]})
    with database.write() as session:
        Attempts(session).start(record, token_digest="t")
    with database.read() as session:
        assert Attempts(session).get(record.id) == record
        with pytest.raises(NotFound, match="'none'"):
            Attempts(session).get("none")


def test_only_the_token_of_a_running_attempt_is_taken(database: Database, study: str) -> None:
    record = attempt(study)
    with database.write() as session:
        attempts = Attempts(session)
        attempts.start(record, token_digest="t")
        assert attempts.authenticate(record.id, "t") == record
        for attempt_id, digest in ((record.id, "u"), (record.id, ""), ("none", "t"), ("none", "")):
            with pytest.raises(LeaseLost):
                attempts.authenticate(attempt_id, digest)
        with pytest.raises(LeaseLost):
            attempts.authenticate(record.id, "ünicode")
        attempts.end(record.id, state=AttemptState.LOST, at=after(1))
        with pytest.raises(LeaseLost, match=record.id):
            attempts.authenticate(record.id, "t")


def test_a_trial_has_one_running_attempt_of_a_kind(database: Database, study: str) -> None:
    with database.write() as session:
        attempts = Attempts(session)
        first = attempt(study)
        attempts.start(first, token_digest="t")
        with pytest.raises(Conflict, match="another runs"):
            attempts.start(attempt(study, 2), token_digest="t")
        attempts.start(attempt(study, trial=1), token_digest="t")
        attempts.end(first.id, state=AttemptState.LOST, at=START)
        attempts.start(attempt(study, 2), token_digest="t")


def test_a_number_is_used_once_per_job(database: Database, study: str) -> None:
    of_study = {"kind": AttemptKind.MEASURE, "trial": None}
    with database.write() as session:
        attempts = Attempts(session)
        for given in ({}, of_study):
            first = attempt(study, **given)
            attempts.start(first, token_digest="t")
            attempts.end(first.id, state=AttemptState.ENDED, at=START)
            with pytest.raises(Conflict, match="attempt 1 of trial"):
                attempts.start(attempt(study, **given), token_digest="t")


def test_an_attempt_of_no_study_or_trial_is_refused(database: Database, study: str) -> None:
    for record in (attempt("none"), attempt(study, trial=99)):
        with pytest.raises(NotFound, match="no study"), database.write() as session:
            Attempts(session).start(record, token_digest="t")


def test_numbers_count_from_one_within_study_kind_and_trial(database: Database, study: str) -> None:
    with database.write() as session:
        attempts = Attempts(session)
        assert attempts.next_number(study, AttemptKind.TRAIN, 0) == 1
        assert attempts.next_number(study, AttemptKind.MEASURE, None) == 1
        for number in (1, 2):
            record = attempt(study, number)
            attempts.start(record, token_digest="t")
            attempts.end(record.id, state=AttemptState.LOST, at=START)
        attempts.start(attempt(study, kind=AttemptKind.MEASURE, trial=None), token_digest="t")
        assert attempts.next_number(study, AttemptKind.TRAIN, 0) == 3
        assert attempts.next_number(study, AttemptKind.TRAIN, 1) == 1
        assert attempts.next_number(study, AttemptKind.MEASURE, None) == 2


def test_a_lease_is_prolonged_while_the_attempt_runs(database: Database, study: str) -> None:
    record = attempt(study)
    with database.write() as session:
        attempts = Attempts(session)
        attempts.start(record, token_digest="t")
        attempts.renew(record.id, until=after(60), stood_still_seconds=2.0)
        # A report that was overtaken by a later one.
        attempts.renew(record.id, until=after(61), stood_still_seconds=1.0)
        attempts.renew(record.id, until=after(62))
        renewed = attempts.get(record.id)
        attempts.end(record.id, state=AttemptState.ENDED, at=after(5))
        with pytest.raises(LeaseLost, match=record.id):
            attempts.renew(record.id, until=after(90))
        with pytest.raises(LeaseLost, match="none"):
            attempts.renew("none", until=after(90))
    assert (renewed.lease_until, renewed.stood_still_seconds) == (after(62), 2.0)


def test_an_attempt_ends_once(database: Database, study: str) -> None:
    record = attempt(study)
    with database.write() as session:
        attempts = Attempts(session)
        attempts.start(record, token_digest="t")
        ended = attempts.end(record.id, state=AttemptState.LOST, at=after(1), detail="killed")
        assert (ended.state, ended.ended_at, ended.reason) == (
            AttemptState.LOST,
            after(1),
            "killed",
        )
        for attempt_id in (record.id, "none"):
            with pytest.raises(LeaseLost):
                attempts.end(attempt_id, state=AttemptState.ENDED, at=after(2))
        with pytest.raises(ValueError, match="not as 'running'"):
            attempts.end(record.id, state=AttemptState.RUNNING, at=after(2))
        assert attempts.get(record.id) == ended


def test_of_those_who_end_an_attempt_at_once_one_succeeds(database: Database, study: str) -> None:
    record = attempt(study)
    with database.write() as session:
        Attempts(session).start(record, token_digest="t")
    together = threading.Barrier(6)

    def end(state: AttemptState) -> AttemptState | None:
        together.wait()
        try:
            with database.write() as session:
                Attempts(session).end(record.id, state=state, at=START)
        except LeaseLost:
            return None
        return state

    with ThreadPoolExecutor(6) as pool:
        ends = [*pool.map(end, [AttemptState.ENDED, AttemptState.LOST] * 3)]
    (winner,) = (state for state in ends if state is not None)
    with database.read() as session:
        assert Attempts(session).get(record.id).state is winner


def test_a_lease_that_was_checked_to_write_is_not_taken_away_meanwhile(
    database: Database, study: str
) -> None:
    record = attempt(study)
    with database.write() as session:
        Attempts(session).start(record, token_digest="t")
    order: list[str] = []
    checked = threading.Event()

    def lose() -> None:
        checked.wait()
        with database.write() as session:
            Attempts(session).end(record.id, state=AttemptState.LOST, at=START)
            order.append("lost")

    losing = threading.Thread(target=lose)
    losing.start()
    with database.write() as session:
        Attempts(session).authenticate(record.id, "t")
        checked.set()
        losing.join(0.3)
        order.append("reported")
    losing.join()
    assert order == ["reported", "lost"]


def test_attempts_are_found_by_what_they_work_on(database: Database, study: str) -> None:
    with database.write() as session:
        other = add_study(session).id
        attempts = Attempts(session)
        first = attempt(study, lease_until=after(10))
        measuring = attempt(
            study, id="b", kind=AttemptKind.MEASURE, trial=None, lease_until=after(30)
        )
        elsewhere = attempt(other, kind=AttemptKind.PREPARE, trial=None, lease_until=after(5))
        for record in (first, measuring, elsewhere):
            attempts.start(record, token_digest="t")
        attempts.end(first.id, state=AttemptState.LOST, at=after(10))
        second = attempt(study, 2, id="a", started_at=after(11), lease_until=after(20))
        attempts.start(second, token_digest="t")
        ended = attempts.get(first.id)
        assert attempts.running(study) == [second, measuring]
        assert {record.id for record in attempts.running()} == {
            measuring.id,
            second.id,
            elsewhere.id,
        }
        assert attempts.of_trial(study, 0) == [ended, second]
        assert attempts.of_study(study, AttemptKind.MEASURE) == [measuring]


def test_an_assigned_attempt_holds_a_lease_and_no_device_until_it_begins(
    database: Database, study: str
) -> None:
    with database.write() as session:
        attempts = Attempts(session)
        record = attempt(study, state=AttemptState.ASSIGNED, lease_until=after(10))
        attempts.start(record, token_digest="t")
        with pytest.raises(Conflict):
            attempts.start(attempt(study, 2), token_digest="t")
        assert attempts.leases() == {record.id: after(10)}
        assert (attempts.open(study), attempts.running(study)) == ([record], [])
        with pytest.raises(LeaseLost):
            attempts.authenticate(record.id, "t")
        attempts.renew(record.id, until=after(60))
        assert attempts.device_seconds(study, after(30)) == 0.0
        assert attempts.begin(record.id, at=after(20))
        assert not attempts.begin(record.id, at=after(20))
        assert not attempts.recall(record.id)
        assert attempts.get(record.id).started_at == after(20)
        assert attempts.device_seconds(study, after(30)) == 10.0


def test_an_attempt_that_is_recalled_leaves_nothing(database: Database, study: str) -> None:
    with database.write() as session:
        attempts = Attempts(session)
        record = attempt(study, state=AttemptState.ASSIGNED)
        attempts.start(record, token_digest="t")
        assert attempts.recall(record.id)
        assert not attempts.recall(record.id)
        assert not attempts.begin(record.id, at=START)
        assert attempts.of_trial(study, 0) == []
        assert attempts.next_number(study, AttemptKind.TRAIN, 0) == 1


def test_device_seconds_are_share_times_time_without_standing_still(
    database: Database, study: str
) -> None:
    with database.write() as session:
        attempts = Attempts(session)
        ended = attempt(study, slot_share=0.5)
        running = attempt(study, trial=1, slot_share=2.0, started_at=after(10))
        measuring = attempt(study, kind=AttemptKind.MEASURE, trial=None)
        for record in (ended, running, measuring):
            attempts.start(record, token_digest="t")
        assert attempts.device_seconds(study, START) == 0.0
        attempts.renew(ended.id, until=after(60), stood_still_seconds=4.0)
        attempts.end(ended.id, state=AttemptState.ENDED, at=after(20))
        attempts.end(measuring.id, state=AttemptState.ENDED, at=after(20))
        attempts.renew(running.id, until=after(60), stood_still_seconds=1.5)
        held = attempts.device_seconds(study, after(30))
        assert attempts.device_seconds("none", after(30)) == 0.0
    assert held == pytest.approx(0.5 * (20 - 4) + 2.0 * (20 - 1.5))


def test_a_wall_clock_that_is_set_takes_no_device_time(database: Database, study: str) -> None:
    a_year = 365 * 86400.0
    with database.write() as session:
        attempts = Attempts(session)
        ended = attempt(study, slot_share=0.5)
        running = attempt(study, trial=1, slot_share=2.0)
        for record in (ended, running):
            attempts.start(record, token_digest="t")
        attempts.renew(running.id, until=after(60), stood_still_seconds=1.0, held_seconds=6.0)
        # An older word, which came late.
        attempts.renew(running.id, until=after(60), stood_still_seconds=1.0, held_seconds=4.0)
        attempts.renew(ended.id, until=after(60), stood_still_seconds=4.0, held_seconds=20.0)
        attempts.renew(ended.id, until=after(60))
        attempts.end(ended.id, state=AttemptState.ENDED, at=after(a_year))
        held = attempts.device_seconds(study, after(a_year))
    assert held == pytest.approx(0.5 * (20 - 4) + 2.0 * (6 - 1))
