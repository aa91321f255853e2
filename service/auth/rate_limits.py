"""How much a key and an address may ask, and how often one is refused, in each API process."""

import ipaddress
import math
import time

from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter

_UNREACHED = 10**9


class RateLimits:
    """Counts requests over a sliding minute, in this process's memory.

    A right key is never counted as a refusal: whoever guesses, from whatever address, keeps nobody
    else out.
    """

    def __init__(self, *, requests: int, refusals: int, from_address: int) -> None:
        self._limiter = SlidingWindowCounterRateLimiter(MemoryStorage())
        self._requests = RateLimitItemPerMinute(requests)
        self._refusals = RateLimitItemPerMinute(refusals)
        self._from_address = RateLimitItemPerMinute(from_address)

    def request(self, key_id: str) -> int | None:
        """Count a request with a key; seconds to wait where it is one too many, else null."""
        return self._hit(self._requests, "key", key_id)

    def arrival(self, address: str) -> int | None:
        """Count a request from an address; seconds to wait where it is one too many, else null."""
        return self._hit(self._from_address, "from", _neighbourhood(address)) if address else None

    def tenant(self, tenant: str, limit: int | None) -> int | None:
        """Count a request for a tenant; seconds to wait where it is one too many, else null."""
        return self._hit(_per_minute(limit), "tenant", tenant)

    def made_for(self, tenant: str, limit: int | None) -> int:
        """How many requests there were for a tenant, as counted against this limit."""
        item = _per_minute(limit)
        return item.amount - self._limiter.get_window_stats(item, "tenant", tenant).remaining

    def refusal(self, address: str) -> int | None:
        """Count a credential that was wrong; seconds to wait as above.

        Where there is no address, a Unix socket of this machine, nothing is counted.
        """
        return self._hit(self._refusals, "address", _neighbourhood(address)) if address else None

    def _hit(self, limit: RateLimitItemPerMinute, *what: str) -> int | None:
        if self._limiter.hit(limit, *what):
            return None
        wait = self._limiter.get_window_stats(limit, *what).reset_time - time.time()
        return max(1, math.ceil(wait))


def _neighbourhood(address: str) -> str:
    """What one user has of addresses: with IPv6 a whole network of 64 bits."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))


def _per_minute(limit: int | None) -> RateLimitItemPerMinute:
    """Where there is no limit, requests are counted all the same."""
    return RateLimitItemPerMinute(_UNREACHED if limit is None else limit)
