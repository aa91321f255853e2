"""Parallel coordinates out of lines and markers: hyperparameters and objectives of each trial."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from search.documents.objectives import OBJECTIVE_KINDS
from service.figures.shown import ShownStudy
from service.figures.style import (
    Figure,
    Json,
    Theme,
    finite,
    is_logarithmic,
    lines,
    nothing,
    ordered_colours,
    text,
    thinned,
)
from storage.repositories.trial_summaries import TrialSummary

MOST_LINES: Final = 300
"""How many trials are drawn that are neither on the front nor selected."""
MOST_AXES: Final = 12
FEW_AXES: Final = 6
"""On a page that is not wide."""
_MOST_OPTIONS: Final = 20
_LINE: Final = 13
"""Letters of a name on one line."""


@dataclass(frozen=True)
class _Axis:
    """One thing that trials have, on 0..1."""

    name: str
    values: Mapping[int, Any]
    """Trial -> its value, of those that have one."""
    place: Callable[[Any], float]
    ticks: Sequence[tuple[float, str]]


def parallel_figure(
    study: ShownStudy,
    hyperparameters: Mapping[int, Mapping[str, Any]],
    *,
    logarithmic: frozenset[str] = frozenset(),
    theme: Theme = "light",
    most_axes: int = MOST_AXES,
) -> Json:
    """A line for each trial across its hyperparameters and objectives.

    A hyperparameter that a trial does not have leaves a gap in its line.

    Args:
        study: what is shown.
        hyperparameters: of each trial that is shown, by number.
        logarithmic: hyperparameters whose space is, and so their axis.
        theme: of the page.
        most_axes: how many axes there is room for; objectives come first.
    """
    title = "Parallel coordinates: hyperparameters and objectives"
    known = [trial for trial in study.trials if trial.number in hyperparameters]
    if not known:
        return nothing(theme, title, "No trial is complete yet.")
    kept = study.on_front | study.selected
    others = thinned([one.number for one in known if one.number not in kept], MOST_LINES)
    drawn = [trial for trial in known if trial.number in kept or trial.number in others]
    axes, left_out = _axes(study, drawn, hyperparameters, logarithmic, most_axes)
    if not axes:
        return nothing(theme, title, "All trials are alike.")
    figure = Figure(theme, title)
    strong = study.selected or study.on_front
    colours = ordered_colours(map(study.colour_name, known))
    for name in sorted({study.colour_name(trial) for trial in drawn}):
        group = [trial for trial in drawn if study.colour_name(trial) == name]
        figure.data.append(_key(name, colours[name]))
        weak = [trial for trial in group if trial.number not in strong]
        loud = [trial for trial in group if trial.number in strong]
        for some, is_loud in ((weak, False), (loud, True)):
            if some:
                figure.data.append(_lines(some, axes, name, colours[name], is_loud))
    _scales(figure, axes)
    figure.caption.append(f"{len(drawn):,} of {len(study.trials):,} complete trials are drawn.")
    if left_out:
        figure.caption.append(f"{left_out} further hyperparameters have no axis here.")
    figure.caption.append(
        "Drag over an axis to select, with Shift over another one to select what is in both."
    )
    figure.layout |= {
        "dragmode": "select",
        "selectdirection": "any",
        "hovermode": "closest",
        "height": 420,
        "legend": {"orientation": "h", "y": -0.08, "x": 0, "yanchor": "top"},
        "margin": {"l": 56, "r": 56, "t": 64, "b": 40},
    }
    return figure.json()


def _axes(
    study: ShownStudy,
    drawn: Sequence[TrialSummary],
    hyperparameters: Mapping[int, Mapping[str, Any]],
    logarithmic: frozenset[str],
    most_axes: int,
) -> tuple[list[_Axis], int]:
    """What differs between trials, hyperparameters of most trials first; and how many have none."""
    found: dict[str, dict[int, Any]] = {}
    for trial in drawn:
        for name, value in hyperparameters[trial.number].items():
            found.setdefault(name, {})[trial.number] = value
    varied = [name for name, values in found.items() if len(set(map(str, values.values()))) > 1]
    varied.sort(key=lambda name: (-len(found[name]), name))
    choices: list[tuple[str, dict[int, Any]]] = [
        ("architecture", {trial.number: trial.architecture for trial in drawn}),
        ("parametrization", {trial.number: study.colour_name(trial) for trial in drawn}),
    ]
    choices = [(name, values) for name, values in choices if len(set(values.values())) > 1]
    room = most_axes - len(choices) - len(study.own)
    shown = [*choices, *((name, found[name]) for name in varied[: max(0, room)])]
    axes = [axis for name, values in shown if (axis := _axis(name, values, name in logarithmic))]
    for objective in study.own:
        kind, info = OBJECTIVE_KINDS[objective], study.infos[objective]
        values = {
            trial.number: value
            for trial in drawn
            if (value := finite(study.value(trial, objective))) is not None
        }
        wide = is_logarithmic(info, list(values.values())) and kind.known != "trained"
        axis = _axis(info.metric, values, wide, say=kind.shown)
        axes += [axis] if axis else []
    return axes, max(0, len(varied) - max(0, room))


def _axis(
    name: str,
    values: Mapping[int, Any],
    wide: bool,
    *,
    say: Callable[[float], str] = "{:.4g}".format,
) -> _Axis | None:
    numbers = [
        float(value)
        for value in values.values()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    if not values:
        return None
    if len(numbers) < len(values):
        return _choice(name, values)
    known = {
        number: float(value) for number, value in values.items() if math.isfinite(float(value))
    }
    if not known:
        return None
    wide = wide and min(known.values()) > 0

    def on(value: float) -> float:
        # Halved: the difference of two large numbers may be infinite.
        return math.log10(value) if wide else value / 2

    low, high = min(known.values()), max(known.values())
    width = on(high) - on(low)

    def place(value: float) -> float:
        return 0.5 if width == 0 else (on(value) - on(low)) / width

    middle = math.sqrt(low) * math.sqrt(high) if wide else low / 2 + high / 2
    marks = [low] if low == high else [low, middle, high]
    return _Axis(
        name + (" (log)" if wide else ""), known, place, [(place(v), say(v)) for v in marks]
    )


def _choice(name: str, values: Mapping[int, Any]) -> _Axis:
    options = sorted({str(value) for value in values.values()})
    places = {
        option: 0.5 if len(options) == 1 else place / (len(options) - 1)
        for place, option in enumerate(options)
    }
    step = math.ceil(len(options) / _MOST_OPTIONS)
    ticks = [(places[option], option) for option in options[::step]]
    return _Axis(name, values, lambda value: places[str(value)], ticks)


def _key(name: str, colour: str) -> Json:
    """The legend's line: that of a trace would be as pale as the trace."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": text(name),
        "legendgroup": name,
        "x": [None],
        "y": [None],
        "hoverinfo": "skip",
        "line": {"color": colour, "width": 2},
    }


