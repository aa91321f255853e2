"""Contestants timed against each other: interleaved, on one thread, by processor time.

Whatever slows the machine down slows all of a round's contestants down, so that the ratios within
rounds hold where the times do not.
"""

import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

LARGEST_DEVIATION = 0.1
"""Share of the baseline's median by which it may scatter before its ratios count as noise."""
_SHORTEST_SECONDS = 0.01


@dataclass(frozen=True)
class Timing:
    """One contestant's times, and its ratios to the baseline within rounds."""

    median_ms: float
    deviation_ms: float
    """median absolute deviation"""
    least_ms: float
    rounds: int
    ratio: float
    """median of the rounds' ratios"""
    ratio_low: float
    ratio_high: float
    """their quartiles; the extremes where there are fewer than four"""


def timed(
    contestants: Mapping[str, Callable[[], object]],
    *,
    baseline: str,
    rounds: int,
    fewer: Mapping[str, int] | None = None,
    seed: int = 0,
) -> dict[str, Timing]:
    """Run all contestants once per round in random order, after a run of each to warm up.

    Args:
        contestants: what to call.
        baseline: whose time is 1.
        rounds: how many, at least 1.
        fewer: of how many rounds slow contestants are part.
        seed: of the order.
    """
    fewer = fewer or {}
    repeats = {name: _repeats(run, slow=name in fewer) for name, run in contestants.items()}
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    order = random.Random(seed)
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds):
            names = [name for name in contestants if number < fewer.get(name, rounds)]
            order.shuffle(names)
            for name in names:
                seconds[name].append(_seconds(contestants[name], repeats[name]))
    finally:
        gc.enable()
    return {name: _timing(own, seconds[baseline]) for name, own in seconds.items()}


def is_noisy(baseline: Timing) -> bool:
    """Whether the baseline scatters too much for ratios to it to mean anything."""
    return baseline.deviation_ms > LARGEST_DEVIATION * baseline.median_ms


def _repeats(run: Callable[[], object], *, slow: bool) -> int:
    """How often to call in a row, for a time that the clock resolves; warms up on the way."""
    if slow:
        return 1
    run()
    return max(1, math.ceil(_SHORTEST_SECONDS / max(_seconds(run, 1), 1e-6)))


def _seconds(run: Callable[[], object], repeats: int) -> float:
    begun = time.process_time()
    for _ in range(repeats):
        run()
    return (time.process_time() - begun) / repeats


def _timing(own: list[float], base: list[float]) -> Timing:
    middle = statistics.median(own)
    ratios = [mine / theirs for mine, theirs in zip(own, base, strict=False)]
    low, high = min(ratios), max(ratios)
    if len(ratios) >= 4:
        low, _, high = statistics.quantiles(ratios, n=4)
    return Timing(
        median_ms=1e3 * middle,
        deviation_ms=1e3 * statistics.median(abs(value - middle) for value in own),
        least_ms=1e3 * min(own),
        rounds=len(own),
        ratio=statistics.median(ratios),
        ratio_low=low,
        ratio_high=high,
    )
