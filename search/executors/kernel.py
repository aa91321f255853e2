"""What Python does not offer of Linux: who dies with whom, who inherits orphans, who ran dry."""

import ctypes
import os
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def die_with_parent(signal_number: int) -> None:
    """Have the kernel send this signal to the calling process when its parent ends.

    The kernel means the parent's *thread* that made this process, so that thread must live as long.
    The wish is not inherited by children, and a parent that has ended already is not noticed.
    """
    _prctl(_PR_SET_PDEATHSIG, signal_number)


def adopt_orphans() -> None:
    """Make the calling process the new parent of descendants whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


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


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {value}): {os.strerror(number)}")
