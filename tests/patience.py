"""Waiting on a machine that others use as well: as long as something moves, and longer if busy."""

import os
import time
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 120.0
"""How long nothing may move on an idle machine of ordinary speed."""

LONG_SECONDS = 1800.0
"""For what takes one number of seconds and cannot ask how busy the machine is."""

_ORDINARY_SECONDS = 0.05
"""What `_work` takes there."""


def wait_while_it_moves(
    holds: Callable[[], Any],
    *,
    what: str,
    moved: Callable[[], object] = lambda: None,
    seconds: float = PATIENCE_SECONDS,
    pause: float = 0.05,
) -> Any:
    """The first true answer of `holds`; fails when `moved` has answered the same for too long.

    Args:
        holds: asked again and again, `pause` seconds apart.
        what: what is waited for, for the message of the failure.
        moved: shows by another answer that something goes on.
        seconds: how long nothing may move on an idle machine of ordinary speed.
        pause: seconds between two questions.
    """
    last, since, allowed = moved(), time.monotonic(), seconds
    while True:
        if answer := holds():
            return answer
        if (now := moved()) != last:
            last, since, allowed = now, time.monotonic(), seconds
        still = time.monotonic() - since
        if still > allowed:
            # Asked at the end, for the measuring takes time as well.
            allowed = max(allowed, seconds * slowness())
            if still > allowed:
                raise AssertionError(f"for {still:.0f} s nothing moved, in wait for {what}")
        time.sleep(pause)


def slowness() -> float:
    """How many times longer things take here and now than on an idle machine; 1 at the least."""
    waiting = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    return max(1.0, waiting) * max(1.0, _work() / _ORDINARY_SECONDS)


def _work() -> float:
    """Seconds of this process's own that a fixed piece of work takes."""
    begun = time.process_time()
    total = 0
    for number in range(500_000):
        total += number * number % 7
    return time.process_time() - begun
