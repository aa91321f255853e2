"""Numbers as people read them: the same on cards, pages and in terminals."""

import math
from collections.abc import Sequence
from typing import Final

NONE: Final = "–"
"""What stands for a number that is not there."""

_DIGITS: Final = 4
_SMALLEST, _LARGEST = 1e-4, 1e15
"""Numbers beyond these are written with an exponent."""
_UNITS: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def number(value: float | None, digits: int = _DIGITS, *, separator: str = ",") -> str:
    """A number rounded to so many digits, without an exponent; whole numbers are never rounded."""
    if value is None:
        return NONE
    if isinstance(value, int):
        return f"{value:,}".replace(",", separator)
    if not value or not math.isfinite(value):
        return f"{value:g}"
    if not _SMALLEST <= abs(value) < _LARGEST:
        return f"{value:.{digits}g}"
    whole = math.floor(math.log10(abs(value))) + 1
    if whole >= digits:
        return f"{round(value, digits - whole):,.0f}".replace(",", separator)
    return f"{float(f'{value:.{digits}g}'):.{max(digits - whole, 0)}f}".rstrip("0").rstrip(".")


def metric(name: str, value: float | None) -> str:
    """The value of a task's metric: an accuracy in percent, all others to four digits."""
    if value is None:
        return NONE
    return f"{100 * value:.2f} %" if name == "accuracy" else number(value)


def seconds(value: float | None) -> str:
    """A short time with three digits, in the largest unit that leaves at least 1: `12.1 µs`."""
    if value is None:
        return NONE
    scale, unit = next(((s, u) for s, u in _UNITS if value >= s), _UNITS[-1])
    scaled = value / scale
    whole = math.floor(math.log10(scaled)) + 1 if scaled > 0 else 1
    return f"{scaled:,.{max(3 - whole, 0)}f} {unit}"


def mean(value: float | None, half_width: float | None) -> str:
    """A mean with how far its interval reaches to either side: `0.983 ± 0.0042`."""
    if value is None:
        return NONE
    return f"{value:.{_DIGITS}g}" + ("" if half_width is None else f" ± {half_width:.2g}")


def enumerated(values: Sequence[object]) -> str:
    """`1, 7 and 25`."""
    *first, last = map(str, values)
    return f"{', '.join(first)} and {last}" if first else last


def interval(name: str, found: tuple[float, float] | None) -> str:
    """From where to where a metric may be."""
    return NONE if found is None else f"{metric(name, found[0])} to {metric(name, found[1])}"


def shape(sizes: Sequence[int | str | None] | None) -> str:
    """`b × 3 × ?`: sizes of an array; a size that has no number goes by its name, if it has one."""
    if sizes is None:
        return "any shape"
    return " × ".join("?" if size is None else str(size) for size in sizes) or "one number"
