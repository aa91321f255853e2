"""How a slot's time is divided between the attempts that have it together."""

import threading
import time
from collections.abc import Callable
from typing import final


@final
class Shares:
    """Each one's part of what a clock counts: at each moment all that are there count alike.

    So the parts of all add up to what the clock counted while anybody was there. Safe to call from
    several threads.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds and never goes back."""
        self._clock = clock
        self._lock = threading.Lock()
        self._seen = clock()
        self._of_one = 0.0
        """What somebody would have who had been there from the beginning."""
        self._before: dict[str, float] = {}
        """What that was when each one came."""

    def join(self, name: str) -> None:
        """Have somebody take part from here on."""
        with self._lock:
            self._count()
            self._before[name] = self._of_one

    def leave(self, name: str) -> float:
        """End somebody's part; returns what it came to."""
        with self._lock:
            self._count()
            return self._of_one - self._before.pop(name)

    def of(self, name: str) -> float:
        """What somebody who is there has had so far."""
        with self._lock:
            self._count()
            return self._of_one - self._before[name]

    def _count(self) -> None:
        now = self._clock()
        if self._before:
            self._of_one += (now - self._seen) / len(self._before)
        self._seen = now
