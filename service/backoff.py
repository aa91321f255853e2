"""Asking again after a fault on the way: the one wrapper that does it, and its growing pauses."""

import random
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import TypeVar

import httpx2

_T = TypeVar("_T")

BUSY_STATUSES = frozenset({429, 502, 503, 504})
"""Answers that say: come again later."""

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
_JITTER = 0.5


class Busy(Exception):
    """The server, or a proxy before it, asks to come again later."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self.pause_seconds = _seconds(response.headers.get("Retry-After", ""))
        super().__init__(f"it answered HTTP {response.status_code}")


TRANSIENT = (httpx2.TransportError, Busy)
"""What may be over at the next try. Only requests that are safe to repeat are sent through here."""


class Backoff:
    """Pauses that double, until `patience` seconds have gone without success.

    Each is longer by a random part of up to a half, so that clients that failed together do not
    come back together.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._failing_since: float | None = None
        self._pause = _FIRST_PAUSE

    def succeeded(self) -> None:
        """Start afresh: patience is whole again."""
        self._failing_since = None
        self._pause = _FIRST_PAUSE

    def wait(self, *, at_least: float = 0.0) -> bool:
        """Pause before the next try; false, at once, when the patience ends before the pause."""
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        pause = max(self._pause, at_least) * (1.0 + random.uniform(0.0, _JITTER))
        if now + pause - self._failing_since > self._patience:
            return False
        time.sleep(pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        return True


def again(work: Callable[[], _T], backoff: Backoff) -> _T:
    """What `work` returns, which is tried again after transient faults while the patience lasts.

    Raises:
        TransportError, Busy: the last fault, when the patience was used up.
    """
    while True:
        try:
            result = work()
        except TRANSIENT as fault:
            if not backoff.wait(at_least=pause_asked(fault)):
                raise
        else:
            backoff.succeeded()
            return result


def pause_asked(fault: Exception | None) -> float:
    """The seconds that a server asked to wait."""
    return fault.pause_seconds if isinstance(fault, Busy) else 0.0


def _seconds(retry_after: str) -> float:
    """A `Retry-After` as seconds from now: a number, or a date (RFC 9110, section 10.2.3)."""
    if retry_after.isdecimal():
        return float(retry_after)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return 0.0
