"""Asking again after a fault on the way, with growing pauses between the tries."""

import logging
import random
import time
from collections.abc import Awaitable, Callable
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import httpx2

_T = TypeVar("_T")

BUSY_STATUSES = frozenset({429, 502, 503, 504})
"""Answers that say: come again later."""

_JITTER = 0.5
_PAUSES: dict[str, Any] = {
    "attempts": None,
    "timeout": None,
    "wait_initial": 0.1,
    "wait_max": 5.0,
    "wait_jitter": 0.1,
}

# A program that sets up logging logs every try; others have none of it on the terminal.
logging.getLogger("stamina").addHandler(logging.NullHandler())


class NotYet(Exception):
    """What is asked for is not there yet."""

    pause_seconds = 0.0
    """How long to wait at least."""


class Busy(NotYet):
    """The server, or a proxy before it, asks to come again later."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self.pause_seconds = _seconds(response.headers.get("Retry-After", ""))
        super().__init__(f"it answered HTTP {response.status_code}")


TRANSIENT = (httpx2.TransportError, NotYet)
"""What may be over at the next try. Only requests that are safe to repeat are sent through here."""


def again(work: Callable[[], _T], patience: float) -> _T:
    """What `work` returns, which is tried again after transient faults while the patience lasts.

    Pauses double up to 5 s, and are at least as long as the server asks for. Each is longer by a
    random part, so that clients that failed together do not come back together.

    Args:
        work: whatever is safe to repeat.
        patience: seconds from the first fault on; with 0 nothing is repeated.

    Raises:
        TransportError, NotYet: the last fault, when the patience was used up.
    """
    try:
        return work()
    except TRANSIENT as fault:
        faults = [fault]
    # Most programs meet no fault, and start without what counts tries.
    from stamina import RetryingCaller

    def resumed() -> _T:
        if faults:
            raise faults.pop()
        return work()

    return RetryingCaller(**_PAUSES)(_Patience(patience), resumed)


async def again_awaited(work: Callable[[], Awaitable[_T]], patience: float) -> _T:
    """What `work` returns when it is awaited; tries and pauses are those of `again`.

    Raises:
        TransportError, NotYet: the last fault, when the patience was used up.
    """
    try:
        return await work()
    except TRANSIENT as fault:
        faults = [fault]
    from stamina import AsyncRetryingCaller

    async def resumed() -> _T:
        if faults:
            raise faults.pop()
        return await work()

    return await AsyncRetryingCaller(**_PAUSES)(_Patience(patience), resumed)


class _Patience:
    """Says after each fault whether, and after which pause, there is another try."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: float | None = None

    def __call__(self, fault: Exception) -> bool | float:
        if not isinstance(fault, TRANSIENT):
            return False
        now = time.monotonic()
        self._until = now + self._seconds if self._until is None else self._until
        asked = fault.pause_seconds if isinstance(fault, NotYet) else 0.0
        pause = asked * (1.0 + random.uniform(0.0, _JITTER))
        return now + pause < self._until and (pause or True)


def _seconds(retry_after: str) -> float:
    """A `Retry-After` as seconds from now: a number, or a date (RFC 9110, section 10.2.3)."""
    if retry_after.isdecimal():
        return float(retry_after)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return 0.0
