"""How long samplers take to suggest, as a histogram that grows while the coordinator works."""

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import final

from pydantic import BaseModel

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds in seconds: a random draw takes milliseconds, a model of many trials seconds."""


class AskHistogram(BaseModel):
    """The asks of one kind of sampler."""

    counts: tuple[int, ...]
    """How many were within each of `BUCKETS` and above the one before; the last: above them all."""
    seconds: float
    """All of them together."""


@dataclass
class _Times:
    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    seconds: float = 0.0


@final
class AskTimes:
    """Times asks, those of several studies at once."""

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock` gives seconds and never goes back."""
        self._clock = clock
        self._lock = threading.Lock()
        self._times: dict[str, _Times] = {}
        self._in_progress = 0

    @property
    def in_progress(self) -> int:
        """How many asks are thought about just now."""
        return self._in_progress

    @contextmanager
    def timed(self, sampler: str) -> Generator[None]:
        """Time one ask of a kind of sampler; one that fails does not count."""
        with self._lock:
            self._in_progress += 1
        began = self._clock()
        try:
            yield
            seconds = self._clock() - began
            with self._lock:
                times = self._times.setdefault(sampler, _Times())
                times.counts[bisect_left(BUCKETS, seconds)] += 1
                times.seconds += seconds
        finally:
            with self._lock:
                self._in_progress -= 1

    def histograms(self) -> dict[str, AskHistogram]:
        """What was timed so far, by the kind of sampler."""
        with self._lock:
            return {
                sampler: AskHistogram(counts=tuple(times.counts), seconds=times.seconds)
                for sampler, times in self._times.items()
            }
