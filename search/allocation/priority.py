"""Whose turn it is among studies that want the same slots.

See Note [Priorities] and Note [Fair shares] in `search/README.md`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import zip_longest
from typing import TypeVar, final

_T = TypeVar("_T")

_CREDIT_TURNS = 4.0
"""How much a tenant of the least weight can be owed, in turns: what it did not want, it does not
get later."""


def in_turn(priorities: Mapping[str, int]) -> list[str]:
    """Studies by their priority, the highest first, and equal ones as they stand."""
    return sorted(priorities, key=lambda study_id: -priorities[study_id])


def next_turn(priorities: Mapping[str, int], *, served: Set[str]) -> list[str]:
    """Their order in the next round: a study that was given a slot comes after its equals."""
    return sorted(in_turn(priorities), key=lambda one: (-priorities[one], one in served))


def take_turns(
    order: Sequence[str],
    *,
    tenants: Mapping[str, str],
    rank: Callable[[str], float],
    visit: Callable[[str], bool],
) -> None:
    """Visit every study, the tenant of the lowest rank first, until none would take more.

    Args:
        order: the studies; those of a tenant are visited in it.
        tenants: whose each study is.
        rank: a tenant's place among those that have studies left, looked at before every visit.
        visit: serves a study; returns whether it would take more, and is to be visited again.
    """
    left: dict[str, deque[str]] = {}
    for study_id in order:
        left.setdefault(tenants[study_id], deque()).append(study_id)
    while left:
        tenant = min(left, key=rank)
        if visit(left[tenant][0]):
            continue
        left[tenant].popleft()
        if not left[tenant]:
            del left[tenant]


def interleaved(studies: Iterable[_T], *, tenant: Callable[[_T], str]) -> list[_T]:
    """The first study of each tenant, then the second of each: none waits for all of another's."""
    own: dict[str, list[_T]] = {}
    for study in studies:
        own.setdefault(tenant(study), []).append(study)
    return [study for row in zip_longest(*own.values()) for study in row if study is not None]


@final
class Shares:
    """What tenants have had of something that they share, each against its weight."""

    def __init__(self) -> None:
        self._weights: Mapping[str, float] = {}
        self._had: dict[str, float] = {}
        self._turn = 1.0

    def count(
        self, weights: Mapping[str, float], seconds: Mapping[str, float], *, turn: float
    ) -> None:
        """Count what each tenant has had since the last call.

        Args:
            weights: of the tenants that may want something, each above 0. A new one begins with
                what the least served of the others has had.
            seconds: for how long they had it; two at once count twice.
            turn: for how many seconds one of what is shared is usually held, above 0.
        """
        self._weights, self._turn = weights, turn
        known = [self._had[tenant] for tenant in weights if tenant in self._had]
        least = min(known, default=0.0)
        had = {
            tenant: self._had.get(tenant, least) - least + seconds.get(tenant, 0.0) / weight
            for tenant, weight in weights.items()
        }
        credit = _CREDIT_TURNS * turn / min(weights.values(), default=1.0)
        owed = max(had.values(), default=0.0) - credit
        self._had = {tenant: max(value, owed) for tenant, value in had.items()}

    def rank(self, tenant: str, held: int) -> float:
        """A tenant's place: what it has, and has had, for its weight; the lowest is next."""
        had = self._had.get(tenant, 0.0) / self._turn
        return held / self._weights.get(tenant, 1.0) + had
