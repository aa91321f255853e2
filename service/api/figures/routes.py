"""Figures as Plotly JSON: pages, reports and clients draw the same."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import AfterValidator

from search.documents.objectives import Objective
from service.api.figures.gathering import FIGURES, Asked, FigureChoice, compared
from service.api.figures.schemas import FigureDocument
from service.api.resources import Held
from service.figures.curves import Across, Scale
from service.figures.numbers import read_numbers, readable_numbers
from service.figures.style import Theme
from service.http.entity_tags import NOT_MODIFIED, IfNoneMatch, is_named, tag_of
from service.http.kept_answers import Kept
from service.http.problems import documented
from storage.errors import NotFound
from storage.repositories.studies import Studies

router = APIRouter(prefix="/v1", tags=["figures"])

ThemeQuery = Annotated[Theme, Query(description="colours for a light or a dark page")]


@router.get(
    "/studies/{study_id}/figures/{name}",
    response_model=FigureDocument,
    responses={**NOT_MODIFIED, **documented(403, 404, 422)},
)
def get_figure(
    study_id: str,
    name: str,
    held: Held,
    _kept: Kept,
    response: Response,
    theme: ThemeQuery = "light",
    trials: Annotated[
        str,
        AfterValidator(readable_numbers),
        Query(
            max_length=20_000,
            description="trials by number, such as `3,7-12`: those that stand out, and of `curves` "
            "those that are shown (by default those at work and the best)",
        ),
    ] = "",
    x: Annotated[Objective | None, Query(description="of `front`: the objective across")] = None,
    y: Annotated[Objective | None, Query(description="of `front`: the objective up")] = None,
    panels: Annotated[
        int,
        Query(
            ge=1,
            le=2,
            description="for how wide a page: with 2, `front` shows a third objective beside the "
            "first, and with 1 as sizes; `parallel` has fewer axes then, and `curves` one column",
        ),
    ] = 2,
    across: Annotated[Across, Query(description="of `curves`: what the x axis counts")] = "epoch",
    scale: Annotated[Scale, Query(description="of `curves`: the y axes")] = "auto",
    if_none_match: IfNoneMatch = None,
) -> FigureDocument | Response:
    """A figure of a study: front, parallel, curves, growth or importance.

    It is what Plotly draws: `Plotly.newPlot(element, figure.data, figure.layout, figure.config)`,
    or `plotly.graph_objects.Figure(data=..., layout=...)`. `customdata` is the trial's number
    everywhere; `layout.meta` has the figure in words.
    """
    choice = FigureChoice(
        theme=theme,
        trials=read_numbers(trials),
        x=x,
        y=y,
        panels=panels,
        across=across,
        scale=scale,
    )
    with held.database.read() as session:
        study = Studies(session).get(study_id)
        make = FIGURES.get(name)
        if make is None:
            raise NotFound(f"there is no figure {name!r}; allowed are {', '.join(FIGURES)}")
        # Curves and growth follow from events of which the outcomes of trials know nothing.
        tag = tag_of(study.data_version, study.last_event)
        if is_named(if_none_match, tag):
            return Response(status_code=304, headers={"ETag": tag})
        found = make(Asked(session, study, held.figures, choice))
    response.headers["ETag"] = tag
    return FigureDocument.model_validate(found)


@router.get(
    "/figures/compare",
    response_model=FigureDocument,
    responses={**documented(403, 404, 422)},
)
def compare_fronts(
    held: Held,
    _kept: Kept,
    studies: Annotated[
        str,
        Query(
            min_length=1,
            max_length=1000,
            description="ids of up to 6 studies of one metric, joined by commas",
        ),
    ],
    theme: ThemeQuery = "light",
    x: Annotated[Objective | None, Query(description="the objective across")] = None,
    y: Annotated[Objective, Query(description="the objective up")] = "quality",
) -> dict[str, Any]:
    """The fronts of several studies over the same two objectives, a colour for each study."""
    ids = dict.fromkeys(name for part in studies.split(",") if (name := part.strip()))
    with held.database.read() as session:
        found = [Studies(session).get(study_id) for study_id in ids]
        return compared(session, found, held.figures, x=x, y=y, theme=theme)
