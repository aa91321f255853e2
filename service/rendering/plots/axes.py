"""Axes of plots: from values to places in a picture, with ticks at round numbers.

See Note [Plots are drawn by the server] in `service/README.md`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Say = Callable[[float], str]
"""How a tick's number is told."""

_STEPS = (1, 2, 5)
_FEWEST_TICKS, _MOST_TICKS = 3, 8
_LARGEST = 1e300
"""Beyond it the difference of two values may be infinite."""

_WIDE = 50
"""Positive values that are this many times apart are compared by their ratios."""


@dataclass(frozen=True)
class Tick:
    """A mark on an axis."""

    at: float
    label: str


@dataclass(frozen=True)
class Axis:
    """A part of the number line, or of its logarithm, laid between two places of a picture."""

    low: float
    high: float
    """The ends: values, or their decimal logarithms."""
    start: float
    end: float
    """Where the ends lie in the picture."""
    logarithmic: bool
    ticks: tuple[Tick, ...]
    zero: float | None = None
    """Of a logarithmic axis: where among the logarithms 0 stands; null: it has no place."""

    def place(self, value: float) -> float:
        """Where a value lies, to a tenth of a unit of the picture."""
        return _place(self._on(value), self.low, self.high, self.start, self.end)

    def nearest(self, value: float) -> float:
        """Where a value lies, or else the end that is nearest to it."""
        low, high = sorted((self.start, self.end))
        return min(max(self.place(value), low), high)

    def holds(self, value: float) -> bool:
        """Whether a value lies between the ends."""
        return self.low <= self._on(value) <= self.high

    def _on(self, value: float) -> float:
        if not self.logarithmic:
            return _bounded(value)
        if value <= 0 and self.zero is not None:
            return self.zero
        return math.log10(max(value, 1e-300))


def label(value: float) -> str:
    """A round number as short as it can be said."""
    size = abs(value)
    for unit, sign in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= 10_000 and unit <= size < 1000 * unit:
            return f"{value / unit:g}{sign}"
    return f"{value:,.0f}" if 1000 <= size < 10_000 else f"{value:g}"


def axis(values: Sequence[float], *, start: float, end: float, say: Say = label) -> Axis:
    """The axis that shows the values best: logarithmic where they are positive and far apart."""
    low = min(values)
    if low > 0 and max(values) / low > _WIDE:
        return log_axis(values, start=start, end=end, say=say)
    return linear_axis(values, start=start, end=end, say=say)


def linear_axis(values: Sequence[float], *, start: float, end: float, say: Say = label) -> Axis:
    """From a little below the least value to a little above the largest."""
    low, high = _bounded(min(values)), _bounded(max(values))
    margin = 0.08 * (high - low) or max(abs(high), 1.0) * 0.05
    low, high = low - margin, high + margin
    ticks = [
        Tick(_place(value, low, high, start, end), say(value))
        for value in _round_numbers(low, high)
    ]
    return Axis(low, high, start, end, logarithmic=False, ticks=tuple(ticks))


def log_axis(values: Sequence[float], *, start: float, end: float, say: Say = label) -> Axis:
    """The same for the logarithms of values above 0; ticks at 1, 2 and 5 times powers of ten."""
    low = math.log10(max(1e-300, min(values)))
    high = math.log10(max(1e-300, *values))
    margin = max(0.05, 0.06 * (high - low))
    low, high = low - margin, high + margin
    ticks = [
        Tick(_place(math.log10(value), low, high, start, end), say(value))
        for value in _log_ticks(low, high)
    ]
    return Axis(low, high, start, end, logarithmic=True, ticks=tuple(ticks))


def loss_axis(values: Sequence[float], *, start: float, end: float, say: Say = label) -> Axis:
    """The same as `axis` for a loss: 0, which has no logarithm, stands beside the low end."""
    above = [value for value in values if value > 0]
    if len(above) == len(values) or not above or max(above) / min(above) <= _WIDE:
        return axis(values, start=start, end=end, say=say)
    gap = 0.12 * abs(end - start) * (1 if end > start else -1)
    found = log_axis(above, start=start + gap, end=end, say=say)
    zero = _place(0.5, 0, 1, start, start + gap)
    width = (found.high - found.low) / (found.end - found.start)
    low = found.low - gap * width
    return Axis(
        low,
        found.high,
        start,
        end,
        logarithmic=True,
        ticks=(Tick(zero, "0"), *found.ticks),
        zero=low + (zero - start) * width,
    )


def _log_ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(low), math.ceil(high) + 1)
    ticks = [step * 10.0**power for power in powers for step in _STEPS]
    ticks = [tick for tick in ticks if low <= math.log10(tick) <= high]
    if len(ticks) > _MOST_TICKS:
        ticks = [tick for tick in ticks if math.isclose(math.log10(tick) % 1, 0, abs_tol=1e-9)]
    if len(ticks) > _MOST_TICKS:
        ticks = ticks[:: math.ceil(len(ticks) / _MOST_TICKS)]
    if len(ticks) < _FEWEST_TICKS:
        # Within a decade the axis is nearly straight, and evenly spaced numbers read best.
        ticks = [tick for tick in _round_numbers(10**low, 10**high) if tick > 0]
    return ticks


def _round_numbers(low: float, high: float) -> list[float]:
    """About five evenly spaced numbers of [low, high] with few digits."""
    raw = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((s * power for s in _STEPS if s * power >= raw), 10 * power)
    numbers = (k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1))
    return [float(f"{number:.9g}") for number in numbers]


def _place(value: float, low: float, high: float, start: float, end: float) -> float:
    return round(start + (value - low) / (high - low) * (end - start), 1)


def _bounded(value: float) -> float:
    return min(max(value, -_LARGEST), _LARGEST)