def _lines(
    trials: Sequence[TrialSummary],
    axes: Sequence[_Axis],
    name: str,
    colour: str,
    is_loud: bool,
) -> Json:
    x: list[int | None] = []
    y: list[float | None] = []
    numbers: list[int | None] = []
    texts: list[str] = []
    for trial in trials:
        for place, axis in enumerate(axes):
            value = axis.values.get(trial.number)
            x.append(place)
            y.append(None if value is None else round(axis.place(value), 4))
            numbers.append(trial.number)
            shown = f"{value:.6g}" if isinstance(value, float) else str(value)
            texts.append(
                "" if value is None else lines([f"trial {trial.number}", f"{axis.name} {shown}"])
            )
        x.append(None)
        y.append(None)
        numbers.append(None)
        texts.append("")
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": text(name),
        "legendgroup": name,
        "showlegend": False,
        "x": x,
        "y": y,
        "customdata": numbers,
        "hovertext": texts,
        "hoverinfo": "text",
        "connectgaps": False,
        "opacity": 1.0 if is_loud else 0.22,
        "line": {"color": colour, "width": 2 if is_loud else 1},
        "marker": {"color": colour, "size": 6 if is_loud else 4},
        "unselected": {"marker": {"opacity": 0.3}},
    }


def _scales(figure: Figure, axes: Sequence[_Axis]) -> None:
    """A vertical line for each axis, with its own values beside it."""
    figure.annotations += [
        {
            "x": place,
            "y": at,
            "text": text(said),
            "showarrow": False,
            "xanchor": "left",
            "xshift": 5,
            "font": {"size": 11},
            "bgcolor": figure.shades.back,
            "opacity": 0.8,
        }
        for place, axis in enumerate(axes)
        for at, said in axis.ticks
    ]
    figure.shapes += [
        {
            "type": "line",
            "x0": place,
            "x1": place,
            "y0": 0,
            "y1": 1,
            "line": {"color": figure.shades.quiet, "width": 1},
            "layer": "below",
        }
        for place in range(len(axes))
    ]
    figure.layout |= {
        "xaxis": {
            "tickvals": list(range(len(axes))),
            "ticktext": [lines(_broken(axis.name)) for axis in axes],
            "side": "top",
            "range": [-0.3, len(axes) - 0.35],
            "showgrid": False,
            "zeroline": False,
            "fixedrange": True,
            "tickangle": 0,
            "tickfont": {"size": 11},
        },
        "yaxis": {"visible": False, "range": [-0.06, 1.06], "fixedrange": True},
    }


def _broken(name: str) -> list[str]:
    """A long name over several lines, broken behind dots and underscores."""
    found = [""]
    for part in re.findall(r"[^._ ]+[._ ]?", name):
        if found[-1] and len(found[-1]) + len(part) > _LINE:
            found.append("")
        found[-1] += part
    return found
