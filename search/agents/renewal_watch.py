"""Leases by the watching process's own monotonic clock, which nobody sets.

See Note [Whose clock] in `search/README.md`.
"""

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import final


@final
class RenewalWatch:
    """Tells which leases nobody has renewed for a time."""

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`seconds` is how long a lease holds; `clock` gives seconds and never goes back."""
        self._seconds = seconds
        self._clock = clock
        self._seen: dict[str, tuple[datetime, float]] = {}

    def stale(self, leases: Mapping[str, datetime]) -> set[str]:
        """Those that stand as they stood so long ago; `leases` are all that are held now.

        Args:
            leases: the time in each lease's row, by what is leased.
        """
        now = self._clock()
        self._seen = {
            name: self._seen[name] if self._seen.get(name, (None,))[0] == until else (until, now)
            for name, until in leases.items()
        }
        return {name for name, (_, seen) in self._seen.items() if now - seen >= self._seconds}
