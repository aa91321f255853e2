"""Our own plots in Optuna's dashboard: what it cannot know of our fronts, limits and ratios.

A plot is plotly's JSON, `{"data": [...], "layout": {...}}`, written without plotly. The dashboard
sends all of it to a browser at every look, so that no plot grows with its study: of very many
points so many are drawn, evenly over their numbers, and the legend says so.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from search.documents.objectives import OBJECTIVE_KINDS, Objective, ObjectiveKind
from search.documents.region import Region
from search.fronts import ObjectiveInfo
from search.spaces import most_allowed
from search.studies import Limits
from storage.repositories.trial_summaries import TrialSummary

MOST_POINTS = 150
"""How many points of a kind are drawn."""

PARETO = "reflectory-pareto"
RATIO = "reflectory-throughput-ratio"

_AXIS: Mapping[str, Any] = {"automargin": True}
_GREY = "#9aa0a6"

_Axis = Callable[[TrialSummary], float | None]

_LIMIT_WORDS: Mapping[Objective, str] = {"latency": "the limit on p99"}
_REGION_WORDS = "the region of interest"


def plots(
    complete: Sequence[TrialSummary],
    front: Sequence[TrialSummary],
    *,
    quality: ObjectiveInfo,
    objectives: Collection[Objective],
    limits: Limits,
    region: Region,
) -> dict[str, str]:
    """Each plot's JSON by its id: the quality over each other objective, and ratios, if any.

    `complete` are all complete trials, `front` those of them that none dominates.
    """
    on_front = {trial.number for trial in front}
    others = [trial for trial in complete if trial.number not in on_front]
    costs: list[Objective] = [name for name in objectives if name != "quality"] or ["parameters"]
    found = {
        PARETO if name == costs[0] else f"{PARETO}-{name}": _pareto(
            others,
            front,
            quality=quality,
            cost=OBJECTIVE_KINDS[name],
            # What neither axis shows.
            colour=next((OBJECTIVE_KINDS[one] for one in reversed(costs) if one != name), None),
            lines=_lines(name, limits, region),
        )
        for name in costs
    }
    if any(trial.throughput_ratio is not None for trial in complete):
        found[RATIO] = _ratio(others, front, limits=limits)
    return {name: json.dumps(plot, separators=(",", ":")) for name, plot in found.items()}


def _pareto(
    others: Sequence[TrialSummary],
    front: Sequence[TrialSummary],
    *,
    quality: ObjectiveInfo,
    cost: ObjectiveKind,
    colour: ObjectiveKind | None,
    lines: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    def y(trial: TrialSummary) -> float | None:
        return trial.quality

    x, better = cost.value, "higher" if quality.direction == "maximize" else "lower"
    scale = {"type": "log"} if cost.logarithmic else {}
    return {
        "data": [
            _points(others, "dominated", x, y, marker={"color": _GREY, "size": 6}),
            _points(front, "on the front", x, y, marker=_coloured(_drawn(front), colour)),
        ],
        "layout": _layout(
            "Pareto front of Reflectory",
            {"title": {"text": _heading(cost)}, **scale, **_AXIS},
            {"title": {"text": f"{quality.metric} ({better} is better)"}, **_AXIS},
            lines,
        ),
    }


def _lines(cost: Objective, limits: Limits, region: Region) -> list[dict[str, Any]]:
    """The limit on a cost, and the ends of the region of interest."""
    found = (
        ("x", most_allowed(limits, cost), _LIMIT_WORDS.get(cost, "the limit")),
        ("x", region.value(cost), _REGION_WORDS),
        ("y", region.value("quality"), _REGION_WORDS),
    )
    return [_line(axis, at, words) for axis, at, words in found if at is not None]


def _ratio(
    others: Sequence[TrialSummary], front: Sequence[TrialSummary], *, limits: Limits
) -> dict[str, Any]:
    def x(trial: TrialSummary) -> float:
        return trial.parameters / trial.dense_parameters

    def y(trial: TrialSummary) -> float | None:
        return trial.throughput_ratio

    least = limits.min_throughput_ratio
    lines = [_line("y", 1.0, "as fast as the dense baseline")]
    if least is not None:
        lines.append(_line("y", least, "the limit"))
    return {
        "data": [
            _points(others, "dominated", x, y, marker={"color": _GREY, "size": 6}),
            _points(front, "on the front", x, y, marker={"color": "#1a73e8", "size": 9}),
        ],
        "layout": _layout(
            "Smaller and faster than the dense baseline?",
            {"title": {"text": "parameters / dense baseline's"}, **_AXIS},
            {"title": {"text": "throughput / dense baseline's"}, **_AXIS},
            lines,
        ),
    }


def _drawn(trials: Sequence[TrialSummary]) -> list[TrialSummary]:
    """All of few, or so many of very many, evenly."""
    step = max(1, -(-len(trials) // MOST_POINTS))
    return [*trials[::step]]


def _points(
    trials: Sequence[TrialSummary], name: str, x: _Axis, y: _Axis, *, marker: Mapping[str, Any]
) -> dict[str, Any]:
    drawn = _drawn(trials)
    some = "" if len(drawn) == len(trials) else f" ({len(drawn)} of {len(trials)})"
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{name}{some}",
        "x": [_short(x(trial)) for trial in drawn],
        "y": [_short(y(trial)) for trial in drawn],
        "text": [_words(trial) for trial in drawn],
        "hovertemplate": "%{text}<br>%{x}, %{y}<extra></extra>",
        "marker": marker,
    }


def _coloured(trials: Sequence[TrialSummary], kind: ObjectiveKind | None) -> dict[str, Any]:
    """Markers of a front: by another objective, where it is known of all."""
    values = [] if kind is None else [kind.value(trial) for trial in trials]
    if kind is None or not values or None in values:
        return {"color": "#1a73e8", "size": 9}
    bar = {"title": {"text": _heading(kind)}, "thickness": 12}
    colours = {"color": [_short(value) for value in values], "colorscale": "Viridis"}
    return {"size": 9, **colours, "showscale": True, "colorbar": bar}


def _heading(kind: ObjectiveKind) -> str:
    # Plotly's numbers are bare: seconds, too, which our own pages print with their unit.
    return f"{kind.name}, {kind.unit}" if kind.has_unit or kind.tick else kind.name


def _words(trial: TrialSummary) -> str:
    return f"trial {trial.number}: {trial.architecture}, {trial.parametrization}"


def _short(value: float | None) -> float | None:
    """Five digits, which is more than a plot shows."""
    return None if value is None else float(f"{value:.5g}")


def _line(axis: str, at: float, words: str) -> dict[str, Any]:
    """A dashed line at a value of one axis, across the whole plot."""
    other = "y" if axis == "x" else "x"
    ends = {f"{axis}0": at, f"{axis}1": at, f"{axis}ref": axis}
    across = {f"{other}0": 0, f"{other}1": 1, f"{other}ref": "paper"}
    line = {"color": "#d93025", "width": 1, "dash": "dash"}
    return {"type": "line", **ends, **across, "line": line, "label": {"text": words}}


def _layout(
    title: str, x: Mapping[str, Any], y: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    return {
        "title": {"text": title},
        "xaxis": x,
        "yaxis": y,
        "shapes": [*lines],
        "legend": {"orientation": "h", "y": -0.25},
        "hovermode": "closest",
    }
