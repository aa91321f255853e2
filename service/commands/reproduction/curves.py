"""How rows were trained: the metric, the spectral margin and gradients over updates."""

import bisect
import csv
import io
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from search.documents.readable import NONE
from search.papers.cells import Curve, CurvePoint
from service.api.trials.schemas import EpochDocument

MOST_POINTS = 8
"""Of a curve that is kept."""
_DIGITS = 4
_BARS = "▁▂▃▄▅▆▇█"

_QUANTITIES: Mapping[str, Callable[[CurvePoint], float | None]] = {
    "validation": lambda point: point.validation,
    "train loss": lambda point: point.train_loss,
    "margin": lambda point: point.margin,
    "gradient, first": lambda point: point.gradient_first,
    "gradient, last": lambda point: point.gradient_last,
}
"""Columns of every form, by their headings."""


def curve_of(epochs: Sequence[EpochDocument], updates_each: float) -> Curve:
    """The curve of a trial: its first and its last epoch, and some that are spread between.

    Args:
        epochs: all epochs of the trial, in their order.
        updates_each: how many updates one of them has.
    """
    count = min(len(epochs), MOST_POINTS)
    places = {round(place * (len(epochs) - 1) / max(1, count - 1)) for place in range(count)}
    return tuple(_point(epochs[place], updates_each) for place in sorted(places))


def _point(epoch: EpochDocument, updates_each: float) -> CurvePoint:
    return CurvePoint(
        updates=round(epoch.epoch * updates_each),
        validation=_rounded(epoch.validation),
        train_loss=_rounded_or_none(epoch.train_loss),
        margin=_rounded_or_none(epoch.spectral_margin),
        gradient_first=_rounded_or_none(epoch.gradient_first),
        gradient_last=_rounded_or_none(epoch.gradient_last),
    )


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _rounded_or_none(value: float | None) -> float | None:
    return None if value is None else _rounded(value)


def mean_curve(curves: Iterable[Curve]) -> Curve:
    """The means over seeds, at the points of the one that came the least far.

    What another has there is read off the line between its neighbouring points: of trainings that
    have not ended, each is kept at updates of its own.
    """
    known = [curve for curve in curves if curve]
    if not known:
        return ()
    shortest = min(known, key=lambda curve: curve[-1].updates)
    start = max(curve[0].updates for curve in known)
    return tuple(
        _mean([_at(curve, point.updates) for curve in known])
        for point in shortest
        if point.updates >= start
    )


def _at(curve: Curve, updates: int) -> CurvePoint:
    """A point between two of a curve that begins before it and ends behind it."""
    place = bisect.bisect_left(curve, updates, key=lambda point: point.updates)
    after = curve[place]
    if after.updates == updates:
        return after
    before = curve[place - 1]
    share = (updates - before.updates) / (after.updates - before.updates)
    values = after.model_dump()
    for name, last in values.items():
        first = getattr(before, name)
        values[name] = None if None in (first, last) else first + share * (last - first)
    return CurvePoint(**values | {"updates": updates})


def _mean(points: Sequence[CurvePoint]) -> CurvePoint:
    def mean(values: Iterable[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return statistics.fmean(known) if len(known) == len(points) else None

    return CurvePoint(
        updates=points[0].updates,
        validation=statistics.fmean(point.validation for point in points),
        train_loss=mean(point.train_loss for point in points),
        margin=mean(point.margin for point in points),
        gradient_first=mean(point.gradient_first for point in points),
        gradient_last=mean(point.gradient_last for point in points),
    )


def curve_texts(curves: Mapping[str, Curve]) -> Iterator[tuple[str, ...]]:
    """A heading, and a line for each point of each row.

    Args:
        curves: by the row's key.
    """
    yield ("row", "updates", *_QUANTITIES)
    for key, curve in curves.items():
        for point in curve:
            values = (quantity(point) for quantity in _QUANTITIES.values())
            yield (key, f"{point.updates:,}", *(_text(value) for value in values))


def _text(value: float | None) -> str:
    return NONE if value is None else f"{value:.3g}"


def curves_as_csv(curves: Mapping[str, Mapping[int, Curve]]) -> str:
    """All points of all seeds as CSV.

    Args:
        curves: by the row's key and the seed.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "seed", "updates", *(name.replace(", ", "_") for name in _QUANTITIES)])
    for key, seeds in curves.items():
        for seed, curve in seeds.items():
            for point in curve:
                values = (quantity(point) for quantity in _QUANTITIES.values())
                writer.writerow(
                    [key, seed, point.updates, *("" if v is None else v for v in values)]
                )
    return text.getvalue()


def bars(curve: Curve, name: str) -> str:
    """A quantity over the updates as a row of bars, between its first and its last number.

    Gradients and losses run over orders of magnitude, and are drawn by their logarithm where all
    numbers are above 0.
    """
    found = [_QUANTITIES[name](point) for point in curve]
    known = [value for value in found if value is not None and math.isfinite(value)]
    if not known or len(known) != len(found):
        return NONE
    values = [math.log(value) for value in known] if min(known) > 0 else known
    low, span = min(values), max(values) - min(values)
    heights = (0 if span == 0 else (value - low) / span for value in values)
    drawn = "".join(_BARS[round(height * (len(_BARS) - 1))] for height in heights)
    return f"{known[0]:.3g} {drawn} {known[-1]:.3g}"


BAR_NAMES: Sequence[str] = ("validation", "margin", "gradient, first")
"""Quantities that a terminal shows."""
