"""What processes used of the processor."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

import psutil


def used(process: psutil.Process) -> float:
    """Seconds of processor time of one process and of those below it that live."""
    seconds = 0.0
    for one in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            seconds += times.user + times.system
    return seconds


class Meter:
    """Processor time of named processes, from a beginning."""

    def __init__(self, processes: Mapping[str, Sequence[psutil.Process]]) -> None:
        """Begin to measure."""
        self._processes = processes
        self._before = self._now()
        self._begun = time.monotonic()

    def seconds(self) -> dict[str, float]:
        """Since the beginning, by name."""
        now = self._now()
        return {name: now[name] - self._before[name] for name in now}

    def shares(self) -> dict[str, float]:
        """Of one core, since the beginning, by name."""
        wall = time.monotonic() - self._begun
        return {name: seconds / wall for name, seconds in self.seconds().items()}

    def _now(self) -> dict[str, float]:
        return {
            name: sum(used(process) for process in group) for name, group in self._processes.items()
        }
