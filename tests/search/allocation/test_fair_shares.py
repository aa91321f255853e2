"""Slots between tenants: none idles that somebody may have, and each has its weight of them."""

import heapq
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search.allocation.priority import in_turn, interleaved, next_turn, take_turns
from search.allocation.tenant_shares import TenantShares
from storage.tenant_quota import TenantQuota

WEIGHTS = st.sampled_from([0.5, 1.0, 2.0, 3.0])


@dataclass
class Studies:
    """Studies of several tenants on a few slots, served as a coordinator serves them."""

    slots: int
    tenants: dict[str, str]
    """Study -> whose it is."""
    waiting: Counter[str]
    """How many trials of a study could start."""
    quotas: dict[str, TenantQuota]
    priorities: dict[str, int] = field(default_factory=dict)
    now: float = 0.0
    on: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Slot -> study and tenant."""
    started: list[str] = field(default_factory=list)
    """The studies, in the order in which their trials started."""

    def __post_init__(self) -> None:
        self.shares = TenantShares(clock=lambda: self.now)
        self.shares.allow(self.quotas)
        self.stepped: list[str] = []
        self.order = list(self.tenants)

    def round(self) -> list[str]:
        """Serve all; the slots that were taken."""
        before, self.stepped = set(self.on), []
        self.shares.begin_round(self.tenants.values())
        priorities = {study: self.priorities.get(study, 0) for study in self.order}
        first = len(self.started)
        take_turns(
            in_turn(priorities), tenants=self.tenants, rank=self.shares.rank, visit=self._visit
        )
        self.order = next_turn(priorities, served=set(self.started[first:]))
        return sorted(self.on.keys() - before)

    def end(self, slot: str) -> None:
        del self.on[slot]
        self.shares.give_back(slot)

    def held(self, tenant: str) -> int:
        return sum(owner == tenant for _, owner in self.on.values())

    def may_start(self, study: str) -> bool:
        tenant = self.tenants[study]
        limit = self.quotas[tenant].slots
        return self.waiting[study] > 0 and (limit is None or self.held(tenant) < limit)

    def _visit(self, study: str) -> bool:
        self.stepped.append(study)
        self.shares.begin_turn()
        tenant = self.tenants[study]
        while self.waiting[study] and len(self.on) < self.slots:
            if not self.shares.may_take_slot(tenant):
                break
            slot = next(name for name in map(str, range(self.slots)) if name not in self.on)
            self.on[slot] = (study, tenant)
            self.shares.take(tenant, slot, is_measuring=False)
            self.waiting[study] -= 1
            self.started.append(study)
        return self.shares.wants_more


def quotas(weights: list[float], slots: list[int | None]) -> dict[str, TenantQuota]:
    return {
        f"tenant {number}": TenantQuota(weight=weight, slots=limit)
        for number, (weight, limit) in enumerate(zip(weights, slots, strict=True))
    }


@st.composite
def crowds(draw: st.DrawFn) -> Studies:
    count = draw(st.integers(1, 4))
    allowed = quotas(
        draw(st.lists(WEIGHTS, min_size=count, max_size=count)),
        draw(st.lists(st.none() | st.integers(0, 3), min_size=count, max_size=count)),
    )
    tenants = {
        f"{tenant}, study {number}": tenant
        for tenant in allowed
        for number in range(draw(st.integers(0, 3)))
    }
    waiting = Counter({study: draw(st.integers(0, 5)) for study in tenants})
    priorities = {study: draw(st.integers(-1, 1)) for study in tenants}
    return Studies(draw(st.integers(1, 6)), tenants, waiting, allowed, priorities)


@given(crowds(), st.lists(st.integers(0, 5), max_size=12))
def test_no_slot_idles_that_anybody_may_have(crowd: Studies, ends: list[int]) -> None:
    for slot in [None, *map(str, ends)]:
        if slot in crowd.on:
            crowd.end(slot)
        crowd.now += 1.0
        crowd.round()
        idle = len(crowd.on) < crowd.slots
        assert not idle or not any(map(crowd.may_start, crowd.tenants))
        for tenant, quota in crowd.quotas.items():
            assert quota.slots is None or crowd.held(tenant) <= quota.slots
        assert set(crowd.stepped) == set(crowd.tenants), "every study does what else is due"


@given(
    st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 5)), min_size=1, max_size=6),
    st.integers(1, 8),
)
def test_one_tenant_alone_is_served_by_priority_and_study_and_nothing_else(
    given_studies: list[tuple[int, int]], slots: int
) -> None:
    tenants = {str(number): "alone" for number in range(len(given_studies))}
    waiting = Counter({str(n): count for n, (_, count) in enumerate(given_studies)})
    priorities = {str(n): priority for n, (priority, _) in enumerate(given_studies)}
    crowd = Studies(slots, tenants, waiting.copy(), quotas([1.0], [None]), priorities)
    crowd.quotas["alone"] = TenantQuota()
    order, left = list(tenants), waiting
    for _ in range(6):
        crowd.round()
        expected: list[str] = []
        free = slots
        for study in in_turn({study: priorities[study] for study in order}):
            takes = min(free, left[study])
            left[study] -= takes
            free -= takes
            expected += [study] * takes
        assert crowd.started == expected
        assert crowd.stepped == in_turn({study: priorities[study] for study in order})
        order = next_turn({one: priorities[one] for one in order}, served=set(expected))
        assert crowd.order == order
        crowd.started.clear()
        for slot in list(crowd.on):
            crowd.end(slot)


def shares(
    weights: list[float], seconds: list[float], *, slots: int, studies: int = 1, trials: int
) -> list[float]:
    """Each tenant's part of the slots' time, where all of them always have trials that wait.

    `seconds` is how long the trials of each take.
    """
    allowed = quotas(weights, [None] * len(weights))
    tenants = {f"{tenant}, {n}": tenant for tenant in allowed for n in range(studies)}
    crowd = Studies(slots, tenants, Counter(dict.fromkeys(tenants, 10**9)), allowed)
    takes = dict(zip(allowed, seconds, strict=True))
    had = dict.fromkeys(allowed, 0.0)
    ends: list[tuple[float, str]] = []
    for _ in range(trials):
        for slot in crowd.round():
            tenant = crowd.on[slot][1]
            had[tenant] += takes[tenant]
            # No two end together, as in life.
            spread = 0.9 + 0.2 * ((len(crowd.started) * 37) % 101) / 101
            heapq.heappush(ends, (crowd.now + takes[tenant] * spread, slot))
        crowd.now, slot = heapq.heappop(ends)
        crowd.end(slot)
    return [had[tenant] / sum(had.values()) for tenant in allowed]


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(WEIGHTS, st.sampled_from([1.0, 4.0])), min_size=2, max_size=3),
    st.integers(1, 8),
)
def test_tenants_have_their_weights_of_the_slots_whatever_their_trials_take(
    given_tenants: list[tuple[float, float]], slots: int
) -> None:
    weights = [weight for weight, _ in given_tenants]
    found = shares(weights, [takes for _, takes in given_tenants], slots=slots, trials=600)
    assert found == pytest.approx([one / sum(weights) for one in weights], rel=0.2)


def test_many_studies_have_no_more_than_one() -> None:
    tenants = {f"many, {number}": "many" for number in range(100)} | {"one": "single"}
    allowed = {"many": TenantQuota(), "single": TenantQuota()}
    crowd = Studies(4, tenants, Counter(dict.fromkeys(tenants, 9)), allowed)
    crowd.round()
    assert (crowd.held("many"), crowd.held("single")) == (2, 2)


@given(st.integers(1, 8), st.integers(1, 30))
def test_who_comes_later_has_the_next_slot(slots: int, rounds: int) -> None:
    """However long the other was alone with them, and however much it has waiting."""
    tenants = {"early": "first", "late": "second"}
    allowed = {"first": TenantQuota(), "second": TenantQuota()}
    crowd = Studies(slots, tenants, Counter(early=10**6), allowed)
    for _ in range(rounds):
        crowd.now += 10.0
        crowd.round()
        crowd.end("0")
    crowd.round()
    crowd.waiting["late"] = 10**6
    crowd.started.clear()
    crowd.end("0")
    crowd.now += 10.0
    crowd.round()
    assert crowd.started == ["late"]


def test_what_was_not_wanted_is_not_owed() -> None:
    """A tenant that has had nothing for long shares from then on; it does not have all."""
    tenants = {"busy": "first", "idle": "second"}
    allowed = {"first": TenantQuota(), "second": TenantQuota()}
    crowd = Studies(1, tenants, Counter(busy=10**6), allowed)

    def work(trials: int) -> None:
        for _ in range(trials):
            crowd.round()
            crowd.now += 1.0
            crowd.end("0")

    work(1000)
    crowd.waiting["idle"] = 10**6
    crowd.started.clear()
    work(40)
    assert 16 <= crowd.started.count("busy") <= 20


def test_a_measuring_slot_is_shared_likewise() -> None:
    now = 0.0
    shares = TenantShares(clock=lambda: now)
    shares.allow({"a": TenantQuota(), "b": TenantQuota()})
    measured: list[str] = []
    for _ in range(40):
        shares.begin_round(["a", "b"])
        # The one that is asked first would always have it.
        wanted = [tenant for tenant in "ab" if shares.may_measure_on(tenant, "lock")]
        if wanted:
            shares.take(wanted[0], "lock", is_measuring=True)
            measured.append(wanted[0])
            now += 5.0
            shares.begin_round(["a", "b"])
            for tenant in "ab":
                shares.may_measure_on(tenant, "lock")
            shares.give_back("lock")
    assert abs(measured.count("a") - measured.count("b")) <= 1
    assert len(measured) >= 19
    assert shares.rank("a") == 0, "measuring takes no slot for training"


def test_a_measuring_slot_waits_for_nobody_who_wants_it_no_more() -> None:
    shares = TenantShares(clock=lambda: 0.0)
    shares.begin_round(["a", "b"])
    shares.take("a", "lock", is_measuring=True)
    assert shares.may_measure_on("b", "lock")
    shares.give_back("lock")
    shares.begin_round(["a", "b"])
    shares.begin_round(["a", "b"])
    assert shares.may_measure_on("a", "lock")


def test_studies_are_interleaved_by_tenant_in_their_order() -> None:
    studies = ["a1", "a2", "a3", "b1", "c1", "c2"]
    assert interleaved(studies, tenant=lambda study: study[0]) == [
        *("a1", "b1", "c1"),
        *("a2", "c2", "a3"),
    ]
    assert interleaved(studies[:3], tenant=lambda study: study[0]) == studies[:3]
