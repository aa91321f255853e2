"""Learning curves of a few trials, a panel for each thing that an epoch tells."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Final, Literal, TypeAlias

from service.figures.style import (
    DASHES,
    PALETTE,
    Figure,
    Json,
    Theme,
    is_wide,
    nothing,
    plain,
    text,
)
from storage.records import MetricRecord

Across: TypeAlias = Literal["epoch", "seconds"]
Scale: TypeAlias = Literal["auto", "linear", "log"]

MOST_CURVES: Final = 12
"""How many trials a panel tells apart."""


def curves_figure(
    histories: Mapping[int, Sequence[MetricRecord]],
    *,
    metric: str,
    names: Mapping[int, str] | None = None,
    across: Across = "epoch",
    scale: Scale = "auto",
    columns: int = 2,
    theme: Theme = "light",
    left_out: int = 0,
) -> Json:
    """The epochs of some trials; a panel of which nothing is known is left out.

    The diagnostics are the papers': how far the singular values are from sigma*, and what is left
    of a gradient at the first step.

    Args:
        histories: trial -> its epochs in order.
        metric: what quality is called.
        names: trial -> its model in words.
        across: epochs, or the seconds of training until then.
        scale: of all y axes; `auto` is logarithmic where values are far apart.
        columns: how many panels stand side by side.
        theme: of the page.
        left_out: how many trials were asked for besides.
    """
    title = f"Learning curves of trial {', '.join(map(str, histories))}" if histories else "Curves"
    wanted: tuple[tuple[str, Callable[[MetricRecord], float | None]], ...] = (
        (f"{metric}, validation", lambda row: row.validation),
        ("training loss", lambda row: row.train_loss),
        ("validation loss", _loss_beside_metric),
        ("spectral margin", lambda row: row.spectral_margin),
        ("gradient, first step or layer", lambda row: row.gradient_first),
        ("gradient, last step or layer", lambda row: row.gradient_last),
    )
    panels = [
        (name, series)
        for name, read in wanted
        if any((series := _series(histories, read, across)).values())
    ]
    if not panels:
        return nothing(theme, title, "None of these trials has trained an epoch yet.")
    figure = Figure(theme, title)
    columns = min(columns, len(panels))
    rows = math.ceil(len(panels) / columns)
    shown: set[int] = set()
    for place, (name, series) in enumerate(panels):
        key = "" if place == 0 else str(place + 1)
        row, column = divmod(place, columns)
        values = [value for points in series.values() for _, value, _ in points]
        is_log = scale == "log" or (scale == "auto" and is_wide(values))
        is_log = is_log and min(values) > 0
        height = 1 / rows
        figure.layout[f"xaxis{key}"] = figure.axis(
            across, domain=_part(column, columns, 0.1), anchor=f"y{key}", rangemode="tozero"
        )
        figure.layout[f"yaxis{key}"] = figure.axis(
            "",
            domain=[1 - (row + 1) * height + 0.09 * (rows > 1), 1 - row * height - 0.07],
            anchor=f"x{key}",
            type="log" if is_log else "linear",
            # What is never negative has no axis below 0.
            rangemode="normal" if min(values) < 0 or metric in name else "nonnegative",
            exponentformat="e",
        )
        figure.annotations.append(
            {
                "text": text(name + (" (log)" if is_log else "")),
                "xref": f"x{key} domain",
                "yref": f"y{key} domain",
                "x": 0,
                "y": 1,
                "xanchor": "left",
                "yanchor": "bottom",
                "showarrow": False,
                "font": {"size": 13},
            }
        )
        for position, (trial, points) in enumerate(series.items()):
            if points:
                line = _line(trial, position, points, key, name, names or {}, across)
                figure.data.append(line | {"showlegend": trial not in shown})
                shown.add(trial)
    figure.layout |= {
        "height": 60 + 250 * rows,
        "hovermode": "closest",
        "legend": {"orientation": "h", "y": -0.1 if rows == 1 else -0.05, "x": 0, "yanchor": "top"},
    }
    if left_out:
        figure.caption.append(
            f"Drawn are {len(histories)} of {len(histories) + left_out} trials: more cannot be "
            "told apart."
        )
    missing = [trial for trial in histories if trial not in shown]
    if missing:
        figure.caption.append(f"Without an epoch yet: trial {', '.join(map(str, missing))}.")
    return plain(figure.json())


def _part(place: int, count: int, gap: float) -> list[float]:
    width = (1 - gap * (count - 1)) / count
    return [place * (width + gap), place * (width + gap) + width]


def _series(
    histories: Mapping[int, Sequence[MetricRecord]],
    read: Callable[[MetricRecord], float | None],
    across: Across,
) -> dict[int, list[tuple[float, float, int]]]:
    """Trial -> where, what and in which epoch, of epochs that have a value."""
    found: dict[int, list[tuple[float, float, int]]] = {}
    for trial, rows in histories.items():
        places = (
            list(accumulate(row.seconds for row in rows))
            if across == "seconds"
            else [float(row.epoch) for row in rows]
        )
        found[trial] = [
            (place, value, row.epoch)
            for place, row in zip(places, rows, strict=True)
            if (value := read(row)) is not None and math.isfinite(value)
        ]
    return found


def _loss_beside_metric(row: MetricRecord) -> float | None:
    """The loss on validation data, where it is not what the metric says anyhow."""
    loss = row.validation_loss
    is_metric = loss is not None and math.isclose(loss, row.validation, rel_tol=1e-5)
    return None if is_metric else loss


def _line(
    trial: int,
    position: int,
    points: Sequence[tuple[float, float, int]],
    key: str,
    name: str,
    names: Mapping[int, str],
    across: Across,
) -> Json:
    colour = PALETTE[position % len(PALETTE)]
    told = f"trial {trial}" + (f": {names[trial]}" if trial in names else "")
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": text(told),
        "legendgroup": str(trial),
        "xaxis": f"x{key}",
        "yaxis": f"y{key}",
        "x": [x for x, _, _ in points],
        "y": [y for _, y, _ in points],
        "customdata": [trial] * len(points),
        "hovertext": [
            f"trial {trial}, epoch {epoch}<br>{text(name)} {value:.4g}"
            + (f"<br>after {x:.3g} s" if across == "seconds" else "")
            for x, value, epoch in points
        ],
        "hoverinfo": "text",
        "line": {"color": colour, "width": 2, "dash": DASHES[position % len(DASHES)]},
        "marker": {"color": colour, "size": 5 if len(points) < 40 else 2},
    }
