"""When Ray's autoscaler is asked for more slots, and when the wish is taken back."""

import time
from collections.abc import Callable
from typing import final

_FULL_SECONDS = 10.0
"""How long every slot is taken before more are wished for."""
_IDLE_SECONDS = 60.0
"""How long nothing runs before the wish is taken back."""


@final
class DemandRule:
    """Wishes for twice the slots while all are taken, up to a bound, and for none when idle.

    Args:
        most: the bound; with 0 nothing is ever wished for.
        clock: gives seconds and never goes back.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._wished = 0
        self._full_since: float | None = None
        self._idle_since: float | None = None

    def update(self, *, slots: int, busy: int) -> int | None:
        """Say how many slots are wished for in all, when that is another number than before."""
        now = self._clock()
        is_full = 0 < slots <= busy
        self._full_since = (self._full_since or now) if is_full else None
        self._idle_since = (self._idle_since or now) if not busy else None
        wished = self._wished
        if self._full_since is not None and now - self._full_since >= _FULL_SECONDS:
            wished = max(wished, min(self._most, 2 * slots))
        if self._idle_since is not None and now - self._idle_since >= _IDLE_SECONDS:
            wished = 0
        if wished == self._wished:
            return None
        self._wished = wished
        return wished
