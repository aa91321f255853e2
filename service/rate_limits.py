"""How much one key may ask, and how often an address may be refused, in each API process."""

import math
import time

from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter


class RateLimits:
    """Counts requests over a sliding minute, in this process's memory.

    A right key is never counted as a refusal: whoever guesses, from whatever address, keeps nobody
    else out.
    """

    def __init__(self, *, requests: int, refusals: int) -> None:
        self._limiter = SlidingWindowCounterRateLimiter(MemoryStorage())
        self._requests = RateLimitItemPerMinute(requests)
        self._refusals = RateLimitItemPerMinute(refusals)

    def request(self, key_id: str) -> int | None:
        """Count a request with a key; seconds to wait where it is one too many, else null."""
        return self._hit(self._requests, "key", key_id)

    def refusal(self, address: str) -> int | None:
        """Count a key that was wrong; seconds to wait where it is one too many, else null."""
        return self._hit(self._refusals, "address", address)

    def _hit(self, limit: RateLimitItemPerMinute, *what: str) -> int | None:
        if self._limiter.hit(limit, *what):
            return None
        wait = self._limiter.get_window_stats(limit, *what).reset_time - time.time()
        return max(1, math.ceil(wait))
