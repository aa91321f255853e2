"""A figure as the API answers with it."""

from typing import Any

from pydantic import Field

from models.spec import Spec


class FigureDocument(Spec):
    """What Plotly draws."""

    data: list[dict[str, Any]] = Field(description="traces, of type scatter or bar alone")
    layout: dict[str, Any] = Field(
        description="axes, shapes and words; `meta.summary` and `meta.caption` tell the figure"
    )
    config: dict[str, Any] = Field(description="what a page passes to Plotly beside the layout")
