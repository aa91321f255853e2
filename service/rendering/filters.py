"""How values are written in our pages."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, cast

from markupsafe import Markup, escape

from search.documents.readable import mean, seconds, shape
from service.rendering.anchors import anchor


def number(value: float | None, digits: int = 4) -> str:
    """A number with so many digits that count, large ones with all before the point."""
    if value is None:
        return "–"
    if isinstance(value, int) or (1000 <= abs(value) < 1e15 and digits <= 4):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def size(value: int) -> str:
    """Bytes, in the largest unit that leaves at least 1."""
    scaled, units = float(value), iter(("bytes", "KiB", "MiB", "GiB"))
    unit = next(units)
    for larger in units:
        if scaled < 1024:
            break
        scaled, unit = scaled / 1024, larger
    return f"{value} bytes" if unit == "bytes" else f"{scaled:.3g} {unit}"


def ratio(value: float | None) -> str:
    """How many times as much."""
    return "–" if value is None else f"{value:.2f} ×"


def moment(value: datetime | None) -> str:
    """A time, to the second, in UTC; pages with scripts show it in the reader's zone."""
    if value is None:
        return "–"
    text = value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return Markup('<time datetime="{}">{}</time>').format(value.isoformat(), text)


def duration(seconds: float | None) -> str:
    """A length of time, to the second or to the minute."""
    if seconds is None:
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def value(found: Any) -> str:
    """A hyperparameter: numbers with up to six digits that count, all else as JSON has it."""
    if isinstance(found, float):
        return f"{found:.6g}"
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


def measured(found: Any, name: str = "") -> str:
    """A circumstance of a measurement: an estimate with its interval, a list, or one value.

    Of a latency, which its name says, the value is a time.
    """
    if "latency" in name and isinstance(found, float):
        return seconds(found)
    if isinstance(found, Mapping):
        estimate = cast(Mapping[str, float], found)
        low, high = number(estimate["low"]), number(estimate["high"])
        return f"{number(estimate['median'])} ({low} to {high})"
    if isinstance(found, list):
        return ", ".join(map(str, cast(list[object], found))) or "none"
    if isinstance(found, int | float) and not isinstance(found, bool):
        return number(found)
    return {None: "–", True: "yes", False: "no"}.get(found, str(found))


def verdict(kind: str) -> str:
    """What is to be said of a row, in words that need no heading."""
    return "cannot be compared" if kind == "cannot be" else kind


def hint(text: str) -> str:
    """A field's description, for a form: names in backticks as code, and null as an empty field."""
    plain = re.sub(r"\b([Nn])ull:", lambda found: "Empty:" if found[1] == "N" else "empty:", text)
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(plain))))


def document(found: Any) -> str:
    """A JSON document, indented."""
    return json.dumps(found, indent=2, ensure_ascii=False, default=str)


FILTERS: Mapping[str, Callable[..., str]] = {
    "number": number,
    "size": size,
    "ratio": ratio,
    "moment": moment,
    "duration": duration,
    "anchor": anchor,
    "mean": mean,
    "seconds": seconds,
    "shape": shape,
    "value": value,
    "measured": measured,
    "verdict": verdict,
    "document": document,
    "hint": hint,
}
"""Every filter, by its name in the templates."""
