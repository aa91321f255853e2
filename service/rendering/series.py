"""The plot of one short series as plain geometry, which a template writes down as SVG."""

from collections.abc import Sequence
from dataclasses import dataclass

SERIES = ("#3b82c4", "#c2702c", "#2f9e6e", "#a657b8", "#8a8f2a", "#c94f6d")
"""One per line of a plot, in turn; each can be seen on a light and on a dark page."""

WIDTH, HEIGHT = 320, 120
_MARGIN = 10


@dataclass(frozen=True)
class Line:
    """One feature over time."""

    points: str
    """`x,y x,y ...`."""
    colour: str


@dataclass(frozen=True)
class SeriesPlot:
    """Everything that the picture shows."""

    lines: tuple[Line, ...]
    low: float
    high: float
    width: int = WIDTH
    height: int = HEIGHT


def series_plot(values: Sequence[Sequence[float]]) -> SeriesPlot:
    """Draw values `[steps][features]`, all features on one axis; a single step is a short dash."""
    steps = [*values, values[0]] if len(values) == 1 else list(values)
    low = min(min(step) for step in steps)
    high = max(max(step) for step in steps)

    def x(position: int) -> float:
        return _MARGIN + (WIDTH - 2 * _MARGIN) * position / (len(steps) - 1)

    def y(value: float) -> float:
        # Halved first: the difference of two large numbers may be infinite.
        share = (value / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.5
        return HEIGHT - _MARGIN - (HEIGHT - 2 * _MARGIN) * share

    lines = tuple(
        Line(
            points=" ".join(
                f"{x(position):.1f},{y(step[feature]):.1f}" for position, step in enumerate(steps)
            ),
            colour=SERIES[feature % len(SERIES)],
        )
        for feature in range(len(steps[0]))
    )
    return SeriesPlot(lines=lines, low=low, high=high)
