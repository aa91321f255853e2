"""How much a key and an address may ask, and how often one is refused."""

import ipaddress
import math
from functools import lru_cache

from service.auth.shared_counters import SharedCounters

_UNREACHED = 10**9


class RateLimits:
    """Counts requests over a sliding minute.

    A right key is never counted as a refusal: one who guesses, from whatever address, keeps nobody
    else out.
    """

    def __init__(
        self,
        *,
        requests: int,
        refusals: int,
        from_address: int,
        counters: SharedCounters | None = None,
    ) -> None:
        """Allow so many in a minute, counted here unless others count along."""
        self._counters = counters or SharedCounters()
        self._requests = requests
        self._refusals = refusals
        self._from_address = from_address

    def request(self, key_id: str) -> int | None:
        """Count a request with a key; seconds to wait where it is one too many, else null."""
        return self._hit(self._requests, "key", key_id)

    def arrival(self, address: str) -> int | None:
        """Count a request from an address; seconds to wait where it is one too many, else null."""
        return self._hit(self._from_address, "from", _neighbourhood(address)) if address else None

    def tenant(self, tenant: str, limit: int | None) -> int | None:
        """Count a request for a tenant; seconds to wait where it is one too many, else null."""
        return self._hit(_reached(limit), "tenant", tenant)

    def made_for(self, tenant: str, limit: int | None) -> int:
        """How many requests there were for a tenant, as counted against this limit."""
        return min(_reached(limit), self._counters.used("tenant", tenant, str(_reached(limit))))

    def refusal(self, address: str) -> int | None:
        """Count a credential that was wrong; seconds to wait as above.

        Where there is no address, a Unix socket of this machine, nothing is counted.
        """
        return self._hit(self._refusals, "address", _neighbourhood(address)) if address else None

    def close(self) -> None:
        """Count no more."""
        self._counters.close()

    def _hit(self, limit: int, *what: str) -> int | None:
        wait = self._counters.hit(*what, str(limit), limit=limit)
        return None if wait is None else max(1, math.ceil(wait))


@lru_cache(maxsize=1024)
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


def _reached(limit: int | None) -> int:
    """Where there is no limit, requests are counted all the same."""
    return _UNREACHED if limit is None else limit
