"""The figures of a study's report, and the policy under which its one file draws them."""

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from hashlib import sha256
from itertools import combinations, product

from search.documents.objectives import Objective
from service.api.figures.gathering import FIGURES, Asked, FigureChoice, shown_study
from service.figures.front import front_figure
from service.figures.style import SHADES, Json, Theme
from service.rendering.pages import REPORT_SCRIPT
from service.rendering.plotly_bundle import plotly_bundle
from service.rendering.study_report import ReportFigure

# Its style stands inside, it loads nothing, and it runs nothing but the two scripts that are in it.
_LOADS_NOTHING = "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:"
PLAIN_POLICY = f"{_LOADS_NOTHING}; sandbox"

_TITLES: Mapping[str, str] = {
    "parallel": "Parallel coordinates",
    "curves": "Learning curves of the best",
    "growth": "Growth of the hypervolume",
    "importance": "Hyperparameter importance",
}
_OF_NETWORKS = ("parallel",)
"""Those of studies of networks, of which nothing is trained."""


@cache
def drawing_policy() -> str:
    """The policy of a report with figures: scripts are named by what they are."""
    scripts = (plotly_bundle().script, REPORT_SCRIPT)
    hashes = (b64encode(sha256(one.encode()).digest()).decode() for one in scripts)
    named = " ".join(f"'sha256-{one}'" for one in hashes)
    return f"{_LOADS_NOTHING}; script-src {named}; sandbox allow-scripts allow-downloads"


def report_figures(asked: Asked) -> Iterator[ReportFigure]:
    """A front for each pair of the objectives, and what else the study's page draws."""
    shown = shown_study(asked)
    costs: list[Objective] = [name for name in shown.own if name != "quality"]
    trained: list[Objective] = [name for name in shown.own if name == "quality"]
    for x, y in (*product(costs, trained), *combinations(costs, 2)):
        title = f"{shown.infos[y].metric} over {shown.infos[x].metric}"
        yield _figure(title, partial(_front, asked, x, y))
    names = _OF_NETWORKS if shown.is_network else _TITLES
    for name in names:
        yield _figure(_TITLES[name], partial(_other, asked, name))


def _front(asked: Asked, x: Objective, y: Objective, theme: Theme) -> Json:
    return front_figure(shown_study(asked), theme=theme, x=x, y=y, panels=1)


def _other(asked: Asked, name: str, theme: Theme) -> Json:
    return FIGURES[name](replace(asked, choice=FigureChoice(theme=theme)))


def _figure(title: str, make: Callable[[Theme], Json]) -> ReportFigure:
    return ReportFigure(title, {theme: make(theme) for theme in SHADES})
