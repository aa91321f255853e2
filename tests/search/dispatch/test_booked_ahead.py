"""The next attempt is at its machine before its slot is free, where that does no harm."""

from collections.abc import Generator
from typing import Any

import pytest
from sqlalchemy import select

from search.agents.executors import Exit
from search.agents.protocol import Offer
from search.agents.slots.place_queues import PlaceQueues
from search.allocation import booked_ahead
from storage.records import AttemptKind, AttemptRecord, AttemptState, StudyRecord, TrialState
from storage.repositories.attempts import Attempts
from storage.repositories.trials import Trials
from storage.tables import AttemptRow
from tests.search.coordinating import Site as Whole
from tests.search.dispatch.test_fractions import coordinator
from tests.search.dispatch.test_tenant_slots import Ending, cores, ready, work
from tests.service.running import wait_until
from tests.service.site import Site, now

SPEC: dict[str, Any] = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["low_rank"],
    "space": {"rnn.hidden_size": {"low": 8, "high": 16}},
    "objectives": ["quality", "parameters"],
    "sampler": {"kind": "random"},
    "budget": {"trials": 20, "epochs": 3},
}


class Floor:
    """A coordinator with one slot, whose attempts end when a test says so."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.machine = Ending(cores(1).capacity())
        self.coordinator = coordinator(site, self.machine)

    def open(self) -> list[AttemptRecord]:
        with self.site.database.read() as session:
            return Attempts(session).open()

    def assigned(self) -> list[AttemptRecord]:
        return [one for one in self.open() if one.state is AttemptState.ASSIGNED]

    def end_one(self) -> None:
        """The attempt on the slot ends by itself; the trial is tried again later."""
        work(self.coordinator, lambda: bool(self.open()))
        with self.site.database.write() as session:
            (running,) = Attempts(session).running()
            Attempts(session).end(running.id, state=AttemptState.ENDED, at=now())
        self.machine.ended.append(Exit(running.id, 0, None, "exited"))
        self.coordinator.round()

    def rounds(self, count: int = 10) -> None:
        for _ in range(count):
            self.coordinator.round()


def state_of(site: Site, study: StudyRecord, number: int) -> TrialState:
    with site.database.read() as session:
        return Trials(session).get(study.id, number).state


def test_the_next_trial_is_assigned_when_trials_are_known_to_be_short(site: Site) -> None:
    floor = Floor(site)
    study = ready(site, "some")
    floor.rounds()
    # Nobody knows yet how long such trials take.
    assert not floor.assigned()
    floor.end_one()
    work(floor.coordinator, lambda: bool(floor.assigned()))
    (following,) = floor.assigned()
    assert following.trial is not None
    assert state_of(site, study, following.trial) is TrialState.QUEUED
    floor.rounds()
    assert len(floor.open()) == 2


def test_nothing_is_assigned_where_another_study_may_want_the_slot_first(site: Site) -> None:
    floor = Floor(site)
    ready(site, "some")
    ready(site, "others")
    for _ in range(3):
        floor.end_one()
        floor.rounds()
    assert not floor.assigned()


def test_nothing_is_assigned_where_trials_are_long(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(booked_ahead, "_SOON_SECONDS", 0.0)
    floor = Floor(site)
    ready(site, "some")
    for _ in range(3):
        floor.end_one()
        floor.rounds()
    assert not floor.assigned()


def test_a_trial_that_waits_too_long_for_one_slot_waits_for_any_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    floor = Floor(site)
    study = ready(site, "some")
    floor.rounds()
    floor.end_one()
    work(floor.coordinator, lambda: bool(floor.assigned()))
    (following,) = floor.assigned()
    monkeypatch.setattr(booked_ahead, "_SOON_SECONDS", 0.0)
    work(floor.coordinator, lambda: not floor.assigned())
    with site.database.read() as session:
        assert not Attempts(session).of_trial(study.id, following.trial or 0)
    assert state_of(site, study, following.trial or 0) is TrialState.QUEUED
    assert len(floor.open()) == 1


def offer(attempt: str, place: str) -> Offer:
    return Offer.model_validate(
        {
            "attempt": attempt,
            "token": "t",
            "lease_seconds": 30.0,
            "place": place,
            "device": "cpu",
            "threads": 1,
            "tenant": "local",
            "ahead": True,
            "job": {},
        }
    )


def test_a_place_is_given_on_in_order_and_what_waits_may_be_withdrawn() -> None:
    queues = PlaceQueues()
    assert queues.join(offer("one", "a"))
    assert queues.join(offer("other", "b"))
    assert [queues.join(offer(name, "a")) for name in ("two", "three", "four")] == [False] * 3
    assert queues.waiting() == ["two", "three", "four"]
    # Who has a place is ended, not withdrawn; and who waits has none to leave.
    assert not queues.withdraw("one")
    assert queues.leave("three") is None
    assert queues.withdraw("two")
    assert queues.leave("two") is None
    assert queues.leave("one") == offer("three", "a")
    assert queues.leave("one") is None
    assert queues.leave("three") == offer("four", "a")
    assert queues.leave("four") is None
    assert queues.join(offer("five", "a"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Generator[Whole]:
    made = Whole(tmp_path_factory.mktemp("ahead"))
    yield made
    made.close()


@pytest.fixture
def process(whole: Whole) -> Generator[None]:
    """A coordinator for the time of a test."""
    process = whole.coordinate("never", 0)
    yield
    process.terminate()
    assert process.wait(timeout=200) == 0


def assigned_to(whole: Whole, study_id: str) -> list[AttemptRecord]:
    with whole.database.read() as session:
        attempts = Attempts(session).open(study_id)
    return [one for one in attempts if one.state is AttemptState.ASSIGNED]


@pytest.mark.usefixtures("process")
def test_attempts_follow_each_other_on_a_slot_and_none_runs_beside_another(whole: Whole) -> None:
    study_id = whole.http.post("/v1/studies", json=SPEC).json()["id"]
    wait_until(lambda: assigned_to(whole, study_id), what="an assigned attempt", pause=0.01)
    path = f"/v1/studies/{study_id}"
    wait_until(lambda: whole.http.get(path).json()["state"] == "finished", what="the study's end")
    with whole.database.read() as session:
        attempts = Attempts(session).of_study(study_id, AttemptKind.TRAIN)
    assert [one.state for one in attempts] == [AttemptState.ENDED] * 20
    attempts.sort(key=lambda one: one.started_at)
    query = select(AttemptRow.id, AttemptRow.device_seconds)
    with whole.database.read() as session:
        took = {row.id: row.device_seconds for row in session.execute(query)}
    # Rows hear of beginnings and ends; by its own clock no process had the slot with another.
    ended = max(one.ended_at for one in attempts if one.ended_at is not None)
    span = (ended - attempts[0].started_at).total_seconds()
    assert 0 < sum(took[one.id] or 0.0 for one in attempts) <= span


@pytest.mark.usefixtures("process")
@pytest.mark.parametrize("order", ["cancel", "pause"])
def test_a_study_that_stops_leaves_nothing_assigned(whole: Whole, order: str) -> None:
    spec = SPEC | {"budget": {"trials": 500, "epochs": 3}}
    study_id = whole.http.post("/v1/studies", json=spec).json()["id"]
    path = f"/v1/studies/{study_id}"
    wait_until(lambda: assigned_to(whole, study_id), what="an assigned attempt", pause=0.01)
    assert whole.http.post(f"{path}/{order}").status_code < 300

    def is_still() -> bool:
        with whole.database.read() as session:
            return not Attempts(session).open(study_id)

    wait_until(is_still, what="the end of what runs")
    expected = {"cancel": "cancelled", "pause": "paused"}[order]
    wait_until(lambda: whole.http.get(path).json()["state"] == expected, what="the study's state")
    if order == "pause":
        assert whole.http.post(f"{path}/cancel").status_code < 300
        wait_until(lambda: whole.http.get(path).json()["state"] == "cancelled", what="its end")
    states = whole.http.get(path).json()["progress"]["trials"]
    assert states["running"] == states["queued"] == 0
