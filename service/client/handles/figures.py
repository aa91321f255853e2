"""Figures that the server makes, for Plotly."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from models.spec import Spec
from service.client.errors import ExtraMissing

if TYPE_CHECKING:
    from plotly.graph_objects import Figure  # pyright: ignore[reportMissingTypeStubs] -- has none

PlotlyFigure: TypeAlias = "Figure"
"""Of plotly, which is needed for plots alone."""
Theme: TypeAlias = Literal["light", "dark"]


class FigureJson(Spec):
    """What Plotly draws; `customdata` is the number of a trial everywhere."""

    data: list[dict[str, Any]]
    layout: dict[str, Any]
    config: dict[str, Any]
    """What a page passes to Plotly beside the layout."""

    def plotly(self) -> PlotlyFigure:
        """The figure of Plotly for Python, to show, change and write to files.

        Raises:
            ExtraMissing: plotly is not installed.
        """
        try:
            from plotly.graph_objects import Figure as Made  # pyright: ignore[reportMissingTypeStubs] -- has none
        except ImportError as error:
            raise ExtraMissing("a figure", "plotly", "plots") from error
        return Made(data=self.data, layout=self.layout)


def figure_query(
    theme: Theme, trials: Iterable[int], options: dict[str, str | int | None]
) -> dict[str, str]:
    """What is asked of the server: trials joined by commas, and no option that is null."""
    given = {name: str(value) for name, value in options.items() if value is not None}
    numbers = ",".join(map(str, trials))
    return {"theme": theme, **({"trials": numbers} if numbers else {}), **given}
