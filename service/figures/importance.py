"""What each dimension did to each objective, with how many trials are behind it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from search.documents.fronts import DimensionImportance, ObjectiveImportance
from service.figures.style import PALETTE, Figure, Json, Theme, finite, nothing, plain, text

LEAST_TRIALS: Final = 20
"""A dimension that fewer trials have, or none of the front, is not ranked."""
MOST_DIMENSIONS: Final = 16


@dataclass(frozen=True)
class RankedDimension:
    """A dimension, and whether enough trials are behind it to be ranked."""

    name: str
    trials: int
    on_front: int
    """Points of the front that have it."""

    @property
    def is_ranked(self) -> bool:
        """Whether what is known of it tells anything."""
        return self.trials >= LEAST_TRIALS and self.on_front > 0

    @property
    def label(self) -> str:
        """Its name with the number of its trials."""
        unranked = (
            ""
            if self.is_ranked
            else ", too few trials"
            if self.trials < LEAST_TRIALS
            else (", none on the front")
        )
        return f"{self.name} ({self.trials}{unranked})"


def ranked_dimensions(
    importance: Sequence[ObjectiveImportance], on_front: Mapping[str, int]
) -> list[RankedDimension]:
    """All dimensions: by their importance for the first objective, those not ranked last."""
    if not importance:
        return []
    first = importance[0].dimensions
    share = {one.dimension: one.importance for one in first}
    trials: dict[str, int] = {}
    for found in importance:
        for one in found.dimensions:
            trials[one.dimension] = max(trials.get(one.dimension, 0), one.trials)
    all_of_them = [
        RankedDimension(name, count, on_front.get(name, 0))
        for name, count in trials.items()
        if count
    ]
    return sorted(
        all_of_them,
        key=lambda one: (not one.is_ranked, -share.get(one.name, 0.0) * one.is_ranked, one.name),
    )


def importance_figure(
    importance: Sequence[ObjectiveImportance],
    on_front: Mapping[str, int],
    *,
    theme: Theme = "light",
) -> Json:
    """A bar for each dimension and objective.

    Args:
        importance: of the objectives that have dimensions to show.
        on_front: dimension -> how many points of the front have it.
        theme: of the page.
    """
    title = "Hyperparameter importance"
    known = [found for found in importance if found.dimensions]
    dimensions = ranked_dimensions(known, on_front)
    if not dimensions:
        return nothing(theme, title, "Too few trials have ended to tell.")
    shown = dimensions[:MOST_DIMENSIONS]
    figure = Figure(theme, title)
    grey = figure.shades.line
    for place, found in enumerate(known):
        by_name = {one.dimension: one for one in found.dimensions}
        ones = [by_name.get(dimension.name) for dimension in shown]
        figure.data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": text(found.objective.metric),
                "y": [text(dimension.label) for dimension in shown],
                "x": [None if one is None else finite(one.importance) for one in ones],
                "hovertext": [
                    text("" if one is None else _words(one, found.objective.metric)) for one in ones
                ],
                "hoverinfo": "text",
                "marker": {
                    "color": [
                        PALETTE[place % len(PALETTE)] if dimension.is_ranked else grey
                        for dimension in shown
                    ]
                },
            }
        )
    figure.layout |= {
        "barmode": "group",
        "xaxis": figure.axis("share of what tells the best trials from the others"),
        "yaxis": {"autorange": "reversed", "automargin": True, "ticksuffix": " "},
        "height": 120 + len(shown) * (14 + 11 * len(known)),
        "legend": {"orientation": "h", "y": 1.02, "x": 0, "yanchor": "bottom"},
        "bargap": 0.3,
    }
    if len(dimensions) > len(shown):
        figure.caption.append(f"{len(dimensions) - len(shown)} further dimensions are not drawn.")
    if any(not dimension.is_ranked for dimension in shown):
        figure.caption.append(
            f"Grey: fewer than {LEAST_TRIALS} trials, or none of the front, have it. It is not "
            "ranked."
        )
    return plain(figure.json())


def _words(one: DimensionImportance, metric: str) -> str:
    trend = "" if one.trend is None else f", rank correlation {one.trend:+.2f}"
    return f"{one.dimension} for {metric}: {one.importance:.3f} of {one.trials} trials{trend}"
