"""What all figures share: colours, symbols, axes, and the settings that a strict page needs.

Figures keep to `scatter` and `bar`: Plotly draws all others with WebGL or with code that it makes,
which the pages' own policy forbids. See Note [Figures are Plotly JSON] in `service/README.md`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final, Literal, TypeAlias

from search.documents.fronts import ObjectiveInfo
from search.documents.objectives import OBJECTIVE_KINDS

Theme: TypeAlias = Literal["light", "dark"]
Json: TypeAlias = dict[str, Any]

PALETTE: Final = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#b58900",
    "#56b4e9",
    "#8c6bb1",
    "#7f7f7f",
)
"""Okabe and Ito's, told apart by the colour-blind, on a light and on a dark page alike."""

DASHES: Final = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS: Final = ("circle", "square", "diamond", "triangle-up", "pentagon", "hexagon", "cross")

LOG_FROM: Final = 50
"""Positive values that are this many times apart are compared by their ratios."""


@dataclass(frozen=True)
class Shades:
    """The colours of one theme that mean nothing by themselves."""

    text: str
    quiet: str
    line: str
    panel: str
    back: str
    accent: str
    warn: str


SHADES: Final[Mapping[Theme, Shades]] = {
    "light": Shades("#1c2128", "#57606b", "#d8dee4", "#ffffff", "#ffffff", "#0a58ca", "#8a5300"),
    "dark": Shades("#e3e8ee", "#9ba7b3", "#323a43", "#14181d", "#14181d", "#7db4ff", "#e0a458"),
}

# No button of it sends anything anywhere.
CONFIG: Final[Json] = {
    "responsive": True,
    "displaylogo": False,
    "showSendToCloud": False,
    "scrollZoom": False,
    "toImageButtonOptions": {"format": "svg"},
}


@dataclass
class Figure:
    """A figure while it is made."""

    theme: Theme
    title: str
    """What the figure shows, for those who do not see it: the start of its summary."""
    data: list[Json] = field(default_factory=list[Json])
    shapes: list[Json] = field(default_factory=list[Json])
    annotations: list[Json] = field(default_factory=list[Json])
    layout: Json = field(default_factory=dict[str, Any])
    caption: list[str] = field(default_factory=list[str])
    """Sentences below the figure: what is not drawn, and why."""

    @property
    def shades(self) -> Shades:
        """The theme's colours."""
        return SHADES[self.theme]

    def json(self) -> Json:
        """The figure as Plotly takes it, with `meta.summary` and `meta.caption` in words."""
        shades = self.shades
        layout: Json = {
            "paper_bgcolor": shades.back,
            "plot_bgcolor": shades.panel,
            "font": {"family": "system-ui, sans-serif", "size": 13, "color": shades.text},
            "hoverlabel": {
                "align": "left",
                "bgcolor": shades.back,
                "bordercolor": shades.quiet,
                "font": {"color": shades.text},
            },
            "modebar": {
                "bgcolor": "rgba(0,0,0,0)",
                "color": shades.quiet,
                "activecolor": shades.accent,
            },
            "margin": {"l": 64, "r": 16, "t": 36, "b": 52},
            "legend": {"itemsizing": "constant"},
            # A new answer keeps what a reader zoomed to, hid and selected.
            "uirevision": "kept",
            "shapes": self.shapes,
            "annotations": self.annotations,
            "meta": {
                "summary": " ".join([f"{self.title}.", *self.caption]),
                "caption": " ".join(self.caption),
            },
        }
        return {"data": self.data, "layout": layout | self.layout, "config": dict(CONFIG)}

    def axis(self, title: str, **given: Any) -> Json:
        """An axis in the theme's colours."""
        return {
            "title": {"text": text(title), "standoff": 8},
            "gridcolor": self.shades.line,
            "linecolor": self.shades.line,
            "zerolinecolor": self.shades.line,
            "automargin": True,
            **given,
        }


def nothing(theme: Theme, title: str, why: str) -> Json:
    """A figure that says why there is nothing to see."""
    found = Figure(theme, title, caption=[why])
    found.layout = {
        "xaxis": {"visible": False},
        "yaxis": {"visible": False},
        "height": 160,
    }
    found.annotations.append(
        {
            "text": text(why),
            "showarrow": False,
            "xref": "paper",
            "yref": "paper",
            "x": 0.5,
            "y": 0.5,
        }
    )
    return found.json()


def plain(figure: Json) -> Json:
    """The figure without the buttons that select: nothing in it is to be selected."""
    figure["config"]["modeBarButtonsToRemove"] = ["select2d", "lasso2d", "zoomIn2d", "zoomOut2d"]
    return figure


def text(words: str) -> str:
    """Words as Plotly shows them, which reads some tags."""
    return escape(words, quote=False)


def lines(words: Iterable[str]) -> str:
    """Lines of a label."""
    return "<br>".join(map(text, words))


def finite(value: float | None) -> float | None:
    """A number that JSON has, or nothing."""
    return None if value is None or not math.isfinite(value) else value


def is_wide(values: Sequence[float]) -> bool:
    """Whether values are positive and so far apart that their ratios are compared."""
    return bool(values) and min(values) > 0 and max(values) / min(values) > LOG_FROM


def span(values: Sequence[float], *, logarithmic: bool) -> list[float] | None:
    """An axis' range round some values, as Plotly takes it; None where there are none."""
    known = [value for value in values if math.isfinite(value) and (value > 0 or not logarithmic)]
    if not known:
        return None
    low, high = min(known), max(known)
    if logarithmic:
        low, high = math.log10(low), math.log10(high)
        margin = max(0.05, 0.08 * (high - low))
    else:
        # Halved first: the difference of two large numbers may be infinite.
        half = high / 2 - low / 2
        margin = min(0.16 * half, 1e300) or max(abs(high), 1.0) * 0.05
    return [low - margin, high + margin]


def is_logarithmic(info: ObjectiveInfo, values: Sequence[float]) -> bool:
    """Counts are compared by their ratios, however near they are, and others that are far apart."""
    positive = bool(values) and min(values) > 0
    return positive and (OBJECTIVE_KINDS[info.name].logarithmic or is_wide(values))


def axis_title(info: ObjectiveInfo) -> str:
    """What an objective's axis is called."""
    unit = f", {info.unit}" if OBJECTIVE_KINDS[info.name].has_unit or info.name == "latency" else ""
    return f"{info.metric}{unit}"


def ordered_colours(names: Iterable[str]) -> dict[str, str]:
    """A fixed colour for each name: names in their order, the first one again after the last."""
    found = sorted(set(names))
    return {name: PALETTE[place % len(PALETTE)] for place, name in enumerate(found)}


def ordered_symbols(names: Iterable[str]) -> dict[str, str]:
    """A fixed symbol for each name, likewise."""
    found = sorted(set(names))
    return {name: SYMBOLS[place % len(SYMBOLS)] for place, name in enumerate(found)}


def thinned(numbers: Sequence[int], most: int) -> set[int]:
    """Evenly by place, at most so many of them, the first one among them."""
    if len(numbers) <= most:
        return set(numbers)
    return {numbers[place * len(numbers) // most] for place in range(most)}
