"""What Python does not offer of Linux: who dies with whom and first, and who inherits orphans."""

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_OOM_SCORE = Path("/proc/self/oom_score_adj")

ATTEMPT_SCORE = 800
FORK_SERVER_SCORE = 200
SERVICE_SCORE = -200
"""Whom the kernel kills first when memory runs out, on its scale from -1000 to 1000: an attempt
before the server that forks them, and that before the coordinator, the API and their supervisor."""


def die_with_parent(signal_number: int) -> None:
    """Have the kernel send this signal to the calling process when its parent ends.

    The kernel means the parent's *thread* that made this process, so that thread must live as long.
    The wish is not inherited by children, and a parent that has ended already is not noticed.
    """
    _prctl(_PR_SET_PDEATHSIG, signal_number)


def adopt_orphans() -> None:
    """Make the calling process the new parent of descendants whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def raise_oom_score(score: int) -> None:
    """Have the kernel kill this process rather than those of lower scores when memory runs out.

    What the process starts has the same score. A score that is higher already stays, and any where
    it may not be changed, see `oom_score_may_change`.
    """
    _set_oom_score(lambda now: max(now, score))


def lower_oom_score(score: int) -> None:
    """Have the kernel spare this process, if it has the privilege; otherwise its score stays."""
    _set_oom_score(lambda now: min(now, score))


def oom_score_may_change() -> bool:
    """Whether the kernel can be told whom to kill first; in a container it may be read-only."""
    return os.access(_OOM_SCORE, os.W_OK)


def boot_id() -> str:
    """What tells this start of the machine from others; empty where the kernel does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def out_of_memory_kills() -> int:
    """How many processes the kernel has killed since it started because memory ran out.

    Those of all control groups count; 0 where it does not tell.
    """
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    counts = (line.partition(" ") for line in lines)
    return next((int(count) for name, _, count in counts if name == "oom_kill"), 0)


def _set_oom_score(change: Callable[[int], int]) -> None:
    with suppress(OSError):
        _OOM_SCORE.write_text(str(change(int(_OOM_SCORE.read_text()))))


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {value}): {os.strerror(number)}")
