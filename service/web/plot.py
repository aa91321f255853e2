"""The plot of a front as plain geometry, which a template writes down as SVG.

Parameters lie on a logarithmic x axis, quality on the y axis, and a point's colour is its
throughput as a ratio to the dense twin's.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from service.documents import FrontDocument, PointDocument

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 120, 20, 56

_SCALE = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
"""Viridis at five places: readable without telling red from green, and in grey."""

_UNKNOWN = "#888888"
_STEPS = (1, 2, 5)
_FEWEST_TICKS, _MOST_TICKS = 3, 8


@dataclass(frozen=True)
class Tick:
    """A mark on an axis."""

    at: float
    label: str


@dataclass(frozen=True)
class Mark:
    """A point of the front, where it stands in the picture."""

    x: float
    y: float
    colour: str
    trial: int
    label: str


@dataclass(frozen=True)
class Legend:
    """One step of the colour scale."""

    y: float
    colour: str
    label: str


@dataclass(frozen=True)
class Plot:
    """Everything that the picture shows."""

    marks: tuple[Mark, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    legend: tuple[Legend, ...]
    x_label: str
    y_label: str
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


def plot(front: FrontDocument, *, metric: str) -> Plot | None:
    """The picture of a front; null while it has no point with a quality."""
    points = [point for point in front.points if point.values.quality is not None]
    if not points:
        return None
    x_ticks, x_low, x_high = _log_axis([point.values.parameters for point in points])
    y_ticks, y_low, y_high = linear_axis([point.values.quality or 0.0 for point in points])
    ratios = [point.throughput_ratio for point in points if point.throughput_ratio is not None]
    low, high = (min(ratios), max(ratios)) if ratios else (1.0, 1.0)

    def x(value: float) -> float:
        share = (math.log10(max(value, 1)) - x_low) / (x_high - x_low)
        return round(LEFT + share * (WIDTH - RIGHT - LEFT), 1)

    def y(value: float) -> float:
        share = (value - y_low) / (y_high - y_low)
        return round(HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP), 1)

    return Plot(
        marks=tuple(
            Mark(
                x=x(point.values.parameters),
                y=y(point.values.quality or 0.0),
                colour=_colour(point.throughput_ratio, low, high),
                trial=point.trial,
                label=_describe(point, metric),
            )
            for point in points
        ),
        x_ticks=tuple(Tick(x(value), f"{value:,}") for value in x_ticks),
        y_ticks=tuple(Tick(y(value), f"{value:g}") for value in y_ticks),
        legend=_legend(low, high) if ratios else (),
        x_label="parameters (logarithmic)",
        y_label=metric,
    )


def _describe(point: PointDocument, metric: str) -> str:
    ratio = point.throughput_ratio
    speed = "" if ratio is None else f", {ratio:.2f} x the dense twin's throughput"
    return (
        f"trial {point.trial}: {point.architecture} with {point.parametrization}, "
        f"{metric} {point.values.quality:.4g}, {point.values.parameters:,} parameters{speed}"
    )


def _log_axis(values: Sequence[int]) -> tuple[list[int], float, float]:
    """Ticks at 1, 2 and 5 times powers of ten, and the two ends as logarithms."""
    low, high = math.log10(max(1, min(values))), math.log10(max(1, *values))
    margin = max(0.05, 0.06 * (high - low))
    low, high = low - margin, high + margin
    powers = range(math.floor(low), math.ceil(high) + 1)
    ticks = [
        step * 10**power
        for power in powers
        for step in _STEPS
        if power >= 0 and low <= math.log10(step * 10**power) <= high
    ]
    if len(ticks) > _MOST_TICKS:
        ticks = [tick for tick in ticks if math.log10(tick).is_integer()]
    if len(ticks) < _FEWEST_TICKS:
        # Within a decade the axis is nearly straight, and evenly spaced numbers read best.
        ticks = sorted({round(tick) for tick in _round_numbers(10**low, 10**high)})
    return ticks, low, high


def linear_axis(values: Sequence[float]) -> tuple[list[float], float, float]:
    """Ticks at round numbers, and the two ends, a little beyond the least and the largest value."""
    low, high = min(values), max(values)
    margin = 0.08 * (high - low) or max(abs(high), 1.0) * 0.05
    low, high = low - margin, high + margin
    return _round_numbers(low, high), low, high


def _round_numbers(low: float, high: float) -> list[float]:
    """About five evenly spaced numbers of [low, high] with few digits."""
    raw = (high - low) / 5
    power = 10 ** math.floor(math.log10(raw))
    step = next((s * power for s in _STEPS if s * power >= raw), 10 * power)
    return [round(k * step, 12) for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _legend(low: float, high: float) -> tuple[Legend, ...]:
    top, bottom = TOP + 40, HEIGHT - BOTTOM - 20
    steps = 5 if high > low else 1
    shares = [step / (steps - 1) if steps > 1 else 0.5 for step in range(steps)]
    return tuple(
        Legend(
            y=round(bottom - share * (bottom - top), 1),
            colour=_colour(low + share * (high - low), low, high),
            label=f"{low + share * (high - low):.2f} x",
        )
        for share in shares
    )


def _colour(ratio: float | None, low: float, high: float) -> str:
    if ratio is None:
        return _UNKNOWN
    place = (ratio - low) / (high - low) * (len(_SCALE) - 1) if high > low else 2.0
    index = min(int(place), len(_SCALE) - 2)
    share = place - index
    mixed = (
        round(a + share * (b - a)) for a, b in zip(_SCALE[index], _SCALE[index + 1], strict=True)
    )
    return "#" + "".join(f"{part:02x}" for part in mixed)
