"""Timing two things in turn, so that noise hits both alike: rounds, and single calls."""

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

import torch

from models.spec import Spec
from search.measuring.runtimes import Subject

WARM_UP_ROUNDS = 2
_LEAST_ROUNDS = 10
_MOST_ROUNDS = 500
_LEAST_SECONDS = 0.03
_LONGEST_SECONDS = 1.5
_WANTED_HALF_WIDTH = 0.03
_SEED = 0
_CONFIDENCE = 0.95
_RIVALS_TIMINGS = 3
_AHEAD = 1.03
_CALLS_BEFORE_A_GRAPH = 3
LATENCY_CALLS = 1_000
"""Single calls that are timed where latency counts: of fewer, the slowest hundredth is chance."""

_LEAST_CALLS = 100
_LONGEST_CALLS_SECONDS = 10.0
"""Calls so slow that a thousand take longer are timed for so long: nothing else runs meanwhile."""

Clock = Literal["thread", "wall", "cuda"]

# Shorter than what a scheduler gives a process in one go: another that wants the core then spoils
# few timings, which a median does not see, instead of a part of each. Waking further threads or a
# GPU takes longer, and clocks that count it need longer timings.
_SHORTEST_TIMING_SECONDS: Mapping[Clock, float] = {"thread": 5e-4, "wall": 3e-3, "cuda": 3e-3}
_TRIES = 3


class Estimate(Spec):
    """A median over rounds, with an interval that holds the true median with 95% confidence.

    The interval lies between two order statistics: it assumes that rounds are independent, and
    nothing else about their distribution.
    """

    median: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the interval's width, as a share of the median."""
        return (self.high - self.low) / 2 / self.median


@dataclass(frozen=True)
class Timed:
    """What was found of something and of its baseline, timed in turn."""

    subject: Subject
    baseline: Subject
    """The faster of the rivals; of something that is its own baseline, itself."""
    clock: Clock
    repetitions: int
    baseline_repetitions: int
    seconds: Sequence[tuple[float, float]]
    """Of a call of both, round by round."""
    calls: tuple[Sequence[float], Sequence[float]] | None
    """Seconds of single calls of both; None: nobody asked."""
    held_seconds: float
    """How long the device was held."""


def timed_in_turn(
    own: Sequence[Subject],
    rivals: Sequence[Subject],
    *,
    device: torch.device,
    threads: int,
    alone: Callable[[], AbstractContextManager[None]],
    latency: bool,
) -> Timed:
    """Time the faster of `own` in turn with the fastest of `rivals`; without any, by itself.

    `alone` holds the device meanwhile.
    """
    timer = _Timer.of(device, threads=threads)
    for ready in (*own, *rivals):
        ready.call()
    with alone():
        started = time.monotonic()
        subject, model = _fastest(own, timer, ahead=_AHEAD)
        baseline, dense = _fastest(rivals, timer) if rivals else (subject, model)
        seconds = _rounds(model, dense)
        calls = _single_calls(model, dense) if latency else None
        held = time.monotonic() - started
    return Timed(
        subject=subject,
        baseline=baseline,
        clock=timer.clock,
        repetitions=model.repetitions,
        baseline_repetitions=dense.repetitions,
        seconds=seconds,
        calls=calls,
        held_seconds=held,
    )


def estimate(values: Sequence[float]) -> Estimate:
    """Give the median of at least six values, and its 95% interval between order statistics.

    The k-th smallest and k-th largest of n values enclose the median unless fewer than k values
    fall on one side of it, the chance of which is binomial.

    Raises:
        ValueError: There are fewer than six values; not even their range holds the median with 95%.
    """
    ordered, count = sorted(values), len(values)
    outside, k = 0.0, 0
    while True:
        outside += math.comb(count, k) / 2**count
        if outside > (1 - _CONFIDENCE) / 2:
            break
        k += 1
    if k == 0:
        raise ValueError(f"{count} values give no 95% interval; at least 6 do")
    return Estimate(median=statistics.median(ordered), low=ordered[k - 1], high=ordered[-k])


@dataclass(frozen=True)
class _Contestant:
    """Something to time: how to time several calls of it, and how many are enough."""

    subject: Subject
    timer: "_Timer"
    repetitions: int

    def seconds_per_call(self) -> float:
        return self.timer(self.subject, self.repetitions) / self.repetitions


