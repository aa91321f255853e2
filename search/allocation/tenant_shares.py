"""What each tenant has of a coordinator's slots, and what it may take now."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import final

from sqlalchemy.orm import Session

from search.allocation.priority import Shares
from storage.accounts.quotas import Quotas
from storage.tenant_quota import UNLIMITED, TenantQuota

_TURN_SECONDS = 60.0
"""How long a slot is held, before the first attempt has told."""

_LATEST = 0.1
"""How much the latest attempt counts in that, if it was shorter; a longer one counts in full."""


@dataclass(frozen=True)
class _Held:
    tenant: str
    is_measuring: bool
    since: float


@final
class TenantShares:
    """Slots and measuring slots by tenant; called in the coordinator's rounds and nowhere else."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds and never goes back."""
        self._clock = clock
        self._quotas: Mapping[str, TenantQuota] = {}
        self._held: dict[str, _Held] = {}
        self._slots: Counter[str] = Counter()
        self._measuring_slots: Counter[str] = Counter()
        self._elsewhere: dict[str, int] = {}
        self._room: dict[str, int] = {}
        self._slot_shares = Shares()
        self._measuring_shares = Shares()
        self._seconds: dict[Shares, dict[str, float]] = {
            self._slot_shares: defaultdict(float),
            self._measuring_shares: defaultdict(float),
        }
        self._turn_seconds: float | None = None
        self._counted_at = clock()
        self._several = False
        self._taken_in_turn = 0
        self._waited_for: set[str] = set()
        self._measuring_wanted: dict[str, set[str]] = {}
        self._measuring_wanted_before: dict[str, set[str]] = {}
        self.wants_more = False
        """Whether the study whose turn it is was refused a slot that is free."""

    def quota(self, tenant: str) -> TenantQuota:
        """What a tenant may have, as of the last look."""
        return self._quotas.get(tenant, UNLIMITED)

    def look(self, session: Session, tenants: Set[str]) -> None:
        """Read what these tenants may have, and what other coordinators gave them of it."""
        quotas = Quotas(session)
        self.allow(quotas.all(tenants))
        for tenant, quota in self._quotas.items():
            if quota.slots is not None:
                self.note_elsewhere(tenant, slots=quotas.used("slots", tenant))
            if quota.queued_trials is not None:
                self._room[tenant] = quota.queued_trials - quotas.used("queued_trials", tenant)

    def allow(self, quotas: Mapping[str, TenantQuota]) -> None:
        """These tenants may have so much."""
        self._quotas = quotas
        self._elsewhere.clear()

    def may_queue(self, tenant: str) -> bool:
        """Whether another trial of the tenant's may wait for sure, as of the last look.

        False: that has to be read. Others may have added as many since then as were allowed here,
        so that each takes the room of two. Called by any thread.
        """
        if self.quota(tenant).queued_trials is None:
            return True
        left = self._room.get(tenant, 0)
        self._room[tenant] = left - 2
        return left > 1

    def note_elsewhere(self, tenant: str, *, slots: int) -> None:
        """So many slots a tenant has in all, as was found when it was to get another."""
        self._elsewhere[tenant] = slots - self._slots[tenant]

    def begin_round(self, tenants: Iterable[str]) -> None:
        """Count what was held since the last round by these tenants, who have studies here."""
        weights = {one: self.quota(one).weight for one in tenants}
        for held in self._held.values():
            self._count(held)
        self._counted_at, self._several = self._clock(), len(weights) > 1
        ages = (self._clock() - held.since for held in self._held.values())
        turn = max(self._turn_seconds or _TURN_SECONDS, *ages, 0.0)
        for shares, seconds in self._seconds.items():
            shares.count(weights, seconds, turn=turn)
            seconds.clear()
        self._waited_for.clear()
        self._measuring_wanted_before, self._measuring_wanted = self._measuring_wanted, {}

    def begin_turn(self) -> None:
        """The next study is served: beside other tenants it takes one slot at a time."""
        self._taken_in_turn, self.wants_more = 0, False

    def rank(self, tenant: str) -> float:
        """A tenant's place among those that want slots, see `Shares.rank`."""
        return self._slot_shares.rank(tenant, self._slots[tenant])

    def may_take_slot(self, tenant: str) -> bool:
        """Whether a slot that is free may be this tenant's, in this turn."""
        limit = self.quota(tenant).slots
        if limit is not None:
            elsewhere = max(0, self._elsewhere.get(tenant, 0))
            if self._slots[tenant] + elsewhere >= limit:
                return False
        if self._several and self._taken_in_turn:
            self.wants_more = True
            return False
        return True

    def may_measure_on(self, tenant: str, slot: str) -> bool:
        """Whether this tenant is next on a measuring slot, of those that wanted it lately."""
        self._measuring_wanted.setdefault(slot, set()).add(tenant)
        own = self._measuring_shares.rank(tenant, self._measuring_slots[tenant])
        # Who wanted it in the last round and wants it no more is forgotten with this one.
        others = self._measuring_wanted_before.get(slot, set[str]()) - {tenant}
        return all(
            own <= self._measuring_shares.rank(one, self._measuring_slots[one]) for one in others
        )

    def has_a_moment(self, tenant: str) -> bool:
        """Whether a round may wait a moment for a study; beside others, for one of each tenant."""
        if self._several and tenant in self._waited_for:
            return False
        self._waited_for.add(tenant)
        return True

    def take(self, tenant: str, name: str, *, is_measuring: bool) -> None:
        """The slot of that name is the tenant's now."""
        self._held[name] = _Held(tenant, is_measuring, self._clock())
        (self._measuring_slots if is_measuring else self._slots)[tenant] += 1
        self._taken_in_turn += not is_measuring

    def give_back(self, name: str) -> None:
        """It is free again."""
        held = self._held.pop(name, None)
        if held is None:
            return
        self._count(held)
        (self._measuring_slots if held.is_measuring else self._slots)[held.tenant] -= 1
        if not held.is_measuring:
            seconds = max(self._clock() - held.since, 0.1)
            before = self._turn_seconds or seconds
            self._turn_seconds = max(seconds, before + _LATEST * (seconds - before))

    def _count(self, held: _Held) -> None:
        """Add what of its time was not counted yet."""
        shares = self._measuring_shares if held.is_measuring else self._slot_shares
        since = max(held.since, self._counted_at)
        self._seconds[shares][held.tenant] += self._clock() - since
