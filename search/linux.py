"""What Python does not offer of Linux: who dies with whom, who gets orphans, what `ps` shows."""

import ctypes
import os
import re
from collections.abc import Callable, Iterable, Sequence
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
    """Whether we may say which process is killed first; in a container that may be read-only."""
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


def thread_count() -> int:
    """How many threads the calling process has, those of libraries too."""
    return len(os.listdir("/proc/self/task"))


def show_title(words: Sequence[str]) -> None:
    """Have `ps` show these words as the calling process's command line, as far as they fit there.

    They are written over the arguments that the program was started with.
    """
    start, end, _, _ = shown_memory()
    title = b" ".join(os.fsencode(word) for word in words)[: end - start - 2]
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, title, len(title))
    # The kernel shows no more than the title where the last byte is none.
    ctypes.memset(end - 1, 1, 1)


def forget_environment(names: Iterable[str]) -> None:
    """Take variables from the calling process's environment, and from what `/proc` shows of it."""
    _, _, start, end = shown_memory()
    for name in names:
        # Nobody points at these bytes once the variable is unset.
        os.environ.pop(name, None)
        shown = ctypes.string_at(start, end - start)
        for found in re.finditer(rb"(?:^|\0)(%s=[^\0]*)" % re.escape(os.fsencode(name)), shown):
            ctypes.memset(start + found.start(1), ord("-"), len(found[1]))


def resident_bytes() -> int:
    """How much memory of its own the calling process has in RAM, without what is shared."""
    with open("/proc/self/statm") as statm:
        _, resident, shared, *_ = map(int, statm.read().split())
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def shown_memory() -> Sequence[int]:
    """Addresses in the calling process: of what `/proc` shows as its arguments and environment.

    Where the arguments begin and end, then the same of the environment.
    """
    with open("/proc/self/stat") as stat:
        # The name in parentheses may hold anything, blanks and parentheses too.
        fields = stat.read().rpartition(")")[2].split()
    return [int(field) for field in fields[45:49]]


def _set_oom_score(change: Callable[[int], int]) -> None:
    with suppress(OSError):
        _OOM_SCORE.write_text(str(change(int(_OOM_SCORE.read_text()))))


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {value}): {os.strerror(number)}")