@dataclass(frozen=True)
class _Timer:
    """Times repeated calls by the clock that suits the device."""

    device: torch.device
    clock: Clock

    @classmethod
    def of(cls, device: torch.device, *, threads: int) -> "_Timer":
        if device.type == "cuda":
            return cls(device, "cuda")
        # A single thread's own CPU time does not count what other processes took from it.
        return cls(device, "thread" if threads == 1 else "wall")

    def __call__(self, subject: Subject, repetitions: int) -> float:
        if self.clock == "cuda":
            return self._by_events(subject, repetitions)
        now = time.thread_time if self.clock == "thread" else time.perf_counter
        started = now()
        subject.calls(repetitions)
        return now() - started

    def one_call(self, call: Callable[[], None]) -> float:
        """The time that passes until one call's answer is there, whatever else a clock counts."""
        started = time.perf_counter()
        call()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter() - started

    def _by_events(self, subject: Subject, repetitions: int) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(self.device)
        begin.record()
        subject.calls(repetitions)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1000


def _single_calls(model: _Contestant, dense: _Contestant) -> tuple[list[float], list[float]]:
    """Seconds of single calls of both, in turn; of a dense model, its own twice."""
    order = random.Random(_SEED)
    contestants = [model] if dense is model else [model, dense]
    found: dict[int, list[float]] = {id(contestant): [] for contestant in contestants}
    began = time.monotonic()
    for done in range(LATENCY_CALLS):
        if done >= _LEAST_CALLS and time.monotonic() - began > _LONGEST_CALLS_SECONDS:
            break
        order.shuffle(contestants)
        for contestant in contestants:
            found[id(contestant)].append(contestant.timer.one_call(contestant.subject.call))
    return found[id(model)], found[id(dense)]


def _rounds(model: _Contestant, dense: _Contestant) -> list[tuple[float, float]]:
    """Seconds per call of both, round by round; of a dense model, its own twice."""
    order = random.Random(_SEED)
    contestants = [model] if dense is model else [model, dense]
    for _ in range(WARM_UP_ROUNDS):
        for contestant in contestants:
            contestant.seconds_per_call()
    seconds: list[tuple[float, float]] = []
    started = time.monotonic()
    while len(seconds) < _MOST_ROUNDS:
        order.shuffle(contestants)
        timed = {id(contestant): contestant.seconds_per_call() for contestant in contestants}
        seconds.append((timed[id(model)], timed[id(dense)]))
        elapsed = time.monotonic() - started
        if elapsed > _LONGEST_SECONDS and len(seconds) >= _LEAST_ROUNDS:
            break
        # To look costs as much as a short timing, and every look is a chance to stop too early.
        if elapsed < _LEAST_SECONDS or len(seconds) % _LEAST_ROUNDS:
            continue
        wanted = ratio_of(seconds) if dense is not model else estimate([own for own, _ in seconds])
        if wanted.half_width < _WANTED_HALF_WIDTH:
            break
    return seconds


def ratio_of(seconds: Sequence[tuple[float, float]]) -> Estimate:
    """How many times as fast the first of each pair is."""
    return estimate([dense / own for own, dense in seconds])


def _contestant(subject: Subject, timer: _Timer) -> _Contestant:
    """Find how many calls make one timing long enough; what is run for it warms up, too.

    The shortest of a few timings decides: by one that was disturbed, a model would be timed by
    fewer calls than its baseline, of which the first, after the other's, is the slowest.
    """
    subject.calls(_CALLS_BEFORE_A_GRAPH if timer.clock == "cuda" else 1)
    shortest = _SHORTEST_TIMING_SECONDS[timer.clock]
    repetitions = 1
    while (seconds := min(timer(subject, repetitions) for _ in range(_TRIES))) < shortest:
        missing = shortest / seconds if seconds > 0 else 10
        repetitions = math.ceil(repetitions * min(max(missing * 1.1, 1.5), 10))
    return _Contestant(subject, timer, repetitions)


def _fastest(
    rivals: Sequence[Subject], timer: _Timer, *, ahead: float = 1.0
) -> tuple[Subject, _Contestant]:
    """Whichever is faster here; the first one, where no other is so many times as fast."""
    contestants = [_contestant(rival, timer) for rival in rivals]
    if len(rivals) == 1:
        return rivals[0], contestants[0]
    timed = [
        min(contestant.seconds_per_call() for _ in range(_RIVALS_TIMINGS))
        for contestant in contestants
    ]
    fastest = timed.index(min(timed))
    if timed[fastest] * ahead >= timed[0]:
        fastest = 0
    return rivals[fastest], contestants[fastest]
