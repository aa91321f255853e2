"""The fronts of several studies over the same two objectives."""

from collections.abc import Sequence
from typing import Final

from search.documents.objectives import Objective
from search.fronts.dominance import front_of
from service.figures.shown import ShownStudy
from service.figures.style import (
    PALETTE,
    SYMBOLS,
    Figure,
    Json,
    Theme,
    axis_title,
    finite,
    is_logarithmic,
    lines,
    nothing,
    span,
    text,
)

MOST_STUDIES: Final = 6


def compare_figure(
    studies: Sequence[tuple[str, ShownStudy]],
    *,
    x: Objective | None = None,
    y: Objective = "quality",
    theme: Theme = "light",
) -> Json:
    """The front of each study, in a colour of its own.

    Args:
        studies: name and content of each, whose metrics are the same.
        x: the objective across; by default the first cost of the first study.
        y: the objective up.
        theme: of the page.
    """
    title = "Fronts of " + ", ".join(name for name, _ in studies)
    if not studies:
        return nothing(theme, "Fronts", "No study is named.")
    infos = studies[0][1].infos
    across, up = studies[0][1].axes(x, y)
    figure = Figure(theme, title)
    seen: list[tuple[float, float]] = []
    for place, (name, study) in enumerate(studies):
        points: list[tuple[float, float, int, str]] = []
        trials = [trial for trial in study.trials if trial.number in study.on_front]
        for trial in trials:
            a, b = finite(study.value(trial, across)), finite(study.value(trial, up))
            if a is not None and b is not None:
                points.append((a, b, trial.number, lines([name, *study.words(trial)])))
        if not points:
            figure.caption.append(f"{name} has no point with both values.")
            continue
        points.sort()
        seen += [(a, b) for a, b, _, _ in points]
        best = {
            trial.number
            for trial in front_of(trials, (study.infos[across], study.infos[up]))
            if trial.number in {number for _, _, number, _ in points}
        }
        colour = PALETTE[place % len(PALETTE)]
        figure.data += [
            {
                "type": "scatter",
                "mode": "lines",
                "x": [a for a, _, number, _ in points if number in best],
                "y": [b for _, b, number, _ in points if number in best],
                "legendgroup": str(place),
                "showlegend": False,
                "hoverinfo": "skip",
                "line": {
                    "color": colour,
                    "width": 1.5,
                    "shape": "hv" if infos[across].direction == "minimize" else "vh",
                },
            },
            {
                "type": "scatter",
                "mode": "markers",
                "name": text(name),
                "legendgroup": str(place),
                "x": [a for a, _, _, _ in points],
                "y": [b for _, b, _, _ in points],
                "customdata": [number for _, _, number, _ in points],
                "hovertext": [told for _, _, _, told in points],
                "hoverinfo": "text",
                "marker": {"color": colour, "size": 10, "symbol": SYMBOLS[place % len(SYMBOLS)]},
            },
        ]
    if not seen:
        return nothing(theme, title, "No study has a point with both values yet.")
    ends = [[place[side] for place in seen] for side in (0, 1)]
    axes: tuple[tuple[str, Objective, list[float]], ...] = (
        ("xaxis", across, ends[0]),
        ("yaxis", up, ends[1]),
    )
    for key, objective, values in axes:
        wide = is_logarithmic(infos[objective], values)
        figure.layout[key] = figure.axis(
            axis_title(infos[objective]) + (" (log)" if wide else ""),
            type="log" if wide else "linear",
            range=span(values, logarithmic=wide),
            **({"dtick": "D2", "exponentformat": "SI"} if wide else {}),
        )
    figure.layout |= {
        "hovermode": "closest",
        "height": 460,
        "legend": {"orientation": "h", "y": -0.2, "x": 0, "yanchor": "top"},
    }
    figure.caption.insert(0, f"{len(seen):,} points of {len(studies)} fronts.")
    return figure.json()
