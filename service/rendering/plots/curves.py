"""Learning curves of a few trials, one plot for each thing that an epoch tells."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from service.rendering.plots.axes import Tick, axis, linear_axis
from service.rendering.plots.colours import SERIES
from storage.records import MetricRecord

WIDTH, HEIGHT = 420, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 14, 14, 48

MOST_CURVES = len(SERIES)
"""How many trials a plot tells apart."""


@dataclass(frozen=True)
class Point:
    """An epoch of a trial."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Curve:
    """One trial's line."""

    trial: int
    colour: str
    points: str
    """`x,y x,y ...`."""
    dots: tuple[Point, ...]


@dataclass(frozen=True)
class Panel:
    """One plot: the same thing of every trial, over its epochs."""

    title: str
    note: str
    curves: tuple[Curve, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    top: int = _TOP
    bottom: int = HEIGHT - _BOTTOM


def panels(histories: Mapping[int, Sequence[MetricRecord]], *, metric: str) -> tuple[Panel, ...]:
    """The plots of these trials' epochs; one of which nothing is known is left out.

    The diagnostics are the papers': how far the singular values are from sigma*, and what is left
    of a gradient at the first step.
    """
    wanted: tuple[tuple[str, str, Callable[[MetricRecord], float | None]], ...] = (
        (metric, "on the validation split", lambda row: row.validation),
        ("training loss", "mean over the epoch", lambda row: row.train_loss),
        ("spectral margin", "furthest singular value from sigma*", lambda row: row.spectral_margin),
        (
            "gradient, first",
            "|dL/dh| before the first step or layer",
            lambda row: row.gradient_first,
        ),
        ("gradient, last", "|dL/dh| after the last one", lambda row: row.gradient_last),
    )
    found = (_panel(title, note, histories, read) for title, note, read in wanted)
    return tuple(panel for panel in found if panel is not None)


def _panel(
    title: str,
    note: str,
    histories: Mapping[int, Sequence[MetricRecord]],
    read: Callable[[MetricRecord], float | None],
) -> Panel | None:
    series = {
        trial: [(row.epoch, value) for row in rows if (value := read(row)) is not None]
        for trial, rows in histories.items()
    }
    values = [value for points in series.values() for _, value in points]
    if not values:
        return None
    epochs = [epoch for points in series.values() for epoch, _ in points]
    # A trial that starts from a trained network has an epoch 0.
    across = linear_axis([min(1, *epochs), max(epochs)], start=_LEFT, end=WIDTH - _RIGHT)
    up = axis(values, start=HEIGHT - _BOTTOM, end=_TOP)
    curves: list[Curve] = []
    for position, (trial, points) in enumerate(series.items()):
        dots = tuple(
            Point(
                x=across.place(epoch),
                y=up.place(value),
                text=f"trial {trial}, epoch {epoch}\n{title} {value:.4g}",
            )
            for epoch, value in points
        )
        curves.append(
            Curve(
                trial=trial,
                colour=SERIES[position % len(SERIES)],
                points=" ".join(f"{dot.x},{dot.y}" for dot in dots),
                dots=dots,
            )
        )
    return Panel(
        title=title,
        note=note + (", logarithmic" if up.logarithmic else ""),
        curves=tuple(curves),
        # An epoch is a whole number.
        x_ticks=tuple(tick for tick in across.ticks if _is_whole(tick.label)),
        y_ticks=up.ticks,
    )


def _is_whole(label: str) -> bool:
    return "." not in label and not label.startswith("-")
