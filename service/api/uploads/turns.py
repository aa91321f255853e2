"""Uploads at one process: how many each tenant has under way, and whose is read next.

Reading one may take all the memory that the settings allow for that, and minutes: a few are read
at a time. While several tenants wait, the next reader goes to the one that has the fewest, so that
none has them all.
"""

from collections import Counter, deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar, TypeVarTuple, final

import anyio
from anyio import CapacityLimiter, to_thread

from storage.accounts.quotas import refusal
from storage.errors import TooManyAtOnce
from storage.tenant_quota import TenantQuota

_T = TypeVar("_T")
_Given = TypeVarTuple("_Given")


@final
class Arrival:
    """The bytes of one upload that is under way."""

    def __init__(self, declared: int, check: Callable[[], None]) -> None:
        self.size = declared
        """What it takes: what the client declared, or what has come if that is more."""
        self._check = check
        self._arrived = 0

    def take(self, size: int) -> None:
        """So many more bytes have come.

        Raises:
            StoredBytesReached: more than was declared, and more than there is room for.
        """
        self._arrived += size
        if self._arrived > self.size:
            self.size = self._arrived
            self._check()


@final
class UploadTurns:
    """Counts uploads and gives them turns; used by one event loop."""

    def __init__(self, readers: int) -> None:
        """`readers` is how many uploads are read at a time."""
        # Threads of its own, so that other requests keep theirs.
        self._threads = CapacityLimiter(readers)
        self._free = readers
        self._reading: Counter[str] = Counter()
        self._waiting: dict[str, deque[anyio.Event]] = {}
        self._arrivals: dict[str, set[Arrival]] = {}

    def under_way(self, tenant: str) -> int:
        """How many uploads of a tenant are received or read."""
        return len(self._arrivals.get(tenant, ()))

    def bytes_under_way(self, tenant: str) -> int:
        """What the uploads of a tenant take that are under way."""
        return sum(arrival.size for arrival in self._arrivals.get(tenant, ()))

    @contextmanager
    def one_more(
        self, tenant: str, quota: TenantQuota, *, declared: int, stored: int
    ) -> Generator[Arrival]:
        """An upload for as long as the block.

        Args:
            tenant: whose it is.
            quota: what that one may have.
            declared: how many bytes the client says that it sends; 0 where it does not say.
            stored: how many bytes the tenant has stored.

        Raises:
            TooManyAtOnce: the tenant has as many under way as it may have.
            StoredBytesReached: there is no room for it beside what is stored and under way.
        """
        if quota.uploads is not None and self.under_way(tenant) >= quota.uploads:
            raise TooManyAtOnce(
                f"quota uploads: the tenant has {self.under_way(tenant)} of {quota.uploads} under "
                "way here; wait until one is taken",
                quota="uploads",
                used=self.under_way(tenant),
                limit=quota.uploads,
            )

        def check() -> None:
            used, limit = stored + self.bytes_under_way(tenant), quota.stored_bytes
            if limit is not None and used > limit:
                raise refusal(
                    "stored_bytes", used=used - arrival.size, limit=limit, adding=arrival.size
                )

        arrival = Arrival(declared, check)
        own = self._arrivals.setdefault(tenant, set())
        own.add(arrival)
        try:
            check()
            yield arrival
        finally:
            own.remove(arrival)
            if not own:
                self._arrivals.pop(tenant, None)

    async def read(self, tenant: str, work: Callable[[*_Given], _T], *given: *_Given) -> _T:
        """Do the work in a thread when it is the tenant's turn; what it raises goes on."""
        await self._turn(tenant)
        try:
            return await to_thread.run_sync(work, *given, limiter=self._threads)
        finally:
            self._reading[tenant] -= 1
            self._reading += Counter()
            self._hand_on()

    async def _turn(self, tenant: str) -> None:
        """Wait for a reader, and count it as the tenant's."""
        if self._free:
            self._free -= 1
            self._reading[tenant] += 1
            return
        turn = anyio.Event()
        # Who has waited last stands last among equals.
        self._waiting.setdefault(tenant, deque()).append(turn)
        try:
            await turn.wait()
        except BaseException:
            # The client left. The turn may have come in the same moment.
            if turn.is_set():
                self._reading[tenant] -= 1
                self._hand_on()
            else:
                self._forget(tenant, turn)
            raise

    def _hand_on(self) -> None:
        """Give a reader that is free to the tenant that has the fewest."""
        if not self._waiting:
            self._free += 1
            return
        tenant = min(self._waiting, key=lambda one: self._reading[one])
        turn = self._waiting[tenant][0]
        self._forget(tenant, turn)
        if tenant in self._waiting:
            self._waiting[tenant] = self._waiting.pop(tenant)
        self._reading[tenant] += 1
        turn.set()

    def _forget(self, tenant: str, turn: anyio.Event) -> None:
        self._waiting[tenant].remove(turn)
        if not self._waiting[tenant]:
            del self._waiting[tenant]
