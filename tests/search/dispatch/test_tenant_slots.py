"""A coordinator keeps to what tenants may have, whoever gave them what they have."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import pytest

from search.agents.executors import Exit, Slot
from search.dispatch.coordinator import Coordinator
from storage.accounts.quotas import Quotas
from storage.errors import QuotaReached
from storage.records import AttemptState, StudyRecord, StudyState, TrialState
from storage.repositories.attempts import Attempts
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from storage.tenant_quota import QuotaName
from tests.patience import wait_while_it_moves
from tests.search.dispatch.test_fractions import Machine, coordinator
from tests.service.site import Site


class Ending(Machine):
    """One whose attempts end when a test says so."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        super().__init__(slots)
        self.ended: list[Exit] = []

    def poll(self, timeout_seconds: float) -> Sequence[Exit]:
        assert timeout_seconds >= 0
        ended, self.ended = self.ended, []
        return ended


def cores(count: int) -> Machine:
    return Machine(slots_of(count))


def slots_of(count: int) -> list[Slot]:
    return [Slot(f"cpu-{number}", "cpu", "a CPU", 1.0) for number in range(count)]


class Closed(Machine):
    """One that takes nothing until it is open."""

    is_open = False

    def reserve(self, attempt_id: str, slot: Slot) -> bool:
        return self.is_open and super().reserve(attempt_id, slot)


def ready(site: Site, tenant: str, *, trials: int = 20) -> StudyRecord:
    """A study whose data are there and that measures nothing: its trials start at once."""
    study = site.study(
        tenant=tenant,
        objectives=["quality", "parameters"],
        sampler={"kind": "random"},
        budget={"trials": trials, "epochs": 1},
    )
    with site.database.write() as session:
        Studies(session).set_prepared(study.id, {})
    return study


def allow(site: Site, tenant: str, **given: int | float | None) -> None:
    with site.database.write() as session:
        Quotas(session).override(tenant, given)


def held(site: Site) -> Counter[str]:
    """How many slots each tenant has, by the rows."""
    with site.database.read() as session:
        tenants = {
            study.id: study.tenant for study in Studies(session).in_states(StudyState.RUNNING)
        }
        return Counter(tenants[one.study_id] for one in Attempts(session).running())


def work(running: Coordinator, until: Callable[[], bool]) -> None:
    def done_after_a_round() -> bool:
        running.round()
        return until()

    if not until():
        wait_while_it_moves(done_after_a_round, what="the coordinator's work", pause=0.0)


def test_a_tenant_has_no_more_slots_than_its_quota_and_others_have_the_rest(site: Site) -> None:
    allow(site, "small", slots=1)
    studies = [ready(site, "small"), ready(site, "small"), ready(site, "large")]
    machine = Closed(slots_of(5))
    running = coordinator(site, machine)
    # Samplers of several studies think at once: who is first would have the slots before the others
    # have anything to train.
    work(running, lambda: all(waits(site, study, trials=5) for study in studies))
    machine.is_open = True
    work(running, lambda: held(site).total() == 5)
    for _ in range(5):
        running.round()
    assert held(site) == {"small": 1, "large": 4}


def test_slots_at_other_coordinators_count(site: Site) -> None:
    elsewhere = ready(site, "small")
    site.run(elsewhere)
    site.trial(elsewhere, 0, state=TrialState.RUNNING)
    lease = site.lease(elsewhere, 0)
    with site.database.write() as session:
        until = datetime(2100, 1, 1, tzinfo=UTC)
        Studies(session).claim(elsewhere.id, owner="another", now=until, until=until)
    allow(site, "small", slots=1)
    waiting = ready(site, "small")
    ready(site, "large", trials=2)
    running = coordinator(site, cores(5))
    work(running, lambda: held(site) == {"small": 1, "large": 2})
    with site.database.read() as session:
        assert not Attempts(session).running(waiting.id)
    with site.database.write() as session:
        Attempts(session).end(lease.attempt, state=AttemptState.LOST, at=datetime.now(UTC))

    def has_begun() -> bool:
        with site.database.read() as session:
            return bool(Attempts(session).running(waiting.id))

    work(running, has_begun)
    assert held(site) == {"small": 1, "large": 2}


def test_a_quota_that_another_uses_up_in_the_same_moment_is_kept(site: Site) -> None:
    """What was looked up a second ago is not what counts: the transaction of the start is."""
    study = ready(site, "small")
    allow(site, "small", slots=1)
    machine = Ending(cores(2).capacity())
    running = coordinator(site, machine)
    work(running, lambda: held(site) == {"small": 1})
    # Until it has looked at the claims again, after which attempts are booked behind others.
    since = time.monotonic()
    work(running, lambda: time.monotonic() - since > 2.5)
    other = site.study(tenant="small")
    site.run(other)
    site.trial(other, 0, state=TrialState.RUNNING)
    lease = site.lease(other, 0)
    with site.database.write() as session:
        until = datetime(2100, 1, 1, tzinfo=UTC)
        Studies(session).claim(other.id, owner="another", now=until, until=until)
        (ours,) = Attempts(session).running(study.id)
        Attempts(session).end(ours.id, state=AttemptState.LOST, at=datetime.now(UTC))
    machine.ended.append(Exit(ours.id, 0, None, "exited"))
    for _ in range(10):
        running.round()
    assert held(site) == {"small": 1}
    with site.database.write() as session:
        Attempts(session).end(lease.attempt, state=AttemptState.LOST, at=datetime.now(UTC))

    def has_begun() -> bool:
        with site.database.read() as session:
            return bool(Attempts(session).running(study.id))

    work(running, has_begun)


@pytest.mark.parametrize("name", ["studies", "queued_trials", "slots", "stored_bytes"])
def test_whatever_rows_decide_is_refused_with_advice(site: Site, name: QuotaName) -> None:
    allow(site, "small", **{name: 0})
    with (
        site.database.write() as session,
        pytest.raises(QuotaReached, match=f"quota {name}: the tenant has 0 of 0; .*, or have the"),
    ):
        Quotas(session).make_room(name, tenant="small")


def test_a_tenant_with_many_studies_leaves_another_its_half(site: Site) -> None:
    many = [ready(site, "many") for _ in range(4)]
    few = ready(site, "few")
    running = coordinator(site, cores(1))
    # All have asked, one of them for as much as it is to get; then there is a choice.
    work(running, lambda: all(waits(site, study) for study in many) and waits(site, few, 2))
    stop(running)
    second = coordinator(site, cores(5))
    work(second, lambda: held(site).total() >= 5)
    assert held(site)["few"] >= 2


def waits(site: Site, study: StudyRecord, trials: int = 1) -> bool:
    with site.database.read() as session:
        return Trials(session).counts(study.id).total >= trials


def stop(running: Coordinator) -> None:
    """End it in an orderly way: what it asks for in the background ends first."""
    at_once = threading.Event()
    at_once.set()
    running.run(at_once)


def test_a_full_quota_of_queued_trials_lets_each_study_draw_one(site: Site) -> None:
    allow(site, "small", queued_trials=2)
    studies = [ready(site, "small") for _ in range(3)]
    running = coordinator(site, cores(1))

    def counts() -> list[int]:
        with site.database.read() as session:
            return [
                Trials(session).counts(study.id).by_state.get(TrialState.QUEUED, 0)
                for study in studies
            ]

    work(running, lambda: held(site).total() == 1 and all(waits(site, one) for one in studies))
    for _ in range(10):
        running.round()
    # One waits in each; a study whose trial just started may draw its next.
    assert all(count <= 2 for count in counts()), counts()
    assert sum(counts()) <= 5
